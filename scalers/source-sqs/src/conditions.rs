//! Combines the conditions of a source's tasks into one: the source reports the worst of them, so that one failing receiver shows.

use forebay_source::{Condition, Health};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The conditions of a source's tasks.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Where the source reports the worst of them.
    pub health: Health,
    tasks: Mutex<BTreeMap<String, Condition>>,
}

impl Conditions {
    pub fn new(health: Health) -> Conditions {
        Conditions { health, tasks: Mutex::default() }
    }

    /// Records the condition of a task.
    pub fn set(&self, label: &str, condition: Condition) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.insert(label.to_owned(), condition);
        self.health.set_condition(worst(&tasks));
    }

    /// Removes a task whose condition no longer matters.
    pub fn forget(&self, label: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.remove(label).is_some() {
            self.health.set_condition(worst(&tasks));
        }
    }

    /// Records that the source has ended. It stays ended.
    pub fn stopped(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.clear();
        tasks.insert(String::new(), Condition::Stopped);
        self.health.set_condition(Condition::Stopped);
    }

    /// Adds a remark with the current time.
    pub fn add_remark(&self, text: impl Into<String>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.health.add_remark(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), text);
    }
}

/// From the worst to the best: stopped, failing, held back, starting, working.
fn worst(tasks: &BTreeMap<String, Condition>) -> Condition {
    let any = |wanted: &Condition| tasks.values().any(|task| task == wanted);
    if any(&Condition::Stopped) {
        return Condition::Stopped;
    }
    if let Some(failing) = tasks.values().find(|task| matches!(task, Condition::Failing { .. })) {
        return failing.clone();
    }
    let rest = [Condition::HeldBack, Condition::Starting];
    rest.into_iter().find(any).unwrap_or(Condition::Working)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_condition_is_reported() {
        let conditions = Conditions::new(Health::default());
        let failing = Condition::Failing { why: "no such queue; make it".into() };
        for (label, condition, worst) in [
            ("a", Condition::Starting, Condition::Starting),
            ("a", Condition::Working, Condition::Working),
            ("b", Condition::HeldBack, Condition::HeldBack),
            ("a", failing.clone(), failing.clone()),
            ("b", Condition::Working, failing),
            ("a", Condition::Working, Condition::Working),
        ] {
            conditions.set(label, condition);
            assert_eq!(conditions.health.snapshot().condition, worst);
        }
        conditions.set("b", Condition::HeldBack);
        conditions.forget("b");
        assert_eq!(conditions.health.snapshot().condition, Condition::Working);
        conditions.stopped();
        conditions.set("a", Condition::Working);
        assert_eq!(conditions.health.snapshot().condition, Condition::Stopped, "what ended stays ended");
    }
}
