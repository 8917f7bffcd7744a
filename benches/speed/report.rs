//! Figures beside those of others: a table for people, and a list for programs.
//!
//! Never: judges a figure.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Who has measured the same work, and what came out.
pub type Peer = (&'static str, f64);

/// One figure of a workload.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    metric: &'static str,
    figure: f64,
    unit: &'static str,
    peers: Vec<Peer>,
}

impl Figure {
    pub fn of(name: &str, metric: &'static str, figure: f64, unit: &'static str, peers: &[Peer]) -> Figure {
        Figure { name: name.to_owned(), metric, figure, unit, peers: peers.to_vec() }
    }

    /// From ns.
    pub fn ms(name: &str, metric: &'static str, nanos: u64, peers: &[Peer]) -> Figure {
        Figure::of(name, metric, nanos as f64 / 1e6, "ms", peers)
    }

    /// From ns.
    pub fn us(name: &str, metric: &'static str, nanos: u64) -> Figure {
        Figure::of(name, metric, nanos as f64 / 1e3, "us", &[])
    }

    pub fn count(name: &str, metric: &'static str, count: usize, peers: &[Peer]) -> Figure {
        Figure::of(name, metric, count as f64, "", peers)
    }
}

/// All figures so far. Each is printed as soon as it is there: some workloads take minutes.
#[derive(Debug, Default)]
pub struct Report(Vec<Figure>);

impl Report {
    pub fn push(&mut self, figure: Figure) {
        let mut line = format!("{:<32} {:<18} {:>12.3} {:<6}", figure.name, figure.metric, figure.figure, figure.unit);
        for (peer, theirs) in &figure.peers {
            let _ = write!(line, "  {peer}: {theirs}");
        }
        println!("{}", line.trim_end());
        self.0.push(figure);
    }

    /// Writes the list.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let list: Value = self.0.iter().map(listed).collect();
        std::fs::write(path, format!("{list:#}\n"))
    }
}

fn listed(of: &Figure) -> Value {
    let published: Map<String, Value> =
        of.peers.iter().map(|(peer, theirs)| ((*peer).to_owned(), json!(theirs))).collect();
    let figure = (of.figure * 1000.0).round() / 1000.0;
    json!({"name": of.name, "metric": of.metric, "figure": figure, "unit": of.unit, "published": published})
}
