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

use super::error::{TraceError, shown};
use super::file::Opened;
use super::number::{NumberFault, scaled, whole};
use super::raw::{Quotes, RawRecord, TooLong};

/// The latest time that a trace may name: 100 years, in ms. Above it the unit is wrong.
pub(crate) const MAX_MS: u64 = 100 * 366 * 24 * 3_600_000;

struct Source {
    path: PathBuf,
    header: Vec<String>,
    header_line: u64,
}

/// A CSV file whose header was read.
pub(crate) struct Table {
    source: Rc<Source>,
    reader: Reader<RawRecord>,
    cut_last_line: bool,
    rows: u64,
}

/// One row, with what its messages need.
pub(crate) struct Row {
    source: Rc<Source>,
    record: StringRecord,
    pub(crate) line: u64,
}

impl Table {
    /// Reads the header. Names are compared without case and surrounding blanks.
    pub(crate) fn new(opened: Opened) -> Result<Self, TraceError> {
        let source = Rc::new(Source { path: opened.path, header: Vec::new(), header_line: 1 });
        // A carriage return before the line break is a blank at the end of the last field.
        let mut settings = ReaderBuilder::new();
        settings.has_headers(false).flexible(true).terminator(Terminator::Any(b'\n'));
        let reader = settings.from_reader(RawRecord::new(opened.reader));
        let mut table = Self { source, reader, cut_last_line: false, rows: 0 };
        let Some(row) = table.record()? else {
            return Err(TraceError::empty(table.path(), "the file is empty"));
        };
        let header: Vec<String> = row.record.iter().map(|name| name.trim().to_lowercase()).collect();
        for (n, name) in header.iter().enumerate() {
            if !name.is_empty() && header.iter().take(n).any(|earlier| earlier == name) {
                let problem = format!("two columns are called {}", shown(name));
                return Err(TraceError::line(table.path(), row.line, problem, "rename or remove one of them"));
            }
        }
        table.source = Rc::new(Source { path: table.source.path.clone(), header, header_line: row.line });
        Ok(table)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Whether the file's last row, read by now, had no line break: it may have been cut in its last field.
    pub(crate) fn ends_without_line_break(&self) -> bool {
        self.cut_last_line
    }

    /// Columns that the file must have.
    pub(crate) fn require(&self, names: &[&str]) -> Result<(), TraceError> {
        let Some(name) = names.iter().find(|name| !self.has(name)) else { return Ok(()) };
        let header = self.source.header.join(",");
        Err(TraceError::missing(self.path(), self.source.header_line, name, &header, self.near_miss(name)))
    }

    /// Whether a column is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.source.header.iter().any(|h| h == name)
    }

    /// The columns that are none of `known`: worth a note, as one of them may be misspelt.
    pub(crate) fn unused(&self, known: &[&str]) -> Vec<String> {
        let unknown = |h: &&String| !h.is_empty() && !known.contains(&h.as_str());
        self.source.header.iter().filter(unknown).map(|h| shown(h)).collect()
    }

    fn near_miss(&self, name: &str) -> Cow<'static, str> {
        let stem = |s: &str| s.trim_end_matches("_s").replace(['_', '-', ' '], "");
        match self.source.header.iter().find(|h| !h.is_empty() && stem(h) == stem(name)) {
            Some(h) => format!("rename column {} to {name}", shown(h)).into(),
            None => format!("add a column {name} to the header and to each row").into(),
        }
    }

    /// A file of which no row was read has no content: `what` says so.
    pub(crate) fn not_empty(&self, what: &'static str) -> Result<(), TraceError> {
        if self.rows > 0 { Ok(()) } else { Err(TraceError::empty(self.path(), what)) }
    }

    /// The next row that is not blank.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
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
            TraceError::truncated(self.path(), row.line, format!("the last row has {problem}"))
        } else {
            let remedy = "write every field, empty ones too, and put fields that contain commas in double quotes";
            TraceError::line(self.path(), row.line, problem, remedy)
        })
    }

    /// One record, as RFC 4180 has it; blank lines are passed over.
    fn record(&mut self) -> Result<Option<Row>, TraceError> {
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

    fn unreadable(&self, error: csv::Error, line: u64) -> TraceError {
        match error.into_kind() {
            csv::ErrorKind::Io(e) if TooLong::is_cause_of(&e) => {
                let remedy = "look for a double quote that is not closed, or for line breaks that are missing";
                TraceError::line(self.path(), line, "a row of more than 1 MiB", remedy)
            }
            csv::ErrorKind::Io(e) => TraceError::io(self.path(), e),
            // The reader is flexible and takes bytes: it has no other errors.
            other => TraceError::io(self.path(), std::io::Error::other(format!("{other:?}"))),
        }
    }

    fn check_quotes(&self, quotes: Quotes, line: u64) -> Result<(), TraceError> {
        let path = self.path();
        match quotes {
            Quotes::Sound => Ok(()),
            Quotes::Unclosed => Err(TraceError::truncated(path, line, "a double quote opens and is never closed")),
            Quotes::TextAfterClosing => {
                let remedy = "double the quotes inside a quoted field";
                Err(TraceError::line(path, line, "text after a closing double quote", remedy))
            }
        }
    }

    fn row(&self, record: ByteRecord, line: u64) -> Result<Row, TraceError> {
        let bad = record.as_slice().contains(&0);
        let record = StringRecord::from_byte_record(record).ok().filter(|_| !bad);
        let not_text = || TraceError::line(self.path(), line, "not UTF-8 text", "give a text file, saved as UTF-8");
        let record = record.ok_or_else(not_text)?;
        Ok(Row { source: Rc::clone(&self.source), record, line })
    }
}

impl Row {
    /// The field without surrounding blanks (a carriage return before the line break is one); empty where the column is absent.
    pub(crate) fn text(&self, column: &str) -> &str {
        let at = self.source.header.iter().position(|h| h == column);
        at.and_then(|at| self.record.get(at)).unwrap_or_default().trim()
    }

    /// The field, if the column is there and the field is not empty.
    pub(crate) fn maybe(&self, column: &str) -> Option<&str> {
        Some(self.text(column)).filter(|text| !text.is_empty())
    }

    /// The same, as a text of its own.
    pub(crate) fn word(&self, column: &str) -> Option<String> {
        self.maybe(column).map(str::to_owned)
    }

    /// A time or duration: decimal seconds in the file, milliseconds here (rounded half up).
    pub(crate) fn ms(&self, column: &str) -> Result<u64, TraceError> {
        let ms =
            scaled(self.text(column), 3).map_err(|f| self.number(column, f, "seconds as a plain number, 0 or more"))?.0;
        if ms > MAX_MS {
            return Err(self.fault(
                column,
                "more than a hundred years",
                "write seconds, counted from the trace's start",
            ));
        }
        Ok(ms)
    }

    /// A whole number of at most `max`.
    pub(crate) fn whole(&self, column: &str, max: u64) -> Result<u64, TraceError> {
        let want = format!("a whole number from 0 to {max}");
        whole(self.text(column), max).map_err(|f| self.number(column, f, &want))
    }

    /// The same for numbers that fit 32 bits.
    pub(crate) fn small(&self, column: &str, max: u32) -> Result<u32, TraceError> {
        let value = self.whole(column, u64::from(max))?;
        Ok(u32::try_from(value).unwrap_or(max))
    }

    /// A decimal times ten to the power `scale`, of at most `max` after scaling.
    pub(crate) fn decimal(&self, column: &str, scale: i32, max: u64, want: &str) -> Result<u64, TraceError> {
        let value = scaled(self.text(column), scale).map_err(|f| self.number(column, f, want))?.0;
        if value > max { Err(self.number(column, NumberFault::TooLarge, want)) } else { Ok(value) }
    }

    /// An id: not empty, of at most 256 bytes, without control characters.
    pub(crate) fn id(&self, column: &str) -> Result<String, TraceError> {
        let text = self.text(column);
        if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
            let remedy = "write 1 to 256 bytes without control characters";
            return Err(self.fault(column, "not an id", remedy));
        }
        Ok(text.to_owned())
    }

    /// An error about this row's field.
    pub(crate) fn fault(
        &self,
        column: &str,
        problem: impl Display,
        remedy: impl Into<Cow<'static, str>>,
    ) -> TraceError {
        let problem = format!("{problem}, found \"{}\"", shown(self.text(column)));
        TraceError::column(&self.source.path, self.line, column, problem, remedy)
    }

    fn number(&self, column: &str, fault: NumberFault, want: &str) -> TraceError {
        if self.text(column).is_empty() {
            return self.fault(column, "no value", format!("write {want}"));
        }
        self.fault(column, fault.problem(), format!("write {want}"))
    }
}
