//! The statuses of one job that are not in memory any more: read from `status.jsonl`, a line at a time.
//!
//! Never: more of the file in memory than a line; a line that is still being written.

use crate::status::FILE;
use forebay_engine::ids::JobId;
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

/// A line is a status: subject, reason and some 500 bytes. A file that has longer ones is damaged.
const MOST_LINE: u64 = 64 << 10;

/// The file, and how far it was read.
pub(super) struct History {
    file: BufReader<File>,
    end: u64,
}

/// A status as its line has it.
pub(super) struct Past<'a> {
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
    number: u64,
    job: Option<String>,
    seq: u64,
    terminal: bool,
}

#[derive(Deserialize)]
struct Numbered {
    data: Number,
}

#[derive(Deserialize)]
struct Number {
    number: u64,
}

impl History {
    /// Opens the file of a journal's folder.
    pub fn open(folder: &Path) -> std::io::Result<History> {
        Ok(History { file: BufReader::with_capacity(1 << 18, File::open(folder.join(FILE))?), end: 0 })
    }

    /// Hands over the job's statuses with numbers below `before`, from where it was read to last, until `take` says no.
    pub fn read(&mut self, job: JobId, before: u64, mut take: impl FnMut(Past<'_>) -> bool) -> std::io::Result<()> {
        // As it stands in a line of this job, and in no text: there a quote has a backslash before it.
        let mark = format!("\"job\":\"{job}\"");
        let (name, mut line, mut count) = (job.to_string(), Vec::new(), 0u64);
        self.file.seek(SeekFrom::Start(self.end))?;
        loop {
            line.clear();
            let read = std::io::Read::take(&mut self.file, MOST_LINE).read_until(b'\n', &mut line)?;
            if line.pop() != Some(b'\n') {
                return Ok(());
            }
            let text = std::str::from_utf8(&line).unwrap_or_default();
            count += 1;
            // Lines of other jobs are looked into now and then only, to know when to stop.
            if count.is_multiple_of(1024)
                && serde_json::from_str::<Numbered>(text).is_ok_and(|Numbered { data }| data.number >= before)
            {
                return Ok(());
            }
            if text.contains(&mark)
                && let Ok(Written { kind, data }) = serde_json::from_str::<Written>(text)
                && data.job.as_deref() == Some(&name)
            {
                if data.number >= before {
                    return Ok(());
                }
                if !take(Past { seq: data.seq, kind, terminal: data.terminal, event: text }) {
                    return Ok(());
                }
            }
            self.end += read as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::cloud_event;
    use forebay_engine::effect::{Status, StatusKind};
    use forebay_engine::ids::Attempt;
    use forebay_engine::units::Millis;
    use std::fmt::Write as _;

    /// Jobs in turn; each job's tenth status is its last. Job 2 is named like a mark of job 1.
    fn lines(count: u64) -> String {
        let mut text = String::new();
        for number in 1..=count {
            let (job, seq) = ((number - 1) % 3, (number - 1) / 3 + 1);
            let kind = if seq == 10 { StatusKind::Completed } else { StatusKind::Requeued };
            let status = Status {
                number,
                at: Millis(number),
                tenant: "t".into(),
                subject: if job == 2 { "\"job\":\"job-1\"".into() } else { format!("s{job}") },
                job: Some(JobId(job)),
                attempt: Attempt(1),
                seq: u32::try_from(seq).unwrap(),
                kind,
                reason: None,
            };
            writeln!(text, "{}", cloud_event(&status, uuid::Uuid::nil())).unwrap();
        }
        text
    }

    #[test]
    fn one_jobs_statuses_are_read_on_from_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let text = lines(30);
        let cut = text.len() / 2;
        std::fs::write(folder.path().join(FILE), &text[..cut]).unwrap();
        let mut history = History::open(folder.path()).unwrap();
        let mut seqs = Vec::new();
        let mut read = |history: &mut History, before: u64| {
            let take = |past: Past<'_>| {
                assert_eq!(past.terminal, past.kind == "status.completed");
                assert!(past.event.contains("\"s1\""), "{}", past.event);
                seqs.push(past.seq);
                true
            };
            history.read(JobId(1), before, take).unwrap();
            seqs.clone()
        };
        assert_eq!(read(&mut history, 8), [1, 2], "number 8 is its third");
        let half = read(&mut history, 1000);
        assert!(half.len() < 10, "{half:?}");
        std::fs::write(folder.path().join(FILE), &text).unwrap();
        assert_eq!(read(&mut history, 1000), (1..=10).collect::<Vec<_>>(), "the torn line is read when it is whole");
    }

    #[test]
    fn a_taker_that_has_gone_ends_it_and_no_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(History::open(folder.path()).is_err());
        std::fs::write(folder.path().join(FILE), lines(30)).unwrap();
        let mut taken = 0;
        let take = |_: Past<'_>| {
            taken += 1;
            taken < 3
        };
        History::open(folder.path()).unwrap().read(JobId(0), u64::MAX, take).unwrap();
        assert_eq!(taken, 3);
    }
}
