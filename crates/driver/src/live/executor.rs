//! The executor: gives effects to the adapters with what was frozen for them, and keeps what is frozen until it is settled.
//!
//! Never: lets an effect reach anything that outlives this process before it is durable; see [`Executor::outlives_process`].

use crate::adapters::{Adapters, EffectOrigin, EffectRequest};
use crate::journal::FrozenRequests;
use crate::step::EffectLifetime;
use forebay_kernel::effect::Effect;
use forebay_kernel::ids::Seq;
use forebay_kernel::state::State;

/// The adapters, and the requests that are frozen.
#[derive(Debug)]
pub(super) struct Executor {
    pub adapters: Box<dyn Adapters>,
    /// Until their effects are settled.
    pub frozen: FrozenRequests,
}

impl Executor {
    /// Whether what was carried out is still there when this process is not: then an effect waits for its batch.
    pub fn outlives_process(&self) -> bool {
        self.adapters.lifetime() == EffectLifetime::OutlivesProcess
    }

    /// The requests of effects that are about to be durable, to be journaled with them.
    pub fn freeze<'a>(&mut self, effects: impl Iterator<Item = &'a Effect>, state: &State) -> Vec<(Seq, Vec<u8>)> {
        let mut frozen = Vec::new();
        for effect in effects {
            if self.frozen.contains_key(&effect.id.0) {
                continue;
            }
            if let Some(body) = self.adapters.freeze(effect, state) {
                self.frozen.insert(effect.id.0, body.clone());
                frozen.push((effect.id, body));
            }
        }
        frozen
    }

    /// Carries effects out, with what was frozen for them.
    pub fn execute(&mut self, effects: &[Effect], origin: EffectOrigin, state: &State) {
        let frozen = |effect: &Effect| self.frozen.get(&effect.id.0).map(Vec::as_slice);
        let request = |effect| EffectRequest { effect, frozen: frozen(effect), origin, state };
        let requests: Vec<EffectRequest<'_>> = effects.iter().map(request).collect();
        self.adapters.execute(&requests, state);
    }
}
