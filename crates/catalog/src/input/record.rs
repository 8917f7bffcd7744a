//! One record of a CSV file, as RFC 4180 has it, out of its lines.
//!
//! It says whether a quote is still open after a line, and never forgives text after a closing one.

/// The fields of a record, in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// All fields without their quotes.
    pub(super) bytes: Vec<u8>,
    /// Where in `bytes` each field ends.
    pub(super) ends: Vec<usize>,
    place: Place,
    /// Text follows a closing quote.
    pub(super) has_stray_text: bool,
}

/// Where in its field a byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    Plain,
    Quoted,
    Closed,
}

impl Record {
    /// Takes the next line. Blanks may stand between a closing quote and the next comma or line break; a quote that does not begin its
    /// field is text.
    pub(super) fn take(&mut self, line: &[u8]) {
        for &byte in line {
            self.place = match (self.place, byte) {
                (Place::Quoted, b'"') => Place::Closed,
                (Place::Start, b'"') => Place::Quoted,
                (Place::Start | Place::Plain | Place::Closed, b'\n') => Place::Start,
                (Place::Start | Place::Plain | Place::Closed, b',') => {
                    self.ends.push(self.bytes.len());
                    Place::Start
                }
                (Place::Closed, byte) if byte != b'"' => {
                    self.has_stray_text |= !matches!(byte, b'\r' | b' ' | b'\t');
                    Place::Closed
                }
                (place, byte) => {
                    self.bytes.push(byte);
                    if matches!(place, Place::Quoted | Place::Closed) { Place::Quoted } else { Place::Plain }
                }
            };
        }
    }

    /// Whether a quote is open, so that the record goes on in the next line.
    pub(super) fn is_open(&self) -> bool {
        self.place == Place::Quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_sound_open_or_followed_by_text() {
        let cases: [(&str, &str, bool, bool); 8] = [
            ("a,b\n", "a|b", false, false),
            ("\"a, \"\"b\"\"\" \r\n", "a, \"b\"", false, false),
            ("a\"b,c\n", "a\"b|c", false, false),
            ("\"a\nb\",c", "a\nb|c", false, false),
            ("\"a,b\n", "a,b\n", true, false),
            ("\"a\"\"", "a\"", true, false),
            ("\"a\"b,c\n", "a|c", false, true),
            ("\"a\" \"b\n", "a\"b\n", true, false),
        ];
        for (text, fields, is_open, has_stray_text) in cases {
            let mut record = Record::default();
            record.take(text.as_bytes());
            record.ends.push(record.bytes.len());
            let mut from = 0;
            let found = record.ends.iter().map(|end| {
                let field = String::from_utf8_lossy(&record.bytes[from..*end]).into_owned();
                from = *end;
                field
            });
            assert_eq!(found.collect::<Vec<_>>().join("|"), fields, "{text}");
            assert_eq!((record.is_open(), record.has_stray_text), (is_open, has_stray_text), "{text}");
        }
    }
}
