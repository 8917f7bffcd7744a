//! The bytes of a CSV record as they stand in the file, kept while the csv crate reads it: for line numbers and for what quotes it has.
//!
//! It never holds more than one row of 1 MiB and what was read ahead.

use std::io::{self, BufRead, Read};

/// The longest row in bytes. Real rows have a few hundred; an unclosed quote must not swallow a file.
const ROW_BYTES: usize = 1 << 20;
/// What the csv crate reads ahead at most, with room to spare.
const AHEAD_BYTES: usize = 64 << 10;

/// Passes bytes on, and keeps those that are not taken yet.
pub(super) struct RawRecord {
    inner: Box<dyn BufRead>,
    kept: Vec<u8>,
    /// The place of the first kept byte in the file.
    from: u64,
}

impl RawRecord {
    pub(super) fn new(inner: Box<dyn BufRead>) -> RawRecord {
        RawRecord { inner, kept: Vec::new(), from: 0 }
    }

    /// Takes what is kept before a place in the file.
    pub(super) fn take_until(&mut self, end: u64) -> Vec<u8> {
        let count = usize::try_from(end.saturating_sub(self.from)).unwrap_or(usize::MAX).min(self.kept.len());
        self.from = end;
        let rest = self.kept.split_off(count);
        std::mem::replace(&mut self.kept, rest)
    }
}

impl Read for RawRecord {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.kept.len() > ROW_BYTES + AHEAD_BYTES {
            return Err(io::Error::other(TooLong));
        }
        let read = self.inner.read(out)?;
        self.kept.extend_from_slice(&out[..read]);
        Ok(read)
    }
}

/// A row is longer than any real one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a row of more than 1 MiB")]
pub(super) struct TooLong;

impl TooLong {
    /// Whether reading ended for this.
    pub(super) fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<TooLong>())
    }
}

/// What the double quotes of a record are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Each that opens is closed at the end of its field, or there are none.
    Sound,
    /// One opens and is never closed.
    Unclosed,
    /// Text follows a closing one.
    TextAfterClosing,
}

impl Quotes {
    /// Checks one record, as RFC 4180 has it. Blanks may stand between a closing quote and the next comma or line break; a quote that
    /// does not begin its field is text.
    pub(super) fn of(record: &[u8]) -> Quotes {
        if !record.contains(&b'"') {
            return Quotes::Sound;
        }
        let mut place = Place::Start;
        let mut stray = false;
        for byte in record {
            place = match (place, byte) {
                (Place::Quoted, b'"') => Place::Closed,
                (Place::Quoted, _) => Place::Quoted,
                (Place::Closed, b'"') => Place::Quoted,
                (_, b',' | b'\n') => Place::Start,
                (Place::Start, b'"') => Place::Quoted,
                (Place::Closed, byte) => {
                    stray |= !matches!(byte, b'\r' | b' ' | b'\t');
                    Place::Closed
                }
                (Place::Start | Place::Plain, _) => Place::Plain,
            };
        }
        match place {
            Place::Quoted => Quotes::Unclosed,
            _ if stray => Quotes::TextAfterClosing,
            _ => Quotes::Sound,
        }
    }
}

/// Where in its field a byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    Plain,
    Quoted,
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_sound_unclosed_or_followed_by_text() {
        let cases: [(&[u8], Quotes); 8] = [
            (b"a,b\n", Quotes::Sound),
            (b"\"a, \"\"b\"\"\" \r\n", Quotes::Sound),
            (b"a\"b,c\n", Quotes::Sound),
            (b"\"a\nb\",c", Quotes::Sound),
            (b"\"a,b\n", Quotes::Unclosed),
            (b"\"a\"\"", Quotes::Unclosed),
            (b"\"a\"b,c\n", Quotes::TextAfterClosing),
            (b"\"a\" \"b\n", Quotes::Unclosed),
        ];
        for (record, quotes) in cases {
            assert_eq!(Quotes::of(record), quotes, "{}", String::from_utf8_lossy(record));
        }
    }
}
