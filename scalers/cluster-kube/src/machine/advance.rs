//! What a gang needs next, from what is known of it: created, bound, told to go, watched. A stage reads like a recipe, and each step is taken
//! again until it is done.

use super::agenda::Task;
use super::census::{Examined, GangScope};
use super::gang::{Gang, NamespaceState, Verdict, Worker};
use super::life::{Death, Life, words};
use super::{KubeMachine, KubeReport, OBJECTS};
use crate::api_call::Resource;
use crate::names::{ANNOTATION_BARRIER, RunId, WorkerId};
use crate::view::RunStage;
use forebay_kernel::event::Event;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

impl KubeMachine {
    /// Plans what a gang needs next where something of it has changed, and reports what became of it.
    pub(super) fn advance(&mut self, run: RunId, scope: GangScope, now: Timestamp) {
        if !self.listings.complete() {
            // Looked at when everything is listed.
            return;
        }
        let Some(mut gang) = self.gangs.remove(&run) else { return };
        if self.run_view(run).is_none() {
            if self.clean_up(run, &mut gang, scope, now) {
                self.gangs.insert(run, gang);
            } else {
                self.forget_run(run, &gang);
            }
            return;
        }
        let examined = self.examine(run, &mut gang, scope);
        let ended_before = gang.verdict.is_some();
        if !ended_before {
            let started = self.run_view(run).is_some_and(|view| view.stage.has_started());
            if gang.released || started {
                self.advance_run(run, &mut gang, &examined, now);
            } else {
                self.advance_start(run, &mut gang, &examined.lives, now);
            }
        }
        if gang.verdict.is_some() {
            if ended_before || examined.scope == GangScope::Whole {
                self.advance_end(run, &mut gang, &examined.lives, now);
            } else {
                // That it ends concerns all workers, and only some were looked at.
                self.changed.insert(run);
            }
        }
        self.clean_left(run, &mut gang, &examined.scope, now);
        self.gangs.insert(run, gang);
    }

    fn forget_run(&mut self, run: RunId, gang: &Gang) {
        for (number, worker) in &gang.workers {
            self.forget_place(WorkerId { run, worker: *number }, worker);
        }
        self.end_copies(run);
    }

    /// A worker is not known any more.
    pub(super) fn forget_place(&mut self, id: WorkerId, worker: &Worker) {
        let Some(instance) = &worker.instance else { return };
        if let Some(workers) = self.workers_on.get_mut(instance) {
            workers.remove(&id);
            if workers.is_empty() {
                self.workers_on.remove(instance);
            }
        }
    }

    /// A gang whose barrier is closed: its objects, its pods, its Bindings, and then the barrier. `lives`: of the workers that are looked at.
    fn advance_start(&mut self, run: RunId, gang: &mut Gang, lives: &BTreeMap<u32, Life>, now: Timestamp) {
        if let Some(words) = self.broken_start(gang, lives) {
            return self.refuse(run, gang, words);
        }
        if gang.request.is_none() {
            // Its start comes again with the effects that have no outcome.
            return;
        }
        if self.waits_for_lost(run, gang) {
            return;
        }
        let missing: Vec<Resource> = OBJECTS.into_iter().filter(|resource| !gang.has(*resource)).collect();
        for resource in &missing {
            // Where something exists under its name, it is read first, as soon as that is allowed.
            if !self.agenda.is_open(&Task::ReadObject(run, *resource)) {
                self.agenda.plan(Task::CreateObject(run, *resource), now);
            }
        }
        if !missing.is_empty() {
            return;
        }
        let id = |number: &u32| WorkerId { run, worker: *number };
        let of = |life: Life| lives.iter().filter(move |(_, known)| **known == life).map(|(number, _)| *number);
        let needs_secret = gang.census.any_absent() || gang.secret_lost_at.is_some();
        if needs_secret && !gang.has(Resource::Secrets) {
            let create = Task::CreateObject(run, Resource::Secrets);
            // What is being asked for is not asked for again without a pause.
            if !self.agenda.is_open(&create) {
                self.agenda.plan(create, now);
            }
            return;
        }
        // Where something exists under the name of a pod, it is read first.
        for number in of(Life::Absent) {
            if !self.agenda.is_open(&Task::Read(id(&number))) {
                self.agenda.plan(Task::Create(id(&number)), now);
            }
        }
        if gang.census.any_absent() {
            return;
        }
        // All or none: a gang with a node that cannot take its worker now waits, and a change of that node looks at it again.
        let unbound: Vec<u32> = of(Life::Unbound).collect();
        self.say_why_unbound(run, gang, &unbound);
        if gang.census.any_blocked() {
            return;
        }
        for number in &unbound {
            self.agenda.plan(Task::Bind(id(number)), now);
        }
        if !gang.census.any_unbound() {
            self.agenda.plan(Task::OpenBarrier(run), now);
        }
    }

    /// Whether a gang of which nothing was made yet waits until a lost pod has ended, and says so.
    fn waits_for_lost(&mut self, run: RunId, gang: &mut Gang) -> bool {
        if self.lost.is_empty() && !gang.waits_for_lost {
            return false;
        }
        let untouched = gang.workers.values().all(|worker| worker.pod.is_none() && !worker.create_unknown);
        let words = self.lost_in_the_way(run.job, gang).filter(|_| untouched);
        if words.is_none() && !gang.waits_for_lost {
            return false;
        }
        gang.waits_for_lost = words.is_some();
        if let Some((number, worker)) = gang.workers.iter_mut().next()
            && worker.waits_for != words
        {
            worker.waits_for.clone_from(&words);
            self.reports.push(KubeReport::Waiting { worker: WorkerId { run, worker: *number }, words });
        }
        gang.waits_for_lost
    }

    /// Says of each of these workers why its node cannot take it now, or that it can.
    fn say_why_unbound(&mut self, run: RunId, gang: &mut Gang, unbound: &[u32]) {
        for number in unbound {
            let Some(worker) = gang.workers.get_mut(number) else { continue };
            let words = self.why_unbound(worker.instance.as_deref());
            if worker.waits_for != words {
                worker.waits_for.clone_from(&words);
                self.reports.push(KubeReport::Waiting { worker: WorkerId { run, worker: *number }, words });
            }
        }
    }

    /// Why a gang cannot start any more: a pod of it is over, or goes.
    fn broken_start(&self, gang: &Gang, lives: &BTreeMap<u32, Life>) -> Option<String> {
        lives.iter().find_map(|(number, life)| self.why_broken(gang.workers.get(number)?, life))
    }

    /// Why the gang of a worker cannot start any more. `None`: not because of this worker.
    pub(super) fn why_broken(&self, worker: &Worker, life: &Life) -> Option<String> {
        let name = worker.pod.as_ref().map_or("a pod", |key| &key.name);
        match life {
            Life::Dead(Death::Refused(words)) => Some(words.clone()),
            Life::Dead(Death::Exit(code)) => {
                Some(format!("{name} ended with exit code {code} before its gang was bound"))
            }
            Life::Dead(death) => Some(over_before_bound(name, worker, death)),
            Life::Unproven if worker.pod.is_some() => {
                Some(format!("{name} was ended by somebody else than its kubelet before its gang was bound"))
            }
            Life::Unproven => Some(format!("{name} was deleted before its gang was bound")),
            _ if self.is_deleting(worker) => Some(format!("{name} was deleted before its gang was bound")),
            Life::Unbound => worker.bind_refused.clone(),
            Life::Absent | Life::Bound | Life::Working => None,
        }
    }

    /// The cluster will not start or keep a gang: the job's submitter gets Kubernetes' words.
    pub(super) fn refuse(&mut self, run: RunId, gang: &mut Gang, words: String) {
        self.refuse_as(Verdict::Refused, run, gang, words);
    }

    /// The same, as a lack that may end by itself or as another verdict.
    pub(super) fn refuse_as(&mut self, verdict: Verdict, run: RunId, gang: &mut Gang, words: String) {
        if gang.verdict.is_none() {
            gang.verdict = Some(verdict);
            self.reports.push(KubeReport::Refused { run, words });
        }
    }

    /// A gang whose barrier is open: told to go, started, and then what becomes of each worker.
    fn advance_run(&mut self, run: RunId, gang: &mut Gang, examined: &Examined, now: Timestamp) {
        let lives = &examined.lives;
        self.tell_to_go(run, gang, lives, now);
        self.look_for_warnings(run, gang, now);
        self.report_started(run, gang, now);
        if gang.reported.started {
            self.report_completed(run, gang, lives);
        }
        // Where one of them has changed, the whole gang is looked at.
        if examined.scope == GangScope::Whole {
            self.advance_leaving(run, gang, lives, now);
        }
        for (number, life) in lives.iter().filter(|(number, _)| !gang.leaving.contains_key(number)) {
            let Some(worker) = gang.workers.get(number) else { continue };
            let deleted = self.is_cut_short(worker);
            // Evicted, it is no failure of its own, and an end with 0 is no word about its work.
            if deleted
                && let Life::Bound | Life::Working | Life::Dead(Death::Completed) = life
                && let Some(words) = self.disruption_of(worker)
                && !self.is_done(run, gang, *number)
            {
                return self.refuse(run, gang, words);
            }
            let verdict = match life {
                Life::Dead(Death::Exit(code)) if deleted => Verdict::Deleted { exit_code: *code },
                // Its containers ended with their machine, whatever its kubelet calls that afterwards.
                Life::Dead(Death::Exit(_)) if self.outlived_boot(worker) => {
                    Verdict::NodeFault { node: self.claim_node(worker.instance.as_deref()) }
                }
                // Told to end, it ended with 0: that is no word about its work.
                Life::Dead(Death::Completed) if deleted && !self.is_done(run, gang, *number) => {
                    Verdict::Deleted { exit_code: TERMINATED }
                }
                Life::Dead(Death::Exit(code)) => Verdict::Failed { exit_code: *code },
                Life::Dead(Death::Rebooted | Death::Confirmed) => {
                    Verdict::NodeFault { node: self.claim_node(worker.instance.as_deref()) }
                }
                // Unbound behind an open barrier: what was there was deleted and made again by somebody else.
                Life::Dead(Death::NeverBound) | Life::Unbound | Life::Absent => {
                    Verdict::Deleted { exit_code: TERMINATED }
                }
                Life::Unproven if worker.pod.is_some() => {
                    Verdict::NodeFault { node: self.claim_node(worker.instance.as_deref()) }
                }
                Life::Unproven => Verdict::Deleted { exit_code: TERMINATED },
                Life::Dead(Death::Refused(words)) => {
                    let words = words.clone();
                    return self.refuse(run, gang, words);
                }
                Life::Bound | Life::Working if deleted => Verdict::Deleted { exit_code: TERMINATED },
                // The engine knows that the instance is gone, and decides what follows.
                Life::Dead(Death::Completed | Death::InstanceGone) | Life::Bound | Life::Working => continue,
            };
            if let Verdict::Deleted { .. } = verdict {
                let name = worker.pod.as_ref().map_or_else(|| format!("worker {number}"), |key| key.name.clone());
                let words = words(&format!("{name} was deleted by somebody else"), None);
                self.reports.push(KubeReport::Refused { run, words });
                gang.namespace_state = NamespaceState::Asked;
                self.agenda.plan(Task::ReadNamespace(run), now);
            }
            gang.end(verdict);
            return;
        }
    }

    /// Whether the completion of a worker is journaled, or on its way.
    fn is_done(&self, run: RunId, gang: &Gang, number: u32) -> bool {
        let journaled = self.run_view(run).is_some_and(|view| view.done.contains(&number));
        journaled || gang.reported.completed.contains(&number)
    }

    fn tell_to_go(&mut self, run: RunId, gang: &Gang, lives: &BTreeMap<u32, Life>, now: Timestamp) {
        for number in lives.keys() {
            let key = gang.workers.get(number).and_then(|worker| worker.pod.as_ref());
            let Some(pod) = key.and_then(|key| self.pods.get(key)) else { continue };
            let told = pod.metadata.annotation(ANNOTATION_BARRIER).is_some();
            if !told && !pod.is_terminal() && !pod.metadata.is_deleting() {
                self.agenda.plan(Task::TellWorker(WorkerId { run, worker: *number }), now);
            }
        }
    }

    fn report_started(&mut self, run: RunId, gang: &mut Gang, now: Timestamp) {
        if gang.reported.started {
            return;
        }
        if self.run_view(run).is_none_or(|view| view.stage != RunStage::Starting) {
            gang.reported.started = true;
            return;
        }
        if gang.census.all_started() {
            gang.reported.started = true;
            self.reports.push(KubeReport::Event(Event::RunStarted { job: run.job, attempt: run.attempt }));
            return;
        }
        // The start time-out counts from when the images are there.
        if gang.census.any_preparing() {
            gang.prepared_at = None;
            return;
        }
        let timeout = self.start_timeout();
        let since = *gang.prepared_at.get_or_insert(now);
        if now.since(since) >= timeout {
            let words = format!("not all workers had started {} s after their images were there", timeout.0 / 1000);
            self.refuse(run, gang, words);
        } else {
            self.wakes.insert((since + timeout, run));
        }
    }

    fn report_completed(&mut self, run: RunId, gang: &mut Gang, lives: &BTreeMap<u32, Life>) {
        for (number, _) in lives.iter().filter(|(_, life)| **life == Life::Dead(Death::Completed)) {
            let deleted = gang.workers.get(number).is_some_and(|worker| self.is_cut_short(worker));
            let journaled = self.run_view(run).is_some_and(|view| view.done.contains(number));
            if deleted || journaled || !gang.reported.completed.insert(*number) {
                continue;
            }
            let (job, attempt, worker) = (run.job, run.attempt, Some(*number));
            self.reports.push(KubeReport::Event(Event::RunCompleted { job, attempt, worker }));
        }
    }

    /// Workers that are to leave: deleted, and reported when nothing of them runs.
    fn advance_leaving(&mut self, run: RunId, gang: &mut Gang, lives: &BTreeMap<u32, Life>, now: Timestamp) {
        let leaving: Vec<(u32, Timestamp)> = gang.leaving.iter().map(|(number, by)| (*number, *by)).collect();
        let (mut gone, mut news) = (Vec::new(), false);
        for (number, deadline) in leaving {
            match lives.get(&number) {
                Some(Life::Dead(_)) | None => {
                    news |= gang.reported.left.insert(number);
                    gone.push(number);
                }
                Some(life) => self.delete_worker(run, gang, number, life, deadline, now),
            }
        }
        if news {
            let mut left = self.run_view(run).map(|view| view.left.clone()).unwrap_or_default();
            left.extend(gone);
            let (job, attempt, left) = (run.job, run.attempt, left.into_iter().collect());
            self.reports.push(KubeReport::Event(Event::RunShrunk { job, attempt, left, node_fault: None }));
        }
    }
}

/// How a pod was over before its gang was bound, where neither a refusal nor an exit code says it.
fn over_before_bound(name: &str, worker: &Worker, death: &Death) -> String {
    let node = worker.instance.as_deref().unwrap_or("its node");
    match death {
        Death::Completed => format!("{name} ended with exit code 0 before its gang was bound"),
        Death::InstanceGone => format!("{node}, to which {name} was bound, was gone before its gang was bound"),
        Death::Rebooted => format!("{node} was started again under {name} before its gang was bound"),
        Death::Confirmed => format!("an operator has confirmed that {name} was dead before its gang was bound"),
        Death::NeverBound | Death::Exit(_) | Death::Refused(_) => {
            format!("{name} was deleted before its gang was bound")
        }
    }
}

/// What a container that was told to end by SIGTERM exits with.
const TERMINATED: i32 = 143;
