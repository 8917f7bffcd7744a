//! What a job asks for, as it enters: the gang and its shape, tolerance, checkpoint contract, completion, retries.
//!
//! Never: what became of it. That is a row of `state::jobs`.

use crate::units::{Mib, MilliCpu, MilliGpu, Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What spot is warned of before it goes: AWS gives two minutes.
const RECLAIM_NOTICE: Span = Span::secs(120);

/// A job as a pipeline submitted it, after intake resolved its queue and principal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    /// Whose namespace of subjects it lives in.
    pub tenant: String,
    /// The job's name; (tenant, subject) is its identity.
    pub subject: String,
    /// Who submitted it, from the connection, never from the payload.
    pub principal: String,
    /// The queue's path, after routes.
    pub queue: String,
    /// A tier of the policy; `None`: the queue's.
    pub tier: Option<String>,
    /// Within its queue and tier, higher goes first.
    pub priority: i32,
    /// The workers, all or none.
    pub gang: Gang,
    /// Acceptable GPU models, lower case. Empty: any.
    pub models: Vec<String>,
    /// Whether it may run on spot, where its tier would.
    pub spot: bool,
    /// Whether it consents to share a GPU with others. Needed for shares below a whole GPU.
    pub shares: bool,
    /// How it saves its progress. `None`: it cannot, and starts again from nothing.
    pub checkpoint: Option<Checkpointing>,
    /// Time lost at each start before work goes on.
    pub restart: Span,
    /// What its own failures cost.
    pub retry: Retry,
    /// When it counts as done.
    pub completion: Completion,
    /// What its submitter expects it to run.
    pub expected: Option<Span>,
    /// Longer than this it fails with `MaxRun`.
    pub max_run: Option<Span>,
    /// It is wanted by then.
    pub deadline: Option<Timestamp>,
    /// Digest of the submitted specification: the same again is the same job, another one is a `Conflict`.
    pub digest: u128,
    /// A finished job of this identity runs again.
    pub rerun: bool,
    /// What the executor needs to run it (template, image, arguments): carried, never read here.
    pub run: Vec<u8>,
    /// Jobs of one queue and shape with the same key are one batch: one after the other on the same capacity.
    pub batch: Option<String>,
    /// How close together its workers go. `None`: as they fit.
    pub within: Option<TopologyConstraint>,
    /// It serves: replicas of `gang` follow its demand, and it ends only when it is cancelled. `None`: finite work.
    pub service: Option<Service>,
    /// When it was asked for, by its sender's clock: cancels that were sent before that are not about it. Not part of the digest.
    /// `None`: not known.
    pub sent: Option<Timestamp>,
    /// Labels by which the policy bills, as they were when it was submitted.
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
}

impl Default for JobSpec {
    fn default() -> Self {
        let each = WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() };
        JobSpec {
            tenant: String::new(),
            subject: String::new(),
            principal: String::new(),
            queue: String::new(),
            tier: None,
            priority: 0,
            gang: Gang::Workers { min: 1, max: 1, each },
            models: Vec::new(),
            spot: true,
            shares: false,
            checkpoint: None,
            restart: Span::ZERO,
            retry: Retry::default(),
            completion: Completion::All,
            expected: None,
            max_run: None,
            deadline: None,
            digest: 0,
            rerun: false,
            run: Vec::new(),
            batch: None,
            within: None,
            service: None,
            sent: None,
            labels: BTreeMap::new(),
        }
    }
}

impl JobSpec {
    /// A digest of what tells how long its work takes, beside queue and size: its tenant, who submitted it, by which labels it is billed, and the models
    /// that it asks for. Equal on every machine.
    #[must_use]
    pub fn family(&self) -> u64 {
        let labels = self.labels.iter().flat_map(|(label, value)| [label, value]);
        let words = [&self.tenant, &self.principal].into_iter().chain(labels).chain(&self.models);
        // FNV-1a, each word with an end that none has within it.
        let bytes = words.flat_map(|word| word.bytes().chain([0xff]));
        let digest: u64 =
            bytes.fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        // As much as a number in JSON holds everywhere.
        digest >> 11
    }

    /// Run time that a reclaim costs on average, where that counts: half of what lies between two checkpoints, where nothing can be saved half
    /// of the run, or an hour where that is not stated; and the restart. What can save within the notice loses nothing to speak of.
    /// Rounded up to a power of two of minutes, at most 1024, so that there are few. Up to version 2 only what cannot save counted.
    pub(crate) fn lost_at_a_reclaim(&self, version: u32) -> Option<Span> {
        let run = self.expected.map(|span| Span(span.0 / 2));
        let lost = match self.checkpoint {
            Some(saves) if version < 3 || saves.grace <= RECLAIM_NOTICE => return None,
            Some(saves) => run.map_or(Span(saves.every.0 / 2), |run| run.min(Span(saves.every.0 / 2))),
            None => run.unwrap_or(Span::mins(60)),
        };
        let minutes = (lost + self.restart).0.div_ceil(60_000).clamp(1, 1024).next_power_of_two();
        self.spot.then(|| Span::mins(minutes))
    }
}

/// How close together the workers of a gang go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TopologyConstraint {
    /// All within one of these.
    pub level: Level,
    /// Or not at all. Otherwise preferred.
    pub required: bool,
}

/// A level of the topology, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// GPUs of one NUMA node.
    Numa,
    /// GPUs joined by NVLink.
    Nvlink,
    /// One node.
    Node,
    /// One rack, or whatever the cloud says is as near.
    Rack,
    /// One zone.
    Zone,
}

impl Level {
    /// As it is written in events, tables and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Numa => "numa",
            Level::Nvlink => "nvlink",
            Level::Node => "node",
            Level::Rack => "rack",
            Level::Zone => "zone",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Level> {
        [Level::Numa, Level::Nvlink, Level::Node, Level::Rack, Level::Zone].into_iter().find(|l| l.as_str() == name)
    }
}

/// What a service asks: the gang of its specification is one replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Replicas at least.
    pub min: u32,
    /// Replicas at most.
    pub max: u32,
    /// Requests at once that one replica is to have.
    pub target: u32,
    /// No two replicas in one of these while there is another. `None`: one node.
    pub spread: Option<Level>,
}

/// The workers of a job, admitted and placed all or none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Gang {
    /// So many workers of one shape.
    Workers {
        /// Fewest that can do the work.
        min: u32,
        /// Most that can be used. The gang starts with `min` or more.
        max: u32,
        /// What each needs on its node.
        each: WorkerAsk,
    },
    /// Whole GPUs that may span nodes, fewest nodes first. `per_gpu` is what goes with each of them.
    Spanning {
        /// All GPUs together.
        gpus: u32,
        /// CPU and memory for each GPU.
        per_gpu: WorkerAsk,
    },
}

/// What one worker needs on one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct WorkerAsk {
    /// GPUs; 0 for CPU-only work.
    pub gpus: u16,
    /// Share of each GPU in thousandths; below 1000 only with one GPU.
    pub share: u16,
    /// GPU memory on each GPU; 0: its share of the GPU's memory.
    pub gpu_mem: Mib,
    /// CPU; 0: not stated.
    pub cpu: MilliCpu,
    /// Memory; 0: not stated.
    pub mem: Mib,
}

impl WorkerAsk {
    /// GPU share of one worker.
    #[must_use]
    pub fn gpu_share(&self) -> MilliGpu {
        MilliGpu(u64::from(self.gpus) * u64::from(self.share))
    }
}

impl Gang {
    /// Workers, or GPUs of a spanning gang, in the smallest gang that can do the work.
    #[must_use]
    pub fn fewest(&self) -> u32 {
        match self {
            Gang::Workers { min, .. } => *min,
            Gang::Spanning { gpus, .. } => *gpus,
        }
    }

    /// GPU share of the smallest gang that can do the work.
    #[must_use]
    pub fn gpu_share(&self) -> MilliGpu {
        match self {
            Gang::Workers { min, each, .. } => MilliGpu(each.gpu_share().0.saturating_mul(u64::from(*min))),
            Gang::Spanning { gpus, .. } => MilliGpu::whole(u64::from(*gpus)),
        }
    }
}

/// The checkpoint contract.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Checkpointing {
    /// How often it saves on its own.
    pub every: Span,
    /// How long it needs to save when told to.
    pub grace: Span,
}

/// What a job's own failures cost. Reclaims, preemption and node faults never count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retry {
    /// Starts in all after the job's own failures: 1 is no retry.
    pub attempts: u32,
    /// Pause before the first retry; it doubles, capped at 30 min.
    pub backoff: Span,
    /// Exit codes that are final.
    pub never: Vec<i32>,
    /// Starts in a row that may fail, whatever is to blame. `None`: the usual number.
    #[serde(skip)]
    pub start_failures: Option<u32>,
}

/// With pauses that double, a fault of the cluster has had minutes to pass after five starts, and with a start time-out of ten minutes an hour.
const USUAL_START_FAILURES: u32 = 5;

impl Retry {
    /// Starts in a row that may fail, whatever is to blame, before the job is given up.
    #[must_use]
    pub fn most_start_failures(&self) -> u32 {
        self.start_failures.unwrap_or(USUAL_START_FAILURES)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 3, backoff: Span::secs(30), never: Vec::new(), start_failures: None }
    }
}

/// When a job counts as done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// Every worker has finished.
    #[default]
    All,
    /// Worker 0 has finished.
    Leader,
    /// Any worker has finished.
    Any,
}
