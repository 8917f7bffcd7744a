//! Queues by who sent, taken in turns: who sends much waits behind itself, not before the others.
//!
//! Never: changes the order of what one sender sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What waits, by sender.
#[derive(Debug)]
pub(super) struct Turns<T> {
    by_sender: BTreeMap<Arc<str>, VecDeque<T>>,
    /// Senders of whom something waits, in the order of their turns.
    order: VecDeque<Arc<str>>,
    /// Those of them who let the others pass.
    aside: Vec<Arc<str>>,
    len: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { by_sender: BTreeMap::new(), order: VecDeque::new(), aside: Vec::new(), len: 0 }
    }
}

impl<T> Turns<T> {
    pub fn push(&mut self, sender: &Arc<str>, item: T) {
        let waiting = self.by_sender.entry(Arc::clone(sender)).or_default();
        if waiting.is_empty() {
            self.order.push_back(Arc::clone(sender));
        }
        waiting.push_back(item);
        self.len += 1;
    }

    /// What is next, and whose it is.
    pub fn peek(&self) -> Option<(&Arc<str>, &T)> {
        let sender = self.order.front()?;
        Some((sender, self.by_sender.get(sender)?.front()?))
    }

    /// Whoever is next lets the others pass until [`Turns::resume`].
    pub fn stand_aside(&mut self) {
        self.aside.extend(self.order.pop_front());
    }

    /// Those who stood aside are first, in their order.
    pub fn resume(&mut self) {
        self.aside.drain(..).rev().for_each(|sender| self.order.push_front(sender));
    }

    /// Takes what is next; its sender's turn comes again after the others'.
    pub fn pop(&mut self) -> Option<T> {
        let sender = self.order.pop_front()?;
        let waiting = self.by_sender.get_mut(&sender)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.by_sender.remove(&sender);
        } else {
            self.order.push_back(sender);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sender_has_its_turn_and_its_order() {
        let mut turns = Turns::default();
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        (0..5).for_each(|n| turns.push(&greedy, n));
        turns.push(&other, 10);
        assert_eq!(turns.peek(), Some((&greedy, &0)));
        assert_eq!((turns.pop(), turns.pop(), turns.pop()), (Some(0), Some(10), Some(1)));
        turns.push(&other, 11);
        let rest: Vec<i32> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(rest, [2, 11, 3, 4]);
        assert!(turns.is_empty() && turns.by_sender.is_empty() && turns.peek().is_none());
    }

    #[test]
    fn who_stood_aside_is_first_afterwards() {
        let mut turns = Turns::default();
        let [a, b, c]: [Arc<str>; 3] = ["a", "b", "c"].map(Arc::from);
        for (sender, item) in [(&a, 1), (&a, 2), (&b, 3), (&b, 4), (&c, 5)] {
            turns.push(sender, item);
        }
        turns.stand_aside();
        turns.stand_aside();
        assert_eq!((turns.pop(), turns.peek()), (Some(5), None), "the others stand aside");
        turns.push(&c, 6);
        turns.resume();
        let rest: Vec<i32> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(rest, [1, 3, 6, 2, 4]);
        assert!(turns.is_empty() && turns.by_sender.is_empty());
    }
}
