//! Puts back what a document remembers, once its jobs and nodes are there: the other direction of `remember`.
//!
//! Never: what follows from places and nodes, such as what is free, or what a run costs.

use super::rebuild::Building;
use forebay_engine::engine::Engine;
use forebay_kernel::decision::StopCause;
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId};
use forebay_kernel::machine::StateMachine;
use forebay_kernel::recall::Standing;
use forebay_kernel::state::Urgency;
use forebay_kernel::state::allowances::{Allowance, AllowanceReservation};
use forebay_kernel::state::brakes::{Brake, BrakeOrder};
use forebay_kernel::state::jobs::{Ending, Job, JobStartTarget, Kept, Leaving, OpenEffect, Phase, PutBack, Wait};
use forebay_kernel::state::mix::WorkKind;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::state::observed_stats::{FamilyOfWork, Lives, NeedStats, ObservedStats};
use forebay_kernel::state::pending_cancels::{PendingCancel, PendingCancelKey};
use forebay_kernel::state::reservations::Reservation;
use forebay_kernel::state::services::Need;
use forebay_kernel::state::streaks::Streak;
use forebay_kernel::units::{GpuTime, MilliGpu, Rate, Span, Spend, Timestamp};
use forebay_wire::document::DocumentFault;
use forebay_wire::document::memory::{
    AllowanceKind, EndHow, EndView, FamilyView, JobMemory, NodeMemory, OfferingName, RequestView, ServiceMemory,
    StartTargetView, StateMemory, StopCauseView, StopView, StreakView, UrgencyView, WaitView,
};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{BrakeView, JobPhase, JobView, OfferingView};

/// Changes the state of an engine that does not run.
pub fn with<T>(engine: &mut Engine, change: impl FnOnce(&mut StateMachine) -> T) -> T {
    let mut machine = std::mem::take(engine).into_machine();
    let result = change(&mut machine);
    *engine = Engine::recovered(machine);
    result
}

fn time(at: Option<Seconds>) -> Timestamp {
    at.map_or(Timestamp::NEVER, Timestamp::from)
}

fn or_zero(at: Option<Seconds>) -> Timestamp {
    at.map_or(Timestamp(0), Timestamp::from)
}

/// Micro-dollars from dollars.
fn micro(dollars: f64) -> Option<Rate> {
    (0.0..1e12).contains(&dollars).then(|| Rate((dollars * 1e6).round() as u64))
}

fn again(effect: &mut Option<OpenEffect>, request: Option<RequestView>) {
    match (effect.as_mut(), request) {
        (Some(effect), Some(request)) => {
            effect.next_try = time(request.again_s);
            effect.tries = request.tries;
        }
        _ => *effect = None,
    }
}

impl Building<'_> {
    /// Puts back all that the document remembers.
    ///
    /// # Errors
    ///
    /// It names a job, a node or a pool that is not there.
    pub fn recall(&mut self) -> Result<(), DocumentFault> {
        let document = self.document;
        for (at, view) in document.nodes.iter().enumerate() {
            if let (Some(memory), Some(&id)) = (&view.memory, self.nodes.get(&view.node)) {
                self.recall_node(at, id, memory)?;
            }
            if let (Some(price), Some(&id)) =
                (view.price_usd_per_hour.filter(|_| view.memory.is_some()).and_then(micro), self.nodes.get(&view.node))
            {
                with(&mut self.loaded.engine, |machine| machine.recall_price(id, price));
            }
        }
        // Before the jobs: whether one is held depends on prices.
        for view in document.offerings.iter().flatten() {
            self.recall_offering(view);
        }
        for (at, view) in document.jobs.iter().enumerate() {
            let Some(&id) = self.jobs.get(&at) else { continue };
            if view.phase.terminal() {
                if let Some(memory) = &view.memory {
                    let standing = self.standing(memory);
                    with(&mut self.loaded.engine, |machine| machine.recall_standing(id, standing));
                }
                continue;
            }
            self.recall_counts(id, view);
            if let Some(memory) = &view.memory {
                self.recall_job(at, id, view, memory)?;
            }
            if let Some(memory) = view.service.as_ref().and_then(|service| service.memory.as_ref()) {
                self.recall_service(at, id, memory)?;
            }
        }
        match &document.memory {
            Some(memory) => self.recall_state(memory),
            None => {
                // That nodes which the document names got ready at once says nothing about how long they boot.
                with(&mut self.loaded.engine, |machine| machine.recall_observed(ObservedStats::default()));
                Ok(())
            }
        }
    }

    /// A job by the name that the document has for it.
    fn job_named(&self, path: String, name: &str) -> Result<JobId, DocumentFault> {
        let found = self.ids.get(name).copied();
        found.ok_or_else(|| {
            DocumentFault::at(path, format!("there is no job `{name}`"), "name one that is there, or leave it out")
        })
    }

    fn node_named(&self, path: String, name: &str) -> Result<NodeId, DocumentFault> {
        let found = self.nodes.get(name).copied();
        found.ok_or_else(|| {
            DocumentFault::at(path, format!("there is no node `{name}`"), "name one that is there, or leave it out")
        })
    }

    fn pool_named(&self, path: String, name: &str) -> Result<PoolId, DocumentFault> {
        let pools = self.loaded.engine.state().policy().map(|p| p.pools.as_slice()).unwrap_or_default();
        let found = pools.iter().position(|pool| pool.name == name).and_then(|at| u16::try_from(at).ok());
        found.map(PoolId).ok_or_else(|| {
            DocumentFault::at(
                path,
                format!("the policy has no pool `{name}`"),
                "name one of its pools, or leave it out",
            )
        })
    }

    /// `None`: the policy does not sell it any more.
    fn offering_named(&self, name: &OfferingName) -> Option<OfferingId> {
        let wanted = (name.instance_type.as_str(), name.zone.as_str(), name.capacity_type.into());
        let found = self.loaded.engine.state().offerings().iter().position(|row| row.offer.key() == wanted);
        found.and_then(|at| u32::try_from(at).ok()).map(OfferingId)
    }

    /// The cause of a stop, with the job that it is for.
    ///
    /// # Errors
    ///
    /// The job that it is for is not named, or not there.
    pub fn cause(&self, path: &str, view: &StopView) -> Result<StopCause, DocumentFault> {
        let takes =
            matches!(view.cause, StopCauseView::Preempted | StopCauseView::QuotaReclaimed | StopCauseView::Overran);
        let gone = view.by.as_ref().is_some_and(|name| !self.ids.contains_key(name));
        if takes && gone && self.document.memory.is_some() {
            // The job that it was for has left the state: what follows is the same, for nobody in particular.
            return Ok(StopCause::Moved);
        }
        let by = || match &view.by {
            Some(name) => self.job_named(format!("{path}.by"), name),
            None => Err(DocumentFault::at(format!("{path}.by"), "it does not say for which job", "name it")),
        };
        Ok(match view.cause {
            StopCauseView::Preempted => StopCause::Preempted { by: by()? },
            StopCauseView::QuotaReclaimed => StopCause::QuotaReclaimed { by: by()? },
            StopCauseView::Overran => StopCause::Overran { by: by()? },
            StopCauseView::Failed => StopCause::Failed { code: view.exit_code.unwrap_or(1) },
            StopCauseView::Lingering => StopCause::Lingering { idle: view.idle_s.unwrap_or_default().into() },
            StopCauseView::Reclaimed => StopCause::Reclaimed,
            StopCauseView::Moved => StopCause::Moved,
            StopCauseView::Grows => StopCause::Grows,
            StopCauseView::Hurried => StopCause::Hurried,
            StopCauseView::NodeHung => StopCause::NodeHung,
            StopCauseView::Scaled => StopCause::Scaled,
            StopCauseView::NodeLost => StopCause::NodeLost,
            StopCauseView::StartTimeout => StopCause::StartTimeout,
            StopCauseView::Completed => StopCause::Completed,
            StopCauseView::Cancelled => StopCause::Cancelled,
            StopCauseView::MaxRun => StopCause::MaxRun,
        })
    }

    fn ending(&self, path: &str, view: &EndView) -> Result<Ending, DocumentFault> {
        Ok(match (view.how, &view.stop) {
            (EndHow::Completed, _) => Ending::Completed,
            (EndHow::Failed, _) => Ending::Failed { code: view.exit_code.unwrap_or(1) },
            (EndHow::NodeFault, _) => Ending::NodeFault,
            (EndHow::Stopped, Some(stop)) => Ending::Stopped { cause: self.cause(&format!("{path}.stop"), stop)? },
            (EndHow::Denied, _) => Ending::Denied,
            (EndHow::Stopped | EndHow::Dropped, _) => Ending::Dropped,
        })
    }

    /// What an older export says too.
    fn recall_counts(&mut self, id: JobId, view: &JobView) {
        with(&mut self.loaded.engine, |machine| {
            machine.recall_job(id, |row| {
                row.attempt.0 = view.attempt.unwrap_or(row.attempt.0).max(row.attempt.0);
                row.failures = view.failures.unwrap_or(row.failures);
                row.interruptions = view.interruptions.unwrap_or(row.interruptions);
                row.progress = view.progress_s.map_or(row.progress, Span::from);
                if let Some(first) = view.first_start_s {
                    row.first_start = Some(first.into());
                    row.start_target = None;
                }
            });
        });
    }

    fn recall_job(&mut self, at: usize, id: JobId, view: &JobView, memory: &JobMemory) -> Result<(), DocumentFault> {
        let path = format!("jobs[{at}].memory");
        let phase = self.phase(&path, id, view, memory)?;
        let kept = match &memory.keeps {
            Some(kept) => {
                let pool = self.pool_named(format!("{path}.keeps.pool"), &kept.pool)?;
                Some(Kept { pool, share: MilliGpu(kept.gpu_milli), own: kept.own })
            }
            None => None,
        };
        let start_target = memory.start_target.as_ref().map(|target| self.start_target(&path, target)).transpose()?;
        // It may have left the state since.
        let backfill_for = memory.backfill_for.as_ref().and_then(|name| self.ids.get(name).copied());
        let broken = memory.broken.as_ref().map(|stop| self.cause(&format!("{path}.broken"), stop)).transpose()?;
        let leaving = match &memory.leaving {
            Some(leaving) => {
                let cause = self.cause(&format!("{path}.leaving.stop"), &leaving.stop)?;
                Some(Leaving { workers: leaving.workers.clone(), cause, deadline: time(leaving.stop.deadline_s) })
            }
            None => None,
        };
        let numbers: Vec<u32> = (0..).zip(&view.places).map(|(at, place)| place.worker.unwrap_or(at)).collect();
        let standing = self.standing(memory);
        let streak = memory.streak.as_ref().map(|view| self.streak(view));
        let held = if phase == Some(Phase::Held) { self.loaded.engine.why_impossible(id) } else { None };
        let edit = |row: &mut Job| {
            let started = row.alive();
            row.phase = phase.unwrap_or(row.phase);
            row.reason = held.or(row.reason);
            row.since = memory.phase_since_s.map_or(row.since, Timestamp::from);
            row.kept = kept;
            row.reserved_until = memory.reserved_until_s.map(Timestamp::from);
            row.start_target = start_target;
            row.reassess_at = time(memory.reassess_s);
            row.hopeless = memory.unreachable;
            row.admitted_said = memory.admitted;
            row.cancel_asked = memory.cancel_asked;
            row.backfill_for = backfill_for;
            row.running_since = memory.running_since_s.map(Timestamp::from);
            row.saved_at = or_zero(memory.saved_at_s);
            row.resume_from = Span(or_zero(memory.resumed_from_s).0);
            row.protected_until = or_zero(memory.protected_until_s);
            row.must_end_by = time(memory.must_end_by_s);
            row.overdue_at = time(memory.overdue_at_s);
            row.turn_over_at = time(memory.turn_over_at_s);
            row.denials = memory.denials;
            row.not_before = if row.phase == Phase::Held { or_zero(memory.pauses_until_s) } else { Timestamp(0) };
            row.put_back =
                memory.put_back.as_ref().map(|last| PutBack { at: Timestamp::from(last.at_s), times: last.times });
            row.workers = memory.workers;
            row.workers_done.clone_from(&memory.workers_done);
            row.left.clone_from(&memory.workers_left);
            row.leaving = leaving;
            row.idle_reported = memory.idle_reported_s.map(Span::from);
            row.idle_seen = Span(or_zero(memory.idle_seen_s).0);
            row.broken = broken;
            row.hung = memory.hung;
            if started && numbers.len() == row.places.len() {
                row.numbers = numbers;
            }
            if row.effect.is_none() && memory.request.is_some() {
                row.effect = Some(OpenEffect { id: forebay_kernel::ids::Seq(0), next_try: Timestamp::NEVER, tries: 0 });
            }
            again(&mut row.effect, memory.request);
        };
        let impossible = if memory.impossible { self.loaded.engine.why_impossible(id) } else { None };
        with(&mut self.loaded.engine, |machine| {
            machine.recall_standing(id, standing);
            machine.recall_job(id, edit);
            if let Some(streak) = streak {
                machine.recall_streak(id, streak);
            }
            if let Some(share) = memory.held_gpu_milli {
                machine.recall_share(id, MilliGpu(share));
            }
            let class = machine.job(id).map(|(row, _)| row.class);
            if let (Some(class), Some(reason)) = (class, impossible) {
                machine.recall_class(class, Some(reason));
            }
        });
        Ok(())
    }

    /// How its deadline, what was taken from it and its start target bear on a job.
    fn standing(&self, memory: &JobMemory) -> Standing {
        let urgency = match memory.urgency {
            Some(UrgencyView::Relaxed) => Urgency::Relaxed,
            Some(UrgencyView::Urgent) => Urgency::Urgent,
            Some(UrgencyView::Dated) => Urgency::Dated,
            Some(UrgencyView::Avoids) => {
                let offering = memory.avoids.as_ref().and_then(|name| self.offering_named(name));
                offering.map_or(Urgency::Ordinary, Urgency::Avoids)
            }
            Some(UrgencyView::AvoidsSpot) => Urgency::AvoidsSpot,
            None => Urgency::Ordinary,
        };
        Standing { urgency, late: memory.late }
    }

    /// Nodes and offerings that are gone are left out: nothing follows from them any more.
    fn streak(&self, view: &StreakView) -> Streak {
        let offering = |name: &Option<OfferingName>| name.as_ref().and_then(|name| self.offering_named(name));
        let blamed = view.blamed.iter().filter_map(|blame| Some((*self.nodes.get(&blame.node)?, blame.times)));
        Streak {
            start_failures: view.start_failures,
            blamed: blamed.collect(),
            reclaims: view.reclaims,
            reclaimed_from: offering(&view.reclaimed_from).map(|id| (id, view.reclaimed_there)),
            taken: offering(&view.taken),
        }
    }

    /// The phase of a job that holds no places, which no history brings it to. `None`: it is there already.
    fn phase(&self, path: &str, id: JobId, view: &JobView, memory: &JobMemory) -> Result<Option<Phase>, DocumentFault> {
        let was = self.loaded.engine.state().job(id).map(|(row, _)| row.phase);
        // A replica begins in its queue.
        if !matches!(was, Some(Phase::New | Phase::Queued)) {
            return Ok(None);
        }
        Ok(match view.phase {
            JobPhase::Queued => Some(Phase::Queued),
            JobPhase::Held => Some(Phase::Held),
            JobPhase::BackingOff => memory.pauses_until_s.map(|until| Phase::BackingOff { until: until.into() }),
            JobPhase::Ended => match &memory.end {
                Some(end) => Some(Phase::Ended { how: self.ending(&format!("{path}.end"), end)? }),
                None => None,
            },
            _ => None,
        })
    }

    fn start_target(&self, path: &str, view: &StartTargetView) -> Result<JobStartTarget, DocumentFault> {
        let until = time(view.until_s);
        let wait = match (view.waits_for, &view.node, &view.run) {
            (WaitView::New, ..) => Wait::New,
            (WaitView::Noise, ..) => Wait::Noise { until },
            // The run may have left the state since: then it is judged anew.
            (WaitView::Promised, Some(_), Some(run)) if !self.ids.contains_key(run) => Wait::New,
            (WaitView::Promised, Some(node), Some(run)) => Wait::Promised {
                node: self.node_named(format!("{path}.startTarget.node"), node)?,
                run: self.job_named(format!("{path}.startTarget.run"), run)?,
                until,
            },
            (WaitView::Promised | WaitView::Over, ..) => Wait::Over,
        };
        Ok(JobStartTarget { by: time(view.by_s), when_late: view.when_late, wait })
    }

    fn recall_node(&mut self, at: usize, id: NodeId, memory: &NodeMemory) -> Result<(), DocumentFault> {
        let mut reserved = Vec::new();
        for (position, view) in memory.reserved.iter().enumerate() {
            let path = format!("nodes[{at}].memory.reserved[{position}].job");
            // The job may have been taken out by hand.
            if let Ok(job) = self.job_named(path, &view.job) {
                reserved.push((job, time(view.until_s)));
            }
        }
        with(&mut self.loaded.engine, |machine| {
            machine.recall_node(id, |row| {
                row.decided_at = memory.decided_s.into();
                row.since = memory.phase_since_s.into();
                row.idle_since = memory.idle_since_s.map(Timestamp::from);
                row.cluster = memory.cluster;
                row.reserved = reserved;
                row.due = time(memory.due_s);
                row.condemned = memory.condemned;
                row.faults = memory.faults;
                row.booked_price = Rate(memory.ceiling_price);
                if let (NodePhase::Draining { why, .. }, check_at) = (row.phase, time(memory.check_at_s)) {
                    row.phase = NodePhase::Draining { why: memory.draining.unwrap_or(why), check_at };
                }
                again(&mut row.effect, memory.request);
            });
        });
        Ok(())
    }

    fn recall_offering(&mut self, view: &OfferingView) {
        let name = OfferingName {
            instance_type: view.instance_type.clone(),
            zone: view.zone.clone(),
            capacity_type: view.capacity_type,
        };
        let (Some(id), Some(memory)) = (self.offering_named(&name), &view.memory) else { return };
        with(&mut self.loaded.engine, |machine| {
            machine.recall_offering(id, |row| {
                row.offer.price = micro(view.price_usd_per_hour).unwrap_or(row.offer.price);
                row.offer.max_price = Rate(memory.ceiling_price);
                row.blocked_by = memory.blocked_by;
                row.blocked_until = memory.blocked_until_s.into();
                row.refused_size = memory.refused_size;
                row.failures = memory.failures;
                row.window = memory.window;
            });
        });
    }

    fn recall_service(&mut self, at: usize, id: JobId, memory: &ServiceMemory) -> Result<(), DocumentFault> {
        let path = format!("jobs[{at}].service.memory");
        let (resident, busy) = (number(&path, "resident", &memory.resident)?, number(&path, "busy", &memory.busy)?);
        let needs: Vec<Need> =
            memory.needs.iter().map(|need| Need { replicas: need.replicas, last: time(need.last_s) }).collect();
        with(&mut self.loaded.engine, |machine| {
            machine.recall_service(id, |row| {
                row.needs = needs;
                row.made = memory.made;
                row.unasked_since = memory.unasked_since_s.map(Timestamp::from);
                (row.resident, row.busy) = (resident, busy);
                row.counted_to = memory.counted_to_s.into();
            });
        });
        Ok(())
    }

    fn recall_state(&mut self, memory: &StateMemory) -> Result<(), DocumentFault> {
        let mut reservations = Vec::new();
        for (at, view) in memory.reservations.iter().enumerate() {
            let path = format!("memory.reservations[{at}]");
            let pool = self.pool_named(format!("{path}.pool"), &view.pool)?;
            let Ok(job) = self.job_named(format!("{path}.job"), &view.job) else { continue };
            let mut nodes: Vec<NodeId> = view.nodes.iter().filter_map(|name| self.nodes.get(name).copied()).collect();
            nodes.sort_unstable();
            let room = view.room.iter().filter_map(|room| Some((self.offering_named(&room.offering)?, room.nodes)));
            let (room, from) = (room.collect(), time(view.from_s));
            reservations.push((pool, Reservation { job, from, known: view.known, delayed: view.delayed, nodes, room }));
        }
        let mut allowances = Vec::new();
        for (at, view) in memory.allowances.iter().enumerate() {
            let path = format!("memory.allowances[{at}]");
            let pool = self.pool_named(format!("{path}.pool"), &view.pool)?;
            let Ok(job) = self.job_named(format!("{path}.job"), &view.job) else { continue };
            let runs = view.runs.iter().filter_map(|name| self.job_named(format!("{path}.runs"), name).ok()).collect();
            let (from, known, delayed) = (view.from_s.into(), view.known, view.delayed);
            allowances.push((view, AllowanceReservation { job, pool, from, known, delayed, runs }));
        }
        let observed = self.observed(memory)?;
        let mut used = Vec::new();
        for (at, view) in memory.used.iter().enumerate() {
            let path = format!("memory.used[{at}]");
            let time = view.used.as_ref().map(|text| number(&path, "used_gpuMilliMs", text)).transpose()?;
            let spent = view.spent.as_ref().map(|text| number(&path, "spent_microUsdMsPerHour", text)).transpose()?;
            used.push((view.queue.as_str(), time, spent));
        }
        let quotas = self.loaded.engine.state().policy().map(|p| p.quotas.clone()).unwrap_or_default();
        let kind = |view: &forebay_wire::document::memory::KindView| {
            (WorkKind { gpus: view.gpus, share: view.share_milli }, view.count)
        };
        let mix = memory.mix.iter().map(kind).collect();
        let brakes = self.brakes(memory)?;
        with(&mut self.loaded.engine, |machine| {
            for (pool, reservation) in reservations {
                machine.recall_reservation(pool, reservation);
            }
            for (view, kept) in allowances {
                let pool = kept.pool;
                let of = |node| match view.of {
                    AllowanceKind::Quota => Allowance::Quota(node, pool),
                    AllowanceKind::Budget => Allowance::Budget(node),
                };
                machine.recall_allowance(&view.queue, of, kept);
            }
            for quota in &quotas {
                machine.recall_use(&quota.name, GpuTime(0));
            }
            for (queue, time, spent) in used {
                if let Some(time) = time {
                    machine.recall_use(queue, GpuTime(time));
                }
                if let Some(spent) = spent {
                    machine.recall_spent(queue, Spend(spent));
                }
            }
            machine.recall_observed(observed);
            machine.recall_mix(mix);
            // Whether this is the policy that was in force, nobody knows.
            machine.recall_review(time(memory.consolidate_at_s));
            if memory.unjudged {
                machine.recall_unjudged();
            }
            machine.recall_resumed(or_zero(memory.resumed_at_s));
            for (brake, order) in brakes {
                machine.recall_brake(brake, order);
            }
            for view in &memory.cancels {
                let (tenant, subject, by) = (view.tenant.clone(), view.subject.clone(), view.by.clone());
                let row = PendingCancel { sent: view.sent_s.map(Timestamp::from), seen: view.seen_s.into() };
                machine.recall_cancel(PendingCancelKey { tenant, subject, by, timed: view.timed }, row);
            }
        });
        Ok(())
    }

    fn brakes(&self, memory: &StateMemory) -> Result<Vec<(Brake, BrakeOrder)>, DocumentFault> {
        let brake = |(at, view): (usize, &BrakeView)| {
            let bad = |message: String| {
                let remedy = "write buying, admission or preemption, or queue, pool or node with its target";
                DocumentFault::at(format!("memory.brakes[{at}]"), message, remedy)
            };
            let brake = match (view.brake.as_str(), view.target.clone()) {
                ("buying", None) => Brake::Buying,
                ("admission", None) => Brake::Admission,
                ("preemption", None) => Brake::Preemption,
                ("queue", Some(path)) => Brake::Queue(path),
                ("pool", Some(name)) => Brake::Pool(name),
                ("node", Some(name)) => {
                    Brake::Node(*self.nodes.get(&name).ok_or_else(|| bad(format!("no node is called `{name}`")))?)
                }
                (kind, _) => return Err(bad(format!("`{kind}` with this target is nothing that can be stopped"))),
            };
            let (by, why) = (view.by.clone(), view.why.clone());
            let (since, until) = (view.since_s.into(), view.until_s.map(Timestamp::from));
            Ok((brake, BrakeOrder { by, why, since, until }))
        };
        memory.brakes.iter().enumerate().map(brake).collect()
    }

    fn observed(&self, memory: &StateMemory) -> Result<ObservedStats, DocumentFault> {
        let state = self.loaded.engine.state();
        let mut observed = ObservedStats::default();
        for view in &memory.durations {
            let queue = state.queues().iter().find(|(_, queue)| queue.path == view.queue);
            let Some((queue, _)) = queue else { continue };
            let counts = view.counts.iter().copied();
            match view.family {
                Some(FamilyView { digest, last }) => {
                    observed.recall_family(FamilyOfWork { queue, size: view.size, family: digest }, last, counts);
                }
                None => observed.recall_durations(queue, view.size, counts),
            }
        }
        for view in &memory.offerings {
            let Some(offering) = self.offering_named(&view.offering) else { continue };
            observed.recall_boots(offering, view.boots_s.iter().map(|took| Span::from(*took)));
            if let Some(time) = view.spot_time_s {
                let reclaims = view.reclaims.unwrap_or_default();
                observed.recall_lives(offering, Lives { time: time.into(), reclaims });
            }
        }
        for (at, view) in memory.pools.iter().enumerate() {
            let pool = self.pool_named(format!("memory.pools[{at}].pool"), &view.pool)?;
            observed
                .recall_needs(pool, NeedStats { count: view.count, last: view.last_s.into(), gap: view.gap_s.into() });
        }
        Ok(observed)
    }
}

fn number(path: &str, field: &str, text: &str) -> Result<u128, DocumentFault> {
    text.parse().map_err(|e| {
        DocumentFault::at(format!("{path}.{field}"), format!("`{text}` is not a number: {e}"), "leave `memory` out")
    })
}
