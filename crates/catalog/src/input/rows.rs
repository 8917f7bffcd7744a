//! CSV with a header, row by row: columns by name, quoted fields, CRLF, byte order mark, exact line numbers.
//!
//! The csv crate splits records. It accepts any use of quotes; here a quote that is not closed, or text after one, is an error.
//!
//! It never holds more than one row, and never accepts a row whose length differs from the header's.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use csv::{ByteRecord, Reader, ReaderBuilder, StringRecord, Terminator};

use forebay_quantity::excerpt::escaped;
use forebay_quantity::number::{NumberFault, scaled, whole};
use forebay_quantity::slip::nearest;

use super::error::InputError;
use super::file::Opened;
use super::raw::{Quotes, RawRecord, TooLong};

/// The latest time that a file may name: 100 years, in ms. Above it the unit is wrong.
pub const MAX_MS: u64 = 100 * 366 * 24 * 3_600_000;

struct Source {
    path: PathBuf,
    header: Vec<String>,
    header_line: u64,
}

/// A CSV file whose header was read.
pub struct CsvTable {
    source: Rc<Source>,
    reader: Reader<RawRecord>,
    cut_last_line: bool,
    rows: u64,
}

/// One row, with what its messages need.
pub struct CsvRow {
    source: Rc<Source>,
    record: StringRecord,
    /// Its line in the file, from 1.
    pub line: u64,
}

impl CsvTable {
    /// Reads the header. Names are compared without case and surrounding blanks.
    ///
    /// # Errors
    /// The file is empty or no CSV with a header, see [`InputError`].
    pub fn new(opened: Opened) -> Result<Self, InputError> {
        let source = Rc::new(Source { path: opened.path, header: Vec::new(), header_line: 1 });
        // A carriage return before the line break is a blank at the end of the last field.
        let mut settings = ReaderBuilder::new();
        settings.has_headers(false).flexible(true).terminator(Terminator::Any(b'\n'));
        let reader = settings.from_reader(RawRecord::new(opened.reader));
        let mut table = Self { source, reader, cut_last_line: false, rows: 0 };
        let Some(row) = table.record()? else {
            return Err(InputError::empty(table.path(), "the file is empty"));
        };
        let header: Vec<String> = row.record.iter().map(|name| name.trim().to_lowercase()).collect();
        for (n, name) in header.iter().enumerate() {
            if !name.is_empty() && header.iter().take(n).any(|earlier| earlier == name) {
                let problem = format!("two columns are called {}", escaped(name));
                return Err(InputError::line(table.path(), row.line, problem, "rename or remove one of them"));
            }
        }
        table.source = Rc::new(Source { path: table.source.path.clone(), header, header_line: row.line });
        Ok(table)
    }

    /// What messages call the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The line of the header.
    #[must_use]
    pub fn header_line(&self) -> u64 {
        self.source.header_line
    }

    /// Whether the file's last row, read by now, had no line break: it may have been cut in its last field.
    pub fn ends_without_line_break(&self) -> bool {
        self.cut_last_line
    }

    /// Columns that the file must have.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn require(&self, names: &[&str]) -> Result<(), InputError> {
        let Some(name) = names.iter().find(|name| !self.has(name)) else { return Ok(()) };
        let header = self.source.header.join(",");
        Err(InputError::missing(self.path(), self.source.header_line, name, &header, self.near_miss(name)))
    }

    /// Whether a column is there.
    pub fn has(&self, name: &str) -> bool {
        self.source.header.iter().any(|h| h == name)
    }

    /// The columns that are none of `known`: worth a note, as one of them may be misspelt.
    pub fn unused(&self, known: &[&str]) -> Vec<String> {
        let unknown = |h: &&String| !h.is_empty() && !known.contains(&h.as_str());
        self.source.header.iter().filter(unknown).map(|h| escaped(h)).collect()
    }

    fn near_miss(&self, name: &str) -> Cow<'static, str> {
        let stem = |s: &str| s.trim_end_matches("_s").replace(['_', '-', ' '], "");
        let header = || self.source.header.iter().map(String::as_str);
        let alike = header().find(|h| !h.is_empty() && stem(h) == stem(name));
        let slip = || match nearest(name, header())[..] {
            [one] => Some(one),
            _ => None,
        };
        match alike.or_else(slip) {
            Some(h) => format!("rename column {} to {name}", escaped(h)).into(),
            None => format!("add a column {name} to the header and to each row").into(),
        }
    }

    /// A file of which no row was read has no content: `what` says so.
    ///
    /// # Errors
    /// No row was read.
    pub fn not_empty(&self, what: &'static str) -> Result<(), InputError> {
        if self.rows > 0 { Ok(()) } else { Err(InputError::empty(self.path(), what)) }
    }

    /// The next row that is not blank.
    ///
    /// # Errors
    /// The row is damaged, see [`InputError`].
    pub fn next_row(&mut self) -> Result<Option<CsvRow>, InputError> {
        let Some(row) = self.record()? else {
            return Ok(None);
        };
        self.rows += 1;
        let (have, want) = (row.record.len(), self.source.header.len());
        if have == want {
            return Ok(Some(row));
        }
        let problem = format!("{have} fields where the header has {want}");
        Err(if have < want && self.cut_last_line {
            InputError::truncated(self.path(), row.line, format!("the last row has {problem}"))
        } else {
            let remedy = "write every field, empty ones too, and put fields that contain commas in double quotes";
            InputError::line(self.path(), row.line, problem, remedy)
        })
    }

    /// One record, as RFC 4180 has it; blank lines are passed over.
    fn record(&mut self) -> Result<Option<CsvRow>, InputError> {
        loop {
            let mut record = ByteRecord::new();
            let first_line = self.reader.position().line();
            let found = self.reader.read_byte_record(&mut record).map_err(|e| self.unreadable(e, first_line))?;
            if !found {
                return Ok(None);
            }
            let end = self.reader.position().byte();
            let raw = self.reader.get_mut().take_until(end);
            // Empty lines before the record belong to it in the file, and not to its row.
            let line = first_line + raw.iter().take_while(|byte| **byte == b'\n').count() as u64;
            let last = raw.last() != Some(&b'\n');
            if raw.trim_ascii().is_empty() {
                continue;
            }
            self.cut_last_line = last;
            self.check_quotes(Quotes::of(&raw), line)?;
            return self.row(record, line).map(Some);
        }
    }

    fn unreadable(&self, error: csv::Error, line: u64) -> InputError {
        match error.into_kind() {
            csv::ErrorKind::Io(e) if TooLong::is_cause_of(&e) => {
                let remedy = "look for a double quote that is not closed, or for line breaks that are missing";
                InputError::line(self.path(), line, "a row of more than 1 MiB", remedy)
            }
            csv::ErrorKind::Io(e) => InputError::io(self.path(), e),
            // The reader is flexible and takes bytes: it has no other errors.
            other => InputError::io(self.path(), std::io::Error::other(format!("{other:?}"))),
        }
    }

    fn check_quotes(&self, quotes: Quotes, line: u64) -> Result<(), InputError> {
        let path = self.path();
        match quotes {
            Quotes::Sound => Ok(()),
            Quotes::Unclosed => Err(InputError::truncated(path, line, "a double quote opens and is never closed")),
            Quotes::TextAfterClosing => {
                let remedy = "double the quotes inside a quoted field";
                Err(InputError::line(path, line, "text after a closing double quote", remedy))
            }
        }
    }

    fn row(&self, record: ByteRecord, line: u64) -> Result<CsvRow, InputError> {
        let bad = record.as_slice().contains(&0);
        let record = StringRecord::from_byte_record(record).ok().filter(|_| !bad);
        let not_text = || InputError::line(self.path(), line, "not UTF-8 text", "give a text file, saved as UTF-8");
        let record = record.ok_or_else(not_text)?;
        Ok(CsvRow { source: Rc::clone(&self.source), record, line })
    }
}

impl CsvRow {
    /// The field without surrounding blanks (a carriage return before the line break is one); empty where the column is absent.
    pub fn text(&self, column: &str) -> &str {
        let at = self.source.header.iter().position(|h| h == column);
        at.and_then(|at| self.record.get(at)).unwrap_or_default().trim()
    }

    /// The field, if the column is there and the field is not empty.
    pub fn maybe(&self, column: &str) -> Option<&str> {
        Some(self.text(column)).filter(|text| !text.is_empty())
    }

    /// The same, as a text of its own.
    pub fn word(&self, column: &str) -> Option<String> {
        self.maybe(column).map(str::to_owned)
    }

    /// A time or duration: decimal seconds in the file, milliseconds here (rounded half up).
    ///
    /// # Errors
    /// The cell holds something else.
    pub fn ms(&self, column: &str) -> Result<u64, InputError> {
        let ms =
            scaled(self.text(column), 3).map_err(|f| self.number(column, f, "seconds as a plain number, 0 or more"))?.0;
        if ms > MAX_MS {
            return Err(self.fault(column, "more than a hundred years", "write seconds, counted from the start"));
        }
        Ok(ms)
    }

    /// A whole number of at most `max`.
    ///
    /// # Errors
    /// The cell holds something else.
    pub fn whole(&self, column: &str, max: u64) -> Result<u64, InputError> {
        let want = format!("a whole number from 0 to {max}");
        whole(self.text(column), max).map_err(|f| self.number(column, f, &want))
    }

    /// The same for numbers that fit 32 bits.
    ///
    /// # Errors
    /// The cell holds something else.
    pub fn small(&self, column: &str, max: u32) -> Result<u32, InputError> {
        let value = self.whole(column, u64::from(max))?;
        Ok(u32::try_from(value).unwrap_or(max))
    }

    /// A decimal times ten to the power `scale`, of at most `max` after scaling.
    ///
    /// # Errors
    /// The cell holds something else.
    pub fn decimal(&self, column: &str, scale: i32, max: u64, want: &str) -> Result<u64, InputError> {
        let value = scaled(self.text(column), scale).map_err(|f| self.number(column, f, want))?.0;
        if value > max { Err(self.number(column, NumberFault::TooLarge, want)) } else { Ok(value) }
    }

    /// An id: not empty, of at most 256 bytes, without control characters.
    ///
    /// # Errors
    /// The cell holds something else.
    pub fn id(&self, column: &str) -> Result<String, InputError> {
        let text = self.text(column);
        if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
            let remedy = "write 1 to 256 bytes without control characters";
            return Err(self.fault(column, "not an id", remedy));
        }
        Ok(text.to_owned())
    }

    /// An error about this row's field.
    pub fn fault(&self, column: &str, problem: impl Display, remedy: impl Into<Cow<'static, str>>) -> InputError {
        let problem = format!("{problem}, found \"{}\"", escaped(self.text(column)));
        InputError::column(&self.source.path, self.line, column, problem, remedy)
    }

    fn number(&self, column: &str, fault: NumberFault, want: &str) -> InputError {
        if self.text(column).is_empty() {
            return self.fault(column, "no value", format!("write {want}"));
        }
        self.fault(column, fault.problem(), format!("write {want}"))
    }
}
