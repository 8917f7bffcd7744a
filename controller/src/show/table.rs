//! The house's table: a heading line, columns by content, no borders; figures to the right.
//!
//! Never: wider than it needs. A pipe gets the same as a terminal, without colours.

use super::colour::Paint;
use unicode_width::UnicodeWidthStr;

/// Rows under headings, made column by column.
pub struct TextTable<'a, T> {
    rows: &'a [T],
    lines: Vec<String>,
    paint: Paint,
}

/// Where a column's content stands.
#[derive(Clone, Copy)]
enum Alignment {
    Left,
    Right,
}

impl<'a, T> TextTable<'a, T> {
    /// A table of these rows that has no columns yet.
    #[must_use]
    pub fn of(rows: &'a [T], paint: Paint) -> TextTable<'a, T> {
        TextTable { rows, lines: vec![String::new(); rows.len() + 1], paint }
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

    fn column(mut self, alignment: Alignment, heading: &str, cell: impl Fn(&T) -> String) -> TextTable<'a, T> {
        let cells: Vec<String> =
            std::iter::once(self.paint.strong(heading)).chain(self.rows.iter().map(cell)).collect();
        let width = cells.iter().map(|cell| shown_width(cell)).max().unwrap_or(0);
        for (line, cell) in self.lines.iter_mut().zip(&cells) {
            let pad = " ".repeat(width - shown_width(cell));
            line.extend(match alignment {
                Alignment::Left => [cell, &pad, "  "],
                Alignment::Right => [&pad, cell, "  "],
            });
        }
        self
    }

    /// As text, without a newline at its end.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
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
    fn a_line_is_broken_between_words_only() {
        assert_eq!(wrapped("one two three", Some(7)), ["one two", "three"]);
        assert_eq!(wrapped("a-word-beyond-it and", Some(7)), ["a-word-beyond-it", "and"]);
        assert_eq!(wrapped("  kept as it is", None), ["  kept as it is"]);
    }
}
