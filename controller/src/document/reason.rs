//! A reason as it is written: its stable code, its figures with units in their names, its words, and when the job moves on.
//!
//! Never: another wording than the engine's own.

use super::lacks::{Asker, Holders, LackFigures};
use forebay_kernel::ids::{JobId, PoolId, QueueId, TierId};
use forebay_kernel::reason::{Bound, Reason};
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::{Brake, BrakeOrder};
use forebay_kernel::units::{Rate, Timestamp};
use forebay_wire::document::reason::ReasonView;
use forebay_wire::document::seconds::Seconds;
use serde_json::{Map, Value, json};

/// Foreign pods that a reason names at most.
const FOREIGN_PODS: usize = 3;

/// A reason in the words and names of a state, of a job that is there.
#[must_use]
pub fn reason_view(reason: Reason, state: &State, job: Option<JobId>) -> ReasonView {
    let lack = job.and_then(|job| Asker::of(state, job)).map(|asker| lack(reason, asker, None));
    view(reason, state, job, lack.unwrap_or_default())
}

/// The same, with who holds what the job lacks. For lists that are made in one go: `holders` counts once.
#[must_use]
pub fn reason_with_holders(reason: Reason, state: &State, job: JobId, holders: &mut Holders) -> ReasonView {
    let lack = Asker::of(state, job).map(|asker| lack(reason, asker, Some(holders)));
    view(reason, state, Some(job), lack.unwrap_or_default())
}

/// What the state says beyond the reason.
fn lack(reason: Reason, asker: Asker<'_>, holders: Option<&mut Holders>) -> LackFigures {
    match reason {
        Reason::Ceiling { bound } => asker.ceiling(bound, holders),
        Reason::WaitingForQuota { available, .. } => asker.quota(available, holders),
        Reason::Budget { .. } => asker.budget(),
        Reason::ExceedsCeiling => asker.ceilings(),
        Reason::NoMatchingPool => asker.nearest(),
        _ => LackFigures::default(),
    }
}

fn view(reason: Reason, state: &State, job: Option<JobId>, lack: LackFigures) -> ReasonView {
    let code = reason.code().to_owned();
    let mut message = match reason {
        Reason::Stockout { offering, .. } => {
            let name = offering_name(state, offering.index());
            format!("nothing that fits is in stock; {name} is tried again first")
        }
        Reason::ForbiddenTier { queue } => {
            let path = state.queues().get(queue).map_or("", |q| q.path.as_str());
            let tiers = tiers_of(queue, state).join(", ");
            format!(
                "jobs of queue `{path}` may ask for these tiers: {tiers}; ask for one of them, or list another in the queue's `tiers`"
            )
        }
        Reason::OwnedNodesFull { pool, nodes: 1.., gpus, foreign } => {
            let name = state.policy().and_then(|p| p.pools.get(pool.index())).map_or("", |pool| pool.name.as_str());
            if job.is_some_and(|job| !fits_empty(job, pool, state)) {
                let message = format!(
                    "none of the owned nodes of pool `{name}` could hold one of its workers, even empty: starts when nodes that have what it asks \
                     for join them"
                );
                return ReasonView { code, message, figures: figures(reason, state, job), eta_s: None };
            }
            let by = foreign_pods(pool, state);
            let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
            format!(
                "the owned nodes of pool `{name}` have no room for it, {foreign} of their {gpus} GPUs are held by pods that are not Forebay's{by}: \
                 starts when these or runs end"
            )
        }
        _ => reason.to_string(),
    };
    if !lack.sentence.is_empty() {
        message = format!("{message} ({})", lack.sentence);
    }
    let mut figures = figures(reason, state, job);
    for (name, value) in lack.figures {
        figures.entry(name).or_insert(value);
    }
    let eta = reason.eta().filter(|at| *at != Timestamp::NEVER);
    let eta_s = eta.map(|at| Seconds::from(at.since(state.now())));
    ReasonView { code, message, figures, eta_s }
}

/// Whether any node of a pool would hold a worker of a job, if nothing else were on it.
fn fits_empty(job: JobId, pool: PoolId, state: &State) -> bool {
    let class = state.job(job).and_then(|(row, _)| state.classes().get(row.class));
    let fits = class.and_then(|class| class.fits.iter().find(|(at, _)| *at == pool)).map(|(_, offerings)| offerings);
    let holds = |offering| fits.is_none_or(|fits| fits.contains(offering));
    state.nodes().any(|node| node.pool == pool && holds(&node.offering))
}

/// The pods that hold most of each owned node of a pool, some of them.
fn foreign_pods(pool: PoolId, state: &State) -> Vec<&str> {
    let owned = state.nodes().filter(|node| node.pool == pool).filter_map(|node| node.owned.as_ref());
    let mut held: Vec<(u16, &str)> =
        owned.filter(|o| o.foreign.gpus > 0).map(|o| (o.foreign.gpus, o.foreign.by.as_str())).collect();
    held.sort_by_key(|(gpus, by)| (std::cmp::Reverse(*gpus), *by));
    held.into_iter().map(|(_, by)| by).filter(|by| !by.is_empty()).take(FOREIGN_PODS).collect()
}

/// The tiers that the jobs of a queue may ask for under the policy in force.
fn tiers_of(queue: QueueId, state: &State) -> Vec<&str> {
    let rule = state.queues().get(queue).and_then(|q| q.rule.as_ref());
    let (Some(rule), Some(policy)) = (rule, state.policy()) else { return Vec::new() };
    let tiers = (0..).map(TierId).zip(&policy.tiers);
    let may = tiers.filter(|(id, tier)| policy.may_ask(rule, *id) && state.declared_tier(&tier.name).is_some());
    may.map(|(_, tier)| tier.name.as_str()).collect()
}

fn offering_name(state: &State, at: usize) -> String {
    state.offerings().get(at).map_or_else(|| format!("offering-{at}"), |row| row.offer.to_string())
}

/// Micro-dollars as dollars.
fn dollars(rate: Rate) -> f64 {
    rate.0 as f64 / 1e6
}

/// GPUs as a number: thousandths become decimals.
fn gpus(milli: u64) -> Value {
    if milli.is_multiple_of(1000) { json!(milli / 1000) } else { json!(milli as f64 / 1000.0) }
}

/// Who has stopped something, why and until when.
fn braked(order: Option<&BrakeOrder>, until: Option<Timestamp>) -> Value {
    let why = order.map(|order| order.why.as_str()).filter(|why| !why.is_empty());
    let mut figures = json!({ "by": order.map(|order| order.by.as_str()) });
    if let Some(why) = why {
        figures["why"] = json!(why);
    }
    if let Some(until) = until {
        figures["until_s"] = json!(Seconds::from(until));
    }
    figures
}

fn figures(reason: Reason, state: &State, job: Option<JobId>) -> Map<String, Value> {
    let value = match reason {
        Reason::ExceedsMaxQuota { asked, most } => json!({ "asked_gpus": gpus(asked.0), "most_gpus": gpus(most.0) }),
        Reason::WaitingForQuota { asked, available } => {
            json!({ "asked_gpus": gpus(asked.0), "available_gpus": gpus(available.0) })
        }
        Reason::StartTooLate { within } => json!({ "within_s": Seconds::from(within) }),
        Reason::Shrunk { workers } => json!({ "workers": workers }),
        Reason::Batched { running, until } => {
            json!({ "running": running, "until_s": until.map(Seconds::from) })
        }
        Reason::TopologyUnsatisfied { level } => json!({ "level": level.as_str() }),
        Reason::Reserved { from } => json!({ "at_s": Seconds::from(from) }),
        Reason::DeadlineUnreachable { eta } => json!({ "at_s": Seconds::from(eta) }),
        Reason::WaitingForPreemption { victims } => json!({ "victims": victims }),
        Reason::AwaitingNodes { eta } => json!({ "at_s": Seconds::from(eta) }),
        Reason::Ceiling { bound } => json!({ "bound": bound.as_str() }),
        Reason::Stockout { offering, until } | Reason::AwaitingProbe { offering, until } => {
            json!({ "offering": offering_name(state, offering.index()), "until_s": Seconds::from(until) })
        }
        Reason::LaunchRefused { offering, error, until } => {
            json!({ "offering": offering_name(state, offering.index()), "error": error, "until_s": Seconds::from(until) })
        }
        Reason::BehindInQueue { position } => json!({ "position": position }),
        Reason::BackOff { until }
        | Reason::Budget { until }
        | Reason::WaitingByDesign { until }
        | Reason::BurstIsNoise { until }
        | Reason::ReservationDelayed { until } => json!({ "until_s": Seconds::from(until) }),
        Reason::PreemptedBy { queue } | Reason::QuotaReclaimed { queue } => {
            json!({ "queue": state.queues().get(queue).map(|q| q.path.as_str()) })
        }
        Reason::BuyingPaused { until } => braked(state.brake(&Brake::Buying), until),
        Reason::AdmissionPaused { until } => braked(state.brake(&Brake::Admission), until),
        Reason::PreemptionPaused { until } => braked(state.brake(&Brake::Preemption), until),
        Reason::QueueHeld { until } => {
            let queue = job.and_then(|job| state.job(job)).map(|(row, _)| row.queue);
            braked(queue.and_then(|queue| state.queue_brake(queue)).map(|(_, order)| order), until)
        }
        Reason::PoolDraining { pool, until } => {
            let name = state.policy().and_then(|p| p.pools.get(pool.index())).map(|pool| pool.name.as_str());
            let mut figures = braked(state.pool_brake(pool).map(|(_, order)| order), until);
            figures["pool"] = json!(name);
            figures
        }
        Reason::MaxRun { limit } => json!({ "limit_s": Seconds::from(limit) }),
        Reason::Lingering { idle } => json!({ "idle_s": Seconds::from(idle) }),
        Reason::ExitCode { code } => json!({ "exit_code": code }),
        Reason::StartFailures { starts } => json!({ "starts": starts }),
        Reason::NoProgress { reclaims } => json!({ "reclaims": reclaims }),
        Reason::ForbiddenTier { queue } => {
            let path = state.queues().get(queue).map(|q| q.path.as_str());
            json!({ "queue": path, "tiers": tiers_of(queue, state) })
        }
        Reason::KeptForAnother { job, from } => {
            // Its name is its tenant's.
            let queue = state.job(job).and_then(|(row, _)| state.queues().get(row.queue)).map(|q| q.path.as_str());
            json!({ "job": job.to_string(), "queue": queue, "until_s": Seconds::from(from) })
        }
        Reason::TooManyQueues { most } => json!({ "most_queues": most }),
        Reason::TenantFull { bound, most } => json!({ "bound": bound.as_str(), "most": most }),
        Reason::NodeBeyondBudget { least, budget } => {
            json!({ "least_usd_per_hour": dollars(least), "budget_usd": dollars(budget) })
        }
        Reason::OwnedNodesFull { pool, nodes, gpus, foreign } => {
            let name = state.policy().and_then(|p| p.pools.get(pool.index())).map(|pool| pool.name.as_str());
            let by = foreign_pods(pool, state);
            json!({ "pool": name, "nodes": nodes, "gpus": gpus, "foreign_gpus": foreign, "foreign_pods": by })
        }
        Reason::BeyondBudget { least, budget, bound } => json!({
            "least_usd_per_hour": dollars(least), "budget_usd": dollars(budget), "bound": bound.map(Bound::as_str)
        }),
        Reason::Conflict
        | Reason::UnknownQueue
        | Reason::ForbiddenQueue
        | Reason::Misconfigured
        | Reason::NoMatchingPool
        | Reason::ExceedsCeiling
        | Reason::NothingIdle
        | Reason::Starting
        | Reason::Moved
        | Reason::Overran
        | Reason::Hurried
        | Reason::NodeHung
        | Reason::Scaled
        | Reason::Reclaimed
        | Reason::NodeLost
        | Reason::StartTimeout
        | Reason::Asked
        | Reason::DeadlineOnlyCounted
        | Reason::Grows => json!({}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
