//! The ids of the last events: what comes again is dropped. The journal keeps them; this is the same in memory.
//!
//! Never: beyond [`MOST_SEEN`]; what is older is forgotten, and told apart by its job's identity only.

use crate::intake::EventId;
use crate::journal::MOST_SEEN;
use std::collections::{HashSet, VecDeque};

/// Known ids, oldest first, and those that are new since the last batch was closed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    known: HashSet<u128>,
    order: VecDeque<u128>,
    new: Vec<u128>,
}

impl Seen {
    /// As the journal has them.
    pub fn new(ids: Vec<u128>) -> Seen {
        Seen { known: ids.iter().copied().collect(), order: ids.into(), new: Vec::new() }
    }

    pub fn knows(&self, id: Option<EventId>) -> bool {
        id.is_some_and(|EventId(id)| self.known.contains(&id))
    }

    pub fn remember(&mut self, id: Option<EventId>) {
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
        let mut seen = Seen::new((0..MOST_SEEN as u128).collect());
        assert!(seen.knows(Some(EventId(0))) && !seen.knows(None));
        seen.remember(Some(EventId(u128::MAX)));
        seen.remember(Some(EventId(u128::MAX)));
        assert!(!seen.knows(Some(EventId(0))) && seen.knows(Some(EventId(1))));
        assert_eq!((seen.take_new(), seen.order.len(), seen.known.len()), (vec![u128::MAX], MOST_SEEN, MOST_SEEN));
    }
}
