//! The simulated cluster: starts gangs whole, lets them work, save, finish, fail and linger, and stops them.
//!
//! ```text
//! start -> (2 s) -> started -> restart -> work .. saves .. work -> completed | failed
//!                                  |  node gone: its workers die, the rest stays until stopped, or works on if enough are left
//!                                  +- shrink -> workers leave, the rest works on -> shrunk
//!                                  +- stop -> saves within grace, or is killed at the deadline -> stopped
//! ```
//!
//! Never: starts a part of a gang, or a run that was stopped before it was started.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::job::Completion;
use forebay_kernel::reconcile::{RunStatus, SETTLED, SeenRun};
use forebay_kernel::state::State;
use forebay_kernel::units::{GpuTime, Mib, MilliCpu, MilliGpu, Span, Timestamp};

use super::cloud::Room;
use super::hash::{Draw, below, chance, draw};
use super::run::{Phase, Run, shrunk, stopped};
use super::{Due, World};

/// A run's end is listed for this long.
const LISTED: Span = Span::mins(120);
/// What never ends by itself fails within this time, if it does.
const LONGEST_TO_FAIL: Span = Span::mins(24 * 60 * 365);
/// A lingering run reports its idleness this often.
const IDLE_BEAT: Span = Span::mins(1);

/// A start as asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartRequest<'a> {
    pub job: JobId,
    pub attempt: Attempt,
    pub workers: &'a [WorkerPlace],
    pub resume_from: Span,
}

/// A stop as asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopRequest {
    pub checkpoint: bool,
    pub deadline: Timestamp,
}

/// The cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    runs: Runs,
    by_key: BTreeMap<(JobId, Attempt), usize>,
    /// Runs with a live worker.
    alive: BTreeSet<(JobId, usize)>,
    ended: BTreeSet<(Timestamp, usize)>,
    on: BTreeMap<usize, BTreeSet<usize>>,
    used: BTreeMap<usize, Used>,
    /// Slices in use: instance, GPU, slice.
    cut: BTreeSet<(usize, u64, u8)>,
    completions: BTreeMap<JobId, u32>,
    saved: BTreeMap<JobId, Span>,
}

/// Runs by their numbers, which are given once.
#[derive(Clone, Debug, Default)]
struct Runs {
    rows: BTreeMap<usize, Run>,
    next: usize,
}

impl Runs {
    fn push(&mut self, run: Run) -> usize {
        self.rows.insert(self.next, run);
        self.next += 1;
        self.next - 1
    }
}

impl Index<usize> for Runs {
    type Output = Run;

    fn index(&self, ix: usize) -> &Run {
        &self.rows[&ix]
    }
}

impl IndexMut<usize> for Runs {
    fn index_mut(&mut self, ix: usize) -> &mut Run {
        self.rows.get_mut(&ix).unwrap_or_else(|| unreachable!("run {ix} is forgotten"))
    }
}

/// What workers use of an instance.
#[derive(Clone, Debug, Default)]
struct Used {
    gpus: Vec<Gpu>,
    cpu: MilliCpu,
    mem: Mib,
}

/// What the jobs on one GPU use of it.
#[derive(Clone, Copy, Debug, Default)]
struct Gpu {
    share: u32,
    mem: Mib,
}

/// What counts against the whole GPU. Shares of slices are rounded up, and may come to more than it has: each is held once instead.
fn share_of(share: u16, slice: Option<u8>) -> u32 {
    if slice.is_some() { 0 } else { u32::from(share) }
}

/// What is due for a run.
#[derive(Clone, Debug)]
pub(crate) enum RunDue {
    /// A gang's workers start.
    Started,
    /// It saves its progress.
    Saves,
    /// A worker, or all of them, has done its work.
    Worked(Option<u32>),
    /// It fails.
    Fails,
    /// It lingers, and reports its idleness.
    Idles,
    /// Its process ends after it has lingered.
    Leaves,
    /// A stop is through.
    Stopped,
    /// Workers leave it, by their numbers.
    Shrunk(Vec<u32>),
}

impl World {
    /// A start arrives. Of a run that is known already, what is known is reported again.
    pub(super) fn start(&mut self, now: Timestamp, order: &StartRequest<'_>, state: &State) {
        let key = (order.job, order.attempt);
        if let Some(&ix) = self.cluster.by_key.get(&key) {
            return self.report_again(now, ix);
        }
        // A start that comes when its job is over is for a run whose nodes are gone: nothing would be left of it.
        let Some((row, spec)) = state.job(order.job) else { return };
        let truth = self.truth(row, spec);
        let places = order.workers.iter().map(|w| {
            let instance = state.node(w.node).and_then(|n| n.instance.as_deref());
            (instance.and_then(|i| self.find(i)).filter(|ix| self.usable(*ix)), w)
        });
        let places: Vec<_> = places.collect();
        let whole = places.iter().all(|(instance, _)| instance.is_some());
        let mut run = Run::new(key, spec, truth, order.resume_from, &places);
        if whole {
            self.check(order, &places, &run);
        } else {
            // A gang is started whole or not at all: nothing of this one will be.
            run.workers.iter_mut().for_each(|w| (w.instance, w.alive, w.gone) = (None, false, true));
        }
        let drawn = draw(self.options.seed, Draw::Start, run.job_hash, u64::from(key.1.0));
        let ix = self.add(run);
        self.agenda.at(now + Span(1500 + below(drawn, 1000)), Due::Run(ix, RunDue::Started));
    }

    /// A stop arrives. Of a run that was never seen, it is known from here on that it never will be.
    pub(super) fn stop(&mut self, now: Timestamp, key: (JobId, Attempt), stop: StopRequest) {
        let Some(&ix) = self.cluster.by_key.get(&key) else {
            let mut run = Run::unseen(key);
            run.last_report = Some(stopped(key, None));
            let ix = self.add(run);
            self.cluster.ended.insert((now, ix));
            self.agenda.report(now + Span::secs(1), stopped(key, None));
            return;
        };
        let run = &mut self.cluster.runs[ix];
        if matches!(run.phase, Phase::Ended(_)) {
            self.report_again(now, ix);
            return;
        }
        if run.stopping {
            return;
        }
        run.stopping = true;
        let hash = draw(self.options.seed, Draw::Stop, run.job_hash, u64::from(key.1.0));
        let can_save = stop.checkpoint && run.started && !run.broken;
        let grace = run.checkpoint.filter(|_| can_save).map(|c| c.grace);
        let takes = match grace {
            Some(grace) => Span(grace.0.saturating_mul(200 + below(hash, 700)) / 1000),
            None => Span(1000 + below(hash, 1000)),
        };
        run.will_save = grace.filter(|_| now + takes <= stop.deadline).map(|_| run.progress(now));
        run.frozen = run.frozen.or(Some(now));
        let hangs =
            chance(draw(self.options.seed, Draw::Hang, run.job_hash, u64::from(key.1.0)), self.options.hang_permille);
        let killed = stop.deadline.max(now + Span(1));
        let point = draw(self.options.seed, Draw::Hang, run.job_hash, u64::MAX - u64::from(key.1.0));
        if chance(point, self.options.hang_for_ever_permille) {
            return;
        }
        self.agenda.at(if hangs { killed } else { (now + takes).min(killed) }, Due::Run(ix, RunDue::Stopped));
    }

    /// Workers are asked to leave. A run that is not under way, or is being stopped, answers to something else.
    pub(super) fn shrink(&mut self, now: Timestamp, key: (JobId, Attempt), leave: &[u32], deadline: Timestamp) {
        let Some(&ix) = self.cluster.by_key.get(&key) else {
            let stop = StopRequest { checkpoint: false, deadline };
            return self.stop(now, key, stop);
        };
        let run = &self.cluster.runs[ix];
        let left = run.left();
        if matches!(run.phase, Phase::Ended(_)) {
            self.report_again(now, ix);
        } else if leave.iter().all(|n| left.contains(n)) {
            self.agenda.report(now + Span::secs(1), shrunk(key, left, None));
        } else if !run.stopping && !run.broken {
            let point = draw(self.options.seed, Draw::Hang, run.job_hash, u64::MAX / 2 - u64::from(key.1.0));
            if chance(point, self.options.hang_for_ever_permille) {
                return;
            }
            let takes =
                1000 + below(draw(self.options.seed, Draw::Stop, run.job_hash, u64::from(key.1.0) + 1000), 10_000);
            let killed = deadline.max(now + Span(1));
            self.agenda.at((now + Span(takes)).min(killed), Due::Run(ix, RunDue::Shrunk(leave.to_vec())));
        }
    }

    /// Something is due for a run.
    pub(super) fn run_due(&mut self, at: Timestamp, ix: usize, due: RunDue) {
        self.forget(at);
        if !self.cluster.runs.rows.contains_key(&ix) {
            return;
        }
        match due {
            RunDue::Started => self.started(at, ix),
            RunDue::Saves => self.saves(at, ix),
            RunDue::Worked(None) => self.all_worked(at, ix),
            RunDue::Worked(Some(worker)) => self.worked(at, ix, worker),
            RunDue::Fails => self.fails(at, ix),
            RunDue::Idles => self.idles(at, ix),
            RunDue::Leaves if self.cluster.runs[ix].lingers() => self.complete(at, ix),
            RunDue::Leaves => {}
            RunDue::Stopped => self.stopped(at, ix),
            RunDue::Shrunk(leave) => self.shrunk(at, ix, &leave),
        }
    }

    /// An instance is no more: its workers die, the rest of their gangs stays.
    pub(super) fn node_gone(&mut self, at: Timestamp, instance: usize, why: GoneWhy) {
        self.cluster.used.remove(&instance);
        for ix in self.cluster.on.remove(&instance).unwrap_or_default() {
            let run = &mut self.cluster.runs[ix];
            let gone = run.on(instance);
            if run.goes_on_without(&gone) {
                self.lose(ix, &gone);
                if self.cluster.runs[ix].alive() {
                    continue;
                }
            }
            let run = &mut self.cluster.runs[ix];
            let progress = run.progress(at);
            let first = !run.broken && !run.met;
            for worker in run.workers.iter_mut().filter(|w| w.instance == Some(instance)) {
                (worker.alive, worker.gone) = (false, true);
            }
            run.broken = true;
            run.will_save = None;
            run.frozen = run.frozen.or(Some(at));
            let taken = why == GoneWhy::Reclaimed && first && run.started;
            self.billing.reclaimed_runs += u64::from(taken);
            if taken {
                self.billing.lost_to_reclaims += run.share.over(progress - run.saved);
            }
            // A gang that is not up yet is reported when its start comes to nothing.
            if !run.alive() && (run.started || run.stopping) {
                run.last_report = Some(stopped(run.key, None));
                self.end(at, ix, RunStatus::Dead);
            }
        }
    }

    /// Runs as listed.
    pub(super) fn list_runs(&self, now: Timestamp) -> Vec<SeenRun> {
        let seen = |ix: usize, status| {
            let (job, attempt) = self.cluster.runs[ix].key;
            SeenRun { job, attempt, status }
        };
        let alive = self.cluster.alive.iter().filter(|(_, ix)| self.cluster.runs[*ix].started);
        let alive = alive.map(|(_, ix)| seen(*ix, RunStatus::Alive));
        let ended =
            self.cluster.ended.range((now - LISTED, 0)..=(now - SETTLED, usize::MAX)).filter(|_| now.0 >= SETTLED.0);
        let ended = ended.filter_map(|(_, ix)| match self.cluster.runs[*ix].phase {
            Phase::Ended(status) => Some(seen(*ix, status)),
            _ => None,
        });
        alive.chain(ended).collect()
    }

    /// Runs with a live worker.
    #[must_use]
    pub fn runs_alive(&self) -> usize {
        self.cluster.alive.len()
    }

    /// Runs that will end by themselves.
    #[must_use]
    pub fn runs_working(&self) -> usize {
        self.cluster.alive.iter().filter(|(_, ix)| !self.cluster.runs[*ix].broken).count()
    }

    /// How often each job's work was brought to its end.
    #[must_use]
    pub fn completions(&self) -> &BTreeMap<JobId, u32> {
        &self.cluster.completions
    }

    /// What durable progress a job has, by its own account.
    #[must_use]
    pub fn saved(&self, job: JobId) -> Span {
        self.cluster.saved.get(&job).copied().unwrap_or_default()
    }

    /// Nothing may be at work on an instance that is being terminated.
    pub(super) fn check_idle(&mut self, instance: usize, state: &State) {
        // A run that has hung did not receive its stop, or will never report it: it ends with its node.
        let hung = |job: JobId| state.job(job).is_some_and(|(row, _)| row.hung);
        let on = self.cluster.on.get(&instance).into_iter().flatten();
        let at_work = |r: &&Run| r.alive() && !r.broken && !r.stopping && !r.met;
        let found = on.map(|ix| &self.cluster.runs[*ix]).find(at_work).map(|r| r.key);
        if let Some((job, attempt)) = found.filter(|(job, _)| !hung(*job)) {
            self.violations.push(format!("terminated a node under {job} {attempt} while it was at work"));
        }
    }

    /// Breaks a rule on purpose, for tests of the checks: workers of this run will survive their stop.
    pub(crate) fn keep_alive_after_stop(&mut self, job: JobId, attempt: Attempt) {
        if let Some(&ix) = self.cluster.by_key.get(&(job, attempt)) {
            self.cluster.runs[ix].survives_stop = true;
        }
    }

    /// A run that is under way already, for a rebuilt world: it had `progress` at `since`.
    pub(super) fn resume(&mut self, run: Run, since: Timestamp) {
        let ix = self.add(run);
        let run = &mut self.cluster.runs[ix];
        run.phase = Phase::Working;
        run.started = true;
        run.work_from = since;
        let whole = run.workers.iter().all(|w| w.alive) || run.goes_on_without(&[]);
        if whole {
            self.schedule(ix);
        } else {
            run.broken = true;
            run.frozen = Some(since);
        }
    }

    /// Marks a resumed run as one that was asked to stop long ago, and will never report that it has stopped.
    pub(super) fn hung(&mut self, key: (JobId, Attempt), since: Timestamp) {
        let Some(&ix) = self.cluster.by_key.get(&key) else { return };
        let run = &mut self.cluster.runs[ix];
        run.stopping = true;
        run.frozen = run.frozen.or(Some(since));
    }

    /// An operator confirms that workers of a run are dead. Of one that was asked to stop and does not answer that counts; it is over with the last.
    pub(crate) fn confirm_dead(&mut self, now: Timestamp, key: (JobId, Attempt), workers: &[u32]) {
        let Some(&ix) = self.cluster.by_key.get(&key) else { return };
        let silent = |run: &Run| run.stopping && !matches!(run.phase, Phase::Ended(_));
        if !silent(&self.cluster.runs[ix]) {
            return;
        }
        workers.iter().for_each(|worker| self.worker_out(ix, *worker as usize));
        let run = &mut self.cluster.runs[ix];
        if run.workers.iter().any(|worker| worker.alive) {
            return;
        }
        run.will_save = None;
        run.last_report = Some(stopped(key, None));
        let status = if run.met { RunStatus::Completed } else { RunStatus::Dead };
        self.end(now, ix, status);
        self.agenda.report(now + Span::secs(1), stopped(key, None));
    }

    /// A job's durable progress, for a rebuilt world.
    pub(super) fn remember(&mut self, job: JobId, saved: Span) {
        self.cluster.saved.insert(job, saved);
    }

    /// Marks workers of a resumed run as done. It is over where the others have left it.
    pub(super) fn workers_done(&mut self, now: Timestamp, key: (JobId, Attempt), workers: &[u32]) {
        let Some(&ix) = self.cluster.by_key.get(&key).filter(|_| !workers.is_empty()) else { return };
        for &worker in workers {
            self.worker_out(ix, worker as usize);
            let run = &mut self.cluster.runs[ix];
            run.met |= run.completion == Completion::Any || worker == 0;
        }
        self.end_if_all_worked(now, ix);
    }

    fn add(&mut self, run: Run) -> usize {
        let ix = self.cluster.runs.next;
        let saved = self.cluster.saved.entry(run.key.0).or_default();
        *saved = run.base.max(*saved);
        for worker in &run.workers {
            let Some(instance) = worker.instance else { continue };
            self.cluster.on.entry(instance).or_default().insert(ix);
        }
        self.cluster.by_key.insert(run.key, ix);
        if run.alive() {
            self.cluster.alive.insert((run.key.0, ix));
        }
        self.cluster.runs.push(run)
    }

    /// The rules that a start must keep.
    fn check(&mut self, order: &StartRequest<'_>, places: &[(Option<usize>, &WorkerPlace)], run: &Run) {
        let (job, attempt) = (order.job, order.attempt);
        let mut others = self.cluster.alive.range((job, 0)..=(job, usize::MAX));
        if let Some((_, ix)) = others.find(|(_, ix)| self.cluster.runs[*ix].alive()) {
            let other = self.cluster.runs[*ix].key.1;
            self.violations.push(format!("{job}: {attempt} starts while a worker of {other} is alive"));
        }
        if order.resume_from > self.saved(job) {
            let saved = self.saved(job);
            self.violations.push(format!("{job} {attempt} resumes from {}, saved is {saved}", order.resume_from));
        }
        for (instance, place) in places {
            let Some(instance) = *instance else { continue };
            let Room { gpus: count, gpu_mem: size, cpu, mem } = self.room(instance);
            if place.slice.is_some_and(|slice| !self.cluster.cut.insert((instance, place.gpus, slice))) {
                self.violations.push(format!("{job} {attempt}: a slice is given out twice: {place:?}"));
            }
            let used = self.cluster.used.entry(instance).or_default();
            used.gpus.resize(usize::from(count), Gpu::default());
            let needs = run.needs(place.gpus);
            used.cpu = MilliCpu(used.cpu.0.saturating_add(needs.cpu.0));
            used.mem = Mib(used.mem.0.saturating_add(needs.mem.0));
            if used.cpu > cpu || used.mem > mem {
                let (node, all) = (place.node, (cpu.0, mem.0));
                let held = (used.cpu.0, used.mem.0);
                self.violations.push(format!("{job} {attempt}: {node} has CPU and memory {all:?}, given out {held:?}"));
            }
            for nth in (0..64).filter(|nth| place.gpus >> nth & 1 == 1) {
                let Some(gpu) = used.gpus.get_mut(nth) else {
                    self.violations.push(format!("{job} {attempt}: {} has no GPU {nth}", place.node));
                    continue;
                };
                gpu.share += share_of(place.share, place.slice);
                gpu.mem = Mib(gpu.mem.0.saturating_add(run.gpu_mem.0));
                if gpu.share > 1000 {
                    self.violations.push(format!("{job} {attempt}: GPU {nth} of {} is given out twice", place.node));
                }
                if gpu.mem > size {
                    self.billing.out_of_memory += 1;
                    let node = place.node;
                    let what = format!(
                        "{job} {attempt}: GPU {nth} of {node} is out of memory: {} of {} MiB",
                        gpu.mem.0, size.0
                    );
                    self.violations.push(what);
                }
            }
        }
    }

    fn started(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        if run.phase != Phase::Starting || run.stopping {
            return;
        }
        let (job, attempt) = run.key;
        if run.workers.iter().any(|w| !w.alive) {
            run.last_report = Some(stopped(run.key, None));
            self.end(at, ix, RunStatus::Dead);
            self.events.push(stopped((job, attempt), None));
            return;
        }
        run.phase = Phase::Working;
        run.started = true;
        run.work_from = at + run.restart;
        self.billing.runs += 1;
        self.events.push(Event::RunStarted { job, attempt });
        self.schedule(ix);
    }

    /// Puts the rest of a run on the self.agenda.
    fn schedule(&mut self, ix: usize) {
        let run = &self.cluster.runs[ix];
        let (finish, attempt) = (run.finish(), u64::from(run.key.1.0));
        let left = finish.since(run.work_from);
        self.next_save(run.work_from, ix);
        let run = &self.cluster.runs[ix];
        if run.fails() {
            let point = below(draw(self.options.seed, Draw::FailPoint, run.job_hash, attempt), 1000);
            self.agenda.at(
                run.work_from + Span(left.min(LONGEST_TO_FAIL).0.saturating_mul(point) / 1000),
                Due::Run(ix, RunDue::Fails),
            );
            return;
        }
        if finish == Timestamp::NEVER {
            return;
        }
        self.schedule_end(ix);
    }

    /// Puts the ends of its workers on the self.agenda.
    fn schedule_end(&mut self, ix: usize) {
        let run = &self.cluster.runs[ix];
        let finish = run.finish();
        let left = finish.since(run.work_from);
        if run.completion == Completion::All || run.workers.len() < 2 {
            self.agenda.at(finish, Due::Run(ix, RunDue::Worked(None)));
            return;
        }
        let count = run.workers.len() as u64;
        let first = match run.completion {
            Completion::Any => below(draw(self.options.seed, Draw::Stagger, run.job_hash, u64::MAX), count),
            _ => 0,
        };
        for worker in 0..count {
            let late = below(draw(self.options.seed, Draw::Stagger, run.job_hash, worker), 200);
            let after = if worker == first { 0 } else { 1000 + left.0.saturating_mul(late) / 1000 };
            let nth = u32::try_from(worker).unwrap_or(u32::MAX);
            self.agenda.at(finish + Span(after), Due::Run(ix, RunDue::Worked(Some(nth))));
        }
    }

    /// The next save: after as much work as was agreed on, on the beat, if the work is not done by then.
    fn next_save(&mut self, from: Timestamp, ix: usize) {
        let run = &self.cluster.runs[ix];
        let Some(checkpoint) = run.checkpoint else { return };
        let grid = self.options.save_grid.0.min(checkpoint.every.0 / 10).max(1);
        let next = Timestamp((from + checkpoint.every.max(Span(1))).0.div_ceil(grid).saturating_mul(grid));
        if next < run.finish() {
            self.agenda.at(next, Due::Run(ix, RunDue::Saves));
        }
    }

    fn saves(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        if !run.working() || run.met {
            return;
        }
        let progress = run.progress(at);
        run.saved = progress;
        let (job, attempt) = run.key;
        let durable = self.cluster.saved.entry(job).or_default();
        *durable = progress.max(*durable);
        self.events.push(Event::RunCheckpointed { job, attempt, progress });
        self.next_save(at, ix);
    }

    /// All workers of a run have done their work.
    fn all_worked(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        if !run.working() {
            return;
        }
        let Some(linger) = run.truth.linger.filter(|l| *l > Span::ZERO) else { return self.complete(at, ix) };
        run.phase = Phase::Lingering { since: at };
        self.agenda.at(at + linger, Due::Run(ix, RunDue::Leaves));
        self.agenda.at(at + IDLE_BEAT, Due::Run(ix, RunDue::Idles));
    }

    fn worked(&mut self, at: Timestamp, ix: usize, nth: u32) {
        let run = &mut self.cluster.runs[ix];
        if !run.working() || !run.workers.get(nth as usize).is_some_and(|w| w.alive) {
            return;
        }
        let (job, attempt) = run.key;
        self.events.push(Event::RunCompleted { job, attempt, worker: Some(nth) });
        let meets = run.completion == Completion::Any || nth == 0;
        if meets && !run.met {
            run.met = true;
            *self.cluster.completions.entry(job).or_default() += 1;
            self.billing.completions += 1;
        }
        self.worker_out(ix, nth as usize);
        self.end_if_all_worked(at, ix);
    }

    /// A run whose workers have all done their work, or left it, is over.
    fn end_if_all_worked(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        if !run.workers.iter().any(|w| w.alive) {
            let (job, attempt) = run.key;
            run.last_report = Some(Event::RunCompleted { job, attempt, worker: None });
            self.end(at, ix, RunStatus::Completed);
        }
    }

    fn complete(&mut self, at: Timestamp, ix: usize) {
        let (job, attempt) = self.cluster.runs[ix].key;
        let end = Event::RunCompleted { job, attempt, worker: None };
        self.cluster.runs[ix].met = true;
        self.cluster.runs[ix].last_report = Some(end.clone());
        *self.cluster.completions.entry(job).or_default() += 1;
        self.billing.completions += 1;
        self.end(at, ix, RunStatus::Completed);
        self.events.push(end);
    }

    fn fails(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        if !run.working() {
            return;
        }
        let (job, attempt) = run.key;
        let blamed = run.workers.iter().find(|w| !w.gone).filter(|_| run.truth.fails_node);
        let (node_fault, instance) = (blamed.map(|w| w.node), blamed.and_then(|w| w.instance));
        let gone = instance.map_or(Vec::new(), |instance| run.on(instance));
        if !gone.is_empty() && run.goes_on_without(&gone) {
            // The node's fault takes its workers; the rest of an elastic gang goes on, and does not fail again.
            let key = run.key;
            self.lose(ix, &gone);
            self.events.push(shrunk(key, self.cluster.runs[ix].left(), node_fault));
            self.end_if_all_worked(at, ix);
            return self.schedule_end(ix);
        }
        let run = &mut self.cluster.runs[ix];
        let exit_code = run.truth.exit_code;
        let end = Event::RunFailed { job, attempt, exit_code, node_fault };
        run.last_report = Some(end.clone());
        self.end(at, ix, RunStatus::Failed(exit_code));
        self.events.push(end);
    }

    fn idles(&mut self, at: Timestamp, ix: usize) {
        let run = &self.cluster.runs[ix];
        let Phase::Lingering { since } = run.phase else { return };
        if run.stopping || run.broken {
            return;
        }
        let (job, attempt) = run.key;
        self.events.push(Event::RunIdle { job, attempt, idle: at.since(since) });
        self.agenda.at(at + IDLE_BEAT, Due::Run(ix, RunDue::Idles));
    }

    fn stopped(&mut self, at: Timestamp, ix: usize) {
        let run = &mut self.cluster.runs[ix];
        let progress = run.will_save.take();
        if let Phase::Ended(_) = run.phase {
            self.events.extend(run.last_report.clone());
            return;
        }
        if let Some(progress) = progress {
            run.saved = progress;
            let durable = self.cluster.saved.entry(run.key.0).or_default();
            *durable = progress.max(*durable);
        }
        let end = stopped(run.key, progress);
        self.events.push(end.clone());
        if run.survives_stop {
            run.stopping = false;
            run.frozen = None;
            return;
        }
        let status = if run.met { RunStatus::Completed } else { RunStatus::Dead };
        run.last_report = Some(end);
        self.end(at, ix, status);
    }

    /// Workers leave; the rest goes on, or stops where too few are left by now.
    fn shrunk(&mut self, at: Timestamp, ix: usize, leave: &[u32]) {
        let run = &mut self.cluster.runs[ix];
        let key = run.key;
        if matches!(run.phase, Phase::Ended(_)) || run.stopping || run.broken {
            return;
        }
        if run.goes_on_without(leave) {
            self.lose(ix, leave);
            self.events.push(shrunk(key, self.cluster.runs[ix].left(), None));
            return self.end_if_all_worked(at, ix);
        }
        run.last_report = Some(stopped(key, None));
        let status = if run.met { RunStatus::Completed } else { RunStatus::Dead };
        self.end(at, ix, status);
        self.events.push(stopped(key, None));
    }

    /// Workers are no part of their gang any more. What it has done stays done.
    fn lose(&mut self, ix: usize, gone: &[u32]) {
        for &nth in gone {
            self.worker_out(ix, nth as usize);
            if let Some(worker) = self.cluster.runs[ix].workers.get_mut(nth as usize).filter(|w| !w.gone) {
                worker.gone = true;
                let share = MilliGpu(u64::from(worker.gpus.count_ones()) * u64::from(worker.share));
                self.cluster.runs[ix].share = self.cluster.runs[ix].share - share;
            }
        }
    }

    fn report_again(&mut self, now: Timestamp, ix: usize) {
        let run = &self.cluster.runs[ix];
        let (job, attempt) = run.key;
        match run.phase {
            Phase::Starting => {}
            Phase::Working | Phase::Lingering { .. } => self.agenda.report(now, Event::RunStarted { job, attempt }),
            Phase::Ended(_) => {
                if let Some(event) = &run.last_report {
                    self.agenda.report(now, event.clone());
                }
            }
        }
    }

    /// No worker of the run is alive from here on.
    fn end(&mut self, at: Timestamp, ix: usize, status: RunStatus) {
        for worker in 0..self.cluster.runs[ix].workers.len() {
            self.worker_out(ix, worker);
        }
        let run = &mut self.cluster.runs[ix];
        let progress = run.progress(at);
        if let Phase::Lingering { since } = run.phase {
            self.billing.lingering += run.share.over(at.since(since));
        }
        if let Some(util) = run.truth.gpu_util_permille {
            // What it asked for, whatever more it was given.
            let busy = run.asked.over(progress - run.base);
            self.billing.busy += GpuTime(busy.0 * u128::from(util) / 1000);
        }
        if !run.met {
            self.billing.lost += run.share.over(progress - run.saved);
        }
        run.phase = Phase::Ended(status);
        let job = run.key.0;
        self.cluster.alive.remove(&(job, ix));
        self.cluster.ended.insert((at, ix));
    }

    /// Takes out runs that ended long ago. What a job has saved stays until it is completed: it may still go on from there.
    fn forget(&mut self, now: Timestamp) {
        let Some(after) = self.options.forgets_after else { return };
        while let Some((at, ix)) = self.cluster.ended.first().copied().filter(|(at, _)| *at + after < now) {
            self.cluster.ended.remove(&(at, ix));
            let Some(run) = self.cluster.runs.rows.remove(&ix) else { continue };
            let job = run.key.0;
            self.cluster.by_key.remove(&run.key);
            let others = self.cluster.by_key.range((job, Attempt(0))..=(job, Attempt(u32::MAX))).next().is_some();
            if !others && self.cluster.completions.remove(&job).is_some() {
                self.cluster.saved.remove(&job);
            }
        }
    }

    /// A worker is no more: its GPUs are free.
    fn worker_out(&mut self, ix: usize, worker: usize) {
        let Some(worker) = self.cluster.runs[ix].workers.get_mut(worker) else { return };
        let (Some(instance), true) = (worker.instance, worker.alive) else { return };
        worker.alive = false;
        let (gpus, share) = (worker.gpus, share_of(worker.share, worker.slice));
        if let Some(slice) = worker.slice {
            self.cluster.cut.remove(&(instance, worker.gpus, slice));
        }
        let run = &self.cluster.runs[ix];
        if let Some(used) = self.cluster.used.get_mut(&instance) {
            let needs = run.needs(gpus);
            used.cpu = MilliCpu(used.cpu.0.saturating_sub(needs.cpu.0));
            used.mem = Mib(used.mem.0.saturating_sub(needs.mem.0));
            for (_, gpu) in used.gpus.iter_mut().enumerate().filter(|(nth, _)| gpus >> nth & 1 == 1) {
                gpu.share = gpu.share.saturating_sub(share);
                gpu.mem = Mib(gpu.mem.0.saturating_sub(run.gpu_mem.0));
            }
        }
        let others = run.workers.iter().any(|w| w.alive && w.instance == Some(instance));
        if let Some(runs) = self.cluster.on.get_mut(&instance).filter(|_| !others) {
            runs.remove(&ix);
        }
    }
}
