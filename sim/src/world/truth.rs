//! What only the simulated world knows of a job: how long it really takes, whether it fails, how busy it keeps its GPUs.
//!
//! A job of a trace has its truth beside it. A job that enters by an event carries it in its specification, under `simulation`, which the
//! engine never reads.
//!
//! Never: seen by the engine.

use std::collections::BTreeMap;

use forebay_kernel::units::Span;
use serde_json::Value;

/// What only the world knows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTruth {
    /// How long its work takes, restarts not counted.
    pub duration: Span,
    /// Its attempts up to this number fail, if they get as far as their point of failure.
    pub failures: u32,
    /// What they fail with.
    pub exit_code: i32,
    /// Its failures are the node's fault, and are reported so.
    pub fails_node: bool,
    /// How busy it keeps what it asks for of its GPUs, in 1/1000.
    pub gpu_util_permille: Option<u32>,
    /// Its process stays for so long after its work is done.
    pub linger: Option<Span>,
}

impl JobTruth {
    /// A replica of a service: it does not end by itself.
    #[must_use]
    pub fn endless() -> JobTruth {
        JobTruth::lasting(Span(u64::MAX))
    }

    /// A job that runs for so long and is done.
    #[must_use]
    pub fn lasting(duration: Span) -> JobTruth {
        JobTruth { duration, failures: 0, exit_code: 1, fails_node: false, gpu_util_permille: None, linger: None }
    }
}

/// Truths by identity: (tenant, subject).
pub type Truths = BTreeMap<(String, String), JobTruth>;

#[allow(clippy::float_arithmetic)] // Seconds as people write them, and the same milliseconds back.
impl JobTruth {
    /// Reads the truth from what a specification carries for its executor: a JSON object with `simulation` in it. `None`: it has
    /// none.
    #[must_use]
    pub fn from_run(run: &[u8]) -> Option<JobTruth> {
        // Most carry none, and parsing costs more than searching.
        let name = br#""simulation""#;
        run.windows(name.len()).find(|part| part == name)?;
        let carried: Value = serde_json::from_slice(run).ok()?;
        let simulation = carried.get("simulation")?;
        let number = |name: &str| simulation.get(name).and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
        // Milliseconds as the trace readers count them; below 2^53 the float is exact.
        let span = |name: &str| number(name).map(|s| Span((s * 1000.0).round() as u64));
        let whole = |name: &str| simulation.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let code = simulation.get("exitCode").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
        Some(JobTruth {
            failures: whole("failures").unwrap_or(0),
            exit_code: code.unwrap_or(1),
            fails_node: simulation.get("nodeFault").and_then(Value::as_bool).unwrap_or(false),
            gpu_util_permille: number("gpuUtil").map(|n| (n * 1000.0).round() as u32),
            linger: span("lingerS"),
            ..JobTruth::lasting(span("durationS")?)
        })
    }

    /// Writes duration, failures and GPU activity as [`JobTruth::from_run`] reads them, for jobs that come from a trace and not from an event.
    #[must_use]
    pub fn to_run(&self) -> Vec<u8> {
        let mut simulation = serde_json::Map::new();
        simulation.insert("durationS".to_owned(), Value::from(self.duration.0 as f64 / 1000.0));
        if let Some(util) = self.gpu_util_permille {
            simulation.insert("gpuUtil".to_owned(), Value::from(f64::from(util) / 1000.0));
        }
        if self.failures > 0 {
            simulation.insert("failures".to_owned(), Value::from(self.failures));
        }
        serde_json::json!({ "simulation": simulation }).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truth_is_read_from_what_a_specification_carries() {
        let run = br#"{"image":"x","simulation":{"durationS":12.345,"gpuUtil":0.35,"failures":2,"lingerS":60}}"#;
        let truth = JobTruth::from_run(run).unwrap();
        let expected = JobTruth {
            failures: 2,
            gpu_util_permille: Some(350),
            linger: Some(Span::secs(60)),
            ..JobTruth::lasting(Span(12_345))
        };
        assert_eq!(truth, expected);
        let written = JobTruth { linger: None, ..expected };
        assert_eq!(JobTruth::from_run(&written.to_run()), Some(written));
        assert_eq!(JobTruth::from_run(b"{}"), None);
    }
}
