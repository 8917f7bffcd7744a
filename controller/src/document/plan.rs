//! One pass over a state, or passes until nothing changes: what would be decided, and why every job that waits does.
//!
//! Never: saved or released. The batch is thrown away with the engine.

use super::lacks::Holders;
use super::reason::{reason_view, reason_with_holders};
use super::state::Loaded;
use super::steady::{self, Rest};
use super::write::pool_name;
use crate::show::figures::length;
use forebay_driver::step::BatchStep;
use forebay_kernel::decision::{Decision, EffectOf, StopCause};
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::Tick;
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::allowances::Allowance;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::memory::PlaceView;
use forebay_wire::document::plan::{PendingJob, PlanDocument, PlannedDecision, PlannedPass};
use forebay_wire::document::reason::ReasonView;
use serde_json::Map;
use std::collections::BTreeSet;

/// Makes one pass.
#[must_use]
pub fn plan(mut loaded: Loaded) -> PlanDocument {
    let now = loaded.engine.state().now();
    let planned = BatchStep::open(&mut loaded.engine, Tick { now, resumed: false, delivered: 0 }).plan();
    let decisions = &planned.batch().decisions;
    let started = started(decisions);
    PlanDocument {
        decisions: loaded.decisions(decisions),
        pending: loaded.pending(&started),
        passes: None,
        steady: None,
        began_s: Some(now.into()),
        ended_s: Some(now.into()),
    }
}

/// Makes passes with the outcomes of their own decisions until nothing changes.
#[must_use]
pub fn plan_until_steady(mut loaded: Loaded) -> PlanDocument {
    let mut passes = Vec::new();
    let began_s = Some(loaded.engine.state().now().into());
    let rest = steady::play(&mut loaded, |loaded, pass| {
        let decisions = loaded.decisions(&pass.decisions);
        if !decisions.is_empty() {
            passes.push(PlannedPass { at_s: pass.at.into(), decisions });
        }
    });
    let decisions = passes.iter().flat_map(|pass| pass.decisions.clone()).collect();
    let pending = loaded.pending(&BTreeSet::new());
    let ended_s = Some(loaded.engine.state().now().into());
    PlanDocument { decisions, pending, passes: Some(passes), steady: Some(rest == Rest::Steady), began_s, ended_s }
}

/// The jobs that a pass started.
fn started(decisions: &[Decision]) -> BTreeSet<JobId> {
    decisions.iter().filter_map(|d| if let Decision::Start { job } = d { Some(*job) } else { None }).collect()
}

fn bought(decision: &Decision) -> Option<u64> {
    if let Decision::Buy { count, .. } = decision { Some(u64::from(*count)) } else { None }
}

/// For which other job a decision is.
fn by(decision: &Decision) -> Option<JobId> {
    match decision {
        Decision::Stop { cause, .. } | Decision::Shrink { cause, .. } => match cause {
            StopCause::Preempted { by } | StopCause::QuotaReclaimed { by } | StopCause::Overran { by } => Some(*by),
            _ => None,
        },
        Decision::Backfill { ahead_of, .. } => Some(*ahead_of),
        _ => None,
    }
}

/// The reason that a decision carries.
fn reason_of(decision: &Decision) -> Option<Reason> {
    match decision {
        Decision::Reject { reason, .. } | Decision::Hold { reason, .. } | Decision::Requeue { reason, .. } => {
            Some(*reason)
        }
        Decision::Finish { reason, .. } => *reason,
        Decision::Reassess { late: Some(eta), .. } => Some(Reason::DeadlineUnreachable { eta: *eta }),
        _ => None,
    }
}

/// The nodes of these places, each once.
fn nodes_of(places: &[WorkerPlace]) -> Vec<NodeId> {
    let nodes: BTreeSet<NodeId> = places.iter().map(|p| p.node).collect();
    nodes.into_iter().collect()
}

/// The name of a variant without its fields.
fn variant(cause: &impl std::fmt::Debug) -> String {
    format!("{cause:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
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
        self.engine.state().offerings().get(id.index()).map(|o| o.offer.to_string())
    }

    /// Where a job is after the pass.
    fn places(&self, id: JobId) -> Vec<NodeId> {
        self.engine.state().job(id).map(|(job, _)| nodes_of(&job.places)).unwrap_or_default()
    }

    /// Where some workers of a job are.
    fn places_of(&self, id: JobId, workers: &[u32]) -> Vec<NodeId> {
        let Some((row, _)) = self.engine.state().job(id) else { return Vec::new() };
        let theirs = row.numbers.iter().zip(&row.places).filter(|(number, _)| workers.contains(number));
        theirs.map(|(_, place)| place.node).collect::<BTreeSet<NodeId>>().into_iter().collect()
    }

    fn in_pool(&self, what: &str, pool: PoolId) -> String {
        let name = pool_name(self.engine.state().policy(), pool);
        format!("{what} in pool {}", name.as_deref().unwrap_or("?"))
    }

    fn allowance(&self, of: Allowance) -> String {
        let policy = self.engine.state().policy();
        let whose = policy.and_then(|p| p.quotas.get(of.node().index())).map_or("?", |node| node.name.as_str());
        match of {
            Allowance::Quota(_, pool) => self.in_pool(&format!("quota of {whose}"), pool),
            Allowance::Budget(_) => format!("budget of {whose}"),
        }
    }

    /// What a decision without a reason is about, in words.
    fn about(&self, decision: &Decision) -> Option<String> {
        let state = self.engine.state();
        let at = |time: Timestamp| match time {
            Timestamp::NEVER => "when it is free".to_owned(),
            time => format!("expected in {}", length(time.since(state.now()).0)),
        };
        match decision {
            Decision::Keep { kept, .. } => Some(self.in_pool("its quota", kept.pool)),
            Decision::MakeReservation { pool, reservation } => {
                Some(format!("{}, {}", self.in_pool("places", *pool), at(reservation.from)))
            }
            Decision::EndReservation { pool } => Some(self.in_pool("places", *pool)),
            Decision::KeepAllowance { of, reservation } => {
                Some(format!("{}, {}", self.allowance(*of), at(reservation.from)))
            }
            Decision::ReleaseAllowance { of } => Some(self.allowance(*of)),
            Decision::Repeat { of: EffectOf::Purchase(purchase), .. } => Some(purchase.to_string()),
            Decision::Defer { until, .. } => Some(format!("bought for {}", at(*until))),
            _ => None,
        }
    }

    /// The decisions of a pass that was just made, as they are shown.
    fn decisions(&self, decisions: &[Decision]) -> Vec<PlannedDecision> {
        let bought = decisions.iter().filter_map(bought).sum::<u64>();
        let mut next_node = self.engine.state().counters().next_node.saturating_sub(bought);
        decisions.iter().filter_map(|d| self.decision(d, &mut next_node)).collect()
    }

    /// The workers at these places.
    fn workers(&self, places: &[WorkerPlace]) -> Vec<PlaceView> {
        let worker = |(at, place): (u32, &WorkerPlace)| PlaceView {
            worker: Some(at),
            node: self.node_name(place.node),
            gpus: (0..64).filter(|gpu| place.gpus & (1 << gpu) != 0).collect(),
            share_milli: place.share,
            slice: place.slice,
        };
        (0..).zip(places).map(worker).collect()
    }

    /// A decision as it is shown. `None`: that a job waits in its queue (again) is told by `pending`.
    fn decision(&self, decision: &Decision, next_node: &mut u64) -> Option<PlannedDecision> {
        let offering = match decision {
            Decision::Buy { offering, .. } => self.offering(*offering),
            _ => None,
        };
        let (action, job, nodes, reason) = match decision {
            Decision::Judge { .. } | Decision::Resume { .. } | Decision::Consolidated { .. } => return None,
            Decision::Reject { job, reason } => ("reject", Some(*job), vec![], Some(reason.code().to_owned())),
            Decision::Hold { job, reason } => ("hold", Some(*job), vec![], Some(reason.code().to_owned())),
            Decision::Requeue { job, reason, .. } => ("requeue", Some(*job), vec![], Some(reason.code().to_owned())),
            Decision::Finish { job, reason, .. } => ("finish", Some(*job), vec![], reason.map(|r| r.code().to_owned())),
            Decision::Replicate { service } => ("replicate", Some(*service), vec![], None),
            Decision::GiveUp { job } => ("give-up", Some(*job), self.places(*job), None),
            Decision::Repeat { of, .. } => match of {
                EffectOf::Job(job) => ("repeat", Some(*job), vec![], None),
                EffectOf::Node(node) => ("repeat", None, vec![*node], None),
                EffectOf::Purchase(_) => ("repeat", None, vec![], None),
            },
            Decision::Book { job, places, .. } => ("book", Some(*job), nodes_of(places), None),
            Decision::Defer { job, .. } => ("defer", Some(*job), vec![], None),
            Decision::Due { job } => ("due", Some(*job), vec![], None),
            Decision::Late { job } => ("late", Some(*job), vec![], None),
            Decision::Unbook { job } => ("unbook", Some(*job), vec![], None),
            Decision::Start { job } => ("start", Some(*job), self.places(*job), None),
            Decision::Buy { count, .. } => {
                let from = *next_node;
                *next_node += u64::from(*count);
                ("buy", None, (from..*next_node).map(NodeId).collect(), None)
            }
            Decision::Stop { job, cause, .. } => ("stop", Some(*job), self.places(*job), Some(variant(cause))),
            Decision::Shrink { job, cause, leave, .. } => {
                ("shrink", Some(*job), self.places_of(*job, leave), Some(variant(cause)))
            }
            Decision::Keep { job, .. } => ("keep", Some(*job), vec![], None),
            Decision::Reserve { job, nodes, .. } => ("reserve", Some(*job), nodes.clone(), None),
            Decision::Reassess { job, urgency, late, .. } => {
                let reason =
                    late.map_or_else(|| variant(urgency), |eta| Reason::DeadlineUnreachable { eta }.code().to_owned());
                ("hasten", Some(*job), vec![], Some(reason))
            }
            Decision::MakeReservation { reservation: made, .. } => {
                ("reserve-ahead", Some(made.job), made.nodes.clone(), None)
            }
            Decision::EndReservation { .. } => ("release-ahead", None, vec![], None),
            Decision::KeepAllowance { reservation: made, .. } => ("keep-ahead", Some(made.job), vec![], None),
            Decision::ReleaseAllowance { .. } => ("release-kept", None, vec![], None),
            Decision::Backfill { job, .. } => ("backfill", Some(*job), vec![], None),
            Decision::Unreserve { job } => ("unreserve", Some(*job), vec![], None),
            Decision::Release { node } => ("release", None, vec![*node], None),
            Decision::Drain { node, why, .. } => ("drain", None, vec![*node], Some(format!("{why:?}"))),
            Decision::Undrain { node } => ("undrain", None, vec![*node], None),
            Decision::Terminate { node } => ("terminate", None, vec![*node], None),
            Decision::Suspect { node } => ("suspect", None, vec![*node], None),
            Decision::WarnLingering { job, .. } => {
                ("warn", Some(*job), self.places(*job), Some("Lingering".to_owned()))
            }
        };
        let state = self.engine.state();
        let view = reason_of(decision).map(|why| reason_view(why, state, job));
        let workers = match decision {
            Decision::Book { places, .. } => self.workers(places),
            Decision::Start { job } => state.job(*job).map(|(row, _)| self.workers(&row.places)).unwrap_or_default(),
            _ => Vec::new(),
        };
        Some(PlannedDecision {
            message: view.as_ref().map(|view| view.message.clone()).or_else(|| self.about(decision)),
            figures: view.map(|view| view.figures).unwrap_or_default(),
            by: by(decision).map(|id| self.job_name(id)),
            workers,
            job: job.map(|id| self.job_name(id)),
            subject: job.and_then(|id| self.subject(id)),
            action: action.to_owned(),
            nodes: nodes.into_iter().map(|id| self.node_name(id)).collect(),
            offering,
            reason,
        })
    }

    fn pending(&self, started: &BTreeSet<JobId>) -> Vec<PendingJob> {
        let state = self.engine.state();
        let open = state.open_job_ids().filter_map(|id| state.job(id));
        let waits = |phase: &Phase| {
            !matches!(phase, Phase::Running | Phase::Stopping { .. } | Phase::Serving | Phase::Done { .. })
        };
        let mut holders = Holders::default();
        open.filter(|(job, _)| waits(&job.phase) && !started.contains(&job.id))
            .map(|(job, _)| {
                let reason = self.engine.why(job.id).or(job.reason);
                let reason = reason.map(|r| reason_with_holders(r, state, job.id, &mut holders));
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
