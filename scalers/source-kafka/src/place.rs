//! Where reading of a partition begins: from the journal's position, the log's ends and the print of the last message read.
//!
//! ```text
//! kafka:<topic>/<partition>/<incarnation>        the offset to read next; it only grows
//! kafka:<topic>/<partition>/<incarnation>#mark   a print of the message before it
//! ```
//! A topic that was deleted and made again is another log: it gets the next incarnation and is read from its start.
//!
//! Never: a committed offset, or IO.

use forebay_source::Durable;

/// What is known of a partition: which log it is, how far it was read, and the print of the last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) incarnation: u32,
    /// The offset to read next. `None`: nothing was read yet.
    pub(crate) position: Option<u64>,
    pub(crate) mark: Option<u64>,
}

impl Kept {
    /// As the journal has it: the highest incarnation.
    pub(crate) fn of(durable: &Durable, topic: &str, partition: i32) -> Kept {
        let prefix = format!("kafka:{topic}/{partition}/");
        let all = durable.under(&prefix);
        // Marks do not parse as a number, which leaves them out.
        let numbered = all.iter().filter_map(|(key, at)| Some((key[prefix.len()..].parse::<u32>().ok()?, *at)));
        let Some((incarnation, position)) = numbered.max() else {
            return Kept::default();
        };
        let mark = durable.of(&format!("{prefix}{incarnation}#mark"));
        Kept { incarnation, position: Some(position), mark }
    }

    /// The log is another one: nothing of it was read. What never was read keeps its number.
    pub(crate) fn anew(self) -> Kept {
        match self.position {
            Some(_) => Kept { incarnation: self.incarnation.saturating_add(1), position: None, mark: None },
            None => self,
        }
    }
}

/// The position's key.
pub(crate) fn key(topic: &str, partition: i32, incarnation: u32) -> String {
    format!("kafka:{topic}/{partition}/{incarnation}")
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here.
    From {
        /// The first offset.
        offset: u64,
        /// Messages that retention took before they were read.
        missed: u64,
    },
    /// At the last message that was read: if it bears another print, the log is another one.
    Check {
        /// That message's offset.
        offset: u64,
        /// The print that it had.
        mark: u64,
    },
    /// The log is another one than was read: at its start.
    Anew,
}

/// Where to begin in a log that has `low..high`.
pub(crate) fn place(kept: &Kept, low: u64, high: u64) -> Place {
    let Some(position) = kept.position else {
        return Place::From { offset: low, missed: 0 };
    };
    if position > high {
        return Place::Anew;
    }
    if position < low {
        return Place::From { offset: low, missed: low - position };
    }
    match kept.mark {
        Some(mark) if position > low => Place::Check { offset: position - 1, mark },
        _ => Place::From { offset: position, missed: 0 },
    }
}

/// A print of a message that stays the same in every version of Forebay: CRC32C of offset, timestamp, key and body, and the body's length.
pub(crate) fn print(offset: u64, timestamp: i64, key: Option<&[u8]>, body: Option<&[u8]>) -> u64 {
    let mut crc = crc32c::crc32c(&offset.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &timestamp.to_le_bytes());
    // The lengths keep a key from passing for a part of the body; no key and an empty one differ.
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
        let durable = Durable::default();
        let positions = [
            ("kafka:jobs/1/0", 40),
            ("kafka:jobs/1/0#mark", 7),
            ("kafka:jobs/1/2", 9),
            ("kafka:jobs/1/10", 3),
            ("kafka:jobs/1/10#mark", 8),
            ("kafka:jobs/10/0", 99),
            ("kafka:jobs2/1/0", 98),
        ];
        durable.put(&BTreeMap::from(positions.map(|(key, at)| (key.to_owned(), at))));
        assert_eq!(Kept::of(&durable, "jobs", 1), Kept { incarnation: 10, position: Some(3), mark: Some(8) });
        assert_eq!(Kept::of(&durable, "jobs", 10), Kept { incarnation: 0, position: Some(99), mark: None });
        assert_eq!(Kept::of(&durable, "other", 0), Kept::default());
        assert_eq!(Kept::of(&durable, "jobs", 1).anew(), Kept { incarnation: 11, position: None, mark: None });
        assert_eq!(Kept::default().anew(), Kept::default());
    }

    #[test]
    fn where_reading_begins() {
        let at = |position: Option<u64>, mark| Kept { incarnation: 0, position, mark };
        let from = |offset, missed| Place::From { offset, missed };
        let cases = [
            ("nothing read", at(None, None), 5, 9, from(5, 0)),
            ("an empty log", at(None, None), 0, 0, from(0, 0)),
            ("in the middle", at(Some(7), Some(1)), 5, 9, Place::Check { offset: 6, mark: 1 }),
            ("without a mark", at(Some(7), None), 5, 9, from(7, 0)),
            ("at the end", at(Some(9), Some(1)), 5, 9, Place::Check { offset: 8, mark: 1 }),
            ("at the start: the message before it is gone", at(Some(5), Some(1)), 5, 9, from(5, 0)),
            ("trimmed beyond it", at(Some(2), Some(1)), 5, 9, from(5, 3)),
            ("all trimmed", at(Some(9), Some(1)), 9, 9, from(9, 0)),
            ("beyond the end", at(Some(10), Some(1)), 5, 9, Place::Anew),
            ("a new and empty log", at(Some(1), None), 0, 0, Place::Anew),
        ];
        for (what, kept, low, high, expected) in cases {
            assert_eq!(place(&kept, low, high), expected, "{what}");
        }
    }

    #[test]
    fn a_print_tells_messages_apart_and_never_changes() {
        let base = print(4, 1_700_000_000_000, Some(b"k"), Some(b"body"));
        // Journals hold such prints: this value may never change.
        assert_eq!(base, PRINTED);
        let others = [
            print(5, 1_700_000_000_000, Some(b"k"), Some(b"body")),
            print(4, 1_700_000_000_001, Some(b"k"), Some(b"body")),
            print(4, 1_700_000_000_000, None, Some(b"body")),
            print(4, 1_700_000_000_000, Some(b""), Some(b"kbody")),
            print(4, 1_700_000_000_000, Some(b"k"), Some(b"bodz")),
            print(4, 1_700_000_000_000, Some(b"k"), None),
        ];
        assert!(others.iter().all(|other| *other != base));
    }

    const PRINTED: u64 = 14_208_969_249_417_854_980;
}
