//! Tiers through a change of policy: jobs keep the tier that they have, by its name.
//!
//! ```text
//! policy of before   0 normal   1 scavenger             jobs: a in 0, b in 1
//! new policy         0 critical 1 normal                -> a in 1; scavenger is kept behind the new tiers as 2, for b
//! ```
//!
//! A tier that went stays for its jobs, with the rules that it had, until a change of policy finds none of them open. No new job gets it.
//!
//! Never: gives a job another tier.

use super::State;
use crate::ids::{ClassId, JobId, TierId};
use crate::policy::{Policy, Tier};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

impl State {
    /// Whether this is the policy in force, apart from tiers and pools that are only kept for what is left of them.
    #[must_use]
    pub fn is_in_force(&self, policy: &Policy) -> bool {
        let Some(now) = self.policy.as_deref() else { return false };
        let declared = now.tiers.len().saturating_sub(usize::from(self.kept_tiers));
        let same = |now: Policy| Policy { tiers: policy.tiers.clone(), pools: policy.pools.clone(), ..now } == *policy;
        now.tiers.get(..declared) == Some(&policy.tiers)
            && now.pools.get(..self.declared_pools()) == Some(&policy.pools)
            && same(now.clone())
    }

    /// The tier of a name that new jobs may have.
    #[must_use]
    pub fn declared_tier(&self, name: &str) -> Option<TierId> {
        let policy = self.policy.as_deref()?;
        let declared = policy.tiers.len().saturating_sub(usize::from(self.kept_tiers));
        policy.tier_named(name).filter(|tier| tier.index() < declared)
    }

    /// The new policy with the tiers behind its own that open jobs still have, and where each tier of the policy of before is now.
    pub(crate) fn with_kept_tiers(&self, policy: &Policy) -> (Policy, BTreeMap<TierId, TierId>) {
        let mut policy = policy.clone();
        let before = self.policy.as_deref().map_or(&[][..], |p| &p.tiers);
        let used: BTreeSet<TierId> = self.jobs.rows().map(|job| job.tier).collect();
        let mut map = BTreeMap::new();
        let mut kept: Vec<(usize, &Tier)> = Vec::new();
        for (at, tier) in before.iter().enumerate() {
            let was = TierId(at as u16);
            if let Some(is) = policy.tier_named(&tier.name) {
                map.insert(was, is);
            } else if used.contains(&was) {
                map.insert(was, TierId((policy.tiers.len() + kept.len()) as u16));
                kept.push((at, tier));
            }
        }
        for (_, tier) in &kept {
            let stoppable_by = tier.stoppable_by.iter().filter_map(|by| map.get(by).copied()).collect();
            policy.tiers.push(Tier { stoppable_by, ..(*tier).clone() });
        }
        (policy, map)
    }

    /// Gives jobs and classes the tiers' new positions.
    pub(crate) fn move_tiers(&mut self, map: &BTreeMap<TierId, TierId>) {
        let moved = |tier: TierId| map.get(&tier).copied().unwrap_or(tier);
        if map.iter().all(|(was, is)| was == is) {
            return;
        }
        let jobs: Vec<JobId> = self.jobs.ids().collect();
        for id in jobs {
            let tier = moved(self.jobs[id].tier);
            if tier != self.jobs[id].tier {
                self.edit_job(id, |job| job.tier = tier);
            }
        }
        let classes: Vec<ClassId> = self.classes.ids().collect();
        for id in classes {
            let tier = moved(self.classes[id].shape.tier);
            self.classes[id].shape.tier = tier;
        }
        self.names = super::names::Names::rebuilt(self);
        self.index.line_up(&self.classes);
    }
}

#[cfg(test)]
mod tests {
    use crate::event::{Event, Tick};
    use crate::ids::{JobId, TierId};
    use crate::job::JobSpec;
    use crate::journal::APPLY_VERSION;
    use crate::machine::StateMachine;
    use crate::policy::{Policy, Tier};
    use crate::units::Timestamp;
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn policy(tiers: &[&str]) -> Policy {
        let tier = |name: &&str| Tier { name: (*name).into(), ..Tier::default() };
        Policy { tiers: tiers.iter().map(tier).collect(), ..Policy::default() }
    }

    fn configure(machine: &mut StateMachine, policy: Policy, version: u32) {
        machine.apply_tick(Tick { now: Timestamp(1), resumed: false, delivered: 0 }, version);
        let _ = machine.apply_event(&Event::Configured(Box::new(policy)));
    }

    fn submit(machine: &mut StateMachine, subject: &str, tier: &str) {
        let spec = JobSpec { subject: subject.into(), tier: Some(tier.into()), ..JobSpec::default() };
        let _ = machine.apply_event(&Event::JobSubmitted(Box::new(spec)));
    }

    /// The name of the tier of each job, and of its class.
    fn tiers(machine: &StateMachine) -> Vec<(String, String)> {
        let name = |tier: TierId| machine.policy().unwrap().tiers[tier.index()].name.clone();
        let both = |id: JobId| {
            let job = &machine.jobs[id];
            (name(job.tier), name(machine.classes[job.class].shape.tier))
        };
        machine.jobs.ids().map(both).collect()
    }

    fn pair(tier: &str) -> (String, String) {
        (tier.into(), tier.into())
    }

    #[test]
    fn jobs_keep_their_tier_by_name_through_every_change() {
        let mut machine = StateMachine::default();
        configure(&mut machine, policy(&["normal", "scavenger"]), APPLY_VERSION);
        submit(&mut machine, "a", "normal");
        submit(&mut machine, "b", "scavenger");
        let next = policy(&["critical", "normal"]);
        configure(&mut machine, next.clone(), APPLY_VERSION);
        assert_eq!(tiers(&machine), [pair("normal"), pair("scavenger")]);
        assert!(machine.is_in_force(&next) && !machine.is_in_force(&policy(&["critical"])));
        // A tier that is only kept takes no new job; one of that name gets what its queue says.
        submit(&mut machine, "c", "scavenger");
        assert_eq!(tiers(&machine)[2], pair("critical"));
        // It may come back, and go to another place.
        configure(&mut machine, policy(&["scavenger", "critical", "normal"]), APPLY_VERSION);
        assert_eq!(tiers(&machine), [pair("normal"), pair("scavenger"), pair("critical")]);
        assert_eq!(machine.policy().unwrap().tiers.len(), 3);
        let bytes = machine.encode().unwrap();
        assert_eq!(StateMachine::restore(&bytes).unwrap().encode().unwrap(), bytes);
    }

    #[test]
    fn records_of_version_one_mean_positions() {
        let mut machine = StateMachine::default();
        configure(&mut machine, policy(&["normal", "scavenger"]), 1);
        submit(&mut machine, "a", "normal");
        configure(&mut machine, policy(&["critical", "normal"]), 1);
        assert_eq!(tiers(&machine)[0].0, "critical");
    }
}
