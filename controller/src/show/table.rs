//! The house's table: a heading line, columns by content, no borders; figures to the right.
//!
//! Never: wider than it needs. A pipe gets the same as a terminal, without colours.

use super::colour::Paint;
use super::figures::short;
use unicode_width::UnicodeWidthStr;

/// Rows under headings, made column by column.
pub struct TextTable<'a, T> {
    rows: &'a [T],
    columns: Vec<Column>,
    paint: Paint,
}

/// A heading and what stands under it.
struct Column {
    heading: String,
    alignment: Alignment,
    cells: Vec<String>,
    need: Need,
}

/// Where a column's content stands.
#[derive(Clone, Copy)]
enum Alignment {
    Left,
    Right,
}

/// When a column is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    /// Unless the terminal is too narrow.
    WhereItFits,
    /// Only where it is named.
    WhereAsked,
}

/// Which columns of a table are shown, and how wide it may be.
#[derive(Clone, Default, Debug)]
pub struct ShownColumns {
    /// By name, in this order. Empty: those that the table has of itself.
    pub named: Vec<String>,
    /// Columns of the terminal that it goes to. `None`: it goes elsewhere, and nothing is left out.
    pub width: Option<usize>,
}

/// No column has that name.
#[derive(Debug, thiserror::Error)]
#[error("no such column: `{asked}`; there are {}", .known.join(", "))]
pub struct UnknownColumn {
    asked: String,
    known: Vec<String>,
}

impl<'a, T> TextTable<'a, T> {
    /// A table of these rows that has no columns yet.
    #[must_use]
    pub fn of(rows: &'a [T], paint: Paint) -> TextTable<'a, T> {
        TextTable { rows, columns: Vec::new(), paint }
    }

    /// With one more column, of words.
    #[must_use]
    pub fn left(self, heading: &str, cell: impl Fn(&T) -> String) -> TextTable<'a, T> {
        self.column(Alignment::Left, heading, cell)
    }

    /// With one more column, of figures.
    #[must_use]
    pub fn right(self, heading: &str, cell: impl Fn(&T) -> String) -> TextTable<'a, T> {
        self.column(Alignment::Right, heading, cell)
    }

    /// The last column is left out where the terminal is too narrow for all; of several, the last of them first.
    #[must_use]
    pub fn where_it_fits(self) -> TextTable<'a, T> {
        self.needed(Need::WhereItFits)
    }

    /// The last column is shown only where it is named.
    #[must_use]
    pub fn where_asked(self) -> TextTable<'a, T> {
        self.needed(Need::WhereAsked)
    }

    fn needed(mut self, need: Need) -> TextTable<'a, T> {
        if let Some(column) = self.columns.last_mut() {
            column.need = need;
        }
        self
    }

    fn column(mut self, alignment: Alignment, heading: &str, cell: impl Fn(&T) -> String) -> TextTable<'a, T> {
        let cells = self.rows.iter().map(cell).collect();
        self.columns.push(Column { heading: heading.to_owned(), alignment, cells, need: Need::Always });
        self
    }

    /// As text, without a newline at its end. Nothing is left out of it but what is only shown where it is named.
    #[must_use]
    pub fn text(&self) -> String {
        self.within(None)
    }

    /// The columns that are asked for as text, without a newline at its end. What does not fit the terminal is named below; names are
    /// shortened where even that is not enough, the longest first.
    ///
    /// # Errors
    /// A column is named that is not there.
    pub fn shown(&self, asked: &ShownColumns) -> Result<String, UnknownColumn> {
        if !asked.named.is_empty() {
            let named: Result<Vec<&Column>, UnknownColumn> = asked.named.iter().map(|name| self.named(name)).collect();
            return Ok(self.lines(&named?, None));
        }
        Ok(self.within(asked.width))
    }

    /// As text within so many columns of the terminal, without a newline at its end.
    #[must_use]
    pub fn within(&self, width: Option<usize>) -> String {
        let mut columns: Vec<&Column> = self.columns.iter().filter(|column| column.need != Need::WhereAsked).collect();
        let mut left_out = Vec::new();
        while width.is_some_and(|most| of_all(columns.iter().map(|column| column.width())) > most) {
            let Some(at) = columns.iter().rposition(|column| column.need == Need::WhereItFits) else { break };
            left_out.insert(0, columns.remove(at).name());
        }
        let mut text = self.lines(&columns, width);
        if !left_out.is_empty() {
            let below = format!("left out, for the terminal is narrow: {} (-o names columns)", left_out.join(", "));
            text.push_str(&format!("\n{}", self.paint.faint(&below)));
        }
        text
    }

    fn named(&self, name: &str) -> Result<&Column, UnknownColumn> {
        let found = self.columns.iter().find(|column| column.name().eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| UnknownColumn {
            asked: short(name, 40),
            known: self.columns.iter().map(Column::name).collect(),
        })
    }

    /// The columns within so many of the terminal's, as far as names can be shortened.
    fn lines(&self, columns: &[&Column], most: Option<usize>) -> String {
        let mut lines = vec![String::new(); self.rows.len() + 1];
        for (column, width) in columns.iter().zip(widths(columns, most)) {
            let heading = self.paint.strong(&column.heading);
            let cells = column
                .cells
                .iter()
                .map(|cell| if shown_width(cell) > width { short(cell, width) } else { cell.clone() });
            for (line, cell) in lines.iter_mut().zip(std::iter::once(heading).chain(cells)) {
                let pad = " ".repeat(width.saturating_sub(shown_width(&cell)));
                line.extend(match column.alignment {
                    Alignment::Left => [&cell, &pad, "  "],
                    Alignment::Right => [&pad, &cell, "  "],
                });
            }
        }
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }
}

/// A name that is shortened keeps as many characters as this.
const LEAST: usize = 12;

/// How wide a table with columns of these widths is.
fn of_all(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + 2).sum::<usize>().saturating_sub(2)
}

/// How wide each column is: as its content, the longest names shortened as far as they have to be.
fn widths(columns: &[&Column], most: Option<usize>) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.width()).collect();
    while most.is_some_and(|most| of_all(widths.iter().copied()) > most) {
        let names = (0..columns.len()).filter(|at| columns[*at].may_be_shortened(widths[*at]));
        let Some(longest) = names.rev().max_by_key(|at| widths[*at]) else { break };
        widths[longest] -= 1;
    }
    widths
}

impl Column {
    /// What it is called on the command line: its heading in small letters, in one word.
    fn name(&self) -> String {
        self.heading.to_lowercase().replace(' ', "-")
    }

    /// Whether it can be less wide than this: its cells are words, and without a colour.
    fn may_be_shortened(&self, width: usize) -> bool {
        let names = matches!(self.alignment, Alignment::Left) && !self.cells.iter().any(|cell| cell.contains('\u{1b}'));
        names && width > LEAST.max(shown_width(&self.heading))
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| shown_width(cell)).max().unwrap_or(0).max(shown_width(&self.heading))
    }
}

/// Columns of the terminal that a text takes: colours take none, some letters take two.
fn shown_width(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    // A colour ends with its `m`.
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.width())).sum::<usize>()
}

/// Names and figures, in sections with a line between.
#[must_use]
pub fn figures(sections: &[Vec<(&str, String)>]) -> String {
    let pairs = || sections.iter().flatten();
    let name = pairs().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let parts = sections.iter().filter(|s| !s.is_empty()).map(|section| {
        let lines = section.iter().map(|(label, value)| {
            let pad = " ".repeat(name - label.chars().count() + 2);
            format!("{label}{pad}{value}")
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    parts.collect::<Vec<_>>().join("\n\n")
}

/// How wide the terminal is that stdout goes to. `None`: it goes elsewhere.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) {
        return Some(usize::from(size.ws_col)).filter(|columns| *columns > 0);
    }
    None
}

/// A line in parts of at most so many characters, broken between words; one that is longer stays whole. `None`: as it is.
#[must_use]
pub fn wrapped(line: &str, most: Option<usize>) -> Vec<String> {
    let (Some(most), true) = (most, most.is_some_and(|most| line.chars().count() > most)) else {
        return vec![line.to_owned()];
    };
    let (mut parts, mut part, mut length) = (Vec::new(), String::new(), 0);
    for word in line.split(' ') {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > most {
            parts.push(std::mem::take(&mut part));
            length = 0;
        } else if length > 0 {
            part.push(' ');
            length += 1;
        }
        part.push_str(word);
        length += more;
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let rows = [["job-1", "8"], ["job-22", "128"]];
        let table =
            TextTable::of(&rows, Paint::PLAIN).left("JOB", |row| row[0].into()).right("GPUS", |row| row[1].into());
        assert_eq!(table.text(), "JOB     GPUS\njob-1      8\njob-22   128");
    }

    #[test]
    fn colours_take_no_room_and_wide_letters_two() {
        let paint = crate::show::ColourChoice::Always.stdout();
        let rows = [[paint.bad("bad"), "1".into()], ["\u{6f22}\u{5b57}".into(), "22".into()]];
        let made = TextTable::of(&rows, paint).left("A", |row| row[0].clone()).right("B", |row| row[1].clone()).text();
        let bare = [("\u{1b}[0m", ""), ("\u{1b}[1m", ""), ("\u{1b}[31m", ""), ("\u{1b}[39m", "")];
        let bare = bare.iter().fold(made, |text, (from, to)| text.replace(from, to));
        assert_eq!(bare, "A      B\nbad    1\n\u{6f22}\u{5b57}  22");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_named() {
        let rows = [["job-1", "research", "g5.xlarge", "5"]];
        let table = TextTable::of(&rows, Paint::PLAIN)
            .left("JOB", |row| row[0].into())
            .left("QUEUE", |row| row[1].into())
            .where_it_fits()
            .left("TYPE", |row| row[2].into())
            .where_it_fits()
            .right("COST USD", |row| row[3].into())
            .where_asked();
        let at = |width| table.shown(&ShownColumns { named: Vec::new(), width }).unwrap();
        assert_eq!(at(None), "JOB    QUEUE     TYPE\njob-1  research  g5.xlarge");
        assert_eq!(at(Some(26)), at(None));
        let narrow = "JOB    QUEUE\njob-1  research\nleft out, for the terminal is narrow: type (-o names columns)";
        assert_eq!(at(Some(25)), narrow);
        assert!(
            at(Some(3)).starts_with("JOB\njob-1\nleft out, for the terminal is narrow: queue, type "),
            "{}",
            at(Some(3))
        );
        let of = |names: &[&str]| {
            let named = names.iter().map(|name| (*name).to_owned()).collect();
            table.shown(&ShownColumns { named, width: Some(3) }).map_err(|error| error.to_string())
        };
        assert_eq!(of(&["cost-usd", "JOB"]).unwrap(), "COST USD  JOB\n       5  job-1");
        assert_eq!(of(&["jobs"]).unwrap_err(), "no such column: `jobs`; there are job, queue, type, cost-usd");
    }

    #[test]
    fn the_longest_names_are_shortened_where_nothing_can_be_left_out() {
        let rows = [["job-1", "train-the-largest-language-model", "research-and-development", "8"]];
        let table = TextTable::of(&rows, Paint::PLAIN)
            .left("JOB", |row| row[0].into())
            .left("SUBJECT", |row| row[1].into())
            .left("QUEUE", |row| row[2].into())
            .right("GPUS", |row| row[3].into());
        let at = |width| table.shown(&ShownColumns { named: Vec::new(), width: Some(width) }).unwrap();
        assert_eq!(
            at(53),
            "JOB    SUBJECT              QUEUE                GPUS\n\
             job-1  train-the…age-model  research-…velopment     8"
        );
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        for width in 39..=71 {
            assert_eq!(widest(&at(width)), Some(width), "{}", at(width));
        }
        assert_eq!(widest(&at(20)), Some(39), "names that tell nothing any more help nobody");
    }

    #[test]
    fn a_line_is_broken_between_words_only() {
        assert_eq!(wrapped("one two three", Some(7)), ["one two", "three"]);
        assert_eq!(wrapped("a-word-beyond-it and", Some(7)), ["a-word-beyond-it", "and"]);
        assert_eq!(wrapped("  kept as it is", None), ["  kept as it is"]);
    }
}
