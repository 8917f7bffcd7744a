//! Where reading of a partition starts. It follows from the journal's position, the first and last offset of the log, and the fingerprint
//! of the last message that was read. Committed offsets do not matter, and nothing here does IO.
//!
//! ```text
//! kafka:<topic>/<partition>/<incarnation>        the offset to read next; it only grows
//! kafka:<topic>/<partition>/<incarnation>#mark   the fingerprint of the message before it
//! ```
//!
//! A topic that was deleted and created again is another log: it gets the next incarnation and is read from its start.

use forebay_source::DurablePositions;

/// What the journal has about a partition: which log it is, how far it was read, and the fingerprint of the last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredPosition {
    pub(crate) incarnation: u32,
    /// The offset to read next. `None` if nothing was read yet.
    pub(crate) position: Option<u64>,
    pub(crate) fingerprint: Option<u64>,
}

impl StoredPosition {
    /// Reads the highest incarnation from the journal's positions.
    pub(crate) fn load(positions: &DurablePositions, topic: &str, partition: i32) -> StoredPosition {
        let prefix = format!("kafka:{topic}/{partition}/");
        let all = positions.with_prefix(&prefix);
        // Keys of fingerprints end with `#mark` and do not parse as a number.
        let numbered = all.iter().filter_map(|(key, at)| Some((key[prefix.len()..].parse::<u32>().ok()?, *at)));
        let Some((incarnation, position)) = numbered.max() else {
            return StoredPosition::default();
        };
        let fingerprint = positions.get(&format!("{prefix}{incarnation}#mark"));
        StoredPosition { incarnation, position: Some(position), fingerprint }
    }

    /// For another log, of which nothing was read. If nothing was read so far, the incarnation stays the same.
    pub(crate) fn next_incarnation(self) -> StoredPosition {
        match self.position {
            Some(_) => {
                StoredPosition { incarnation: self.incarnation.saturating_add(1), position: None, fingerprint: None }
            }
            None => self,
        }
    }
}

/// The key of a position in the journal.
pub(crate) fn key(topic: &str, partition: i32, incarnation: u32) -> String {
    format!("kafka:{topic}/{partition}/{incarnation}")
}

/// Where to start reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartOffset {
    /// At this offset.
    From {
        /// The first offset to read.
        offset: u64,
        /// Messages that retention deleted before they were read.
        missed: u64,
    },
    /// At the last message that was read. If its fingerprint differs now, the log is another one.
    Check {
        /// The offset of that message.
        offset: u64,
        /// The fingerprint that it had.
        fingerprint: u64,
    },
    /// At the start, because this is another log than the one that was read.
    RecreatedLog,
}

/// Where to start reading in a log with the offsets `low..high`.
pub(crate) fn start_offset(stored: &StoredPosition, low: u64, high: u64) -> StartOffset {
    let Some(position) = stored.position else {
        return StartOffset::From { offset: low, missed: 0 };
    };
    if position > high {
        return StartOffset::RecreatedLog;
    }
    if position < low {
        return StartOffset::From { offset: low, missed: low - position };
    }
    match stored.fingerprint {
        Some(fingerprint) if position > low => StartOffset::Check { offset: position - 1, fingerprint },
        _ => StartOffset::From { offset: position, missed: 0 },
    }
}

/// The fingerprint of a message: CRC32C of offset, timestamp, key and body in the upper half, and the length of the body in the lower
/// half. Journals contain fingerprints, so this function may never change.
pub(crate) fn fingerprint_of(offset: u64, timestamp: i64, key: Option<&[u8]>, body: Option<&[u8]>) -> u64 {
    let mut crc = crc32c::crc32c(&offset.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &timestamp.to_le_bytes());
    // With its length, a key cannot be mistaken for a part of the body. A missing key and an empty one differ.
    let length =
        |part: Option<&[u8]>| part.map_or(u32::MAX, |bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX - 1));
    crc = crc32c::crc32c_append(crc, &length(key).to_le_bytes());
    crc = crc32c::crc32c_append(crc, key.unwrap_or_default());
    crc = crc32c::crc32c_append(crc, body.unwrap_or_default());
    u64::from(crc) << 32 | u64::from(length(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_highest_incarnation_counts_and_old_ones_stay() {
        let positions = DurablePositions::default();
        let stored = [
            ("kafka:jobs/1/0", 40),
            ("kafka:jobs/1/0#mark", 7),
            ("kafka:jobs/1/2", 9),
            ("kafka:jobs/1/10", 3),
            ("kafka:jobs/1/10#mark", 8),
            ("kafka:jobs/10/0", 99),
            ("kafka:jobs2/1/0", 98),
        ];
        positions.update(&BTreeMap::from(stored.map(|(key, at)| (key.to_owned(), at))));
        assert_eq!(
            StoredPosition::load(&positions, "jobs", 1),
            StoredPosition { incarnation: 10, position: Some(3), fingerprint: Some(8) }
        );
        assert_eq!(
            StoredPosition::load(&positions, "jobs", 10),
            StoredPosition { incarnation: 0, position: Some(99), fingerprint: None }
        );
        assert_eq!(StoredPosition::load(&positions, "other", 0), StoredPosition::default());
        assert_eq!(
            StoredPosition::load(&positions, "jobs", 1).next_incarnation(),
            StoredPosition { incarnation: 11, position: None, fingerprint: None }
        );
        assert_eq!(StoredPosition::default().next_incarnation(), StoredPosition::default());
    }

    #[test]
    fn reading_starts_where_the_journal_and_the_log_say() {
        let at = |position: Option<u64>, fingerprint| StoredPosition { incarnation: 0, position, fingerprint };
        let from = |offset, missed| StartOffset::From { offset, missed };
        let cases = [
            ("nothing read", at(None, None), 5, 9, from(5, 0)),
            ("an empty log", at(None, None), 0, 0, from(0, 0)),
            ("in the middle", at(Some(7), Some(1)), 5, 9, StartOffset::Check { offset: 6, fingerprint: 1 }),
            ("without a mark", at(Some(7), None), 5, 9, from(7, 0)),
            ("at the end", at(Some(9), Some(1)), 5, 9, StartOffset::Check { offset: 8, fingerprint: 1 }),
            ("at the start: the message before it is gone", at(Some(5), Some(1)), 5, 9, from(5, 0)),
            ("trimmed beyond it", at(Some(2), Some(1)), 5, 9, from(5, 3)),
            ("all trimmed", at(Some(9), Some(1)), 9, 9, from(9, 0)),
            ("beyond the end", at(Some(10), Some(1)), 5, 9, StartOffset::RecreatedLog),
            ("a new and empty log", at(Some(1), None), 0, 0, StartOffset::RecreatedLog),
        ];
        for (what, stored, low, high, expected) in cases {
            assert_eq!(start_offset(&stored, low, high), expected, "{what}");
        }
    }

    #[test]
    fn a_fingerprint_tells_messages_apart_and_never_changes() {
        let base = fingerprint_of(4, 1_700_000_000_000, Some(b"k"), Some(b"body"));
        // Journals contain fingerprints, so this value may never change.
        assert_eq!(base, FIXED);
        let others = [
            fingerprint_of(5, 1_700_000_000_000, Some(b"k"), Some(b"body")),
            fingerprint_of(4, 1_700_000_000_001, Some(b"k"), Some(b"body")),
            fingerprint_of(4, 1_700_000_000_000, None, Some(b"body")),
            fingerprint_of(4, 1_700_000_000_000, Some(b""), Some(b"kbody")),
            fingerprint_of(4, 1_700_000_000_000, Some(b"k"), Some(b"bodz")),
            fingerprint_of(4, 1_700_000_000_000, Some(b"k"), None),
        ];
        assert!(others.iter().all(|other| *other != base));
    }

    const FIXED: u64 = 14_208_969_249_417_854_980;
}
