//! Residency: how long GPU memory is held for work against how long the GPUs compute for it.
//!
//! Never: held for busy where nobody watched.

use super::DemandJob;
use forebay_kernel::units::GpuTime;

/// How it is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResidencySource {
    /// The trace's column `gpu_util`.
    GpuUtil,
    /// The demand of services that are not over, since their first replica was loaded last.
    Services,
    /// Runs whose GPUs were reported idle. How busy the others were is not known.
    ReportedIdle,
}

/// Residency of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResidencyRow {
    /// How it is known.
    pub source: ResidencySource,
    /// Jobs or services.
    pub count: u64,
    /// GPU time held.
    pub resident: GpuTime,
    /// Of that, computing.
    pub busy: GpuTime,
}

/// Of the jobs that say how busy they are. A job holds its memory as long as it runs.
pub(super) fn of_jobs(jobs: &[&DemandJob]) -> Option<ResidencyRow> {
    let mut row = ResidencyRow {
        source: ResidencySource::GpuUtil,
        count: 0,
        resident: GpuTime::default(),
        busy: GpuTime::default(),
    };
    for (work, permille) in jobs.iter().filter_map(|job| Some((job.work()?, job.busy_permille?))) {
        row.count += 1;
        row.resident += work;
        row.busy += GpuTime(work.0 * u128::from(permille) / 1000);
    }
    (row.count > 0).then_some(row)
}
