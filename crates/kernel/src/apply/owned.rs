//! Owned nodes: seen, changed, left.
//!
//! Never: ends a run. Whether its workers are dead is reported by itself.

use super::events::ignore;
use super::unbook_all_on;
use crate::event::EventOutcome;
use crate::ids::NodeId;
use crate::state::State;
use crate::state::owned::OwnedNode;

/// All that is known of a node that nobody bought.
pub(super) fn seen(state: &mut State, seen: &OwnedNode) -> EventOutcome {
    if !state.see_owned(seen) {
        return ignore(state);
    }
    if let Some(id) = owned(state, &seen.name).filter(|id| state.nodes.get(id).is_some_and(|row| !row.open())) {
        unbook_all_on(state, id);
    }
    EventOutcome::Applied
}

/// A node that nobody bought is there no more, or not for us.
pub(super) fn left(state: &mut State, name: &str) -> EventOutcome {
    let Some(id) = owned(state, name) else { return ignore(state) };
    unbook_all_on(state, id);
    if state.leave_owned(id) { EventOutcome::Applied } else { ignore(state) }
}

fn owned(state: &State, name: &str) -> Option<NodeId> {
    state.node_of(name).filter(|node| node.owned.is_some()).map(|node| node.id)
}
