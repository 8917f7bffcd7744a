//! CSV with a header, row by row: columns by name, quoted fields, CRLF, byte order mark, exact line numbers.
//! It never holds more than one row, and never accepts a row whose length differs from the header's.

use std::borrow::Cow;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::error::{TraceError, shown};
use super::file::Opened;
use super::number::{NumberFault, scaled, whole};
use super::parser::Parser;

/// The longest row in bytes. Real rows have a few hundred; an unclosed quote must not swallow a file.
const ROW_BYTES: usize = 1 << 20;
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
    reader: Box<dyn BufRead>,
    line: u64,
    cut_last_line: bool,
}

/// One row, with what its messages need.
pub(crate) struct Row {
    source: Rc<Source>,
    text: String,
    ends: Vec<usize>,
    pub(crate) line: u64,
}

/// A column by its place, as [`Table::column`] found it.
#[derive(Clone, Copy)]
pub(crate) struct Column(usize);

impl Table {
    /// Reads the header. Names are compared without case and surrounding blanks.
    pub(crate) fn new(opened: Opened) -> Result<Self, TraceError> {
        let source = Rc::new(Source { path: opened.path, header: Vec::new(), header_line: 1 });
        let mut table = Self { source, reader: opened.reader, line: 1, cut_last_line: false };
        let Some(row) = table.record()? else {
            return Err(TraceError::Empty { path: table.source.path.clone(), what: "the file is empty" });
        };
        let header: Vec<String> = (0..row.ends.len()).map(|n| row.text(Column(n)).to_lowercase()).collect();
        for (n, name) in header.iter().enumerate() {
            if !name.is_empty() && header.iter().take(n).any(|earlier| earlier == name) {
                let problem = format!("two columns are called {}", shown(name));
                let remedy = "rename or remove one of them".into();
                return Err(TraceError::BadRow { path: table.source.path.clone(), line: row.line, problem, remedy });
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

    /// The place of a required column.
    pub(crate) fn column(&self, name: &str) -> Result<Column, TraceError> {
        self.optional(name).ok_or_else(|| TraceError::MissingColumn {
            path: self.source.path.clone(),
            line: self.source.header_line,
            column: name.to_owned(),
            found: shown(&self.source.header.join(",")),
            remedy: self.near_miss(name),
        })
    }

    /// The place of a column that may be absent.
    pub(crate) fn optional(&self, name: &str) -> Option<Column> {
        self.source.header.iter().position(|h| h == name).map(Column)
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

    /// The next row that is not blank.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.record()? else {
            return Ok(None);
        };
        let (have, want) = (row.ends.len(), self.source.header.len());
        if have == want {
            return Ok(Some(row));
        }
        let problem = format!("{have} fields where the header has {want}");
        let path = self.source.path.clone();
        Err(if have < want && self.cut_last_line {
            TraceError::Truncated { path, line: row.line, problem: format!("the last row has {problem}") }
        } else {
            let remedy = "write every field, empty ones too, and put fields that contain commas in double quotes";
            TraceError::BadRow { path, line: row.line, problem, remedy: remedy.into() }
        })
    }

    /// One record, as RFC 4180 has it; blank lines are passed over.
    fn record(&mut self) -> Result<Option<Row>, TraceError> {
        loop {
            let line = self.line;
            let mut parser = Parser::default();
            let mut last = false;
            while !parser.done && !last {
                let bytes = self.reader.fill_buf().map_err(|e| TraceError::io(&self.source.path, e))?;
                last = bytes.is_empty();
                let used = bytes.iter().position(|b| parser.take(*b)).map_or(bytes.len(), |at| at + 1);
                self.reader.consume(used);
                if parser.bytes.len() > ROW_BYTES {
                    let problem = "a row of more than 1 MiB".to_owned();
                    let remedy = "look for a double quote that is not closed, or for line breaks that are missing";
                    return Err(TraceError::BadRow {
                        path: self.source.path.clone(),
                        line,
                        problem,
                        remedy: remedy.into(),
                    });
                }
            }
            self.line += parser.line_breaks;
            if last && parser.is_blank() {
                return Ok(None);
            }
            self.cut_last_line = last;
            if last && parser.is_open() {
                let problem = "a double quote opens and is never closed".to_owned();
                return Err(TraceError::Truncated { path: self.source.path.clone(), line, problem });
            }
            if parser.stray_quote {
                let problem = "text after a closing double quote".to_owned();
                let remedy = "double the quotes inside a quoted field".into();
                return Err(TraceError::BadRow { path: self.source.path.clone(), line, problem, remedy });
            }
            if !parser.is_blank() {
                return self.row(parser, line).map(Some);
            }
        }
    }

    fn row(&self, mut parser: Parser, line: u64) -> Result<Row, TraceError> {
        parser.ends.push(parser.bytes.len());
        let bad = parser.bytes.contains(&0);
        let text = String::from_utf8(parser.bytes).ok().filter(|_| !bad).ok_or_else(|| TraceError::NotText {
            path: self.source.path.clone(),
            line,
            problem: "not UTF-8 text",
            remedy: "give a text file, saved as UTF-8",
        })?;
        Ok(Row { source: Rc::clone(&self.source), text, ends: parser.ends, line })
    }
}

impl Row {
    /// The field without surrounding blanks (a carriage return before the line break is one).
    pub(crate) fn text(&self, column: Column) -> &str {
        let begin = column.0.checked_sub(1).and_then(|n| self.ends.get(n)).copied().unwrap_or(0);
        let end = self.ends.get(column.0).copied().unwrap_or(begin);
        self.text.get(begin..end).unwrap_or_default().trim()
    }

    /// The field, if the column is there and the field is not empty.
    pub(crate) fn maybe(&self, column: Option<Column>) -> Option<(Column, &str)> {
        column.map(|c| (c, self.text(c))).filter(|(_, text)| !text.is_empty())
    }

    /// A time or duration: decimal seconds in the file, milliseconds here (rounded half up).
    pub(crate) fn ms(&self, column: Column) -> Result<u64, TraceError> {
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
    pub(crate) fn whole(&self, column: Column, max: u64) -> Result<u64, TraceError> {
        let want = format!("a whole number from 0 to {max}");
        whole(self.text(column), max).map_err(|f| self.number(column, f, &want))
    }

    /// The same for numbers that fit 32 bits.
    pub(crate) fn small(&self, column: Column, max: u32) -> Result<u32, TraceError> {
        let value = self.whole(column, u64::from(max))?;
        Ok(u32::try_from(value).unwrap_or(max))
    }

    /// A decimal times ten to the power `scale`, of at most `max` after scaling.
    pub(crate) fn decimal(&self, column: Column, scale: i32, max: u64, want: &str) -> Result<u64, TraceError> {
        let value = scaled(self.text(column), scale).map_err(|f| self.number(column, f, want))?.0;
        if value > max { Err(self.number(column, NumberFault::TooLarge, want)) } else { Ok(value) }
    }

    /// An id: not empty, of at most 256 bytes, without control characters.
    pub(crate) fn id(&self, column: Column) -> Result<String, TraceError> {
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
        column: Column,
        problem: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> TraceError {
        TraceError::BadValue {
            path: self.source.path.clone(),
            line: self.line,
            column: self.source.header.get(column.0).map(|h| shown(h).into()).unwrap_or_default(),
            value: shown(self.text(column)).into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    fn number(&self, column: Column, fault: NumberFault, want: &str) -> TraceError {
        if self.text(column).is_empty() {
            return self.fault(column, "no value", format!("write {want}"));
        }
        self.fault(column, fault.problem(), format!("write {want}"))
    }
}
