//! The progress bar of replays and simulations: virtual time, queued, running, nodes by kind, spend, done of all.
//!
//! Never: on stdout, and never where stderr is no terminal.

use super::figures::{count, number};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// The figures of one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Time since the input's beginning, in ms.
    pub elapsed_ms: u64,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run.
    pub running: u64,
    /// Nodes: reserved, spot, on-demand.
    pub nodes: [u64; 3],
    /// Spent so far, in micro-dollars.
    pub spend_micro: u64,
    /// Jobs that are over.
    pub done: u64,
    /// Jobs in all.
    pub total: u64,
}

/// A bar on stderr, or nothing.
pub struct Bar(ProgressBar);

impl Bar {
    /// No bar: the output is for a program.
    #[must_use]
    pub fn none() -> Bar {
        Bar(ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()))
    }

    /// A bar on stderr; hidden where that is no terminal.
    #[must_use]
    pub fn on_terminal() -> Bar {
        if !std::io::stderr().is_terminal() {
            return Bar::none();
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:20} {percent:>3} %  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
        Bar(bar)
    }

    /// Whether anything is drawn.
    #[must_use]
    pub fn hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Shows a moment.
    pub fn show(&self, moment: &Moment) {
        self.0.set_message(words(moment));
        self.0.set_length(moment.total.max(1));
        self.0.set_position(moment.done.min(moment.total));
    }

    /// Takes the bar away; what follows is the closing table.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn words(m: &Moment) -> String {
    let secs = m.elapsed_ms / 1000;
    let time = format!("{}d {:02}:{:02}", secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    let nodes = match m.nodes {
        [0, spot, on_demand] => format!("{spot} spot + {on_demand} od nodes"),
        [reserved, spot, on_demand] => format!("{reserved} rsv + {spot} spot + {on_demand} od nodes"),
    };
    format!(
        "{time} | {}/{} done | {} queued {} running | {nodes} | {} USD",
        count(m.done),
        count(m.total),
        count(m.queued),
        count(m.running),
        number(m.spend_micro as f64 / 1e6, 0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_in_one_line() {
        let moment = Moment {
            elapsed_ms: 93_784_000,
            queued: 12,
            running: 340,
            nodes: [0, 52, 3],
            spend_micro: 1_234_567_890,
            done: 10_000,
            total: 38_322,
        };
        let text = "1d 02:03 | 10,000/38,322 done | 12 queued 340 running | 52 spot + 3 od nodes | 1,235 USD";
        assert_eq!(words(&moment), text);
    }
}
