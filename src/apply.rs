//! Apply.
use crate::decision::Decision;
use crate::effect::Effect;
use crate::event::{Event, Tick};
use crate::state::State;
pub(crate) fn tick(state: &mut State, tick: Tick) { let _ = (state, tick); }
pub(crate) fn event(state: &mut State, event: &Event) { let _ = (state, event); }
pub(crate) fn decision(state: &mut State, decision: &Decision) -> Option<Effect> { let _ = (state, decision); None }
