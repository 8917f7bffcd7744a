//! Batch and inference: GPU time by what kind of work it is, where something tells.
//!
//! ```text
//! a journal or a file of events: a service                         inference      any other job      batch
//! a trace: the first of priority, tier and queue that has one of these words:
//!   inference, infer, service, serving, serve, online, ls          inference
//!   batch, training, train, offline, be, effort                    batch
//! ```
//!
//! Never: a guess by how long something runs.

use super::steps::HeldSpell;
use super::{DemandJob, DemandWindow};
use forebay_kernel::units::GpuTime;

/// Words that tell that somebody waits for an answer. `ls` is latency sensitive in Alibaba's traces.
const INFERENCE: [&str; 7] = ["inference", "infer", "service", "serving", "serve", "online", "ls"];
/// Words that tell that nobody does. `be` is best effort there, and `best_effort` elsewhere.
const BATCH: [&str; 6] = ["batch", "training", "train", "offline", "be", "effort"];

/// What kind of work something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkClass {
    /// It ends when it is done.
    Batch,
    /// It answers requests.
    Inference,
}

impl WorkClass {
    /// As a name such as `ml/batch` or `LS` tells. `None`: it does not, or says both.
    #[must_use]
    pub fn told_by(name: &str) -> Option<WorkClass> {
        let name = name.to_lowercase();
        let has = |known: &[&str]| name.split(|c: char| !c.is_alphanumeric()).any(|word| known.contains(&word));
        match (has(&INFERENCE), has(&BATCH)) {
            (true, false) => Some(WorkClass::Inference),
            (false, true) => Some(WorkClass::Batch),
            _ => None,
        }
    }
}

/// A part of all work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MixPart {
    /// Jobs. Services are not counted: a journal may have forgotten how many there were.
    pub jobs: u64,
    /// GPU time that they ask for, or that services held.
    pub work: GpuTime,
}

/// All work by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkMix {
    /// Finite work.
    pub batch: MixPart,
    /// Work that answers requests.
    pub inference: MixPart,
    /// Work of which nothing tells.
    pub untold: MixPart,
}

impl WorkMix {
    /// Of these jobs and services. `None`: nothing tells of any.
    pub(super) fn of(jobs: &[&DemandJob], services: &[HeldSpell], window: DemandWindow) -> Option<WorkMix> {
        let mut mix = WorkMix::default();
        for job in jobs {
            let part = match job.class {
                Some(WorkClass::Batch) => &mut mix.batch,
                Some(WorkClass::Inference) => &mut mix.inference,
                None => &mut mix.untold,
            };
            part.jobs += 1;
            part.work += job.work().unwrap_or_default();
        }
        services.iter().for_each(|spell| mix.inference.work += spell.within(window).gpu_time());
        let told = !services.is_empty() || mix.batch.jobs + mix.inference.jobs > 0;
        told.then_some(mix)
    }

    /// All of it.
    #[must_use]
    pub fn work(&self) -> GpuTime {
        let mut all = self.batch.work;
        all += self.inference.work;
        all += self.untold.work;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_tell_and_contradictions_do_not() {
        let inference = ["LS", "ml/serving", "search-online", "Inference"];
        assert!(inference.iter().all(|name| WorkClass::told_by(name) == Some(WorkClass::Inference)));
        let batch = ["BE", "best_effort", "team/batch", "train"];
        assert!(batch.iter().all(|name| WorkClass::told_by(name) == Some(WorkClass::Batch)));
        let neither = ["normal", "slo", "trainer", "observer", "", "Burstable", "online/batch"];
        assert!(neither.iter().all(|name| WorkClass::told_by(name).is_none()));
    }
}
