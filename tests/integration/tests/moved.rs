//! Every metric has a test that moves it: the table below names one for each of the catalogue, and here are those that no other file has.
//!
//! ```text
//! catalogue -> a row of the table -> a file -> a test in it that names the metric
//! ```
//!
//! Never: a metric that is only there. Where nothing outside can move one, its own module's tests do.

use forebay::driver::{
    EffectExecutor, EffectRequest, QueryContext, RealAdapters, Running, Settings, start as start_driver,
};
use forebay::metrics::{catalogue, engine, family, outside};
use forebay_catalog::Catalogue;
use forebay_driver::journal::JournalIdentity;
use forebay_driver::live::LoopHolds;
use forebay_engine::engine::Engine;
use forebay_integration::openmetrics::{Exposition, LabelSet};
use forebay_integration::teams::{ask, ask_json, fast, prepared, secret, start, submission, submit};
use forebay_integration::{Server, root, until};
use forebay_kernel::effect::Effect;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::state::State;
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::WorldOptions;
use forebay_wire::intake::{Caller, Intake, NoRoutes};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Many times what anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

const HERE: &str = "tests/integration/tests/moved.rs";
const SCRAPED: &str = "tests/integration/tests/metrics.rs";
const GPUS: &str = "tests/integration/tests/agent_gpus.rs";
const STARTED: &str = "controller/src/metrics/tests.rs";
const COMMITS: &str = "controller/src/metrics/commits.rs";
const LAUNCHES: &str = "controller/src/metrics/launches.rs";
const SERIES: &str = "controller/src/metrics/series.rs";
const STATUSES: &str = "controller/src/metrics/statuses.rs";
const OUTSIDE: &str = "controller/src/metrics/outside.rs";

const EVENTS_AND_NODES: &str = "events_decisions_bookings_and_reclaims_move_their_metrics";
const REPORTS: &str = "a_report_of_a_nodes_agent_moves_what_was_observed_and_dropped";
const SILENT: &str = "a_cloud_that_does_not_answer_and_one_without_stock_move_purchases_and_what_is_blocked";
const FIRST_START: &str = "a_first_start_moves_waits_boots_launches_and_the_age_of_what_is_saved";
const PREEMPTED: &str = "a_preempted_job_is_counted_under_its_queue_and_is_the_exemplar";
const BEFORE: &str = "before_anything_happens_every_figure_is_there_or_left_out";
const IDLE: &str = "what_is_idle_frees_its_gpus_and_what_pauses_keeps_them";
const FIRST_STARTS: &str = "first_starts_count_and_later_ones_do_not_and_what_has_left_is_said";
const COMMITTED: &str = "each_commit_is_timed_and_its_start_targets_are_counted";
const ANSWERED: &str = "answers_of_the_cloud_count_by_pool_and_capacity_type_and_boots_by_pool";
const BOUNDED: &str = "a_thousand_queues_and_their_labels_never_give_more_than_5000_series_and_sums_are_kept";
const ONE_NAME: &str = "what_is_not_known_is_left_out_and_entries_of_one_name_are_told_as_one";
const ESTIMATES: &str = "estimates_of_starts_are_told_once_enough_have_come";
const RELOADED: &str = "a_valid_text_is_taken_at_once_and_an_invalid_one_is_refused_whole";

/// Each metric, the file of a test that moves it, and the test.
const MOVED: [(&str, &str, &str); 66] = [
    ("forebay_build_info", SCRAPED, BEFORE),
    ("forebay_receiving", HERE, "a_full_disk_moves_whether_events_are_received"),
    ("forebay_policy_refused", "tests/integration/tests/policy_reload.rs", RELOADED),
    ("forebay_policies_offered_total", "tests/integration/tests/policy_reload.rs", RELOADED),
    ("forebay_loop_longest_hold_seconds", HERE, EVENTS_AND_NODES),
    ("forebay_plan_pass_seconds", STARTED, FIRST_START),
    ("forebay_metrics_series", SERIES, BOUNDED),
    ("forebay_metrics_series_folded", SERIES, BOUNDED),
    (
        "forebay_clock_offset_seconds",
        OUTSIDE,
        "the_offset_of_the_hosts_clock_is_told_where_time_passes_as_the_hosts_does",
    ),
    ("forebay_journal_commit_seconds", STARTED, FIRST_START),
    ("forebay_start_estimate_error_ratio", OUTSIDE, ESTIMATES),
    ("forebay_start_estimates_inside_ratio", OUTSIDE, ESTIMATES),
    ("forebay_nodes", SCRAPED, PREEMPTED),
    ("forebay_gpus", HERE, EVENTS_AND_NODES),
    ("forebay_gpus_running", SCRAPED, PREEMPTED),
    ("forebay_gpus_booked", HERE, EVENTS_AND_NODES),
    ("forebay_spend_rate_usd_per_hour", SCRAPED, PREEMPTED),
    ("forebay_purchases_open", HERE, SILENT),
    ("forebay_offerings", HERE, SILENT),
    ("forebay_offerings_blocked", HERE, SILENT),
    ("forebay_pool_offerings", HERE, SILENT),
    ("forebay_launches_total", LAUNCHES, ANSWERED),
    ("forebay_node_boot_seconds", LAUNCHES, ANSWERED),
    ("forebay_boot_seconds", STARTED, FIRST_START),
    (
        "forebay_brakes",
        "tests/integration/tests/brakes.rs",
        "what_is_stopped_is_told_with_who_and_why_and_survives_a_restart",
    ),
    (
        "forebay_jobs_held_back",
        "tests/integration/tests/brakes.rs",
        "a_thousand_submissions_buy_nothing_while_buying_is_paused_and_running_work_goes_on",
    ),
    ("forebay_node_reclaims_total", HERE, EVENTS_AND_NODES),
    ("forebay_spend_usd_total", SCRAPED, PREEMPTED),
    ("forebay_jobs", SCRAPED, PREEMPTED),
    ("forebay_jobs_waiting", SCRAPED, PREEMPTED),
    ("forebay_queue_jobs", SCRAPED, PREEMPTED),
    ("forebay_queue_gpus_waiting", SCRAPED, PREEMPTED),
    ("forebay_queue_head_wait_seconds", SCRAPED, PREEMPTED),
    (
        "forebay_queue_start_target_seconds",
        "controller/src/metrics/starts.rs",
        "a_queue_with_a_target_has_it_and_zeros_before_its_first_start",
    ),
    ("forebay_start_target_jobs_total", STATUSES, FIRST_STARTS),
    ("forebay_start_wait_seconds", STARTED, FIRST_START),
    ("forebay_start_target_decisions_total", COMMITS, COMMITTED),
    ("forebay_checkpoint_age_seconds", STARTED, FIRST_START),
    ("forebay_queue_spend_usd_total", SCRAPED, PREEMPTED),
    ("forebay_tier_spend_usd_total", SCRAPED, PREEMPTED),
    ("forebay_label_spend_usd_total", SCRAPED, PREEMPTED),
    ("forebay_waste_usd_total", SCRAPED, PREEMPTED),
    ("forebay_waste_gpu_seconds_total", SCRAPED, PREEMPTED),
    ("forebay_jobs_over_total", SCRAPED, PREEMPTED),
    ("forebay_submissions_refused_total", HERE, EVENTS_AND_NODES),
    ("forebay_statuses_total", HERE, EVENTS_AND_NODES),
    ("forebay_statuses_by_kind_total", STARTED, FIRST_START),
    ("forebay_events_ignored_total", HERE, EVENTS_AND_NODES),
    ("forebay_decisions_total", HERE, EVENTS_AND_NODES),
    ("forebay_worker_observed_seconds_total", HERE, REPORTS),
    ("forebay_worker_busy_seconds_total", GPUS, IDLE),
    ("forebay_worker_resident_seconds_total", GPUS, IDLE),
    (
        "forebay_agents",
        "controller/src/activity/tests.rs",
        "an_agent_without_figures_fails_only_where_its_node_has_gpus",
    ),
    ("forebay_workers_observed", GPUS, IDLE),
    ("forebay_activity_ignored_total", GPUS, IDLE),
    ("forebay_activity_dropped_total", HERE, REPORTS),
    ("forebay_preemptions_total", SCRAPED, PREEMPTED),
    ("forebay_preemption_statuses_unread_total", STATUSES, FIRST_STARTS),
    ("forebay_source_up", OUTSIDE, ONE_NAME),
    ("forebay_source_backlog_messages", OUTSIDE, ONE_NAME),
    ("forebay_source_restarts_total", OUTSIDE, ONE_NAME),
    (
        "forebay_source_missed_messages_total",
        "tests/integration/tests/sources/missed.rs",
        "what_retention_deleted_before_it_was_read_moves_the_missed_messages",
    ),
    ("forebay_events_total", OUTSIDE, ONE_NAME),
    ("forebay_events_rejected_total", SCRAPED, BEFORE),
    ("forebay_event_warnings_total", HERE, EVENTS_AND_NODES),
    ("forebay_event_latency_seconds", OUTSIDE, ONE_NAME),
];

/// A test with the helpers below it, up to the next one. Lines that ask whether a family is there are left out: they move nothing.
fn text_of(file: &str, test: &str) -> String {
    let all = std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let at = all.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{file} has no `{test}`"));
    assert!(all[..at].trim_end().ends_with("#[test]"), "{file}: `{test}` is no test");
    let text = all[at..].split("#[test]").next().unwrap_or_default();
    text.lines().filter(|line| !line.contains("contains_key(")).collect::<Vec<_>>().join("\n")
}

/// Whether a text names a metric: itself, and not one whose name only begins so.
fn names(text: &str, metric: &str) -> bool {
    let base = metric.trim_end_matches("_total").trim_end_matches("_info");
    text.match_indices(base).any(|(at, _)| {
        let rest = &text[at + base.len()..];
        let suffixes = ["_total", "_info", "_bucket", "_sum", "_count"];
        let rest = suffixes.into_iter().find_map(|suffix| rest.strip_prefix(suffix)).unwrap_or(rest);
        !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[test]
fn every_metric_of_the_catalogue_has_a_test_that_moves_it() {
    let listed: BTreeSet<String> = MOVED.iter().map(|(metric, ..)| (*metric).to_owned()).collect();
    let served: BTreeSet<String> = catalogue::ALL.iter().map(|metric| metric.full_name()).collect();
    assert_eq!(listed, served, "give each metric a row, with a test that moves it");
    for (metric, file, test) in MOVED {
        assert!(names(&text_of(file, test), metric), "{file}: `{test}` does not name {metric}");
    }
}

fn scraped(server: &Server) -> Exposition {
    Exposition::scrape(server, Some(&secret("scraper")))
}

/// The sum of all points of a family that have these labels.
fn sum(read: &Exposition, family: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |(name, value): &(&str, &str), all: &LabelSet| all.get(*name).is_some_and(|found| found == value);
    let points = read.families[family].points.iter();
    points.filter(|point| labels.iter().all(|label| has(label, &point.labels))).map(|point| point.value).sum()
}

/// Waits until a family has grown by this much at least since it was read.
fn grows(server: &Server, before: &Exposition, family: &str, labels: &[(&str, &str)], least: f64) {
    until(&format!("{family} grows"), SOON, || {
        let (then, now) = (sum(before, family, labels), sum(&scraped(server), family, labels));
        if now >= then + least { Ok(()) } else { Err(format!("{then}, then {now}")) }
    });
}

/// An event of its own, with these fields in its data.
fn event(id: &str, subject: &str, more: Value) -> Value {
    let mut event = submission(subject, "open", 36_000);
    (event["id"], event["source"]) = (json!(id), json!("//test/moved"));
    for (name, value) in more.as_object().into_iter().flatten() {
        event["data"][name] = value.clone();
    }
    event
}

#[test]
fn events_decisions_bookings_and_reclaims_move_their_metrics() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let first = scraped(&server);
    submit(&server, "team-a", &event("1", "x", json!({})));
    grows(&server, &first, "forebay_decisions", &[], 1.0);
    grows(&server, &first, "forebay_statuses", &[], 1.0);
    // A node boots in two minutes: until then its GPU is booked.
    let place = [("pool", "default"), ("capacity_type", "on-demand")];
    grows(&server, &first, "forebay_gpus", &place, 1.0);
    grows(&server, &first, "forebay_gpus_booked", &place, 1.0);

    // What has done nothing yet has held nobody up. How long a thread has computed is known to a few milliseconds: the work goes on until some is.
    let idle = family::text(vec![outside::holds(&LoopHolds::default())]).unwrap();
    let mut submitted = 0;
    until("queries and batches have taken time", SOON, || {
        submitted += 1;
        submit(&server, "team-a", &submission(&format!("work-{submitted}"), "open", 36_000));
        let read = scraped(&server);
        let held = |work: &str| read.value("forebay_loop_longest_hold_seconds", &[("work", work)]);
        let (query, batch) = (held("query"), held("batch"));
        if query > Some(0.0) && batch > Some(0.0) { Ok(()) } else { Err(format!("{query:?} {batch:?}")) }
    });
    for work in ["query", "batch"] {
        let none = format!("forebay_loop_longest_hold_seconds{{work=\"{work}\"}} 0.0");
        assert!(idle.lines().any(|line| line == none), "{none} in {idle}");
    }

    let before = scraped(&server);
    submit(&server, "team-a", &event("2", "x", json!({})));
    grows(&server, &before, "forebay_events_ignored", &[], 1.0);
    let other = event("3", "x", json!({"gang": {"each": {"gpus": 2}}}));
    let (_, answer) = ask(&server, "team-a", "POST", "/v1/events", Some(&other));
    assert!(answer.contains("Conflict"), "{answer}");
    grows(&server, &before, "forebay_submissions_refused", &[], 1.0);
    submit(&server, "team-a", &event("4", "y", json!({"colour": "red"})));
    grows(&server, &before, "forebay_event_warnings", &[("source", "http")], 1.0);

    let mut instance = None;
    until("an instance is there", SOON, || {
        let (_, nodes) = ask_json(&server, "ops", "GET", "/v1/nodes", None);
        let mut all = nodes["nodes"].as_array().into_iter().flatten();
        instance = all.find_map(|node| node["instance"].as_str().map(str::to_owned));
        instance.as_ref().map(drop).ok_or_else(|| nodes.to_string())
    });
    let notice = json!({ "instance": instance, "kind": "interruption" });
    let (status, heard) = ask_json(&server, "node", "POST", "/v1/agent/notices", Some(&notice));
    assert_eq!((status, heard), (202, json!({ "new": true })));
    grows(&server, &before, "forebay_node_reclaims", &[], 1.0);
}

#[test]
fn a_report_of_a_nodes_agent_moves_what_was_observed_and_dropped() {
    let folder = prepared();
    let server = fast(folder.path());
    submit(&server, "team-a", &submission("works", "open", 30 * 24 * 3_600));
    let (mut worker, mut instance) = (String::new(), Value::Null);
    until("it runs", SOON, || {
        let (_, job) = ask_json(&server, "ops", "GET", "/v1/jobs/works", None);
        let (_, nodes) = ask_json(&server, "ops", "GET", "/v1/nodes", None);
        worker = format!("{}/{}/0", job["job"].as_str().unwrap_or_default(), job["attempt"]);
        let on = |node: &&Value| node["jobs"].as_array().is_some_and(|jobs| jobs.contains(&job["job"]));
        instance = nodes["nodes"]
            .as_array()
            .and_then(|all| all.iter().find(on))
            .map_or(Value::Null, |node| node["instance"].clone());
        if job["phase"] == "running" && instance.is_string() { Ok(()) } else { Err(format!("{job} {nodes}")) }
    });
    let before = scraped(&server);
    let report = json!({ "instance": instance, "start": 1, "sequence": 1, "since": 0, "source": "nvml", "gpus": 1, "dropped": 3,
        "workers": [{ "worker": worker, "gpus": 1, "memory_mib": 100, "observed_ms": 1_500, "busy_ms": 1_000, "resident_ms": 1_500,
            "computes": true }] });
    let (status, taken) = ask_json(&server, "node", "POST", "/v1/agent/activity", Some(&report));
    assert_eq!((status, taken), (202, json!({ "new": true, "ignored": 0 })));
    grows(&server, &before, "forebay_worker_observed_seconds", &[("queue", "open")], 1.5);
    grows(&server, &before, "forebay_activity_dropped", &[], 3.0);
}

/// A cloud that answers nothing.
struct SilentCloud;

impl EffectExecutor for SilentCloud {
    fn begin(&mut self, _: &JournalIdentity, _: &State) {}

    fn freeze(&mut self, _: &Effect, _: &State) -> Option<Vec<u8>> {
        None
    }

    fn execute(&mut self, _: EffectRequest<'_>) {}

    fn observe(&mut self, _: &State) {}
}

const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: silent}
limits: {nodes: 10, spend: 100 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  q: {tier: normal, quota: {default: {gpus: 100}}}
pools:
  default: {instanceTypes: [g6.xlarge], drain: auto}
";

/// What the metrics of the cluster have under a name with these labels, all points together.
fn of_cluster(running: &Running, begin: &'static str) -> f64 {
    let read = move |engine: &Engine, _: &QueryContext| family::text(engine::cluster(engine.state()));
    let text = running.handle.query(read).unwrap().unwrap();
    let value = |line: &str| line.strip_prefix(begin)?.rsplit(' ').next()?.parse::<f64>().ok();
    text.lines().filter_map(value).sum()
}

#[test]
fn a_cloud_that_does_not_answer_and_one_without_stock_move_purchases_and_what_is_blocked() {
    const OPEN: &str = "forebay_purchases_open{";
    const BLOCKED: &str = "forebay_offerings_blocked{error=\"capacity\"}";
    const OUT: &str = "forebay_pool_offerings{pool=\"default\",capacity_type=\"on-demand\",state=\"out-of-stock\"}";
    let folder = tempfile::tempdir().unwrap();
    let compiled = compile("silent.yaml", POLICY, &Catalogue::builtin()).unwrap();
    let calm = Box::new(|_: &_, origin| WorldOptions { origin, ..WorldOptions::new(1, Market::calm(&[])) });
    let running = start_driver(Settings {
        policy: Some((POLICY.to_owned(), compiled.policy)),
        real: RealAdapters { cloud: Some(Box::new(SilentCloud)), cluster: None },
        ..Settings::new(folder.path().join("data"), calm)
    })
    .unwrap();
    let figures = || [OPEN, BLOCKED, OUT].map(|begin| of_cluster(&running, begin));
    assert_eq!(figures(), [0.0; 3]);
    assert!(of_cluster(&running, "forebay_offerings ") > 0.0);
    let event = submission("x", "q", 60);
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    running.handle.submit(vec![intake.decode_value(&event).unwrap().event]).unwrap();
    until("it is asked for", SOON, || match figures() {
        [open, ..] if open >= 1.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let purchase = running.handle.query(|engine, _| engine.state().purchases().next().map(|p| p.id)).unwrap();
    let purchase = purchase.expect("it is open");
    let out_of_stock = Event::LaunchOutcome { purchase, instances: Vec::new(), error: Some(LaunchError::Capacity) };
    running.handle.submit(vec![out_of_stock]).unwrap();
    let [_, blocked, out] = figures();
    assert!(blocked >= 1.0 && out >= 1.0, "{blocked} {out}");
    running.handle.stop();
    running.join().unwrap();
}

#[test]
fn a_full_disk_moves_whether_events_are_received() {
    let written = |paused| family::text(outside::process(paused)).unwrap();
    assert!(written(None).contains("\nforebay_receiving 1\n"), "{}", written(None));
    assert!(written(Some("no space left")).contains("\nforebay_receiving 0\n"), "{}", written(Some("no space left")));
}
