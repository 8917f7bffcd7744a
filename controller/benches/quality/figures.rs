//! Our figures beside the published ones, as a table and as JSON.
//!
//! Never: judges.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// One of our figures, with what others have published for it on the same input. Nothing is published for an input that was made.
#[derive(Clone, Debug)]
pub struct ComparedFigure {
    pub metric: String,
    pub figure: f64,
    pub unit: &'static str,
    pub published: Vec<(&'static str, f64)>,
}

/// A row with its experiment.
#[derive(Clone, Debug)]
pub struct NamedFigure {
    pub name: &'static str,
    pub row: ComparedFigure,
}

/// The table of an experiment.
pub fn table(name: &str, rows: &[ComparedFigure]) -> String {
    let mut text = format!("{name}\n");
    for row in rows {
        let published: Vec<String> = row.published.iter().map(|(who, figure)| format!("{who} {figure}")).collect();
        let beside =
            if published.is_empty() { "nothing published for this input".to_owned() } else { published.join(", ") };
        let ComparedFigure { metric, figure, unit, .. } = row;
        let _ = writeln!(text, "  {metric:<24} {figure:>12.4} {unit:<8} {beside}");
    }
    text
}

/// The list that tools read.
pub fn as_json(figures: &[NamedFigure]) -> String {
    let one = |figure: &NamedFigure| {
        let published: Map<String, Value> =
            figure.row.published.iter().map(|(who, figure)| ((*who).to_owned(), json!(figure))).collect();
        let ComparedFigure { metric, figure: value, unit, .. } = &figure.row;
        json!({"name": figure.name, "metric": metric, "figure": value, "unit": unit, "published": published})
    };
    let list: Vec<Value> = figures.iter().map(one).collect();
    format!("{:#}\n", Value::Array(list))
}
