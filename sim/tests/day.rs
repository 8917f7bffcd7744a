//! The example day: that the file has what its readers were promised, and that each of its jobs can run.
//! It never runs the day; the driver's own tests do.

use forebay_sim::trace::{self, TraceFormat, read_events};
use serde_json::Value;

const DAY: &str = "../examples/day.jsonl";

fn count(lines: &[Value], test: impl Fn(&Value) -> bool) -> usize {
    lines.iter().filter(|e| test(e)).count()
}

#[test]
fn the_day_has_what_a_day_has() {
    let replay = read_events(DAY).expect("the day");
    assert_eq!(replay.notes, Vec::<String>::new());
    assert!(replay.lines.windows(2).all(|w| w[0].at_ms <= w[1].at_ms));
    assert!(replay.lines.last().is_some_and(|l| l.at_ms < 24 * 3_600_000));
    let market = &replay.lines[0];
    assert_eq!((market.at_ms, market.line, market.event["type"].as_str()), (0, 1, Some("simulation.market")));
    assert_eq!(market.event["data"]["drought"]["from"], "2026-11-02T13:00:00Z");

    assert_eq!(replay.droughts, [(13 * 3_600_000, 31 * 1_800_000)]);

    let events: Vec<Value> = replay.lines.iter().map(|l| l.event.clone()).collect();
    let jobs = count(&events, |e| e["type"] == "job.submitted");
    assert!((400..=600).contains(&jobs), "{jobs} jobs");
    let gang = |e: &Value, workers: u64, gpus: u64| {
        e["data"]["gang"]["workers"]["min"] == workers && e["data"]["gang"]["each"]["gpus"] == gpus
    };
    let least = [
        ("2x4 gangs", count(&events, |e| gang(e, 2, 4)), 5),
        ("4x8 gangs", count(&events, |e| gang(e, 4, 8)), 3),
        ("quarters", count(&events, |e| e["data"]["gang"]["each"]["gpus"] == 0.25), 50),
        ("halves", count(&events, |e| e["data"]["gang"]["each"]["gpus"] == 0.5), 50),
        ("CPU-only", count(&events, |e| e["data"]["gang"]["each"]["gpus"] == 0), 40),
        ("deadlines", count(&events, |e| e["data"]["deadline"].is_string()), 5),
        ("failures", count(&events, |e| e["data"]["simulation"]["failures"] == 1), 4),
        ("services", count(&events, |e| e["data"]["kind"] == "service"), 1),
        ("cancellations", count(&events, |e| e["type"] == "job.cancelled"), 1),
        ("vision", count(&events, |e| e["data"]["queue"].as_str().is_some_and(|q| q.starts_with("vision/"))), 100),
        ("language", count(&events, |e| e["data"]["queue"].as_str().is_some_and(|q| q.starts_with("language/"))), 100),
        ("search", count(&events, |e| e["data"]["queue"].as_str().is_some_and(|q| q.starts_with("search/"))), 100),
    ];
    for (what, have, want) in least {
        assert!(have >= want, "{have} {what}, at least {want} wanted");
    }
    let burst: Vec<u64> = replay
        .lines
        .iter()
        .filter(|l| l.event["subject"].as_str().is_some_and(|s| s.starts_with("burst-")))
        .map(|l| l.at_ms)
        .collect();
    assert_eq!(burst.len(), 30);
    assert!(burst[29] - burst[0] <= 90_000);
    let twice: Vec<&Value> = events.iter().filter(|e| e["subject"] == "lora-twice").collect();
    assert_eq!((twice.len(), &twice[0]["data"]), (2, &twice[1]["data"]));
    assert_ne!(twice[0]["id"], twice[1]["id"]);
}

#[test]
fn every_job_of_the_day_fits_the_catalogue() {
    let trace = trace::read(DAY, None).expect("the day as a trace");
    assert_eq!(trace.format, TraceFormat::Events);
    let rows = forebay_catalog::builtin();
    for job in &trace.jobs {
        let workers = job.workers.unwrap_or(1);
        let fits = rows.iter().any(|r| {
            let model = job.gpu_models.is_empty() || job.gpu_models.iter().any(|m| r.answers_to(m));
            model
                && r.gpus >= job.gpus / workers
                && r.cpu_milli >= job.cpu_milli / u64::from(workers)
                && r.mem_mib >= job.mem_mib / u64::from(workers)
                && (job.gpu_milli == 1000 || r.sharing)
        });
        assert!(fits, "{job:?}");
    }
    let notes = trace.notes.join("; ");
    assert!(notes.contains("1 cancellations") && notes.contains("1 submissions were left out"), "{notes}");
    let service = trace.jobs.iter().find(|j| j.id == "search-service").expect("the service");
    assert_eq!(service.submit_ms + service.duration_ms, 24 * 3_600_000);
    assert_eq!((service.gpus, service.gpu_util_permille), (1, Some(550)));
}
