//! Makes policies, offerings and jobs for the tests: plain defaults, changed where a test says so.
//!
//! Never: decides what is expected.

use alloc::collections::BTreeMap;
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::{PoolId, TierId};
use forebay_kernel::job::{Checkpointing, Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::{Buys, Consolidation, Drain, Policy, Pool, QueueRule, QuotaNode, Tier};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span};

/// Micro-dollars an hour in a dollar an hour.
pub const DOLLAR: u64 = 1_000_000;

/// A node with GPUs of 40,960 MiB, 8 cores and 64 GiB for each, booting in a minute.
pub fn offering(name: &str, capacity: CapacityType, gpus: u16, dollars: u64) -> Offering {
    let each = u64::from(gpus.max(1));
    Offering {
        instance_type: name.into(),
        zone: "a".into(),
        capacity,
        gpus,
        gpu_mem: Mib(40_960),
        models: vec!["h100".into()],
        cpu: MilliCpu(8_000 * each),
        mem: Mib(65_536 * each),
        price: Rate(dollars * DOLLAR),
        max_price: Rate(dollars * DOLLAR),
        on_demand: Rate(dollars * DOLLAR),
        boot: Span::secs(60),
        nvlink: 0,
        numa: 0,
    }
}

/// critical > normal > scavenger: a lower one may be stopped by all above it; scavenger buys nothing.
pub fn tiers() -> Vec<Tier> {
    let tier = |name: &str, priority, buys, by: &[u16]| Tier {
        name: name.into(),
        priority,
        buys,
        stoppable_by: by.iter().map(|at| TierId(*at)).collect(),
        min_run: Span::ZERO,
        ..Tier::default()
    };
    vec![
        tier("critical", 1000, Buys::SpotThenOnDemand, &[]),
        tier("normal", 500, Buys::SpotThenOnDemand, &[0]),
        tier("scavenger", 0, Buys::Nothing, &[0, 1]),
    ]
}

/// A pool of all offerings.
pub fn pool(name: &str, offerings: usize) -> Pool {
    Pool {
        name: name.into(),
        offerings: (0..offerings as u32).collect(),
        drain: Drain::After(Span::mins(5)),
        ..Pool::default()
    }
}

/// What a queue means: quota 0, pool 0. Its jobs may ask for any of the usual tiers.
pub fn rule(tier: u16) -> QueueRule {
    QueueRule {
        tier: TierId(tier),
        pools: vec![PoolId(0)],
        tiers: Some((0..8).map(TierId).collect()),
        ..QueueRule::default()
    }
}

/// One pool of these offerings, no quota, a queue a tier by the tier's name.
pub fn policy(offerings: Vec<Offering>) -> Policy {
    let tiers = tiers();
    let queues: BTreeMap<_, _> =
        tiers.iter().enumerate().map(|(at, tier)| (tier.name.clone(), rule(at as u16))).collect();
    Policy {
        name: "test".into(),
        tiers,
        quotas: vec![QuotaNode { name: "all".into(), ..QuotaNode::default() }],
        queues,
        pools: vec![pool("main", offerings.len())],
        offerings,
        // Off, so that a story about something else is not about this too.
        consolidation: Consolidation { worth_it: 0, ..Consolidation::default() },
        ..Policy::default()
    }
}

/// What one worker with whole GPUs asks.
pub fn ask(gpus: u16) -> WorkerAsk {
    WorkerAsk { gpus, share: 1000, ..WorkerAsk::default() }
}

/// Equal workers.
pub fn workers(count: u32, each: WorkerAsk) -> Gang {
    Gang::Workers { min: count, max: count, each }
}

/// A job in the queue `normal` that tolerates spot and cannot checkpoint.
pub fn job(subject: &str, gang: Gang) -> JobSpec {
    JobSpec {
        tenant: "t".into(),
        subject: subject.into(),
        principal: "p".into(),
        queue: "normal".into(),
        gang,
        digest: 1,
        run: vec![7],
        ..JobSpec::default()
    }
}

/// A checkpoint contract.
pub fn saves(every: Span, grace: Span) -> Option<Checkpointing> {
    Some(Checkpointing { every, grace })
}
