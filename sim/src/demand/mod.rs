//! The demand model: seven inputs measured from records of work, before anybody decides what to provision.
//!
//! ```text
//! records (of a trace, or of a journal) -> what is asked for at once, as steps over time -> concurrency, bursts
//!                                       -> what is waited and what may be waited         -> queue depth, tolerance
//!                                       -> what kind of work it is and how long          -> mix, residency, durations
//! ```
//!
//! All figures are integers: thousandths of a GPU and milliseconds. docs/DEMAND.md defines each of them.
//!
//! Never: a value for what the records do not tell. `None` is not measured, and no zero.

mod bursts;
mod concurrency;
mod depth;
mod durations;
mod mix;
mod residency;
mod steps;
mod tolerance;

pub use bursts::{BurstProfile, DemandBurst};
pub use concurrency::{ConcurrencyProfile, HourOfDay};
pub use depth::{DepthFigures, DepthProfile, WaitSeen};
pub use durations::{DurationProfile, QueueDurations, SpanPercentiles};
pub use mix::{MixPart, WorkClass, WorkMix};
pub use residency::{ResidencyRow, ResidencySource};
pub use steps::{DemandSteps, HeldSpell, StepBucket};
pub use tolerance::{Tolerance, ToleranceBand, ToleranceProfile, ToleranceSource};

use forebay_kernel::units::{GpuTime, MilliGpu, Span, Timestamp};

/// A job, as far as its demand goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DemandJob {
    /// Its queue, as a position in [`DemandRecords::queues`].
    pub queue: Option<u32>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// GPUs of the smallest gang that can do its work.
    pub share: MilliGpu,
    /// How long it asks for them. `None`: nobody knows, and it is in no figure of GPUs over time.
    pub asks_for: Option<Span>,
    /// How long its work took, restarts not counted. `None`: it was not completed, or that is not known.
    pub lasted: Option<Span>,
    /// How long it waited for its first start.
    pub wait: WaitSeen,
    /// How long it may wait. `None`: nobody has said.
    pub tolerance: Option<Tolerance>,
    /// What kind of work it is. `None`: nothing tells.
    pub class: Option<WorkClass>,
    /// How busy it keeps what it holds, in 1/1000. `None`: not known.
    pub busy_permille: Option<u32>,
}

impl DemandJob {
    /// GPU time that it asks for. `None`: not known.
    #[must_use]
    pub fn work(&self) -> Option<GpuTime> {
        self.asks_for.map(|span| self.share.over(span))
    }
}

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DemandRecords {
    /// Jobs. Those without GPUs are counted and left out.
    pub jobs: Vec<DemandJob>,
    /// The names of queues.
    pub queues: Vec<String>,
    /// What replicas of services held. They ask for it at once, so it is both asked for and held.
    pub services: Vec<HeldSpell>,
    /// What jobs held. `None`: the records do not tell.
    pub held: Option<Vec<HeldSpell>>,
    /// Residency that no job's own figures tell.
    pub residency: Vec<ResidencyRow>,
    /// When the records end. `None`: see [`DemandWindow::of`].
    pub ends: Option<Timestamp>,
    /// The cold start: from a launch until the node takes work. What is shorter is noise.
    pub boot: Span,
}

impl DemandRecords {
    /// The number of a queue, which gets one if it has none.
    pub fn queue(&mut self, known: &mut std::collections::BTreeMap<String, u32>, name: &str) -> u32 {
        if let Some(number) = known.get(name) {
            return *number;
        }
        let number = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        self.queues.push(name.to_owned());
        known.insert(name.to_owned(), number);
        number
    }
}

/// The time that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DemandWindow {
    /// The first submission.
    pub from: Timestamp,
    /// The end.
    pub to: Timestamp,
}

impl DemandWindow {
    /// From the first submission until the records end. Records without an end of their own end with the last submission, as nobody knows
    /// what would have come after it; where all of them came within less than the median job lasts, they end with the last work.
    #[must_use]
    pub fn of(records: &DemandRecords) -> Option<DemandWindow> {
        let submitted = || with_gpus(records).map(|job| job.submitted);
        let from = submitted().chain(records.services.iter().map(|spell| spell.from)).min()?;
        if let Some(to) = records.ends {
            return Some(DemandWindow { from, to: to.max(from) });
        }
        let last = submitted().max()?;
        let mut spans: Vec<Span> = with_gpus(records).filter_map(|job| job.asks_for).collect();
        spans.sort_unstable();
        let median = spans.get(spans.len().saturating_sub(1) / 2).copied().unwrap_or(Span::ZERO);
        let work_ends = || with_gpus(records).filter_map(|job| Some(job.submitted + job.asks_for?)).max();
        let to = if last.since(from) < median { work_ends()? } else { last };
        Some(DemandWindow { from, to })
    }

    /// How long it is.
    #[must_use]
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }
}

/// The seven inputs, and what they were measured on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DemandModel {
    /// The time that was measured.
    pub window: DemandWindow,
    /// Jobs with GPUs.
    pub jobs: u64,
    /// Jobs without, which are in no figure.
    pub cpu_only: u64,
    /// Jobs of which nobody knows how long they ask for their GPUs.
    pub unknown: u64,
    /// GPU time that the others ask for.
    pub work: GpuTime,
    /// GPUs asked for at once, as if each job had started when it was submitted.
    pub asked: ConcurrencyProfile,
    /// GPUs held at once. `None`: the records do not tell.
    pub held: Option<ConcurrencyProfile>,
    /// Jobs that wait at once, and for how long. `None`: the records have no starts.
    pub depth: Option<DepthProfile>,
    /// Stretches of more than the usual.
    pub bursts: BurstProfile,
    /// What may wait, and how long. `None`: nobody has said of any job.
    pub tolerance: Option<ToleranceProfile>,
    /// Batch and inference. `None`: nothing tells.
    pub mix: Option<WorkMix>,
    /// How long GPUs are held against how long they compute. Empty: nothing tells.
    pub residency: Vec<ResidencyRow>,
    /// How long jobs last. `None`: of none it is known.
    pub durations: Option<DurationProfile>,
}

fn with_gpus(records: &DemandRecords) -> impl Iterator<Item = &DemandJob> {
    records.jobs.iter().filter(|job| job.share.0 > 0)
}

/// Measures the seven inputs. `None`: nothing in the records asks for a GPU.
#[must_use]
pub fn measure(records: &DemandRecords) -> Option<DemandModel> {
    let window = DemandWindow::of(records)?;
    let jobs: Vec<&DemandJob> = with_gpus(records).collect();
    let spell = |job: &&DemandJob| {
        let to = job.submitted + job.asks_for?;
        Some(HeldSpell { from: job.submitted, to, gpus: job.share })
    };
    let asked = jobs.iter().filter_map(spell).chain(records.services.iter().copied());
    let asked = DemandSteps::of(asked, window);
    let held = records.held.as_ref().map(|held| {
        let all = held.iter().chain(&records.services).copied();
        ConcurrencyProfile::of(&DemandSteps::of(all, window))
    });
    let mut work = GpuTime::default();
    jobs.iter().filter_map(|job| job.work()).for_each(|time| work += time);
    let mut residency: Vec<ResidencyRow> = residency::of_jobs(&jobs).into_iter().collect();
    residency.extend(records.residency.iter().copied());
    Some(DemandModel {
        window,
        jobs: jobs.len() as u64,
        cpu_only: (records.jobs.len() - jobs.len()) as u64,
        unknown: jobs.iter().filter(|job| job.asks_for.is_none()).count() as u64,
        work,
        bursts: BurstProfile::of(&asked, records.boot),
        asked: ConcurrencyProfile::of(&asked),
        held,
        depth: DepthProfile::of(&jobs, window),
        tolerance: ToleranceProfile::of(&jobs),
        mix: WorkMix::of(&jobs, &records.services, window),
        residency,
        durations: DurationProfile::of(&jobs, &records.queues),
    })
}
