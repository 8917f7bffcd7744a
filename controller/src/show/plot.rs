//! A plot in characters: columns whose filled part is a mean and whose dotted part goes up to the most.
//!
//! ```text
//!   120 |      ::
//!       |   █ :██:
//!     0 |▂▃▅█▇████▃▁
//! ```
//!
//! Never: wider than it is told, or with a meaning that colours alone carry.

use super::figures::number;

/// One column.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PlotColumn {
    /// Filled up to here.
    pub mean: f64,
    /// Dotted up to here.
    pub peak: f64,
}

/// Characters before the columns.
pub const MARGIN: usize = 9;

/// Eighths of a character.
const PARTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The columns, `width` characters each, in so many lines of text.
#[must_use]
pub fn columns(columns: &[PlotColumn], width: usize, height: usize) -> String {
    let top = nice(columns.iter().map(|column| column.peak.max(column.mean)).fold(0.0, f64::max));
    let unit = top / height as f64;
    let line = |row: usize| {
        let label = match row {
            row if row + 1 == height => number(top, if top < 10.0 && top.fract() > 0.0 { 1 } else { 0 }),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let cells = columns.iter().map(|column| cell(column, row as f64 * unit, unit).to_string().repeat(width));
        let text = format!("{label:>7} |{}", cells.collect::<String>());
        text.trim_end().to_owned()
    };
    (0..height).rev().map(line).collect::<Vec<_>>().join("\n")
}

fn cell(column: &PlotColumn, bottom: f64, unit: f64) -> char {
    let eighths = ((column.mean - bottom) / unit * 8.0).round().clamp(0.0, 8.0) as usize;
    match PARTS[eighths] {
        // What is there is seen, however little.
        ' ' if column.peak > bottom => ':',
        part => part,
    }
}

/// The least of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is not below.
fn nice(most: f64) -> f64 {
    if !(most.is_finite() && most > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|top| *top >= most).unwrap_or(most)
}

/// At most `most` columns of these, each the mean of its means and the most of its peaks.
#[must_use]
pub fn fewer(columns: &[PlotColumn], most: usize) -> Vec<PlotColumn> {
    let each = columns.len().div_ceil(most.max(1)).max(1);
    let one = |part: &[PlotColumn]| PlotColumn {
        mean: part.iter().map(|column| column.mean).sum::<f64>() / part.len() as f64,
        peak: part.iter().map(|column| column.peak).fold(0.0, f64::max),
    };
    columns.chunks(each).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_filled_to_the_mean_and_dotted_to_the_most() {
        let made = [(0.0, 0.0), (2.0, 2.0), (1.0, 4.0), (4.0, 4.0), (3.0, 3.5)];
        let made = made.map(|(mean, peak)| PlotColumn { mean, peak });
        assert_eq!(columns(&made, 1, 2), "      4 |  :█▄\n      0 | █▄██");
        assert_eq!(columns(&[PlotColumn::default()], 3, 1), "      1 |");
    }

    #[test]
    fn many_columns_become_few_and_tops_are_round() {
        let many: Vec<PlotColumn> = (0..10).map(|n| PlotColumn { mean: f64::from(n), peak: f64::from(n) }).collect();
        let few = fewer(&many, 4);
        assert_eq!(few.len(), 4);
        assert_eq!(few[0], PlotColumn { mean: 1.0, peak: 2.0 });
        assert_eq!([0.0, 0.45, 7.0, 101.0, 1600.0].map(nice), [1.0, 0.5, 8.0, 150.0, 2000.0]);
    }
}
