//! Lines of the logs that are read back after a crash, made by those logs: numbers from 1 on, each line with its checksum.
//!
//! Never: a checksum of its own. What the logs write is what they read.

use forebay::intake::rejected::{RejectedLog, RejectionWriter as _};
use forebay::journal::JournalId;
use forebay::segments::LogPosition;
use forebay::status::{StatusLog, StatusWriter as _};
use forebay_driver::live::{Original, Rejection};
use forebay_kernel::effect::{Status, StatusKind};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

/// Whose statuses they are.
pub const JOURNAL: JournalId = JournalId { uuid: 7, incarnation: 0 };

/// Where the first segment of a log is, in its folder.
pub const FIRST_SEGMENT: &str = "00000000000000000001.jsonl";

/// Lines of a log that are enough to go on behind what the journal knows.
const LINES: u64 = 6;

/// When they were written.
const AT: Timestamp = Timestamp(1_795_293_000_000);

/// The first lines of a log of rejected events and of one of statuses, each line with its break. `None`: no folder could be written.
pub fn lines() -> Option<[Vec<Vec<u8>>; 2]> {
    let folder = tempfile::tempdir().ok()?;
    let mut rejected = RejectedLog::open(folder.path(), 0).ok()?;
    rejected.write(AT, &(1..=LINES).map(rejection).collect::<Vec<_>>()).ok()?;
    let mut statuses = StatusLog::open(folder.path(), JOURNAL, LogPosition { known: 0, kept: 0 }).ok()?;
    let all: Vec<Status> = (1..=LINES).map(status).collect();
    statuses.write(&mut all.iter()).ok()?;
    let read = |log: &str| -> Option<Vec<Vec<u8>>> {
        let bytes = std::fs::read(folder.path().join(log).join(FIRST_SEGMENT)).ok()?;
        Some(bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect())
    };
    Some([read(forebay::intake::rejected::FOLDER)?, read(forebay::status::FOLDER)?])
}

fn rejection(position: u64) -> Rejection {
    let original = Original {
        source: "f.jsonl".into(),
        position,
        message: None,
        attributes: Vec::new(),
        bytes: if position.is_multiple_of(2) { b"{".to_vec() } else { vec![0xff, 0] },
        sent_ms: None,
    };
    Rejection { original, code: "Malformed", path: "$".to_owned(), message: "not JSON".to_owned() }
}

fn status(number: u64) -> Status {
    Status {
        number,
        at: AT,
        tenant: "default".to_owned(),
        subject: format!("job \"{number}\""),
        job: Some(JobId(number)),
        attempt: Attempt(1),
        seq: 1,
        kind: StatusKind::Queued,
        reason: None,
        named: None,
        run: None,
        labels: BTreeMap::new(),
    }
}
