//! Jobs that started for the first time: how long they had waited, by tier, and whether they met the start target of their queue.
//!
//! Never: queue and tier in one series; a job that still waits: the gauges of its queue have it.

use super::catalogue;
use super::family::{Family, MOST_TIERS, MOST_VALUES, Number, bounded};
use super::histogram::Histogram;
use forebay_kernel::state::State;
use forebay_kernel::units::Span;
use std::collections::BTreeMap;
use std::time::Duration;

/// 10, 30, 60 s, 5, 15 min, 1, 4, 24 h: from what an idle node does to what nobody waits for by choice.
const WAITS_MS: &[u64] = &[10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000];

/// What has been counted since this process started.
#[derive(Debug, Default)]
pub(super) struct JobStarts {
    waits: BTreeMap<String, Histogram>,
    outcomes: BTreeMap<String, TargetOutcomes>,
}

/// Jobs of a queue by whether they met its start target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct TargetOutcomes {
    in_time: u64,
    late: u64,
}

impl JobStarts {
    /// A job of this queue and tier started for the first time. `within`: the start target of its queue, if it has one.
    pub fn started(&mut self, queue: &str, tier: &str, waited: Span, within: Option<Span>) {
        let tier = bounded(&self.waits, tier, MOST_TIERS).to_owned();
        let waits = self.waits.entry(tier).or_insert_with(|| Histogram::new(WAITS_MS));
        waits.observe(Duration::from_millis(waited.0));
        match within {
            Some(within) if waited <= within => self.outcomes_of(queue).in_time += 1,
            Some(_) => self.outcomes_of(queue).late += 1,
            None => {}
        }
    }

    /// A job of this queue was rejected because it had not started by its target.
    pub fn rejected(&mut self, queue: &str) {
        self.outcomes_of(queue).late += 1;
    }

    fn outcomes_of(&mut self, queue: &str) -> &mut TargetOutcomes {
        let queue = bounded(&self.outcomes, queue, MOST_VALUES).to_owned();
        self.outcomes.entry(queue).or_default()
    }

    /// How long jobs waited.
    pub fn waits(&self) -> Family {
        let family = Family::of(&catalogue::START_WAIT);
        let points = self.waits.iter();
        points.fold(family, |family, (tier, waits)| family.with(&[("tier", tier)], Number::Spread(waits.clone())))
    }

    /// Start targets of the policy, and how many jobs met them: of the queues that `shows`. One with a target and no start yet has zeros,
    /// so that the first one that is late is an increase.
    pub fn targets(&self, state: &State, shows: impl Fn(&str) -> bool) -> [Family; 2] {
        let mut targets = Family::of(&catalogue::QUEUE_START_TARGET);
        let mut jobs = Family::of(&catalogue::START_TARGET_JOBS);
        let set = |jobs: &mut Family, queue: &str, outcomes: TargetOutcomes| {
            jobs.set(&[("queue", queue), ("outcome", "in-time")], outcomes.in_time);
            jobs.set(&[("queue", queue), ("outcome", "late")], outcomes.late);
        };
        let declared = state.policy().into_iter().flat_map(|policy| &policy.queues);
        let aimed = declared.filter_map(|(queue, rule)| Some((queue.as_str(), rule.start?.within)));
        let mut unused = MOST_VALUES.saturating_sub(self.outcomes.len());
        for (queue, within) in aimed.filter(|(queue, _)| shows(queue)).take(MOST_VALUES) {
            targets.set(&[("queue", queue)], within.0 as f64 / 1000.0);
            if unused > 0 && !self.outcomes.contains_key(queue) {
                set(&mut jobs, queue, TargetOutcomes::default());
                unused -= 1;
            }
        }
        for (queue, outcomes) in self.outcomes.iter().filter(|(queue, _)| shows(queue)) {
            set(&mut jobs, queue, *outcomes);
        }
        [targets, jobs]
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::{OTHER, text};
    use super::*;
    use forebay_catalog::Catalogue;
    use forebay_kernel::event::{Event, Tick};
    use forebay_kernel::units::Timestamp;

    const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: targets}
limits: {nodes: 1, spend: 100 USD/h}
tiers:
  normal: {priority: 0, buys: on-demand}
queues:
  asks: {tier: normal, quota: {default: {gpus: 100}}, start: {within: 1m}}
  batch: {tier: normal, quota: {default: {gpus: 100}}}
  quiet: {tier: normal, quota: {default: {gpus: 100}}, start: {within: 2h}}
pools:
  default: {instanceTypes: [g6.xlarge], drain: auto}
";

    #[test]
    fn a_start_counts_by_tier_and_where_there_is_a_target_by_queue() {
        let mut starts = JobStarts::default();
        let minute = Some(Span::mins(1));
        starts.started("asks", "normal", Span::secs(60), minute);
        starts.started("asks", "normal", Span::secs(61), minute);
        starts.started("batch", "normal", Span::mins(10), None);
        starts.rejected("asks");
        let waits = text(vec![starts.waits()]).unwrap();
        for line in [
            "forebay_start_wait_seconds_count{tier=\"normal\"} 3",
            "forebay_start_wait_seconds_sum{tier=\"normal\"} 721.0",
            "forebay_start_wait_seconds_bucket{le=\"30.0\",tier=\"normal\"} 0",
            "forebay_start_wait_seconds_bucket{le=\"60.0\",tier=\"normal\"} 1",
            "forebay_start_wait_seconds_bucket{le=\"300.0\",tier=\"normal\"} 2",
            "forebay_start_wait_seconds_bucket{le=\"+Inf\",tier=\"normal\"} 3",
        ] {
            assert!(waits.lines().any(|l| l == line), "{line} in {waits}");
        }
        let nothing = State::default();
        let targets = |shows: fn(&str) -> bool| text(starts.targets(&nothing, shows).into()).unwrap();
        let all = targets(|_| true);
        assert!(all.contains("forebay_start_target_jobs_total{queue=\"asks\",outcome=\"in-time\"} 1\n"), "{all}");
        assert!(all.contains("forebay_start_target_jobs_total{queue=\"asks\",outcome=\"late\"} 2\n"), "{all}");
        assert!(!all.contains("batch") && !targets(|queue| queue != "asks").contains("asks"), "{all}");
    }

    #[test]
    fn a_queue_with_a_target_has_it_and_zeros_before_its_first_start() {
        let compiled = forebay_policy::compile("p.yaml", POLICY, &Catalogue::builtin()).unwrap();
        let mut engine = forebay_engine::engine::Engine::new();
        engine.open(Tick { now: Timestamp(1), resumed: false, delivered: 0 });
        let _ = engine.handle_event(Event::Configured(Box::new(compiled.policy)));
        let text = text(JobStarts::default().targets(engine.state(), |_| true).into()).unwrap();
        for line in [
            "forebay_queue_start_target_seconds{queue=\"asks\"} 60.0",
            "forebay_queue_start_target_seconds{queue=\"quiet\"} 7200.0",
            "forebay_start_target_jobs_total{queue=\"quiet\",outcome=\"late\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("batch"), "it has no target: {text}");
    }

    #[test]
    fn tiers_and_queues_beyond_their_bounds_share_a_label() {
        let mut starts = JobStarts::default();
        for n in 0..MOST_VALUES + 5 {
            starts.started(&format!("queue-{n}"), &format!("tier-{n}"), Span::ZERO, Some(Span::ZERO));
        }
        assert_eq!((starts.waits.len(), starts.outcomes.len()), (MOST_TIERS + 1, MOST_VALUES + 1));
        assert_eq!(starts.outcomes[OTHER], TargetOutcomes { in_time: 5, late: 0 });
    }
}
