//! One run of a job, as the cluster keeps it: its workers, how far its work is, what is durable of it.
//!
//! Never: puts anything on the agenda. That is the cluster's.

use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::job::{Checkpointing, Completion, Gang, JobSpec, WorkerAsk};
use forebay_kernel::reconcile::RunStatus;
use forebay_kernel::units::{Mib, MilliCpu, MilliGpu, Span, Timestamp};

use super::JobTruth;
use super::hash::name;

/// One worker, on one instance.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub instance: Option<usize>,
    pub node: NodeId,
    pub gpus: u64,
    pub share: u16,
    pub slice: Option<u8>,
    pub alive: bool,
    /// It left the run, or its node did: it is no part of the gang any more.
    pub gone: bool,
}

/// Where in its life a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Working,
    Lingering { since: Timestamp },
    Ended(RunStatus),
}

/// One run of a job.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub key: (JobId, Attempt),
    pub job_hash: u64,
    pub workers: Vec<Worker>,
    /// What it holds.
    pub share: MilliGpu,
    /// What it asked for, and so the most that it can make use of: a whole GPU for a tenth of one is nine tenths idle.
    pub asked: MilliGpu,
    /// Memory that each worker uses on each of its GPUs.
    pub gpu_mem: Mib,
    /// CPU and memory that each worker uses, or, of a gang that spans nodes, what goes with each GPU.
    each: WorkerAsk,
    spans: bool,
    pub phase: Phase,
    pub truth: JobTruth,
    pub checkpoint: Option<Checkpointing>,
    pub completion: Completion,
    /// Workers that can do the work. `None`: all of them.
    pub fewest: Option<u32>,
    pub restart: Span,
    /// Work done before this run.
    pub base: Span,
    pub started: bool,
    /// When it goes on from `base`.
    pub work_from: Timestamp,
    /// No more work is done from then on: it is being stopped, or a node under it is gone.
    pub frozen: Option<Timestamp>,
    pub broken: bool,
    /// Work that is durable.
    pub saved: Span,
    pub stopping: bool,
    /// What a stop will have saved.
    pub will_save: Option<Span>,
    pub survives_stop: bool,
    /// Its completion criterion is met.
    pub met: bool,
    /// The event that is reported again when an effect is repeated.
    pub last_report: Option<Event>,
}

impl Run {
    pub fn alive(&self) -> bool {
        !matches!(self.phase, Phase::Ended(_)) && self.workers.iter().any(|w| w.alive)
    }

    pub fn progress(&self, at: Timestamp) -> Span {
        let at = self.frozen.map_or(at, |f| f.min(at));
        if self.started {
            (self.base + at.since(self.work_from)).min(self.truth.duration.max(self.base))
        } else {
            self.base
        }
    }

    /// CPU and memory of its worker with these GPUs.
    pub fn needs(&self, gpus: u64) -> WorkerAsk {
        let times = if self.spans { u64::from(gpus.count_ones()) } else { 1 };
        let WorkerAsk { cpu, mem, .. } = self.each;
        WorkerAsk { cpu: MilliCpu(cpu.0.saturating_mul(times)), mem: Mib(mem.0.saturating_mul(times)), ..self.each }
    }

    pub fn lingers(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. }) && !self.stopping
    }

    pub fn working(&self) -> bool {
        self.phase == Phase::Working && self.frozen.is_none()
    }

    /// Whether enough workers stay without these, the leader among them where it counts.
    pub fn goes_on_without(&self, gone: &[u32]) -> bool {
        let Some(fewest) = self.fewest else { return false };
        let numbered = (0u32..).zip(&self.workers);
        let staying = numbered.filter(|(nth, w)| !w.gone && !gone.contains(nth)).count();
        let leading = self.workers.first().is_some_and(|w| w.gone) || gone.contains(&0);
        let up = matches!(self.phase, Phase::Working | Phase::Lingering { .. }) && !self.broken && !self.stopping;
        up && staying >= fewest as usize && !(leading && self.completion == Completion::Leader)
    }

    /// The numbers of all workers that are no part of the gang any more.
    pub fn left(&self) -> Vec<u32> {
        (0u32..).zip(&self.workers).filter(|(_, w)| w.gone).map(|(nth, _)| nth).collect()
    }

    /// The numbers of its workers on an instance.
    pub fn on(&self, instance: usize) -> Vec<u32> {
        let there = |(_, w): &(u32, &Worker)| w.instance == Some(instance) && !w.gone;
        (0u32..).zip(&self.workers).filter(there).map(|(nth, _)| nth).collect()
    }

    pub fn finish(&self) -> Timestamp {
        self.work_from + (self.truth.duration - self.base)
    }

    pub fn fails(&self) -> bool {
        self.key.1.0 <= self.truth.failures
    }
}

impl Run {
    /// A run that is about to start.
    pub fn new(
        key: (JobId, Attempt),
        spec: &JobSpec,
        truth: JobTruth,
        base: Span,
        places: &[(Option<usize>, &WorkerPlace)],
    ) -> Run {
        let workers = places.iter().map(|(instance, place)| Worker {
            instance: *instance,
            node: place.node,
            gpus: place.gpus,
            share: place.share,
            slice: place.slice,
            alive: instance.is_some(),
            gone: instance.is_none(),
        });
        let share = places.iter().fold(MilliGpu(0), |sum, (_, place)| sum + place.gpu_share());
        let (each, most, spans) = match &spec.gang {
            Gang::Workers { each, .. } => (*each, each.share, false),
            Gang::Spanning { per_gpu, .. } => (*per_gpu, 1000, true),
        };
        let asked = places.iter().map(|(_, place)| WorkerPlace { share: place.share.min(most), ..(*place).clone() });
        let asked = asked.fold(MilliGpu(0), |sum, place| sum + place.gpu_share());
        Run {
            key,
            job_hash: name(&[&spec.tenant, &spec.subject]),
            workers: workers.collect(),
            share,
            asked,
            gpu_mem: each.gpu_mem,
            each,
            spans,
            phase: Phase::Starting,
            truth,
            checkpoint: spec.checkpoint,
            completion: spec.completion,
            fewest: match &spec.gang {
                Gang::Workers { min, .. } => Some(*min),
                Gang::Spanning { .. } => None,
            },
            restart: spec.restart,
            base,
            saved: base,
            ..Run::unseen(key)
        }
    }

    /// A run that was stopped before its start arrived.
    pub fn unseen(key: (JobId, Attempt)) -> Run {
        Run {
            key,
            job_hash: 0,
            workers: Vec::new(),
            share: MilliGpu(0),
            asked: MilliGpu(0),
            gpu_mem: Mib(0),
            each: WorkerAsk::default(),
            spans: false,
            phase: Phase::Ended(RunStatus::Dead),
            truth: JobTruth::lasting(Span::ZERO),
            checkpoint: None,
            completion: Completion::All,
            fewest: None,
            restart: Span::ZERO,
            base: Span::ZERO,
            started: false,
            work_from: Timestamp(0),
            frozen: None,
            broken: false,
            saved: Span::ZERO,
            stopping: false,
            will_save: None,
            survives_stop: false,
            met: false,
            last_report: None,
        }
    }
}

/// The proof that no worker of a run is alive.
pub(super) fn stopped(key: (JobId, Attempt), progress: Option<Span>) -> Event {
    Event::RunStopped { job: key.0, attempt: key.1, progress }
}

/// These workers have left a run; the rest goes on.
pub(super) fn shrunk(key: (JobId, Attempt), left: Vec<u32>, node_fault: Option<NodeId>) -> Event {
    Event::RunShrunk { job: key.0, attempt: key.1, left, node_fault }
}
