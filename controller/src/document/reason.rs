//! A reason as it is written: its stable code, its figures with units in their names, its words, and when the job moves on.
//!
//! Never: another wording than the engine's own.

use super::lacks::{Asker, Holders, LackFigures};
use forebay_kernel::ids::{JobId, PoolId, QueueId, TierId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Buys;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::{Brake, BrakeOrder};
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::reason::{ReasonView, Words, figures as own_figures, gpus};
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
        Reason::Budget { .. } => asker.budget(holders),
        Reason::BeyondBudget { budget, .. } | Reason::NodeBeyondBudget { budget, .. } => asker.hourly_budget(budget),
        Reason::ExceedsMaxQuota { most, .. } => asker.most_quota(most),
        Reason::ExceedsCeiling => asker.ceilings(),
        Reason::NoMatchingPool => asker.nearest(),
        Reason::KeptForAnother { job, .. } => asker.kept_for(job),
        Reason::Reserved { .. } | Reason::ReservationDelayed { .. } => asker.reserved(),
        Reason::Stockout { .. } => asker.stock(),
        _ => LackFigures::default(),
    }
}

fn view(reason: Reason, state: &State, job: Option<JobId>, lack: LackFigures) -> ReasonView {
    let code = reason.code().to_owned();
    let named = state.named_by(reason);
    let named = named.as_deref();
    let mut message = match reason {
        Reason::ForbiddenTier { queue } => {
            let path = named.unwrap_or_default();
            let tiers = tiers_of(queue, state).join(", ");
            format!(
                "jobs of queue `{path}` may ask for these tiers: {tiers}; ask for one of them, or list another in the queue's `tiers`"
            )
        }
        Reason::OwnedNodesFull { pool, nodes: 1.., gpus, foreign } => {
            let name = named.unwrap_or_default();
            if job.is_some_and(|job| !fits_empty(job, pool, state)) {
                let message = format!(
                    "none of the owned nodes of pool `{name}` could hold one of its workers, even empty: starts when nodes that have what it asks \
                     for join them"
                );
                return ReasonView { code, message, figures: figures(reason, state, job, named), eta_s: None };
            }
            let by = foreign_pods(pool, state);
            let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
            format!(
                "the owned nodes of pool `{name}` have no room for it, {foreign} of their {gpus} GPUs are held by pods that are not Forebay's{by}: \
                 starts when these or runs end"
            )
        }
        Reason::ExitCode { code } => {
            job.and_then(|job| exit_message(code, state, job)).unwrap_or_else(|| Words { reason, named }.to_string())
        }
        Reason::Budget { .. } if lack.runs_end_first => {
            "the budget of its queue has no room for it beside what runs: starts when runs of it end, or raise it"
                .to_owned()
        }
        Reason::Stockout { .. } if job.is_some_and(|job| buys(state, job) == Some(Buys::Spot)) => {
            format!("{}, and so does a tier with `buys: spot-then-on-demand`", Words { reason, named })
        }
        Reason::KeptForAnother { job: other, .. } => {
            let known_as = job.and_then(|job| Asker::of(state, job)).map(|asker| asker.known_as(other));
            let other = known_as.unwrap_or_else(|| other.to_string());
            format!(
                "what its queue has left is kept for {other}, which is before it: only work that states `expectedRun` and ends in time goes first"
            )
        }
        Reason::QueueHeld { .. } => match held_queue(state, job) {
            Some(path) => format!("`{path}` is held: `forebay release {path}` lets it go on"),
            None => reason.to_string(),
        },
        _ => Words { reason, named }.to_string(),
    };
    if !lack.sentence.is_empty() {
        message = format!("{message} ({})", lack.sentence);
    }
    let mut figures = figures(reason, state, job, named);
    for (name, value) in lack.figures {
        let known = figures.entry(name).or_insert(Value::Null);
        if known.is_null() {
            *known = value;
        }
    }
    if let Some((word, sentence, at)) = job.and_then(|job| deadline(reason, state, job)) {
        message = format!("{message}; {sentence}");
        figures.entry("deadline").or_insert(json!(word));
        figures.entry("deadline_s").or_insert(json!(Seconds::from(at)));
    }
    let eta = match reason {
        Reason::Budget { .. } if lack.runs_end_first => None,
        Reason::KeptForAnother { job: other, from } if is_estimated(state, other) => Some(from),
        Reason::KeptForAnother { .. } => {
            figures.remove("until_s");
            None
        }
        _ => reason.eta(),
    };
    let eta = eta.filter(|at| *at != Timestamp::NEVER);
    let eta_s = eta.map(|at| Seconds::from(at.since(state.now())));
    ReasonView { code, message, figures, eta_s }
}

/// Why an exit code ended a job: one after which it is not tried again, or as many attempts as it has.
fn exit_message(code: i32, state: &State, job: JobId) -> Option<String> {
    let retry = &state.job(job)?.1.retry;
    Some(if retry.never.contains(&code) {
        format!("exit code {code}, after which it is not tried again (`retry.never`): see its logs")
    } else {
        format!("exit code {code} in the last of {} attempts: see its logs, or raise `retry.attempts`", retry.attempts)
    })
}

/// What the tier of a job buys.
fn buys(state: &State, job: JobId) -> Option<Buys> {
    let (row, _) = state.job(job)?;
    state.policy()?.tiers.get(row.tier.index()).map(|tier| tier.buys)
}

/// Whether the time that something is kept for a job from rests on estimates of all runs that are to end before. A run of which nothing is known counts as one
/// of 24 hours.
fn is_estimated(state: &State, job: JobId) -> bool {
    let mut of_job = state.allowances().values().filter(|kept| kept.job == job);
    of_job.all(|kept| kept.known)
}

/// The queue, its own or one above it, whose brake holds a job.
fn held_queue(state: &State, job: Option<JobId>) -> Option<String> {
    let (row, _) = state.job(job?)?;
    state.queue_brake(row.queue)?.0.target()
}

/// What a deadline of a job that is not over has come to, where that is not well.
fn deadline(reason: Reason, state: &State, job: JobId) -> Option<(&'static str, &'static str, Timestamp)> {
    let (row, spec) = state.job(job).filter(|(row, _)| !row.done())?;
    let at = spec.deadline.filter(|_| spec.service.is_none())?;
    match reason {
        Reason::DeadlineUnreachable { .. } | Reason::DeadlineOnlyCounted => None,
        _ if row.hopeless => Some(("unreachable", "its deadline cannot be met any more", at)),
        _ if spec.expected.is_none() => {
            Some(("only-counted", "its deadline is only counted: state `expectedRun` to have it kept", at))
        }
        _ => None,
    }
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

/// The bounds that a job states itself, or that the policy states for it.
fn bounds_of_job(reason: Reason, state: &State, row: &Job, spec: &JobSpec) -> Value {
    let lifecycle = state.lifecycle();
    match reason {
        Reason::UnknownQueue | Reason::ForbiddenQueue => json!({ "queue": spec.queue }),
        Reason::BackOff { .. } | Reason::ExitCode { .. } => {
            json!({ "failures": row.failures, "limit_attempts": spec.retry.attempts })
        }
        Reason::ClusterQuota { .. } => json!({ "denials": row.denials }),
        Reason::StartTimeout => json!({ "limit_s": Seconds::from(lifecycle.start_timeout) }),
        Reason::Lingering { .. } => json!({ "limit_s": Seconds::from(lifecycle.linger_after) }),
        Reason::StartFailures { .. } => json!({ "limit_starts": spec.retry.most_start_failures() }),
        Reason::TopologyUnsatisfied { .. } => json!({ "asked_gpus": gpus(spec.gang.gpu_share().0) }),
        Reason::NothingIdle => {
            let tier = state.policy().and_then(|p| p.tiers.get(row.tier.index())).map(|tier| tier.name.as_str());
            json!({ "tier": tier, "buys": "nothing", "asked_gpus": gpus(spec.gang.gpu_share().0) })
        }
        _ => Value::Null,
    }
}

fn figures(reason: Reason, state: &State, job: Option<JobId>, named: Option<&str>) -> Map<String, Value> {
    let mut figures = own_figures(reason, named);
    let more = match reason {
        Reason::BuyingPaused { until } => braked(state.brake(&Brake::Buying), until),
        Reason::AdmissionPaused { until } => braked(state.brake(&Brake::Admission), until),
        Reason::PreemptionPaused { until } => braked(state.brake(&Brake::Preemption), until),
        Reason::QueueHeld { until } => {
            let queue = job.and_then(|job| state.job(job)).map(|(row, _)| row.queue);
            let mut figures = braked(queue.and_then(|queue| state.queue_brake(queue)).map(|(_, order)| order), until);
            figures["queue"] = json!(held_queue(state, job));
            figures
        }
        Reason::PoolDraining { pool, until } => braked(state.pool_brake(pool).map(|(_, order)| order), until),
        Reason::ForbiddenTier { queue } => json!({ "tiers": tiers_of(queue, state) }),
        Reason::OwnedNodesFull { pool, .. } => json!({ "foreign_pods": foreign_pods(pool, state) }),
        _ => job
            .and_then(|job| state.job(job))
            .map_or(Value::Null, |(row, spec)| bounds_of_job(reason, state, row, spec)),
    };
    if let Value::Object(more) = more {
        figures.extend(more);
    }
    figures
}
