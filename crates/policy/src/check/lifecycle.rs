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
        let (second, minute) = (Span::secs(1), Span::mins(1));
        let written = self.written.lifecycle.unwrap_or_default();
        let fairness = self.written.fairness.unwrap_or_default();
        // The quickest type is what can boot at all.
        let boots = stock.iter().flat_map(|s| &s.offerings).map(|o| o.boot);
        for (section, field, time, least) in [
            ("lifecycle", "lingerAfter", written.linger_after, second),
            ("lifecycle", "maxRun", written.max_run, second),
            ("lifecycle", "launchRetry", written.launch_retry, second),
            ("lifecycle", "startTimeout", written.start_timeout, second),
            ("lifecycle", "hangAfter", written.hang_after, second),
            ("lifecycle", "bootTimeout", written.boot_timeout, boots.min().unwrap_or(second)),
            ("consolidation", "every", self.written.consolidation.and_then(|c| c.every), minute),
            ("fairness", "halfLife", fairness.half_life, minute),
            ("fairness", "ageing", fairness.ageing, minute),
        ] {
            self.at_least(&[section, field], time, least);
        }
        if written.quarantine_after == Some(0) {
            let what = "a node would be quarantined before its first fault";
            self.at(&["lifecycle", "quarantineAfter"], what, "write 1 or more");
        }
        if written.max_residency_over_compute.is_some_and(|f| f.0 == 0) {
            let what = "a service would be scaled to zero as soon as its model is loaded";
            self.at(&["lifecycle", "maxResidencyOverCompute"], what, "write 1 or more, or leave it out for never");
        }
        self.boot_timeout(stock);
        for (path, queue) in self.written.queues.iter().flatten() {
            self.at_least(&["queues", path, "start", "within"], queue.start.map(|s| s.within), second);
        }
    }

    /// A pool none of whose types boots in time: its nodes would be bought and given up for ever. What the quickest type of all pools takes
    /// is compared above.
    fn boot_timeout(&mut self, stock: &[PoolStock]) {
        let Some(timeout) = self.filled.lifecycle.and_then(|lifecycle| lifecycle.boot_timeout) else { return };
        let written = self.written.lifecycle.is_some_and(|lifecycle| lifecycle.boot_timeout.is_some());
        let quickest = |stock: &PoolStock| stock.offerings.iter().map(|offering| offering.boot).min();
        if written && stock.iter().filter_map(quickest).min().is_none_or(|least| least > timeout.0) {
            return;
        }
        let filled = self.filled;
        for ((name, _), stock) in filled.pools.iter().flatten().zip(stock) {
            let Some(least) = quickest(stock).filter(|least| *least > timeout.0).map(Time) else { continue };
            let none = format!("no instance type of pool `{name}` boots in less than {least}");
            if written {
                let what = format!("`lifecycle.bootTimeout` is {timeout}, but {none}");
                let remedy = format!("write {least} or more, or name types that boot sooner");
                self.at(&["lifecycle", "bootTimeout"], what, remedy);
            } else {
                let what = format!("{none}, and `lifecycle.bootTimeout` is {timeout} where nothing is written");
                let remedy =
                    format!("write `lifecycle: {{bootTimeout: {least}}}` or more, or name types that boot sooner");
                self.at_key(&["pools", name], what, remedy);
            }
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
