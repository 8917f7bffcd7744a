//! What the cloud answered to launches, by pool and capacity type, and how long bought nodes took to boot, by pool.
//!
//! ```text
//! event, and the state before it -> the purchase or the node that it is of -> counts of its pool
//! ```
//!
//! Never: an answer that the engine ignores, since its purchase is settled; a boot that this process has not watched from the decision on.

use super::catalogue;
use super::engine::{LAUNCH_ERRORS, error_label};
use super::family::{Family, MOST_POOLS, Number, bounded};
use super::histogram::Histogram;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::ids::{PoolId, PurchaseId};
use forebay_kernel::policy::Pool;
use forebay_kernel::state::State;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// 15, 30 s, 1, 2, 3, 5, 10, 20 min: from a warm image to what the usual time limit of a boot ends.
const BOOTS_MS: &[u64] = &[15_000, 30_000, 60_000, 120_000, 180_000, 300_000, 600_000, 1_200_000];

/// A launch that brought all that it asked for.
const COMPLETE: &str = "complete";

/// What has been counted since this process started.
#[derive(Debug, Default)]
pub(super) struct CloudAnswers {
    launches: BTreeMap<String, BTreeMap<(CapacityType, &'static str), u64>>,
    boots: BTreeMap<String, Histogram>,
    /// Nodes that were decided on before this time were not watched.
    watched_from: Timestamp,
}

/// What the cloud may answer to a launch: it never says that a node did not boot.
fn answers() -> impl Iterator<Item = &'static str> {
    let errors = LAUNCH_ERRORS.into_iter().filter(|error| *error != LaunchError::Boot);
    errors.map(error_label).chain([COMPLETE])
}

impl CloudAnswers {
    /// An earlier process drove the journal up to this time.
    pub fn resumed(&mut self, last: Timestamp) {
        self.watched_from = Timestamp(last.0.saturating_add(1));
    }

    /// An event enters a batch. `state`: as it is before it.
    pub fn enters(&mut self, state: &State, event: &Event) {
        match event {
            Event::LaunchOutcome { purchase, error, .. } => self.launched(state, *purchase, *error),
            Event::NodeReady { instance } => self.ready(state, instance),
            _ => {}
        }
    }

    fn launched(&mut self, state: &State, id: PurchaseId, error: Option<LaunchError>) {
        let Some(purchase) = state.purchases().find(|purchase| purchase.id == id) else { return };
        let Some(row) = state.offerings().get(purchase.offering.index()) else { return };
        let pool = bounded(&self.launches, pool_name(state, purchase.pool), MOST_POOLS).to_owned();
        let answer = error.map_or(COMPLETE, error_label);
        *self.launches.entry(pool).or_default().entry((row.offer.capacity, answer)).or_default() += 1;
    }

    fn ready(&mut self, state: &State, instance: &str) {
        let Some(node) = state.node_of(instance) else { return };
        if node.phase != NodePhase::Booting || node.decided_at < self.watched_from {
            return;
        }
        let pool = bounded(&self.boots, pool_name(state, node.pool), MOST_POOLS).to_owned();
        let boots = self.boots.entry(pool).or_insert_with(|| Histogram::new(BOOTS_MS));
        boots.observe(Duration::from_millis(state.now().since(node.decided_at).0));
    }

    /// Launches by what was answered. Zeros too of what pools of the policy sell, so that the first answer is an increase.
    pub fn launches(&self, state: &State) -> Family {
        let mut sold: BTreeSet<(&str, CapacityType)> = BTreeSet::new();
        if let Some(policy) = state.policy() {
            // No zeros for a pool whose launches would count in `other`: they would stay at 0.
            let room = MOST_POOLS.saturating_sub(self.launches.len());
            let has = |pool: &&Pool| self.launches.contains_key(&pool.name);
            let known = policy.pools.iter().filter(has);
            for pool in known.chain(policy.pools.iter().filter(|pool| !has(pool)).take(room)) {
                let offers = pool.offerings.iter().filter_map(|&offer| policy.offerings.get(offer as usize));
                sold.extend(offers.map(|offer| (pool.name.as_str(), offer.capacity)));
            }
        }
        for (pool, counts) in &self.launches {
            sold.extend(counts.keys().map(|(capacity, _)| (pool.as_str(), *capacity)));
        }
        let mut launches = Family::of(&catalogue::LAUNCHES);
        for (pool, capacity) in sold {
            let counts = self.launches.get(pool);
            for answer in answers() {
                let count = counts.and_then(|counts| counts.get(&(capacity, answer))).copied().unwrap_or_default();
                let labels = [("pool", pool), ("capacity_type", capacity.as_str()), ("outcome", answer)];
                launches.set(&labels, count);
            }
        }
        launches
    }

    /// How long nodes took from the decision to buy them until they were ready.
    pub fn boots(&self) -> Family {
        let family = Family::of(&catalogue::NODE_BOOT);
        let points = self.boots.iter();
        points.fold(family, |family, (pool, boots)| family.with(&[("pool", pool)], Number::Spread(boots.clone())))
    }
}

/// The name of a pool under the policy in force.
fn pool_name(state: &State, id: PoolId) -> &str {
    let pools = state.policy().map(|policy| policy.pools.as_slice()).unwrap_or_default();
    pools.get(id.index()).map_or("", |pool| pool.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::commits::CommitCounts;
    use super::super::family::{OTHER, text};
    use super::*;
    use forebay_catalog::Catalogue;
    use forebay_driver::step::BatchStep;
    use forebay_engine::engine::Engine;
    use forebay_kernel::event::Tick;
    use forebay_kernel::units::Span;
    use forebay_wire::intake::{Caller, Intake, NoRoutes};
    use serde_json::json;

    const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: launches}
limits: {nodes: 10, spend: 100 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  q: {tier: normal, quota: {default: {gpus: 100}}}
pools:
  default: {instanceTypes: [g6.xlarge], drain: auto}
";

    /// One batch at this time with these events, which are counted.
    fn batch(engine: &mut Engine, counts: &CommitCounts, now: Timestamp, events: Vec<Event>) {
        let tick = Tick { now, resumed: false, delivered: u64::MAX };
        let mut step = BatchStep::open(engine, tick).observed_by(Some(counts));
        for event in events {
            step.handle_event(event);
        }
        let _ = step.plan();
    }

    /// An engine that has decided on a node for a job of one GPU: with its purchase, and when that was.
    fn asked(counts: &CommitCounts) -> (Engine, PurchaseId, Timestamp) {
        let compiled = forebay_policy::compile("p.yaml", POLICY, &Catalogue::builtin()).unwrap();
        let event = json!({"type": "job.submitted", "subject": "x", "data": {"queue": "q",
            "gang": {"each": {"gpus": 1}}, "simulation": {"durationS": 1e6}}});
        let caller = Caller::local();
        let job = Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap().event;
        let mut engine = Engine::new();
        batch(&mut engine, counts, Timestamp(1_000), vec![Event::Configured(Box::new(compiled.policy)), job]);
        for second in 2..600 {
            let purchase = engine.state().purchases().next().map(|purchase| (purchase.id, purchase.decided_at));
            if let Some((purchase, at)) = purchase {
                return (engine, purchase, at);
            }
            batch(&mut engine, counts, Timestamp(second * 1_000), Vec::new());
        }
        panic!("nothing is bought");
    }

    fn outcome(purchase: PurchaseId, instance: &str) -> Event {
        Event::LaunchOutcome { purchase, instances: vec![instance.to_owned()], error: None }
    }

    fn written(engine: &Engine, counts: &CommitCounts) -> String {
        let mut families = counts.families();
        families.push(counts.launches(engine.state()));
        text(families).unwrap()
    }

    #[test]
    fn answers_of_the_cloud_count_by_pool_and_capacity_type_and_boots_by_pool() {
        let counts = CommitCounts::default();
        let (mut engine, purchase, decided) = asked(&counts);
        let has = |engine: &Engine, line: &str| {
            let text = written(engine, &counts);
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        };
        let launches = |outcome: &str, count: u64| {
            let place = "pool=\"default\",capacity_type=\"on-demand\"";
            format!("forebay_launches_total{{{place},outcome=\"{outcome}\"}} {count}")
        };
        has(&engine, &launches("complete", 0));
        let boots = |part: &str, count: &str| format!("forebay_node_boot_seconds_{part} {count}");
        assert!(!written(&engine, &counts).contains("forebay_node_boot_seconds_count"), "nothing has booted");

        // What says it again is of a purchase that is settled.
        let launched = [outcome(purchase, "i-1"), outcome(purchase, "i-1")].into();
        batch(&mut engine, &counts, decided + Span::secs(10), launched);
        has(&engine, &launches("complete", 1));
        has(&engine, &launches("capacity", 0));
        let ready = || Event::NodeReady { instance: "i-1".to_owned() };
        batch(&mut engine, &counts, decided + Span::secs(90), vec![ready(), ready()]);
        has(&engine, &boots("count{pool=\"default\"}", "1"));
        has(&engine, &boots("sum{pool=\"default\"}", "90.0"));
        has(&engine, &boots("bucket{le=\"60.0\",pool=\"default\"}", "0"));
        has(&engine, &boots("bucket{le=\"120.0\",pool=\"default\"}", "1"));
        assert!(!written(&engine, &counts).contains("outcome=\"boot\""), "the cloud never answers that");
    }

    #[test]
    fn a_launch_without_stock_counts_as_that_and_a_boot_that_nobody_watched_does_not() {
        let counts = CommitCounts::default();
        let (mut engine, purchase, decided) = asked(&counts);
        let error = Some(LaunchError::Capacity);
        let none = Event::LaunchOutcome { purchase, instances: Vec::new(), error };
        batch(&mut engine, &counts, decided + Span::secs(10), vec![none]);
        let refused = "{pool=\"default\",capacity_type=\"on-demand\",outcome=\"capacity\"} 1";
        assert!(written(&engine, &counts).contains(refused), "{}", written(&engine, &counts));

        let counts = CommitCounts::default();
        let (mut engine, purchase, decided) = asked(&counts);
        counts.resumed(engine.state().now());
        batch(&mut engine, &counts, decided + Span::secs(10), vec![outcome(purchase, "i-1")]);
        let ready = Event::NodeReady { instance: "i-1".to_owned() };
        batch(&mut engine, &counts, decided + Span::secs(900), vec![ready]);
        assert!(!written(&engine, &counts).contains("forebay_node_boot_seconds_count"), "it was bought before");
    }

    #[test]
    fn pools_beyond_their_bound_share_a_label() {
        let mut answers = CloudAnswers::default();
        for n in 0..MOST_POOLS {
            answers.boots.insert(format!("pool-{n}"), Histogram::new(BOOTS_MS));
        }
        assert_eq!(bounded(&answers.boots, "pool-0", MOST_POOLS), "pool-0");
        assert_eq!(bounded(&answers.boots, "one-more", MOST_POOLS), OTHER);
    }
}
