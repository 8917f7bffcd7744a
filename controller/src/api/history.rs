//! The statuses of one job that are not in memory any more: read from the segments of statuses, a line at a time.
//!
//! Never: more of them in memory than a line; a line that is still being written.

use crate::segments::{SegmentError, SegmentReader};
use crate::status::{FOLDER, line_head};
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;
use serde::Deserialize;
use std::path::Path;

/// The log, and how far it was read.
pub(crate) struct History {
    reader: SegmentReader,
    job: JobId,
}

/// A status as its line has it.
pub(crate) struct Past<'a> {
    /// Position among its job's.
    pub seq: u64,
    /// `status.queued` and the like.
    pub kind: String,
    /// Whether nothing follows.
    pub terminal: bool,
    /// The CloudEvent.
    pub event: &'a str,
}

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    job: Option<String>,
    seq: u64,
    terminal: bool,
}

impl History {
    /// Of a journal's folder and a job that was accepted at that time: segments that ended before it are not read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of_job(folder: &Path, job: JobId, accepted: Timestamp) -> Result<History, SegmentError> {
        let reader = SegmentReader::since(&folder.join(FOLDER), accepted.0, line_head)?;
        Ok(History { reader, job })
    }

    /// Hands over the job's statuses with numbers below `before`, from where it was read to last, until `take` says no.
    ///
    /// # Errors
    /// What the file system says, a damaged line, or lines that went while they were read.
    pub fn read(&mut self, before: u64, mut take: impl FnMut(Past<'_>) -> bool) -> Result<(), SegmentError> {
        // As it stands in a line of this job, and in no text: there a quote has a backslash before it. A label of another job may stand so, too.
        let name = self.job.to_string();
        let mark = format!("\"job\":\"{name}\"");
        while let Some(line) = self.reader.next_up_to(before.saturating_sub(1))? {
            let text = std::str::from_utf8(&line.bytes).unwrap_or_default();
            if text.contains(&mark)
                && let Ok(Written { kind, data }) = serde_json::from_str::<Written>(text)
                && data.job.as_deref() == Some(&name)
                && !take(Past { seq: data.seq, kind, terminal: data.terminal, event: text })
            {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalId;
    use crate::segments::LogPosition;
    use crate::status::StatusLog;
    use forebay_driver::live::StatusWriter as _;
    use forebay_kernel::effect::{Status, StatusKind};
    use forebay_kernel::ids::Attempt;
    use forebay_kernel::units::Timestamp;
    use std::collections::BTreeMap;

    /// Jobs in turn; each job's tenth status is its last. Job 2 is named like a mark of job 1, and a label of it is one.
    fn status(number: u64) -> Status {
        let (job, seq) = ((number - 1) % 3, (number - 1) / 3 + 1);
        Status {
            number,
            // Days apart: each ten have a segment of their own.
            at: Timestamp(number / 10 * 86_400_000),
            tenant: "t".into(),
            subject: if job == 2 { "\"job\":\"job-1\"".into() } else { format!("s{job}") },
            job: Some(JobId(job)),
            attempt: Attempt(1),
            seq: u32::try_from(seq).unwrap(),
            kind: if seq == 10 { StatusKind::Completed } else { StatusKind::Requeued },
            reason: None,
            named: None,
            run: None,
            labels: if job == 2 { [("job".into(), "job-1".into())].into() } else { BTreeMap::new() },
        }
    }

    fn write(folder: &Path, from: u64, to: u64) {
        let journal = JournalId { uuid: 0, incarnation: 0 };
        let mut log = StatusLog::open(folder, journal, LogPosition { known: from - 1, kept: 0 }).unwrap();
        for number in from..=to {
            log.write(&mut [status(number)].iter()).unwrap();
        }
    }

    #[test]
    fn one_jobs_statuses_are_read_on_from_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1, 15);
        let mut history = History::of_job(folder.path(), JobId(1), Timestamp(0)).unwrap();
        let mut seqs = Vec::new();
        let mut read = |history: &mut History, before: u64| {
            let take = |past: Past<'_>| {
                assert_eq!(past.terminal, past.kind == "status.completed");
                assert!(past.event.contains("\"s1\""), "{}", past.event);
                seqs.push(past.seq);
                true
            };
            history.read(before, take).unwrap();
            seqs.clone()
        };
        assert_eq!(read(&mut history, 8), [1, 2], "number 8 is its third");
        assert_eq!(read(&mut history, 1000), (1..=5).collect::<Vec<_>>());
        write(folder.path(), 16, 30);
        assert_eq!(read(&mut history, 1000), (1..=10).collect::<Vec<_>>(), "what was written since follows");
    }

    #[test]
    fn what_was_written_before_a_job_was_accepted_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1, 40);
        let oldest = folder.path().join(FOLDER).join(format!("{:020}.jsonl", 1));
        let damaged = std::fs::read_to_string(&oldest).unwrap().replace("\"s1\"", "\"s2\"");
        std::fs::write(&oldest, damaged).unwrap();
        let seqs = |accepted: u64| {
            let mut seqs = Vec::new();
            let mut history = History::of_job(folder.path(), JobId(1), Timestamp(accepted)).unwrap();
            let take = |past: Past<'_>| {
                seqs.push(past.seq);
                true
            };
            history.read(u64::MAX, take).map(|()| seqs)
        };
        let day = 86_400_000;
        // The segment of the day before may have what was written at the same moment.
        assert_eq!(seqs(2 * day).unwrap(), (4..=13).collect::<Vec<_>>());
        assert_eq!(seqs(2 * day + 1).unwrap(), (7..=13).collect::<Vec<_>>());
        assert_eq!(seqs(4 * day).unwrap(), [11, 12, 13]);
        assert!(seqs(9 * day).unwrap().is_empty());
        assert!(seqs(day).is_err(), "the oldest is damaged, and may have some of it");
    }

    #[test]
    fn a_taker_that_has_gone_ends_it_and_no_log_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let of_first = || History::of_job(folder.path(), JobId(0), Timestamp(0)).unwrap();
        of_first().read(u64::MAX, |_| panic!("there is none")).unwrap();
        write(folder.path(), 1, 30);
        let mut taken = 0;
        let take = |_: Past<'_>| {
            taken += 1;
            taken < 3
        };
        of_first().read(u64::MAX, take).unwrap();
        assert_eq!(taken, 3);
    }
}
