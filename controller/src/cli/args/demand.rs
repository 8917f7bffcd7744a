//! The words of `forebay demand`.
//!
//! Never: behaviour. Defaults that have a reason name it.

use super::span;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What stands below its help.
pub const AFTER_DEMAND: &str = "\
Examples:
  forebay demand --trace trace.csv
  forebay demand --trace openb_pod_list.csv --trace-format openb --boot 3m
  forebay demand --data ./forebay-data --json | jq '.bursts.listed[] | select(.noise) | .why'

The inputs: concurrency, queue depth, burst profile, latency tolerance, batch and inference, VRAM residency, job durations. What the data cannot
tell is `not measured`, with the reason, and null in JSON. docs/DEMAND.md defines each figure.";

/// `forebay demand`.
#[derive(Debug, Args)]
pub struct DemandArgs {
    /// Trace: CSV, one of the public formats, or events. It says what was asked for, not what waited.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub trace: Option<PathBuf>,
    /// Its format: normalized, openb, philly, helios, events. Default: as its first line tells.
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    pub trace_format: Option<String>,
    /// Data folder of a Forebay. One may be running on it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The cold start: bursts that are shorter are noise. Default: what 9 of 10 boots took (in the journal, or in boot_times.csv beside the
    /// trace), else the median of the catalogue's GPU types.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub boot: Option<Duration>,
    /// JSON on stdout: {"apiVersion","kind","concurrency","queueDepth","bursts","latencyTolerance","mix","vramResidency","durations",
    /// "notMeasured":[{"input","why"}]} and more.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
