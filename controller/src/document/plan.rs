//! One pass over a state: what would be decided, and why every job that waits does.
//!
//! Never: saved or released. The batch is thrown away with the engine.

use super::reason::ReasonView;
use super::seconds::Seconds;
use super::state::Loaded;
use forebay_engine::decision::Decision;
use forebay_engine::event::Tick;
use forebay_engine::ids::{JobId, NodeId, OfferingId};
use forebay_engine::state::jobs::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What one pass would do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanDocument {
    /// In the order in which they would be made.
    pub decisions: Vec<PlannedDecision>,
    /// Every job that waits after the pass.
    pub pending: Vec<PendingJob>,
}

/// One decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDecision {
    /// For which job. Null for decisions about nodes alone.
    pub job: Option<String>,
    /// The job's subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What: `buy`, `book`, `unbook`, `start`, `stop`, `requeue`, `finish`, `reject`, `reserve`, `release`, `drain`,
    /// `undrain`, `terminate`, `repeat`, `warn`.
    pub action: String,
    /// On which nodes; for `buy`, the nodes that it will bring.
    pub nodes: Vec<String>,
    /// What is bought, such as `g5.xlarge in us-east-1a (spot)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offering: Option<String>,
    /// Why, where the decision says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A job that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingJob {
    /// Which.
    pub job: String,
    /// Its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The stable code of why.
    pub reason: String,
    /// The same in words, with what to do about it.
    pub message: String,
    /// The code's figures.
    pub figures: Map<String, Value>,
    /// Seconds from the state's time until it is expected to move on. Null: not known.
    pub eta_s: Option<Seconds>,
}

/// Makes one pass.
#[must_use]
pub fn plan(mut loaded: Loaded) -> PlanDocument {
    let now = loaded.engine.state().now();
    loaded.engine.open(Tick { now, resumed: false, delivered: 0 });
    let _ = loaded.engine.plan();
    let unsaved = loaded.engine.close();
    let decisions = &unsaved.batch().decisions;
    let mut next_node = decisions.iter().filter_map(bought).sum::<u64>();
    next_node = loaded.engine.state().counters().next_node.saturating_sub(next_node);
    let started: BTreeSet<JobId> =
        decisions.iter().filter_map(|d| if let Decision::Start { job } = d { Some(*job) } else { None }).collect();
    // That a job waits in its queue (again) is told by `pending`.
    let told = decisions.iter().filter(|d| !matches!(d, Decision::Resume { .. } | Decision::Consolidated { .. }));
    let decisions = told.map(|d| loaded.decision(d, &mut next_node)).collect();
    PlanDocument { decisions, pending: loaded.pending(&started) }
}

fn bought(decision: &Decision) -> Option<u64> {
    if let Decision::Buy { count, .. } = decision { Some(u64::from(*count)) } else { None }
}

impl Loaded {
    fn job_name(&self, id: JobId) -> String {
        self.jobs.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// The submitter's name, where the document's own name is another.
    fn subject(&self, id: JobId) -> Option<String> {
        if self.jobs.contains_key(&id) {
            return None;
        }
        self.engine.state().job(id).map(|(_, spec)| spec.subject.clone())
    }

    fn offering(&self, id: OfferingId) -> Option<String> {
        self.engine.state().offerings().get(id.ix()).map(|o| o.offer.to_string())
    }

    /// Where a job is after the pass.
    fn places(&self, id: JobId) -> Vec<NodeId> {
        let places = self.engine.state().job(id).map(|(job, _)| job.places.iter().map(|p| p.node).collect());
        places.map(|p: BTreeSet<NodeId>| p.into_iter().collect()).unwrap_or_default()
    }

    fn decision(&self, decision: &Decision, next_node: &mut u64) -> PlannedDecision {
        let (action, job, nodes, offering, reason) = match decision {
            Decision::Reject { job, reason } => ("reject", Some(*job), vec![], None, Some(reason.code().to_owned())),
            Decision::Resume { job } => ("resume", Some(*job), vec![], None, None),
            Decision::Requeue { job, reason, .. } => {
                ("requeue", Some(*job), vec![], None, Some(reason.code().to_owned()))
            }
            Decision::Finish { job, reason, .. } => {
                ("finish", Some(*job), vec![], None, reason.map(|r| r.code().to_owned()))
            }
            Decision::Replicate { service } => ("replicate", Some(*service), vec![], None, None),
            Decision::GiveUp { job } => ("give-up", Some(*job), self.places(*job), None, None),
            Decision::Repeat { .. } => ("repeat", None, vec![], None, None),
            Decision::Book { job, places, .. } => {
                let nodes: BTreeSet<NodeId> = places.iter().map(|p| p.node).collect();
                ("book", Some(*job), nodes.into_iter().collect(), None, None)
            }
            Decision::Defer { job, .. } => ("defer", Some(*job), vec![], None, None),
            Decision::Due { job } => ("due", Some(*job), vec![], None, None),
            Decision::Late { job } => ("late", Some(*job), vec![], None, None),
            Decision::Unbook { job } => ("unbook", Some(*job), vec![], None, None),
            Decision::Start { job } => ("start", Some(*job), self.places(*job), None, None),
            Decision::Buy { offering, count, .. } => {
                let from = *next_node;
                *next_node += u64::from(*count);
                ("buy", None, (from..*next_node).map(NodeId).collect(), self.offering(*offering), None)
            }
            Decision::Stop { job, cause, .. } => {
                let cause = format!("{cause:?}");
                let cause = cause.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
                ("stop", Some(*job), self.places(*job), None, Some(cause))
            }
            Decision::Shrink { job, cause, .. } => {
                let cause = format!("{cause:?}");
                let cause = cause.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
                ("shrink", Some(*job), self.places(*job), None, Some(cause))
            }
            Decision::Keep { job, .. } => ("keep", Some(*job), vec![], None, None),
            Decision::Reserve { job, nodes, .. } => ("reserve", Some(*job), nodes.clone(), None, None),
            Decision::Hasten { job, hurry, .. } => ("hasten", Some(*job), vec![], None, Some(format!("{hurry:?}"))),
            Decision::ReserveAhead { ahead, .. } => ("reserve-ahead", Some(ahead.job), ahead.nodes.clone(), None, None),
            Decision::ReleaseAhead { .. } => ("release-ahead", None, vec![], None, None),
            Decision::Backfill { job, .. } => ("backfill", Some(*job), vec![], None, None),
            Decision::Unreserve { job } => ("unreserve", Some(*job), vec![], None, None),
            Decision::Release { node } => ("release", None, vec![*node], None, None),
            Decision::Drain { node, why, .. } => ("drain", None, vec![*node], None, Some(format!("{why:?}"))),
            Decision::Consolidated { .. } => ("consolidated", None, vec![], None, None),
            Decision::Undrain { node } => ("undrain", None, vec![*node], None, None),
            Decision::Terminate { node } => ("terminate", None, vec![*node], None, None),
            Decision::Suspect { node } => ("suspect", None, vec![*node], None, None),
            Decision::WarnLingering { job, .. } => {
                ("warn", Some(*job), self.places(*job), None, Some("Lingering".to_owned()))
            }
        };
        PlannedDecision {
            job: job.map(|id| self.job_name(id)),
            subject: job.and_then(|id| self.subject(id)),
            action: action.to_owned(),
            nodes: nodes.into_iter().map(|id| self.node_name(id)).collect(),
            offering,
            reason,
        }
    }

    fn pending(&self, started: &BTreeSet<JobId>) -> Vec<PendingJob> {
        let state = self.engine.state();
        let open = state.open_job_ids().filter_map(|id| state.job(id));
        let waits = |phase: &Phase| {
            !matches!(phase, Phase::Running | Phase::Stopping { .. } | Phase::Serving | Phase::Done { .. })
        };
        open.filter(|(job, _)| waits(&job.phase) && !started.contains(&job.id))
            .map(|(job, _)| {
                let reason = self.engine.why(job.id).or(job.reason).map(|r| ReasonView::of(r, state));
                let reason = reason.unwrap_or_else(|| unexplained(&job.phase));
                PendingJob {
                    job: self.job_name(job.id),
                    subject: self.subject(job.id),
                    reason: reason.code,
                    message: reason.message,
                    figures: reason.figures,
                    eta_s: reason.eta_s,
                }
            })
            .collect()
    }
}

/// A run that has just ended and is settled in the next pass has no reason yet.
fn unexplained(phase: &Phase) -> ReasonView {
    let (code, message) = match phase {
        Phase::Ended { .. } => ("Ended", "its run is over; what follows is decided next"),
        _ => ("Accepted", "it was just accepted and is looked at next"),
    };
    ReasonView { code: code.to_owned(), message: message.to_owned(), figures: Map::new(), eta_s: None }
}
