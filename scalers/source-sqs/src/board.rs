//! One condition out of many: each receiver and each watcher says how it is, the source says the worst of it.
//!
//! Never: says that all is well while one part fails.

use forebay_source::{Condition, Health};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the parts of a source say how they are.
#[derive(Debug)]
pub(crate) struct Board {
    /// Where the source says how it is.
    pub health: Health,
    parts: Mutex<BTreeMap<String, Condition>>,
}

impl Board {
    pub fn new(health: Health) -> Board {
        Board { health, parts: Mutex::default() }
    }

    /// How a part is now.
    pub fn is(&self, part: &str, condition: Condition) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(part.to_owned(), condition);
        self.health.is(worst(&parts));
    }

    /// A part of which there is nothing to say any more.
    pub fn forget(&self, part: &str) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.remove(part).is_some() {
            self.health.is(worst(&parts));
        }
    }

    /// The source has ended.
    pub fn stopped(&self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.clear();
        parts.insert(String::new(), Condition::Stopped);
        self.health.is(Condition::Stopped);
    }

    /// Something that an operator should know, now.
    pub fn remark(&self, text: impl Into<String>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.health.remark(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), text);
    }
}

/// The worst first: it ended, it fails, it has no room, it starts, it works.
fn worst(parts: &BTreeMap<String, Condition>) -> Condition {
    let any = |wanted: &Condition| parts.values().any(|part| part == wanted);
    if any(&Condition::Stopped) {
        return Condition::Stopped;
    }
    if let Some(failing) = parts.values().find(|part| matches!(part, Condition::Failing { .. })) {
        return failing.clone();
    }
    let rest = [Condition::HeldBack, Condition::Starting];
    rest.into_iter().find(any).unwrap_or(Condition::Working)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_said() {
        let board = Board::new(Health::default());
        let failing = Condition::Failing { why: "no such queue; make it".into() };
        for (part, condition, said) in [
            ("a", Condition::Starting, Condition::Starting),
            ("a", Condition::Working, Condition::Working),
            ("b", Condition::HeldBack, Condition::HeldBack),
            ("a", failing.clone(), failing.clone()),
            ("b", Condition::Working, failing),
            ("a", Condition::Working, Condition::Working),
        ] {
            board.is(part, condition);
            assert_eq!(board.health.seen().condition, said);
        }
        board.is("b", Condition::HeldBack);
        board.forget("b");
        assert_eq!(board.health.seen().condition, Condition::Working);
        board.stopped();
        board.is("a", Condition::Working);
        assert_eq!(board.health.seen().condition, Condition::Stopped, "what ended stays ended");
    }
}
