//! CSV with a header: columns by name, cells as quantities, and the line and column of whatever is wrong.
//!
//! The `csv` crate reads the records. Never: a row whose length differs from the header's.

use crate::error::CatalogError;
use csv::{ReaderBuilder, StringRecord, Trim};
use forebay_quantity::excerpt::escaped;
use forebay_quantity::number::{NumberFault, scaled, whole};
use std::fmt::Display;
use std::path::Path;

/// The longest time that a cell may name: 100 years, in ms. Above it the unit is wrong.
const MAX_MS: u64 = 100 * 366 * 24 * 3_600_000;

/// The rows of a file, without blank ones.
pub(crate) struct Table<'a> {
    path: &'a Path,
    header: Vec<String>,
    rows: Vec<(u64, StringRecord)>,
}

/// One row, which knows where it is.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    table: &'a Table<'a>,
    record: &'a StringRecord,
    /// Its line in the file, from 1.
    pub(crate) line: u64,
}

impl<'a> Table<'a> {
    /// Reads the whole text. Names of columns are compared without case; blanks around cells do not count.
    pub(crate) fn read(path: &'a Path, text: &str) -> Result<Table<'a>, CatalogError> {
        let mut reader =
            ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(text.as_bytes());
        let mut records = Vec::new();
        for record in reader.records() {
            // The reader has text, and its records may have any length: nothing can go wrong in it.
            let refused =
                |e: csv::Error| CatalogError::on_line(path, 1, e.to_string(), "save it as a CSV file with a header");
            let record = record.map_err(refused)?;
            let line = record.position().map_or(1, |at| at.line() + blank_lines(text, at.byte()));
            if record.len() > 1 || record.get(0).is_some_and(|only| !only.is_empty()) {
                records.push((line, record));
            }
        }
        let mut rows = records.into_iter();
        let (header_line, header) = rows.next().ok_or_else(|| CatalogError::empty(path, "the file is empty"))?;
        let header: Vec<String> = header.iter().map(str::to_lowercase).collect();
        for (n, name) in header.iter().enumerate() {
            if !name.is_empty() && header.iter().take(n).any(|earlier| earlier == name) {
                let problem = format!("two columns are called {}", escaped(name));
                return Err(CatalogError::on_line(path, header_line, problem, "rename or remove one of them"));
            }
        }
        let table = Table { path, header, rows: rows.collect() };
        table.check_lengths(text)?;
        Ok(table)
    }

    fn check_lengths(&self, text: &str) -> Result<(), CatalogError> {
        let want = self.header.len();
        for (nth, (line, record)) in self.rows.iter().enumerate() {
            let is_last = nth + 1 == self.rows.len();
            let open = is_last && tail(text, *line).matches('"').count() % 2 == 1;
            if open {
                return Err(CatalogError::cut_off(self.path, *line, "a double quote opens and is never closed"));
            }
            let have = record.len();
            if have == want {
                continue;
            }
            let problem = format!("{have} fields where the header has {want}");
            if is_last && have < want && !text.ends_with('\n') {
                return Err(CatalogError::cut_off(self.path, *line, &format!("the last row has {problem}")));
            }
            let remedy = "write every field, empty ones too, and put fields that contain commas in double quotes";
            return Err(CatalogError::on_line(self.path, *line, problem, remedy));
        }
        Ok(())
    }

    /// An error where one of these columns is missing.
    pub(crate) fn need(&self, columns: &[&str]) -> Result<(), CatalogError> {
        let Some(missing) = columns.iter().find(|name| !self.header.iter().any(|h| h == *name)) else {
            return Ok(());
        };
        let stem = |s: &str| s.trim_end_matches("_s").replace(['_', '-', ' '], "");
        let near = self.header.iter().find(|h| !h.is_empty() && stem(h) == stem(missing));
        let problem = format!("the column is missing, found {}", escaped(&self.header.join(",")));
        let remedy = match near {
            Some(h) => format!("rename column {} to {missing}", escaped(h)),
            None => format!("add a column {missing} to the header and to each row"),
        };
        Err(CatalogError::new(self.place(1, missing), problem, remedy))
    }

    fn place(&self, line: u64, column: &str) -> String {
        format!("{}, line {line}, column {column}", self.path.display())
    }

    /// The rows, in the file's order.
    pub(crate) fn rows(&'a self) -> impl Iterator<Item = Row<'a>> {
        self.rows.iter().map(|(line, record)| Row { table: self, record, line: *line })
    }
}

impl<'a> Row<'a> {
    /// The cell of a column; empty where the column is not there.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        let place = self.table.header.iter().position(|h| h == column);
        place.and_then(|at| self.record.get(at)).unwrap_or_default()
    }

    /// A time: decimal seconds in the file, milliseconds here (rounded half up).
    pub(crate) fn ms(&self, column: &str) -> Result<u64, CatalogError> {
        let read = scaled(self.text(column), 3);
        let (ms, _) = read.map_err(|f| self.number(column, f, "seconds as a plain number, 0 or more"))?;
        if ms > MAX_MS {
            return Err(self.bad(column, "more than a hundred years", "write seconds"));
        }
        Ok(ms)
    }

    /// A whole number of at most `max`.
    pub(crate) fn whole<T: TryFrom<u64> + Into<u64> + Copy>(&self, column: &str, max: T) -> Result<T, CatalogError> {
        let bound = max.into();
        let want = || format!("a whole number from 0 to {bound}");
        let number = whole(self.text(column), bound).map_err(|f| self.number(column, f, &want()))?;
        Ok(T::try_from(number).unwrap_or(max))
    }

    /// A decimal times ten to the power `scale`, of at most `max` after scaling. `want` says what is meant.
    pub(crate) fn decimal(&self, column: &str, scale: i32, max: u64, want: &str) -> Result<u64, CatalogError> {
        let (value, _) = scaled(self.text(column), scale).map_err(|f| self.number(column, f, want))?;
        if value > max { Err(self.number(column, NumberFault::TooLarge, want)) } else { Ok(value) }
    }

    /// A name: not empty, of at most 256 bytes, without control characters.
    pub(crate) fn name(&self, column: &str) -> Result<String, CatalogError> {
        let text = self.text(column);
        if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
            return Err(self.bad(column, "not an id", "write 1 to 256 bytes without control characters"));
        }
        Ok(text.to_owned())
    }

    /// Where this row's cell is.
    pub(crate) fn place(&self, column: &str) -> String {
        self.table.place(self.line, column)
    }

    /// An error about this row's cell.
    pub(crate) fn bad(&self, column: &str, problem: impl Display, remedy: impl Into<String>) -> CatalogError {
        let found = escaped(self.text(column));
        CatalogError::new(self.place(column), format!("{problem}, found \"{found}\""), remedy)
    }

    fn number(&self, column: &str, fault: NumberFault, want: &str) -> CatalogError {
        let problem = if self.text(column).is_empty() { "no value" } else { fault.problem() };
        self.bad(column, problem, format!("write {want}"))
    }
}

/// The text from a line on.
fn tail(text: &str, line: u64) -> &str {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let at = text.split_inclusive('\n').take(before).map(str::len).sum();
    text.get(at..).unwrap_or_default()
}

/// The blank lines at a byte. A record is said to begin before those above it: they are passed over.
fn blank_lines(text: &str, byte: u64) -> u64 {
    let from = usize::try_from(byte).unwrap_or(usize::MAX);
    let blank = text.bytes().skip(from).take_while(|b| matches!(b, b'\r' | b'\n'));
    blank.map(|b| u64::from(b == b'\n')).sum()
}
