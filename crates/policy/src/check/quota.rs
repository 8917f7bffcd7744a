//! The quota tree: what a cohort is promised must hold what its queues are promised.
//!
//! A written quota of a cohort is for all below it together. The engine counts a cohort's own quota beside its children's, so
//! the compiler takes theirs off; this is where it is made sure that something is left.
//! Never: reads ceilings.

use super::super::fault::shown;
use super::super::promises::{Promises, UNDECLARED};
use super::Check;
use forebay_kernel::units::MilliGpu;
use forebay_quantity::GpuCount;

impl Check<'_> {
    pub(super) fn quota_tree(&mut self) {
        for ((path, pool), children) in Promises::new(self.filled).below() {
            let quota = self.filled.queue(path).and_then(|q| q.quota.as_ref()?.get(*pool));
            let sum = children.iter().fold(MilliGpu(0), |sum, (_, gpus)| sum + *gpus);
            let Some(quota) = quota.filter(|quota| sum > quota.gpus.0) else { continue };
            let mut named: Vec<(&str, MilliGpu)> = children.iter().map(|(path, gpus)| (path.as_str(), *gpus)).collect();
            named.sort_by_key(|(path, _)| (path.ends_with(UNDECLARED), *path));
            let part = |(path, gpus): &(&str, MilliGpu)| {
                let name = if path.ends_with(UNDECLARED) { "undeclared queues".to_owned() } else { shown(path) };
                format!("`{name}` {}", GpuCount(*gpus))
            };
            let mut parts: Vec<String> = named.iter().take(6).map(part).collect();
            if named.len() > parts.len() {
                parts.push(format!("{} more", named.len() - parts.len()));
            }
            let sum = GpuCount(sum);
            let what = format!(
                "`{path}` is promised {} GPUs of pool `{pool}`, but the queues below it are promised {sum} together ({})",
                quota.gpus,
                parts.join(", ")
            );
            let remedy = format!("raise the quota of `{path}` to {sum}, or lower those below it");
            self.at(&["queues", path, "quota", pool, "gpus"], what, remedy);
        }
    }
}
