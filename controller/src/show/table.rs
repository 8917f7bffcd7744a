//! The house's table: a heading line, columns by content, no borders; figures to the right.
//!
//! Never: wider than it needs. A pipe gets the same as a terminal, without colours.

use super::colour::Paint;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// A column: its heading, and whether figures stand in it.
pub struct Column(pub &'static str, pub Side);

/// Where a column's content stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Rows under headings.
#[must_use]
pub fn rows(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>, paint: Paint) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|c| Cell::new(paint.strong(c.0))));
    for row in rows {
        table.add_row(row);
    }
    for (at, column) in columns.iter().enumerate() {
        if let Some(found) = table.column_mut(at) {
            let last = at + 1 == columns.len();
            found.set_padding((0, if last { 0 } else { 2 }));
            found.set_cell_alignment(if column.1 == Side::Right { CellAlignment::Right } else { CellAlignment::Left });
        }
    }
    trimmed(&table.to_string())
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
    Table::new().width().map(usize::from)
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

fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let columns = [Column("JOB", Side::Left), Column("GPUS", Side::Right)];
        let made =
            rows(&columns, [vec!["job-1".into(), "8".into()], vec!["job-22".into(), "128".into()]], Paint::PLAIN);
        assert_eq!(made, "JOB     GPUS\njob-1      8\njob-22   128");
    }
}
