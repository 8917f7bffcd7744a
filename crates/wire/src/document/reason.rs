//! A reason as it is written: its stable code, its figures with units in their names, its words, and when the job moves on.
//!
//! ```text
//! reason (ids) + named (State::named_by) -> figures, words       a plan, `why`, a status, an answer to a submission: the same
//! ```
//!
//! Never: other words than the engine's own but for what they name.

use super::seconds::Seconds;
use forebay_kernel::reason::{Bound, Reason};
use forebay_kernel::units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

/// Why a job waits, was stopped, or is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonView {
    /// The stable code, such as `WaitingForQuota`.
    pub code: String,
    /// For people, with what to do about it.
    pub message: String,
    /// The code's figures; units are in their names.
    pub figures: Map<String, Value>,
    /// Seconds until the job is expected to move on, where that is known.
    #[serde(default)]
    pub eta_s: Option<Seconds>,
}

/// A reason in words, with the name of what it has by its id, where that is known.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// Which.
    pub reason: Reason,
    /// [`forebay_kernel::state::State::named_by`].
    pub named: Option<&'a str>,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = self.named else { return self.reason.fmt(f) };
        match self.reason {
            Reason::Stockout { .. } => write!(
                f,
                "nothing that fits is in stock; {name} is tried again first: more instance types or zones widen the choice"
            ),
            Reason::AwaitingProbe { .. } => {
                write!(f, "{name} was out of stock and is being tried: the answer comes within seconds")
            }
            Reason::PreemptedBy { .. } => write!(
                f,
                "stopped for a job of queue `{name}`, of a higher tier or priority or much shorter: it goes on when there is room again"
            ),
            Reason::QuotaReclaimed { .. } => {
                write!(
                    f,
                    "its queue had borrowed, and `{name}` has the better claim to it, by its quota or by its share of what is lent: it goes on when \
                     there is room again"
                )
            }
            Reason::PoolDraining { .. } => {
                write!(f, "its pool `{name}` is drained and takes no work: `forebay undrain {name}` lets it go on")
            }
            reason => reason.fmt(f),
        }
    }
}

/// The figures that a reason has by itself. `named`: [`forebay_kernel::state::State::named_by`].
#[must_use]
pub fn figures(reason: Reason, named: Option<&str>) -> Map<String, Value> {
    let value = match reason {
        Reason::ExceedsMaxQuota { asked, most } => json!({ "asked_gpus": gpus(asked.0), "most_gpus": gpus(most.0) }),
        Reason::WaitingForQuota { asked, available } => {
            json!({ "asked_gpus": gpus(asked.0), "available_gpus": gpus(available.0) })
        }
        Reason::StartTooLate { within } => json!({ "within_s": Seconds::from(within) }),
        Reason::Shrunk { workers } => json!({ "workers": workers }),
        Reason::Batched { running, until } => json!({ "running": running, "until_s": until.map(Seconds::from) }),
        Reason::TopologyUnsatisfied { level } => json!({ "level": level.as_str() }),
        Reason::Reserved { from: at } | Reason::DeadlineUnreachable { eta: at } | Reason::AwaitingNodes { eta: at } => {
            json!({ "at_s": Seconds::from(at) })
        }
        Reason::WaitingForPreemption { victims } => json!({ "victims": victims }),
        Reason::Ceiling { bound } => json!({ "bound": bound.as_str() }),
        Reason::Stockout { until, .. } | Reason::AwaitingProbe { until, .. } => {
            json!({ "offering": named, "until_s": Seconds::from(until) })
        }
        Reason::LaunchRefused { error, until, .. } => {
            json!({ "offering": named, "error": error, "until_s": Seconds::from(until) })
        }
        Reason::BehindInQueue { position } => json!({ "position": position }),
        Reason::BackOff { until }
        | Reason::ClusterQuota { until }
        | Reason::Budget { until }
        | Reason::WaitingByDesign { until }
        | Reason::BurstIsNoise { until }
        | Reason::ReservationDelayed { until } => json!({ "until_s": Seconds::from(until) }),
        Reason::PreemptedBy { .. } | Reason::QuotaReclaimed { .. } | Reason::ForbiddenTier { .. } => {
            json!({ "queue": named })
        }
        Reason::BuyingPaused { until }
        | Reason::AdmissionPaused { until }
        | Reason::PreemptionPaused { until }
        | Reason::QueueHeld { until } => until.map_or(json!({}), |until| json!({ "until_s": Seconds::from(until) })),
        Reason::PoolDraining { until: Some(until), .. } => json!({ "pool": named, "until_s": Seconds::from(until) }),
        Reason::PoolDraining { until: None, .. } => json!({ "pool": named }),
        Reason::MaxRun { limit } => json!({ "limit_s": Seconds::from(limit) }),
        Reason::Lingering { idle } => json!({ "idle_s": Seconds::from(idle) }),
        Reason::ExitCode { code } => json!({ "exit_code": code }),
        Reason::StartFailures { starts } => json!({ "starts": starts }),
        Reason::NoProgress { reclaims } => json!({ "reclaims": reclaims }),
        // The name of that job is its tenant's.
        Reason::KeptForAnother { job, from } => {
            json!({ "job": job.to_string(), "queue": named, "until_s": Seconds::from(from) })
        }
        Reason::TooManyQueues { most } => json!({ "most_queues": most }),
        Reason::TenantFull { bound, most } => json!({ "bound": bound.as_str(), "most": most }),
        Reason::NodeBeyondBudget { least, budget } => {
            json!({ "least_usd_per_hour": dollars(least), "budget_usd": dollars(budget) })
        }
        Reason::OwnedNodesFull { nodes, gpus, foreign, .. } => {
            json!({ "pool": named, "nodes": nodes, "gpus": gpus, "foreign_gpus": foreign })
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

/// Micro-dollars as dollars.
fn dollars(rate: Rate) -> f64 {
    rate.0 as f64 / 1e6
}

/// GPUs as a number: thousandths become decimals.
#[must_use]
pub fn gpus(milli: u64) -> Value {
    if milli.is_multiple_of(1000) { json!(milli / 1000) } else { json!(milli as f64 / 1000.0) }
}
