//! The ids of the last events, so that an event that comes again is dropped. The journal keeps them too; this is its copy in memory.
//!
//! Never: more than [`MOST_SEEN`]. An older event that comes again is recognized by the identity of its job only.

use crate::journal::MOST_SEEN;
use forebay_wire::intake::EventId;
use std::collections::{HashSet, VecDeque};

/// Known ids, oldest first, and those that are new since the last batch was closed.
#[derive(Debug, Default)]
pub(super) struct RecentIds {
    known: HashSet<u128>,
    order: VecDeque<u128>,
    new: Vec<u128>,
}

impl RecentIds {
    /// As the journal has them.
    pub fn new(ids: Vec<u128>) -> RecentIds {
        RecentIds { known: ids.iter().copied().collect(), order: ids.into(), new: Vec::new() }
    }

    pub fn contains(&self, id: Option<EventId>) -> bool {
        id.is_some_and(|EventId(id)| self.known.contains(&id))
    }

    pub fn insert(&mut self, id: Option<EventId>) {
        let Some(EventId(id)) = id else { return };
        if !self.known.insert(id) {
            return;
        }
        self.order.push_back(id);
        self.new.push(id);
        if self.order.len() > MOST_SEEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Those of the open batch, to be journaled with it.
    pub fn take_new(&mut self) -> Vec<u128> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_beyond_the_horizon() {
        let mut seen = RecentIds::new((0..MOST_SEEN as u128).collect());
        assert!(seen.contains(Some(EventId(0))) && !seen.contains(None));
        seen.insert(Some(EventId(u128::MAX)));
        seen.insert(Some(EventId(u128::MAX)));
        assert!(!seen.contains(Some(EventId(0))) && seen.contains(Some(EventId(1))));
        assert_eq!((seen.take_new(), seen.order.len(), seen.known.len()), (vec![u128::MAX], MOST_SEEN, MOST_SEEN));
    }
}
