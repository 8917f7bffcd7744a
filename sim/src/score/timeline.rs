//! What the status stream reports of each job of a trace: when it was submitted, first started, done. The stream is checked on
//! the way: no gap, no double, nothing after the end.
//!
//! Never: reads the engine's state. A job that the stream forgets is missing here too, and is found so.

use std::collections::BTreeMap;

use forebay_kernel::effect::{Status, StatusKind};
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;

use super::RejectedJobs;
use crate::trace::TraceJob;

/// One job's history as its submitter sees it.
#[derive(Clone, Debug)]
pub(crate) struct JobHistory {
    pub submitted: Timestamp,
    pub started: Option<Timestamp>,
    pub ended: Option<(Timestamp, StatusKind)>,
    pub deadline: Option<Timestamp>,
    seq: u32,
}

/// All jobs' histories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    histories: Vec<JobHistory>,
    by_subject: BTreeMap<String, usize>,
    by_job: BTreeMap<JobId, usize>,
    last: u64,
    refused: u64,
    rejected: BTreeMap<String, RejectedJobs>,
    violations: Vec<String>,
}

impl Timeline {
    /// A job enters.
    pub fn submitted(&mut self, row: &TraceJob) {
        self.by_subject.insert(row.id.clone(), self.histories.len());
        self.histories.push(JobHistory {
            submitted: Timestamp(row.submit_ms),
            started: None,
            ended: None,
            deadline: row.deadline_ms.map(Timestamp),
            seq: 0,
        });
    }

    /// A message arrives. Messages that were delivered before a crash come again and are passed over.
    pub fn take(&mut self, status: &Status) {
        if status.number <= self.last {
            return;
        }
        if status.number != self.last + 1 {
            let gap = format!("status {} follows {}", status.number, self.last);
            self.violations.push(gap);
        }
        self.last = status.number;
        if let (StatusKind::Rejected, Some(reason)) = (status.kind, status.reason) {
            let first = || RejectedJobs { jobs: 0, first: status.subject.clone(), message: reason.to_string() };
            self.rejected.entry(reason.code().to_owned()).or_insert_with(first).jobs += 1;
        }
        let Some(job) = status.job else {
            self.refused += 1;
            return;
        };
        let subject = || self.by_subject.get(&status.subject).copied();
        let Some(at) = self.by_job.get(&job).copied().or_else(subject) else {
            self.violations.push(format!("a status of {job}, which nobody submitted"));
            return;
        };
        self.by_job.insert(job, at);
        let history = &mut self.histories[at];
        if status.seq != history.seq + 1 {
            let gap = format!("{job}: message {} follows {}", status.seq, history.seq);
            self.violations.push(gap);
        }
        history.seq = status.seq;
        if let Some((_, kind)) = history.ended {
            let (kind, late) = (kind.as_str(), status.kind.as_str());
            self.violations.push(format!("{job}: `{late}` after `{kind}`"));
        }
        match status.kind {
            StatusKind::Started => history.started = history.started.or(Some(status.at)),
            kind if kind.terminal() => history.ended = Some((status.at, kind)),
            _ => {}
        }
    }

    /// The number up to which messages were taken.
    pub fn delivered(&self) -> u64 {
        self.last
    }

    /// Jobs in order of submission.
    pub fn histories(&self) -> &[JobHistory] {
        &self.histories
    }

    /// Jobs that ended so.
    pub fn ended(&self, kind: StatusKind) -> u64 {
        let so = |l: &&JobHistory| l.ended.is_some_and(|(_, k)| k == kind);
        self.histories.iter().filter(so).count() as u64
    }

    /// Submissions that never became a job.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Jobs that were rejected and submissions that were refused, by the code of the reason.
    pub fn rejected(&self) -> &BTreeMap<String, RejectedJobs> {
        &self.rejected
    }

    /// Jobs with a last message.
    pub fn terminal(&self) -> u64 {
        self.histories.iter().filter(|l| l.ended.is_some()).count() as u64
    }

    /// What was wrong with the stream.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::ids::Attempt;

    fn status(number: u64, seq: u32, kind: StatusKind) -> Status {
        Status {
            number,
            at: Timestamp(number * 10),
            tenant: "trace".into(),
            subject: "a".into(),
            job: Some(JobId(0)),
            attempt: Attempt(1),
            seq,
            kind,
            reason: None,
            named: None,
            run: None,
            labels: BTreeMap::new(),
        }
    }

    fn taken(stream: &[Status]) -> Timeline {
        let mut timeline = Timeline::default();
        timeline.submitted(&TraceJob { id: "a".into(), ..TraceJob::default() });
        stream.iter().for_each(|s| timeline.take(s));
        timeline
    }

    #[test]
    fn a_sound_stream_gives_start_and_end() {
        let stream = [
            status(1, 1, StatusKind::Queued),
            status(2, 2, StatusKind::Started),
            status(2, 2, StatusKind::Started),
            status(3, 3, StatusKind::Completed),
        ];
        let timeline = taken(&stream);
        let history = &timeline.histories()[0];
        assert_eq!(history.started, Some(Timestamp(20)));
        assert_eq!(history.ended, Some((Timestamp(30), StatusKind::Completed)));
        assert!(timeline.violations().is_empty());
    }

    #[test]
    fn gaps_and_late_words_are_found() {
        let gap = taken(&[status(1, 1, StatusKind::Queued), status(3, 2, StatusKind::Started)]);
        assert_eq!(gap.violations(), ["status 3 follows 1"]);
        let own = taken(&[status(1, 1, StatusKind::Queued), status(2, 3, StatusKind::Started)]);
        assert_eq!(own.violations(), ["job-0: message 3 follows 1"]);
        let late = taken(&[status(1, 1, StatusKind::Failed), status(2, 2, StatusKind::Queued)]);
        assert_eq!(late.violations(), ["job-0: `queued` after `failed`"]);
    }
}
