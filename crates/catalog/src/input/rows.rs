//! CSV with a header, row by row: columns by name, quoted fields, CRLF, byte order mark, exact line numbers.
//!
//! It never holds more than one row, and never accepts a row whose length differs from the header's.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forebay_quantity::excerpt::escaped;
use forebay_quantity::number::{NumberFault, scaled, whole};

use super::error::InputError;
use super::file::Opened;
use super::record::Record;

/// The longest row in bytes. Real rows have a few hundred; an unclosed quote must not swallow a file.
const ROW_BYTES: usize = 1 << 20;
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
    reader: Box<dyn BufRead>,
    /// The line that is read next.
    line: u64,
    cut_last_line: bool,
    rows: u64,
}

/// One row, with what its messages need.
pub struct CsvRow {
    source: Rc<Source>,
    /// All fields without their quotes, and where each ends.
    fields: String,
    ends: Vec<usize>,
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
        let mut table = Self { source, reader: opened.reader, line: 1, cut_last_line: false, rows: 0 };
        let Some(row) = table.record()? else {
            return Err(InputError::empty(table.path(), "the file is empty"));
        };
        let header: Vec<String> = (0..row.ends.len()).map(|at| row.field(at).to_lowercase()).collect();
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
        match self.source.header.iter().find(|h| !h.is_empty() && stem(h) == stem(name)) {
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
        let (have, want) = (row.ends.len(), self.source.header.len());
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
            let (line, mut raw, mut record) = (self.line, Vec::new(), Record::default());
            while raw.is_empty() || record.is_open() {
                let from = raw.len();
                let mut room = self.reader.by_ref().take((ROW_BYTES + 1 - from) as u64);
                let read = room.read_until(b'\n', &mut raw).map_err(|e| InputError::io(self.path(), e))?;
                if raw.len() > ROW_BYTES {
                    let remedy = "look for a double quote that is not closed, or for line breaks that are missing";
                    return Err(InputError::line(self.path(), line, "a row of more than 1 MiB", remedy));
                }
                if read == 0 {
                    break;
                }
                record.take(&raw[from..]);
                self.line += 1;
            }
            if raw.is_empty() {
                return Ok(None);
            }
            if !raw.trim_ascii().is_empty() {
                self.cut_last_line = raw.last() != Some(&b'\n');
                return self.row(record, line).map(Some);
            }
        }
    }

    fn row(&self, record: Record, line: u64) -> Result<CsvRow, InputError> {
        let path = self.path();
        if record.is_open() {
            return Err(InputError::truncated(path, line, "a double quote opens and is never closed"));
        }
        if record.has_stray_text {
            let remedy = "double the quotes inside a quoted field";
            return Err(InputError::line(path, line, "text after a closing double quote", remedy));
        }
        let Record { bytes, mut ends, .. } = record;
        ends.push(bytes.len());
        let fields = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let not_text = || InputError::line(path, line, "not UTF-8 text", "give a text file, saved as UTF-8");
        Ok(CsvRow { source: Rc::clone(&self.source), fields: fields.ok_or_else(not_text)?, ends, line })
    }
}

impl CsvRow {
    /// The field without surrounding blanks (a carriage return before the line break is one); empty where the column is absent.
    #[must_use]
    pub fn text(&self, column: &str) -> &str {
        let at = self.source.header.iter().position(|h| h == column);
        at.map_or("", |at| self.field(at))
    }

    fn field(&self, at: usize) -> &str {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.fields[from..self.ends[at]].trim()
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
