//! Times that would undo everything when they are too short: a node given up before it can boot, a launch asked about without
//! pause.
//!
//! Never: decides what a good time is; the defaults do.

use super::super::fault::shown;
use super::{Check, PoolStock};
use forebay_kernel::units::Span;
use forebay_quantity::Time;

impl Check<'_> {
    pub(super) fn lifecycle(&mut self, stock: &[PoolStock]) {
        let second = Span::secs(1);
        let written = self.written.lifecycle.unwrap_or_default();
        for (field, time, least) in [
            ("lingerAfter", written.linger_after, second),
            ("maxRun", written.max_run, second),
            ("launchRetry", written.launch_retry, second),
            ("startTimeout", written.start_timeout, second),
            ("hangAfter", written.hang_after, second),
        ] {
            self.at_least(&["lifecycle", field], time, least);
        }
        // The quickest type is what can boot at all.
        let boots = stock.iter().flat_map(|s| &s.offerings).map(|o| o.boot);
        let quickest = boots.min().unwrap_or(second);
        self.at_least(&["lifecycle", "bootTimeout"], written.boot_timeout, quickest);
        if written.quarantine_after == Some(0) {
            let path = ["lifecycle", "quarantineAfter"];
            let what = "a node would be quarantined before its first fault";
            self.at(&path, what, "write 1 or more");
        }
        let every = self.written.consolidation.and_then(|c| c.every);
        self.at_least(&["consolidation", "every"], every, Span::mins(1));
        let half_life = self.written.fairness.and_then(|f| f.half_life);
        self.at_least(&["fairness", "halfLife"], half_life, Span::mins(1));
        let ageing = self.written.fairness.and_then(|f| f.ageing);
        self.at_least(&["fairness", "ageing"], ageing, Span::mins(1));
        if written.max_residency_over_compute.is_some_and(|f| f.0 == 0) {
            let what = "a service would be scaled to zero as soon as its model is loaded";
            self.at(&["lifecycle", "maxResidencyOverCompute"], what, "write 1 or more, or leave it out for never");
        }
        for (path, queue) in self.written.queues.iter().flatten() {
            let within = queue.start.map(|s| s.within);
            self.at_least(&["queues", path, "start", "within"], within, second);
        }
    }

    fn at_least(&mut self, path: &[&str], time: Option<Time>, least: Span) {
        if let Some(time) = time.filter(|t| t.0 < least) {
            let name = shown(&path.join("."));
            let least = Time(least);
            let what = if path.last() == Some(&"bootTimeout") {
                format!("`{name}` is {time}, but no instance type boots in less than {least}")
            } else {
                format!("`{name}` is {time}, which is too short")
            };
            self.at(path, what, format!("write {least} or more"));
        }
    }
}
