//! A demand model as a document, with a word for each input that was not measured and for each burst that is noise.
//!
//! Never: a figure that the model has not.

use super::{DemandFault, DemandGathered, DemandOrigin};
use crate::show::figures::seconds;
use forebay_kernel::units::{GpuTime, MilliGpu, Span};
use forebay_sim::demand::{
    BurstProfile, ConcurrencyProfile, DemandBurst, DemandModel, DepthFigures, DepthProfile, DurationProfile, MixPart,
    ResidencyRow, ResidencySource, SpanPercentiles, ToleranceBand, ToleranceProfile, ToleranceSource, WorkMix, measure,
};
use forebay_sim::score::figures::{gpu_hours, ratio};
use forebay_wire::document::demand::{
    BurstFigures, BurstsDocument, ConcurrencyDocument, ConcurrencyFigures, CourseFigures, DemandDocument,
    DurationsDocument, HourFigures, MixDocument, MixFigures, NotMeasured, OverTime, QueueDepthDocument,
    QueueDurationFigures, ResidencyDocument, ResidencyFigures, SpanFigures, ToleranceDocument, ToleranceFigures,
    ToleranceSources,
};

/// Bursts that a document lists at most.
const MOST_BURSTS: usize = 1_000;

/// Measures what was gathered.
///
/// # Errors
/// Nothing in it asks for a GPU.
pub fn document(gathered: &DemandGathered) -> Result<DemandDocument, DemandFault> {
    let Some(model) = measure(&gathered.records) else {
        let cpu_only = gathered.records.jobs.len() as u64;
        return Err(DemandFault::NoDemand { name: gathered.name.clone(), cpu_only });
    };
    let clock = match gathered.origin {
        DemandOrigin::Trace => "trace",
        DemandOrigin::Folder => "unix",
    };
    Ok(DemandDocument {
        api_version: "forebay/v1".to_owned(),
        kind: "Demand".to_owned(),
        source: gathered.name.clone(),
        clock: clock.to_owned(),
        from_s: model.window.from.into(),
        to_s: model.window.to.into(),
        jobs: model.jobs,
        cpu_only_jobs: model.cpu_only,
        unknown_jobs: model.unknown,
        gpu_hours: gpu_hours(model.work),
        concurrency: ConcurrencyDocument {
            asked: concurrency(&model.asked),
            held: model.held.as_ref().map(concurrency),
        },
        queue_depth: model.depth.as_ref().map(depth),
        bursts: bursts(&model.bursts, &gathered.boot_from),
        latency_tolerance: model.tolerance.as_ref().map(|found| tolerance(found, model.work)),
        mix: model.mix.as_ref().map(mix),
        vram_residency: residency(&model.residency),
        durations: model.durations.as_ref().map(durations),
        not_measured: not_measured(&model, gathered.origin),
        notes: gathered.notes.clone(),
    })
}

/// What the model lacks, and what would tell it.
fn not_measured(model: &DemandModel, origin: DemandOrigin) -> Vec<NotMeasured> {
    let of_trace = origin == DemandOrigin::Trace;
    let why = |trace: &str, folder: &str| if of_trace { trace.to_owned() } else { folder.to_owned() };
    let lacks = [
        (
            model.held.is_none(),
            "concurrency.held",
            why(
                "a trace has no starts: --data measures it, and `forebay simulate` says what a policy would make of it",
                "",
            ),
        ),
        (
            model.depth.is_none(),
            "queueDepth",
            why(
                "a trace has no starts, so nothing tells what waited: --data measures it, and `forebay simulate` says how long jobs would wait",
                "the archive has no job with GPUs",
            ),
        ),
        (
            model.tolerance.is_none(),
            "latencyTolerance",
            why(
                "no job has max_wait_s or deadline_s",
                "no job has a deadline, and no queue of the policy in force a start target (`start: {within: ...}`)",
            ),
        ),
        (
            model.mix.is_none(),
            "mix",
            why(
                "no priority, tier or queue has a word for it, such as batch, training, inference or serving",
                "the archive has no job with GPUs",
            ),
        ),
        (
            model.residency.is_empty(),
            "vramResidency",
            why(
                "the column gpu_util is empty or not there",
                "no service is loaded, and no agent has reported idle GPUs: docs/AGENT.md says how to run `forebay agent`",
            ),
        ),
        (model.durations.is_none(), "durations", why("no job has a duration", "no job with GPUs has completed")),
    ];
    let lacks = lacks.into_iter().filter(|(lacks, ..)| *lacks);
    lacks.map(|(_, input, why)| NotMeasured { input: input.to_owned(), why }).collect()
}

/// GPUs with three decimals.
fn gpus(share: MilliGpu) -> f64 {
    share.0 as f64 / 1000.0
}

fn concurrency(found: &ConcurrencyProfile) -> ConcurrencyFigures {
    let hour =
        |of: &forebay_sim::demand::HourOfDay| HourFigures { hour: of.hour, mean: gpus(of.mean), peak: gpus(of.peak) };
    let part = |part: &forebay_sim::demand::StepBucket| CourseFigures {
        from_s: part.from.into(),
        mean: gpus(part.mean()),
        peak: gpus(part.peak),
    };
    ConcurrencyFigures {
        floor: gpus(found.floor),
        mean: gpus(found.mean),
        p50: gpus(found.p50),
        p90: gpus(found.p90),
        p99: gpus(found.p99),
        peak: gpus(found.peak),
        by_hour: found.by_hour.iter().map(hour).collect(),
        course: found.course.iter().map(part).collect(),
    }
}

fn depth(found: &DepthProfile) -> QueueDepthDocument {
    let over_time = |of: &DepthFigures| {
        let [mean, p50, p90, p99, peak] = [of.mean, of.p50, of.p90, of.p99, of.peak].map(|milli| milli as f64 / 1000.0);
        OverTime { mean, p50, p90, p99, peak }
    };
    QueueDepthDocument {
        jobs: over_time(&found.jobs),
        gpus: over_time(&found.gpus),
        wait_s: found.waits.map(spans),
        waiting: found.waiting,
        gave_up: found.gave_up,
    }
}

fn spans(found: SpanPercentiles) -> SpanFigures {
    let SpanPercentiles { count, mean, p50, p90, p99, longest } = found;
    SpanFigures { count, mean: mean.into(), p50: p50.into(), p90: p90.into(), p99: p99.into(), longest: longest.into() }
}

fn bursts(found: &BurstProfile, boot_from: &str) -> BurstsDocument {
    let sum = |noise: bool| {
        let mut all = GpuTime::default();
        found.bursts.iter().filter(|burst| burst.noise == noise).for_each(|burst| all += burst.above);
        gpu_hours(all)
    };
    let mut largest: Vec<&DemandBurst> = found.bursts.iter().collect();
    largest.sort_by_key(|burst| (std::cmp::Reverse(burst.above), burst.from));
    let more = largest.len().saturating_sub(MOST_BURSTS);
    largest.truncate(MOST_BURSTS);
    largest.sort_by_key(|burst| burst.from);
    let listed = largest.into_iter().map(|burst| BurstFigures {
        from_s: burst.from.into(),
        length_s: burst.length().into(),
        peak: gpus(burst.peak),
        height: gpus(burst.height(found.usual)),
        above_gpu_hours: gpu_hours(burst.above),
        noise: burst.noise,
        why: why(burst, found.boot),
    });
    BurstsDocument {
        usual: gpus(found.usual),
        threshold: gpus(found.threshold),
        boot_s: found.boot.into(),
        boot_from: boot_from.to_owned(),
        ceiling: found.ceiling().map(gpus),
        lasting: found.lasting().count() as u64,
        noise: found.noise().count() as u64,
        lasting_gpu_hours: sum(false),
        noise_gpu_hours: sum(true),
        listed: listed.collect(),
        more: more as u64,
    }
}

fn why(burst: &DemandBurst, boot: Span) -> String {
    let shown = |span: Span| seconds(span.0 as f64 / 1000.0);
    let (length, boot_shown) = (shown(burst.length()), shown(boot));
    match (burst.noise, burst.length() < boot) {
        (true, _) => {
            format!("over after {length}, before a node that is bought for it takes work ({boot_shown}): let it queue")
        }
        (false, true) => {
            format!("goes on at the end of what was measured, after {length}: nobody knows how long it lasts")
        }
        (false, false) => {
            let left = shown(Span(burst.length().0 - boot.0));
            format!("lasts {length}: a node that takes {boot_shown} to boot works for it for {left}")
        }
    }
}

fn tolerance(found: &ToleranceProfile, all: GpuTime) -> ToleranceDocument {
    let band = |band: &ToleranceBand| ToleranceFigures {
        up_to_s: band.up_to.map(Into::into),
        jobs: band.jobs,
        gpu_hours: gpu_hours(band.work),
        share: ratio(band.work.0, found.stated.work.0),
    };
    let source = |(source, jobs): &(ToleranceSource, u64)| {
        let source = match source {
            ToleranceSource::MaxWait => "maxWait",
            ToleranceSource::Deadline => "deadline",
            ToleranceSource::OutOfReach => "deadlineOutOfReach",
            ToleranceSource::StartTarget => "startTarget",
        };
        ToleranceSources { source: source.to_owned(), jobs: *jobs }
    };
    ToleranceDocument {
        p10_s: found.p10.into(),
        p50_s: found.p50.into(),
        p90_s: found.p90.into(),
        stated_jobs: found.stated.jobs,
        unstated_jobs: found.unstated.jobs,
        stated_share: ratio(found.stated.work.0, all.0),
        bands: found.bands.iter().map(band).collect(),
        sources: found.sources.iter().map(source).collect(),
    }
}

fn mix(found: &WorkMix) -> MixDocument {
    let all = found.work().0;
    let part =
        |part: MixPart| MixFigures { jobs: part.jobs, gpu_hours: gpu_hours(part.work), share: ratio(part.work.0, all) };
    // A kind that is never named may be what the others are.
    let told = |of: MixPart| (of != MixPart::default() || found.untold.jobs == 0).then(|| part(of));
    MixDocument { batch: told(found.batch), inference: told(found.inference), untold: part(found.untold) }
}

fn residency(rows: &[ResidencyRow]) -> Option<ResidencyDocument> {
    let over = |resident: GpuTime, busy: GpuTime| (busy.0 > 0).then(|| ratio(resident.0, busy.0));
    let row = |row: &ResidencyRow| ResidencyFigures {
        source: match row.source {
            ResidencySource::GpuUtil => "gpuUtil",
            ResidencySource::Services => "services",
            ResidencySource::ReportedIdle => "reportedIdle",
        }
        .to_owned(),
        count: row.count,
        resident_gpu_hours: gpu_hours(row.resident),
        busy_gpu_hours: gpu_hours(row.busy),
        ratio: over(row.resident, row.busy),
    };
    let (mut resident, mut busy) = (GpuTime::default(), GpuTime::default());
    for row in rows {
        resident += row.resident;
        busy += row.busy;
    }
    (!rows.is_empty()).then(|| ResidencyDocument {
        resident_gpu_hours: gpu_hours(resident),
        busy_gpu_hours: gpu_hours(busy),
        ratio: over(resident, busy),
        rows: rows.iter().map(row).collect(),
    })
}

fn durations(found: &DurationProfile) -> DurationsDocument {
    let row = |row: &forebay_sim::demand::QueueDurations| QueueDurationFigures {
        queue: row.queue.clone(),
        gpu_hours: gpu_hours(row.work),
        durations: spans(row.spans),
    };
    DurationsDocument { all: spans(found.all), by_queue: found.by_queue.iter().map(row).collect() }
}
