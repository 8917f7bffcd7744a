//! When statuses and rejected messages are taken away, and who still has to read them.
//!
//! Never: takes away what a sink that is configured has not sent, or anything before it is known which these are.

use super::error::DriverError;
use super::handle::DriverHandle;
use super::input::REJECTED;
use super::live_loop::LiveLoop;
use crate::journal::Journal;
use forebay_kernel::units::Span;
use forebay_source::DurablePositions;
use std::sync::{Arc, OnceLock};

/// What the keys of cursors begin with of those who read statuses, and of those who read rejected messages.
const STATUS_CURSORS: &str = "out:status:";
const REJECTED_CURSORS: &str = "out:rejected:";

/// How often the logs are compared with their retention, by the engine's time.
const EVERY: Span = Span::mins(60);

/// The cursors of those who read the logs, once they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct LogReaders(Arc<OnceLock<Vec<String>>>);

/// How far a log has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadSoFar {
    /// It is not known who reads it.
    Unknown,
    /// Nobody reads it.
    NoReaders,
    /// All who read it have read up to this number.
    UpTo(u64),
}

impl LogReaders {
    pub fn set(&self, cursors: Vec<String>) {
        if self.0.set(cursors).is_err() {
            tracing::error!(
                "the readers of the logs were given twice, by a fault of this program; the first ones hold"
            );
        }
    }

    fn read(&self, prefix: &str, durable: &DurablePositions) -> ReadSoFar {
        let Some(cursors) = self.0.get() else { return ReadSoFar::Unknown };
        let cursors = cursors.iter().filter(|cursor| cursor.starts_with(prefix));
        let least = cursors.map(|cursor| durable.get(cursor).unwrap_or(0)).min();
        least.map_or(ReadSoFar::NoReaders, ReadSoFar::UpTo)
    }
}

impl<J: Journal> LiveLoop<J> {
    /// Takes away what is beyond its retention. If that fails it stays, and it is tried again an hour later.
    pub(super) fn retain_if_due(&mut self) {
        let now = self.engine.state().now();
        if now < self.retain_at {
            return;
        }
        self.retain_at = now + EVERY;
        let DriverHandle { readers, durable, .. } = &self.handle;
        let statuses = match readers.read(STATUS_CURSORS, durable) {
            ReadSoFar::Unknown => return,
            ReadSoFar::NoReaders => None,
            ReadSoFar::UpTo(number) => Some(number),
        };
        report("statuses", self.statuses.retain(now, statuses).map_err(DriverError::Storage));
        // What the journal does not count yet is not to be forgotten either.
        let counted = durable.get(REJECTED).unwrap_or(0);
        let rejected = match readers.read(REJECTED_CURSORS, durable) {
            ReadSoFar::UpTo(number) => number.min(counted),
            ReadSoFar::Unknown | ReadSoFar::NoReaders => counted,
        };
        report("rejected messages", self.input.log.retain(now, Some(rejected)).map_err(DriverError::Storage));
    }
}

fn report(what: &str, retained: Result<Option<u64>, DriverError>) {
    match retained {
        Ok(Some(number)) => {
            tracing::warn!("{what} up to number {number} are kept beyond their time: a sink has not sent them yet");
        }
        Ok(None) => {}
        Err(e) => tracing::warn!("{what} beyond their time stay for now: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_log_is_read_as_far_as_its_slowest_reader() {
        let (readers, durable) = (LogReaders::default(), DurablePositions::default());
        assert_eq!(readers.read(STATUS_CURSORS, &durable), ReadSoFar::Unknown);
        readers.set(vec!["out:status:kafka".to_owned(), "out:status:sqs".to_owned()]);
        durable.update(&BTreeMap::from([("out:status:kafka".to_owned(), 9)]));
        assert_eq!(readers.read(STATUS_CURSORS, &durable), ReadSoFar::UpTo(0));
        durable.update(&BTreeMap::from([("out:status:sqs".to_owned(), 7)]));
        assert_eq!(readers.read(STATUS_CURSORS, &durable), ReadSoFar::UpTo(7));
        assert_eq!(readers.read(REJECTED_CURSORS, &durable), ReadSoFar::NoReaders);
    }
}
