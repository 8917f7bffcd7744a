//! What an export could not say, counted: each sentence is printed.
//!
//! Never: a count of nothing.

use super::jobs::Lasted;
use forebay_kernel::decision::Outcome;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Jobs of before the range that were open in it.
    pub before: u64,
    /// Jobs whose name another row has.
    pub renamed: u64,
    /// Policies that came into force in the range.
    pub policies: usize,
    /// Finished jobs that the archive has.
    pub archived: u64,
    /// Finished jobs that it has no more.
    gone: u64,
    refused: u64,
    expected: u64,
    expected_rejected: u64,
    failed: u64,
    cancelled: u64,
    unsaid: u64,
    services: u64,
    shares: u64,
    unknown_open: u64,
    unknown_rejected: u64,
    unknown_ended: u64,
}

fn is_over(job: &Job, outcome: Outcome) -> bool {
    job.phase == Phase::Done { outcome }
}

impl LeftOut {
    /// A job has its row.
    pub fn written(&mut self, job: &Job, lasted: Lasted, unsaid: bool) {
        self.unsaid += u64::from(unsaid);
        match lasted {
            Lasted::CutShort(_) if is_over(job, Outcome::Failed) => self.failed += 1,
            Lasted::CutShort(_) => self.cancelled += 1,
            Lasted::Expected(_) if is_over(job, Outcome::Rejected) => self.expected_rejected += 1,
            Lasted::Expected(_) => self.expected += 1,
            Lasted::Done(_) | Lasted::Unknown => {}
        }
    }

    /// A job has none.
    pub fn job(&mut self, job: &Job, spec: &JobSpec, lasted: Lasted) {
        let count = match lasted {
            _ if spec.service.is_some() => &mut self.services,
            Lasted::Unknown if is_over(job, Outcome::Rejected) => &mut self.unknown_rejected,
            Lasted::Unknown if job.done() => &mut self.unknown_ended,
            Lasted::Unknown => &mut self.unknown_open,
            _ => &mut self.shares,
        };
        *count += 1;
    }

    /// What the state's counts say beside. They are of all time: of a part of it nothing can be said.
    pub fn counted(&mut self, state: &State, is_all: bool) {
        if is_all {
            self.gone = state.counters().outcomes.iter().sum::<u64>().saturating_sub(self.archived);
            self.refused = state.counters().refused;
        }
    }

    /// A sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let policies = self.policies as u64;
        let all = [
            (self.expected, "jobs were not over, or never started: they last as long as was expected of them"),
            (
                self.expected_rejected,
                "jobs were rejected, and are in the trace: they last as long as was expected of them",
            ),
            (self.failed, "jobs failed: they are done after as much work as their last runs had brought"),
            (self.cancelled, "jobs were cancelled: they are done after as much work as they had done"),
            (
                self.unsaid,
                "jobs ask for topology, a batch, a longest run, a number of starts, or completion by one worker: a trace has no such columns",
            ),
            (self.renamed, "jobs have a name of their own in the trace: another job has their subject"),
            (self.unknown_open, "jobs were left out: they are not over, and have no expectedRun"),
            (self.unknown_rejected, "jobs were left out: they were rejected, and have no expectedRun"),
            (self.unknown_ended, "jobs were left out: they ended without having worked, and have no expectedRun"),
            (self.services, "services were left out: a trace has none"),
            (self.shares, "jobs were left out: workers of a gang share GPUs, which a trace cannot say"),
            (self.before, "jobs were left out: they came before the range, and were open in it"),
            (self.gone, "jobs are not in it: they were over before what the archive keeps (journal: {keepFinished})"),
            (self.refused, "submissions are not in it: they were refused before they became jobs"),
            (policies, "times another policy came into force: policy.yaml is the last one"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}
