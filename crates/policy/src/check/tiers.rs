//! Tiers: priorities, who may stop whom, run times, shares that they are promised.
//!
//! Never: reads queues.

use super::super::fault::{meant, shown};
use super::{Check, MAX_TIERS, NAME_RULE, is_name};
use forebay_quantity::Percent;

impl Check<'_> {
    pub(super) fn tiers(&mut self) {
        let Some(tiers) = &self.written.tiers else {
            return;
        };
        if tiers.is_empty() {
            let remedy = "declare one, or leave `tiers` out for critical, normal and scavenger";
            self.at_key(&["tiers"], "no tier is declared", remedy);
        }
        self.at_most("tiers", tiers.len(), MAX_TIERS, "merge some of them");
        self.min_shares();
        for (name, tier) in tiers {
            if !is_name(name) {
                self.at_key(&["tiers", name], format!("`{}` cannot be a tier's name", shown(name)), NAME_RULE);
            }
            for (at, other) in tier.stoppable_by.iter().flatten().enumerate() {
                let path = ["tiers", name.as_str(), "stoppableBy", &at.to_string()];
                match tiers.get(other) {
                    None => {
                        let remedy = meant(other, tiers.keys().map(String::as_str).filter(|n| n != name));
                        self.at(&path, format!("there is no tier `{}`", shown(other)), remedy);
                    }
                    Some(stopper) if stopper.priority <= tier.priority => {
                        let what = format!(
                            "tier `{name}` (priority {}) cannot be stopped by `{other}` (priority {}): only a higher tier may stop another",
                            tier.priority, stopper.priority
                        );
                        let remedy = if name == other {
                            format!("remove `{other}` from this list")
                        } else {
                            format!("give `{other}` a priority above {}, or remove it from this list", tier.priority)
                        };
                        self.at(&path, what, remedy);
                    }
                    Some(_) => {}
                }
            }
            if let (Some(min), Some(max)) = (tier.min_run, tier.max_run_while_others_wait)
                && max < min
            {
                let what = format!("maxRunWhileOthersWait {max} is shorter than minRun {min}");
                self.at(&["tiers", name, "maxRunWhileOthersWait"], what, "make it at least as long as minRun");
            }
        }
    }

    /// What tiers are promised of all GPUs cannot be more than there are.
    fn min_shares(&mut self) {
        let shares = self.written.tiers.iter().flatten().filter_map(|(name, t)| Some((name, t.min_share?)));
        let promised: Vec<(&String, Percent)> = shares.filter(|(_, share)| share.0 > 0).collect();
        let sum = promised.iter().fold(0u64, |sum, (_, share)| sum + u64::from(share.0));
        let Some((last, _)) = promised.last().filter(|_| sum > 1000) else { return };
        let parts: Vec<String> = promised.iter().map(|(name, share)| format!("`{}` {share}", shown(name))).collect();
        let what =
            format!("the tiers are promised {}.{} % of all GPUs together ({})", sum / 10, sum % 10, parts.join(", "));
        self.at(&["tiers", last, "minShare"], what, "lower some of them: together they may be 100 % at most");
    }
}
