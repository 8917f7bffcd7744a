//! Parts of a GPU (`g6f`): what a pool of them holds, and what is never put there.
//!
//! Never: a job that asks for a whole GPU on a part of one.

use forebay_catalog::Catalogue;
use forebay_engine::engine::Engine;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::NodeId;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::reason::Reason;
use forebay_kernel::units::{Mib, Timestamp};
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::{World, WorldOptions, spot_pairs};
use std::collections::{BTreeMap, BTreeSet};

const EIGHTHS: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: eighths}
limits: {nodes: 8, spend: 10 USD/h}
queues: {a: {}}
pools: {eighths: {instanceTypes: [g6f.large, g6f.xlarge]}}
";

fn policy(text: &str) -> Policy {
    compile("eighths.yaml", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy
}

/// A job by its name, the share that it asks of a GPU, the memory there, and whether it consents to share.
fn job(subject: &str, share: u16, gpu_mem: u64, shares: bool) -> Event {
    let each = WorkerAsk { gpus: 1, share, gpu_mem: Mib(gpu_mem), ..WorkerAsk::default() };
    Event::JobSubmitted(Box::new(JobSpec {
        subject: subject.to_owned(),
        queue: "a".to_owned(),
        models: vec!["l4".to_owned()],
        gang: Gang::Workers { min: 1, max: 1, each },
        shares,
        ..JobSpec::default()
    }))
}

/// Where each job ran: the node, the share, the slice.
type Ran = BTreeMap<String, (NodeId, u16, Option<u8>)>;

/// An hour of a calm cloud under a policy, from these events on: how it ended, and what ran.
fn hour(policy: Policy, events: Vec<Event>) -> (Engine, Ran) {
    let market = Market::calm(&spot_pairs(&policy));
    let mut engine = Engine::new();
    let (mut world, mut ran) = (None, Ran::new());
    let mut now = Timestamp(0);
    let mut events = [vec![Event::Configured(Box::new(policy))], events].concat();
    while now.0 <= 3_600_000 {
        engine.open(Tick { now, resumed: false, delivered: u64::MAX });
        events.drain(..).for_each(|event| _ = engine.handle_event(event));
        let _ = engine.plan();
        let effects = engine.close().saved().effects;
        let world = world.get_or_insert_with(|| World::new(WorldOptions::new(1, market.clone()), engine.state()));
        effects.iter().for_each(|effect| world.act(now, effect, engine.state()));
        for (job, spec) in engine.state().jobs().filter(|(job, _)| job.running_since.is_some()) {
            ran.extend(job.places.iter().map(|p| (spec.subject.clone(), (p.node, p.share, p.slice))));
        }
        let due = [world.next_event(), engine.poll_timeout()].into_iter().flatten().min();
        now = due.unwrap_or(Timestamp::NEVER);
        events = world.take_until(now);
    }
    assert_eq!(engine.audit(), [""; 0]);
    (engine, ran)
}

#[test]
fn a_part_is_a_gpu_with_one_slice() {
    let policy = policy(EIGHTHS);
    let [pool] = policy.pools.as_slice() else { panic!("{:?}", policy.pools) };
    let [layout] = pool.layouts.as_slice() else { panic!("{:?}", pool.layouts) };
    let [slice] = layout.slices.as_slice() else { panic!("{layout:?}") };
    assert_eq!((slice.share, slice.mem), (125, Mib(2861)));
    assert!(policy.offerings.iter().all(|o| (o.gpus, o.gpu_mem) == (1, Mib(2861))));
}

#[test]
fn only_what_consents_and_asks_for_no_more_goes_to_a_part() {
    // (name, share, GPU memory, consents, fits)
    let asks = [
        ("whole", 1000, 0, false, false),
        ("whole-consenting", 1000, 0, true, false),
        ("12-percent", 120, 0, true, true),
        ("12-percent-alone", 120, 0, false, false),
        ("13-percent", 130, 0, true, false),
        ("2-gib", 10, 2048, true, true),
        ("3-gib", 10, 3072, true, false),
    ];
    let events = asks.iter().map(|(name, share, mem, shares, _)| job(name, *share, *mem, *shares)).collect();
    let (engine, ran) = hour(policy(EIGHTHS), events);
    for (name, _, _, _, fits) in asks {
        assert_eq!(ran.get(name).map(|(_, share, slice)| (*share, *slice)), fits.then_some((125, Some(0))), "{name}");
        let (job, _) = engine.state().jobs().find(|(_, spec)| spec.subject == name).unwrap();
        assert_eq!(job.reason, (!fits).then_some(Reason::NoMatchingPool), "{name}");
    }
    let nodes: BTreeSet<NodeId> = ran.values().map(|(node, ..)| *node).collect();
    assert_eq!(nodes.len(), 2, "one job a part");
}

#[test]
fn no_pool_has_parts_without_naming_them() {
    for types in ["any", "[\"*\"]", "[\"g6*\"]"] {
        let text = EIGHTHS.replace("[g6f.large, g6f.xlarge]", types);
        let offers = policy(&text).offerings;
        assert!(!offers.is_empty() && offers.iter().all(|o| !o.instance_type.starts_with("g6f.")), "{types}");
    }
    let half = policy(&EIGHTHS.replace("[g6f.large, g6f.xlarge]", "[g6f.4xlarge]"));
    let (_, ran) = hour(half, vec![job("half", 500, 0, true), job("more", 501, 0, true)]);
    assert_eq!(ran.into_keys().collect::<Vec<_>>(), ["half"]);
}
