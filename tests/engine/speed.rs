//! The workloads of `cargo xtask bench speed` in their smallest form: that each is what it says, and reports what it is to.
//!
//! Never: judges a time. A bench does that on a machine of its own.

#[path = "../../benches/speed/main.rs"]
// Its command line and the list that it writes are for `cargo bench` alone.
#[allow(dead_code)]
mod bench;

use bench::WORKLOADS;
use bench::report::Report;
use serde_json::Value;

/// Of each workload as many thousandths as the bench takes at least.
const SMALLEST: u64 = 10;

/// The list of so many thousandths of a workload, as it is written.
fn measured(name: &str, size: u64) -> Vec<Value> {
    let mut report = Report::default();
    let workload = WORKLOADS.iter().find(|of| of.name == name).unwrap();
    workload.measure(&mut report, size);
    let file = tempfile::NamedTempFile::new().unwrap();
    report.write(file.path()).unwrap();
    serde_json::from_reader(file).unwrap()
}

fn figure(list: &[Value], name: &str, metric: &str) -> f64 {
    let found = list.iter().find(|row| row["name"] == name && row["metric"] == metric);
    found.and_then(|row| row["figure"].as_f64()).unwrap_or_else(|| panic!("{name} has no {metric}"))
}

#[test]
fn a_million_jobs_are_measured_in_all_forms() {
    let list = measured("million", SMALLEST);
    for name in ["million", "million-4k", "million-100k", "million-cohort", "million-idle"] {
        let metrics = ["peak_mib", "event_p50_us", "event_p99_us", "recovery_s", "submit_p99_us", "completion_p99_us"];
        for metric in metrics {
            assert!(figure(&list, name, metric) > 0.0, "{name} {metric}");
        }
        assert!(figure(&list, name, "event_p50_us") <= figure(&list, name, "event_p99_us"), "{name}");
    }
}

#[test]
fn cohorts_are_played_to_the_end_and_never_faster_than_their_quotas_let_them() {
    // What a queue has to do, in units and seconds, by the 20 units that it owns.
    let bounds = [("kueue-15k", 66.0), ("kueue-50k", 4.025)];
    for (name, bound) in bounds {
        let list = measured(name, SMALLEST);
        let makespan = figure(&list, name, "makespan_s");
        assert!((bound..bound * 1.5).contains(&makespan), "{name}: {makespan} s");
        assert!(figure(&list, name, "engine_s") > 0.0, "{name}");
    }
}

#[test]
fn a_burst_is_bought_whole_in_one_pass_however_many_nodes_it_needs() {
    // Each ends at a check of its own, if a job has no place.
    let list = measured("cas-51k", 450);
    for name in ["cas-51k", "cas-51k-small-first"] {
        let nodes = figure(&list, name, "nodes");
        assert!((1_168.0..1_180.0).contains(&nodes), "{name}: {nodes} nodes");
    }
}
