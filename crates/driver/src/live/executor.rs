//! The executor: gives effects to the adapters with what was frozen for them, and keeps what is frozen until it is settled.
//!
//! Never: lets an effect reach anything that outlives this process before it is durable; see [`Executor::outlives_process`].

use crate::adapters::{Adapters, EffectOrigin, EffectRequest};
use crate::journal::{FrozenRequests, JournalId};
use crate::step::EffectLifetime;
use forebay_kernel::effect::Effect;
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeSet;

/// The adapters, and the requests that are frozen.
#[derive(Debug)]
pub(super) struct Executor<A> {
    adapters: A,
    /// Until their effects are settled.
    frozen: FrozenRequests,
}

impl<A: Adapters> Executor<A> {
    pub fn new(adapters: A) -> Executor<A> {
        Executor { adapters, frozen: FrozenRequests::new() }
    }

    /// Begins the adapters' work for a journal, and releases again what has no outcome yet.
    pub fn begin(&mut self, journal: JournalId, frozen: FrozenRequests, open: &[Effect], state: &State) {
        self.frozen = frozen;
        self.adapters.begin(journal, state);
        self.execute(open, EffectOrigin::Recovered, state);
    }

    pub fn adapters(&self) -> &A {
        &self.adapters
    }

    pub fn into_adapters(self) -> A {
        self.adapters
    }

    /// Whether what was carried out is still there when this process is not: then an effect waits for its batch.
    pub fn outlives_process(&self) -> bool {
        self.adapters.lifetime() == EffectLifetime::OutlivesProcess
    }

    pub fn job_accepted(&mut self, spec: &JobSpec) {
        self.adapters.job_accepted(spec);
    }

    pub fn take_events(&mut self, now: Timestamp) -> Vec<Event> {
        self.adapters.take_events(now)
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

    /// Forgets the requests of all effects but these.
    pub fn forget_requests(&mut self, open: &BTreeSet<u64>) {
        self.frozen.retain(|effect, _| open.contains(effect));
    }

    /// Whether it holds frozen requests.
    pub fn has_requests(&self) -> bool {
        !self.frozen.is_empty()
    }

    /// Carries out what this process has decided.
    pub fn release(&mut self, effects: &[Effect], state: &State) {
        self.execute(effects, EffectOrigin::Decided, state);
    }

    fn execute(&mut self, effects: &[Effect], origin: EffectOrigin, state: &State) {
        let frozen = |effect: &Effect| self.frozen.get(&effect.id.0).map(Vec::as_slice);
        let request = |effect| EffectRequest { effect, frozen: frozen(effect), origin, state };
        let requests: Vec<EffectRequest<'_>> = effects.iter().map(request).collect();
        self.adapters.execute(&requests, state);
    }
}
