//! What an adopted object needs next, by what is known of it: its attempt's life from the labels of the nodes to the outcome.

use super::Verdict;
use super::index::label_of_job;
use super::news::News;
use super::pods::Progress;
use crate::adoption::{Demand, WorkloadEnd, submission};
use crate::machine::agenda::Task;
use crate::machine::{KubeMachine, KubeReport};
use crate::names::RunId;
use crate::objects::KubeNode;
use crate::view::{AdoptedView, RunStage};
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The times of its earlier start go, so that its template may change.
    ClearStart,
    /// It is unsuspended for this attempt.
    Admit(RunId),
    /// It is suspended; for this attempt, if there is one.
    Suspend(Option<RunId>),
}

/// What there is to do about an object.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing, until something changes.
    Wait,
    /// Nothing, until the object has ended that runs on for a start which the journal has lost.
    WaitForLost,
    /// Nothing before that time.
    WaitUntil(Timestamp),
    /// A change.
    Change,
    /// The attempt has started.
    Started,
    /// The attempt has ended by itself.
    Over(WorkloadEnd),
    /// The attempt cannot start or go on, in these words.
    Refuse(String),
    /// Its pods are listed, consistently.
    ListPods,
    /// The object is gone.
    Gone,
    /// The attempt was stopped.
    Stopped,
}

impl KubeMachine {
    pub(super) fn advance_workload(&mut self, uid: &str, now: Timestamp) {
        let known = self.view.as_ref().and_then(|view| view.adopted.get(uid)).cloned();
        let Some(known) = known else { return self.offer(uid, now) };
        let Some(run) = known.run.as_ref().map(|run| RunId { job: known.job, attempt: run.attempt }) else {
            return self.advance_idle(uid, &known, now);
        };
        if self.adoptions.runs.get(&run).is_none_or(|run| run.outcome.is_some()) {
            return;
        }
        let step = self.step(uid, run, now);
        self.say_whether_it_waits_for_lost(run, step == Step::WaitForLost);
        match step {
            Step::Wait => {}
            Step::WaitForLost => self.tell_lost(uid, now),
            Step::WaitUntil(at) => self.wake_object(uid, at),
            Step::Change => self.agenda.plan(Task::Adopt(uid.to_owned()), now),
            Step::ListPods => self.agenda.plan(Task::AdoptedPods(run), now),
            Step::Started => {
                self.started(run);
                // What became of it since is looked at at once.
                self.object_changed(uid);
            }
            Step::Refuse(words) => {
                self.reports.push(KubeReport::Refused { run, words });
                self.give_verdict(run, Verdict::Refused);
            }
            Step::Gone => {
                self.give_verdict(run, Verdict::Gone);
                self.cancel(uid, &known);
            }
            Step::Over(end) => {
                if self.stage(run) == Some(RunStage::Starting) && end == WorkloadEnd::Completed {
                    self.started(run);
                }
                let (job, attempt) = (run.job, run.attempt);
                let event = match end {
                    WorkloadEnd::Completed => Event::RunCompleted { job, attempt, worker: None },
                    WorkloadEnd::Failed => {
                        let exit_code = self.exit_code(uid, run).unwrap_or(1);
                        Event::RunFailed { job, attempt, exit_code, node_fault: None }
                    }
                };
                self.conclude(run, event);
            }
            Step::Stopped => {
                let (job, attempt) = (run.job, run.attempt);
                self.conclude(run, Event::RunStopped { job, attempt, progress: None });
            }
        }
    }

    /// Decides what there is to do for an attempt that is alive.
    fn step(&mut self, uid: &str, run: RunId, now: Timestamp) -> Step {
        let verdict = self.adoptions.runs.get(&run).and_then(|known| known.verdict);
        let Some(workload) = self.adoptions.workloads.get(uid) else {
            return match verdict {
                None => Step::Gone,
                // One that has only lost its label is suspended all the same; a call for one that is gone finds that out.
                Some(_) if self.lost_label_may_run(run) => Step::Change,
                Some(_) => self.last_step(uid, run),
            };
        };
        if workload.metadata.is_deleting() && verdict.is_none() {
            return Step::Gone;
        }
        // What has ended by itself has, whatever was decided meanwhile. Its pods have ended, or nothing proves it yet.
        if let Some(end) = workload.end().filter(|_| verdict != Some(Verdict::Gone)) {
            return if self.nothing_runs(uid, run.job) { Step::Over(end) } else { Step::Wait };
        }
        if self.is_lost_run(workload) {
            // Nothing of this attempt is in it.
            return match verdict {
                Some(_) => Step::Stopped,
                None if self.stage(run).is_some_and(RunStage::has_started) => {
                    Step::Refuse("it was started again after the backup that the journal goes on from".to_owned())
                }
                None => Step::WaitForLost,
            };
        }
        match verdict {
            Some(_) => self.step_of_end(uid, run, now),
            None if workload.is_suspended() => self.step_of_start(uid, run),
            None if !self.was_admitted(workload, run) => Step::Change,
            None => self.step_of_run(uid, run, now),
        }
    }

    /// An object that is suspended and is to start, or that somebody else has suspended.
    fn step_of_start(&self, uid: &str, run: RunId) -> Step {
        let Some(workload) = self.adoptions.workloads.get(uid) else { return Step::Wait };
        if self.was_admitted(workload, run) || self.stage(run).is_some_and(RunStage::has_started) {
            let words = "it was suspended by somebody else: it runs again when it is its turn; delete it, or cancel its job, to end it";
            return Step::Refuse(words.to_owned());
        }
        let Some(request) = self.adoptions.runs.get(&run).and_then(|known| known.request.as_ref()) else {
            // Its start comes again with the effects that have no outcome.
            return Step::Wait;
        };
        let owned = request.instances.iter().flatten().find(|name| self.is_owned_claim(name));
        if let Some(node) = owned {
            let words = format!(
                "its place is on {node}, a node that Forebay did not buy, which gets no label of Forebay's: give its queue pools without `owned`"
            );
            return Step::Refuse(words);
        }
        let ready = |instance: &Option<String>| {
            let node = self.node_to_bind(instance.as_deref());
            node.is_some_and(|node| {
                node.metadata.label(&label_of_job(run.job)) == Some(run.attempt.0.to_string().as_str())
            })
        };
        let can_start = workload.is_settled() && self.nothing_runs(uid, run.job) && request.instances.iter().all(ready);
        if can_start { Step::Change } else { Step::Wait }
    }

    /// An object that was unsuspended for this attempt.
    fn step_of_run(&mut self, uid: &str, run: RunId, now: Timestamp) -> Step {
        if self.adoptions.runs.get(&run).is_none_or(|known| known.reported_started) {
            return Step::Wait;
        }
        if self.stage(run) != Some(RunStage::Starting) {
            return Step::Wait;
        }
        let Some(workload) = self.adoptions.workloads.get(uid) else { return Step::Wait };
        let Progress { working, completed, waits, prepares } = self.progress(uid, run);
        let workers = workload.demand(&self.settings).map_or(u64::MAX, |demand| u64::from(demand.workers));
        if working + workload.succeeded().unwrap_or(completed) >= workers {
            return Step::Started;
        }
        let timeout = self.start_timeout();
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return Step::Wait };
        // As with gangs, the time counts from when the images are there; how long these may take, the policy says.
        if prepares {
            known.waits_since = None;
            return Step::Wait;
        }
        let due = *known.waits_since.get_or_insert(now) + timeout;
        if now < due {
            return Step::WaitUntil(due);
        }
        let why = waits.map_or_else(String::new, |waits| format!(": {waits}"));
        Step::Refuse(format!(
            "{working} of {workers} pods had started {} s after it was unsuspended and its images were there{why}",
            timeout.0 / 1000
        ))
    }

    /// An object whose attempt is to end.
    fn step_of_end(&mut self, uid: &str, run: RunId, now: Timestamp) -> Step {
        let settle = self.settings.settle;
        let Some(workload) = self.adoptions.workloads.get(uid) else { return Step::Wait };
        let gone = workload.metadata.is_deleting();
        let stopped = workload.is_suspended() && workload.was_stopped(run);
        if !gone && !stopped {
            return Step::Change;
        }
        let (settled, admitted) = (gone || workload.is_settled(), self.was_admitted(workload, run));
        if !settled || !self.nothing_runs(uid, run.job) {
            return Step::Wait;
        }
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return Step::Wait };
        // Its controller may have missed that it was unsuspended at all, and what it says is about the time before.
        let due = *known.stopped_since.get_or_insert(now) + settle;
        if admitted && !known.resumed && now < due {
            return Step::WaitUntil(due);
        }
        self.last_step(uid, run)
    }

    /// The end of an attempt that was stopped. Without the labels of its nodes no pod of it is bound any more; those that were bound before are in a
    /// list that begins afterwards, though no watch may have told of them yet.
    fn last_step(&self, uid: &str, run: RunId) -> Step {
        let labelled = self.adoptions.index.nodes_with(&label_of_job(run.job)).any(|name| {
            let instance = self.nodes.get(name).and_then(KubeNode::instance);
            instance.is_some_and(|instance| self.has_claim(instance))
        });
        if labelled || !self.nothing_runs(uid, run.job) {
            return Step::Wait;
        }
        let listed = self.adoptions.runs.get(&run).is_some_and(|known| known.pods_listed);
        if listed { Step::Stopped } else { Step::ListPods }
    }

    /// The change that an object needs now. It is asked when the call is made, and so decided by what is known then.
    pub(super) fn change_of(&self, uid: &str) -> Option<Change> {
        let known = self.view.as_ref()?.adopted.get(uid)?;
        let workload = self.adoptions.workloads.get(uid);
        if workload.is_some_and(|workload| self.is_lost_run(workload)) {
            return None;
        }
        let Some(run) = known.run.as_ref().map(|run| RunId { job: known.job, attempt: run.attempt }) else {
            let runs = workload.is_some_and(|w| known.open && !w.is_suspended() && w.end().is_none());
            return runs.then_some(Change::Suspend(None));
        };
        let kept = self.adoptions.runs.get(&run).filter(|kept| kept.outcome.is_none())?;
        let Some(workload) = workload else {
            return self.lost_label_may_run(run).then_some(Change::Suspend(Some(run)));
        };
        if workload.end().is_some() || workload.metadata.is_deleting() {
            return None;
        }
        if kept.verdict.is_some() {
            let done = workload.is_suspended() && workload.was_stopped(run);
            return (!done).then_some(Change::Suspend(Some(run)));
        }
        if !workload.is_suspended() {
            return (!self.was_admitted(workload, run)).then_some(Change::Suspend(None));
        }
        match self.step_of_start(uid, run) {
            Step::Change if workload.has_start_time() => Some(Change::ClearStart),
            Step::Change => Some(Change::Admit(run)),
            _ => None,
        }
    }

    /// An object whose job has no attempt that is alive: nothing of it runs.
    fn advance_idle(&mut self, uid: &str, known: &AdoptedView, now: Timestamp) {
        let gone = self.adoptions.workloads.get(uid).is_none_or(|workload| workload.metadata.is_deleting());
        if gone && known.open {
            return self.cancel(uid, known);
        }
        if known.open && self.runs_lost(uid) {
            self.tell_lost(uid, now);
        }
        if self.change_of(uid).is_some() {
            self.agenda.plan(Task::Adopt(uid.to_owned()), now);
        }
        if let Some(why) = known.waits.as_ref().filter(|_| known.open && !gone) {
            // One of each reason between two attempts: the figures in its words change all the time.
            let key = format!("{} {}", known.attempt.0, why.code);
            let note = format!("{} waits in its queue: {}: {}", known.job, why.code, why.words);
            self.tell(&known.object, News::Queued, &key, &note, now);
        }
    }

    /// An object that the engine does not know: it is submitted, or refused with what is in the way.
    fn offer(&mut self, uid: &str, now: Timestamp) {
        let Some(workload) = self.adoptions.workloads.get(uid) else { return };
        let object = workload.id();
        let over = workload.metadata.is_deleting() || workload.end().is_some();
        if over || !self.settings.adopt.contains(&object.namespace) {
            return;
        }
        if self.is_lost_run(workload) {
            return self.tell_lost(uid, now);
        }
        let judged = match workload.demand(&self.settings) {
            Ok(_) if !workload.is_suspended() => {
                Err("it is not suspended: create it with `spec.suspend: true`, and Forebay unsuspends it".to_owned())
            }
            judged => judged,
        };
        let report = match judged {
            Ok(demand) => {
                let event = Box::new(submission(workload, &demand));
                if !demand.equal {
                    let Demand { workers, cpu_milli, memory_mib, gpus, .. } = demand;
                    let note = format!(
                        "its pods ask for different amounts, and a gang has equal workers: each of the {workers} counts with {cpu_milli}m of \
                         cpu, {memory_mib}Mi of memory and {gpus} GPUs"
                    );
                    self.tell(&object, News::LargestCounts, "", &note, now);
                }
                (event.to_string(), KubeReport::Submit { object, event })
            }
            Err(words) => {
                self.tell(&object, News::NotAdopted, &words, &words, now);
                (words.clone(), KubeReport::NotAdopted { object, words })
            }
        };
        let (said, report) = report;
        if self.adoptions.told.get(uid) != Some(&said) {
            self.adoptions.told.insert(uid.to_owned(), said);
            self.reports.push(report);
        }
    }

    /// The object of a job is gone: the job is cancelled.
    fn cancel(&mut self, uid: &str, known: &AdoptedView) {
        if self.adoptions.cancelled.insert(uid.to_owned()) {
            let (tenant, subject) = (known.tenant.clone(), known.object.to_string());
            self.reports.push(KubeReport::Event(Event::JobCancelled { tenant, subject, by: None, sent: None }));
        }
    }

    fn started(&mut self, run: RunId) {
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return };
        if !known.reported_started {
            known.reported_started = true;
            self.reports.push(KubeReport::Event(Event::RunStarted { job: run.job, attempt: run.attempt }));
        }
    }

    fn give_verdict(&mut self, run: RunId, verdict: Verdict) {
        if let Some(known) = self.adoptions.runs.get_mut(&run) {
            known.verdict.get_or_insert(verdict);
            self.job_changed(run.job);
        }
    }

    fn conclude(&mut self, run: RunId, event: Event) {
        self.reports.push(KubeReport::Event(event.clone()));
        if let Some(known) = self.adoptions.runs.get_mut(&run) {
            known.outcome = Some(vec![event]);
        }
        self.job_changed(run.job);
    }

    fn stage(&self, run: RunId) -> Option<RunStage> {
        let known = self.adopted_of(run.job)?.run.as_ref();
        known.filter(|known| known.attempt == run.attempt).map(|known| known.stage)
    }

    /// The adopted object whose job it is.
    pub(super) fn adopted_of(&self, job: JobId) -> Option<&AdoptedView> {
        let uid = self.adoptions.index.object_of(job)?;
        self.view.as_ref()?.adopted.get(uid).filter(|known| known.job == job)
    }

    /// Whether an object that is not among those with our label may be there all the same, and run.
    fn lost_label_may_run(&self, run: RunId) -> bool {
        !self.adoptions.missing.contains(&run)
    }
}
