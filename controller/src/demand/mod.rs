//! The demand model of a trace or of a data folder: what each of them tells, measured by `forebay_sim::demand`.
//!
//! ```text
//! trace -> jobs as they ask                                              \
//! folder -> finished and open jobs, the ledger by hour, services, boots   -> records -> model -> DemandDocument
//! ```
//!
//! Never: a figure of its own, or a value for what its source does not tell.

mod folder;
mod trace;
mod write;

pub use folder::of_folder;
pub use trace::of_trace;
pub use write::document;

use crate::cost::CostFault;
use crate::journal::JournalError;
use forebay_catalog::builtin;
use forebay_catalog::input::InputError;
use forebay_kernel::units::Span;
use forebay_sim::demand::DemandRecords;

/// Where records come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DemandOrigin {
    /// A trace: it has no starts, and times of its own.
    Trace,
    /// A journal.
    Folder,
}

/// What a source tells.
#[derive(Clone, PartialEq, Debug)]
pub struct DemandGathered {
    /// The trace's file or the data folder.
    pub name: String,
    /// What it is.
    pub origin: DemandOrigin,
    /// The records.
    pub records: DemandRecords,
    /// Where the cold start is from.
    pub boot_from: String,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl DemandGathered {
    /// With a cold start of this length instead of what was found.
    #[must_use]
    pub fn booting(mut self, boot: Span) -> DemandGathered {
        (self.records.boot, self.boot_from) = (boot, "--boot".to_owned());
        self
    }
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum DemandFault {
    /// The trace cannot be used.
    #[error(transparent)]
    Trace(#[from] InputError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its ledger is not sound.
    #[error(transparent)]
    Ledger(#[from] CostFault),
    /// Nothing in it asks for a GPU.
    #[error("{name}: no job asks for a GPU{}: there is no demand to measure; give one with jobs that do", jobs(.cpu_only))]
    NoDemand {
        /// The source.
        name: String,
        /// Jobs that it has.
        cpu_only: u64,
    },
}

fn jobs(cpu_only: &u64) -> String {
    if *cpu_only == 0 { " (it has no jobs)".to_owned() } else { format!(" ({cpu_only} jobs are CPU-only)") }
}

/// Boots that were measured: 9 of 10 take at most this. `None`: there are none.
fn boot_p90(mut boots: Vec<Span>) -> Option<Span> {
    boots.sort_unstable();
    boots.get((boots.len() * 9).div_ceil(10).saturating_sub(1)).copied()
}

/// A cold start, and where it is from: what was measured, else the median of the catalogue's types with GPUs.
fn boot_of(measured: Vec<Span>, place: &str) -> (Span, String) {
    let count = measured.len();
    if let Some(boot) = boot_p90(measured) {
        return (boot, format!("p90 of {count} boots {place}"));
    }
    let mut listed: Vec<u64> = builtin().iter().filter(|row| row.gpus > 0).map(|row| row.boot_ms).collect();
    listed.sort_unstable();
    let median = listed.get(listed.len() / 2).copied().unwrap_or(0);
    (Span(median), "the catalogue's median; no boot was measured".to_owned())
}
