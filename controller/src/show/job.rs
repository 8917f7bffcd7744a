//! One job whole, as `forebay job` shows it: where it is, its attempts, its statuses, what it cost.
//!
//! ```text
//! statuses: queued 0 s -> started 90 s (attempt 1) -> preempted 500 s -> requeued -> started 700 s (attempt 2) ...
//! attempts: 1: waited 90 s, ran 410 s, preempted       2: waited 200 s, runs
//! ```
//!
//! Never: guesses what a status that is not kept any more has said.

use super::colour::Paint;
use super::figures::{length, number, seconds, short};
use super::lists;
use super::table::TextTable;
use crate::api::jobs::OneJob;
use forebay_wire::document::cost::JobCost;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// All that is known of a job.
#[derive(Debug, Serialize)]
pub struct JobRecord {
    /// The job as it is.
    pub job: OneJob,
    /// Its attempts, oldest first.
    pub attempts: Vec<JobAttempt>,
    /// What it cost.
    pub cost: JobCost,
    /// Its statuses, oldest first, as CloudEvents.
    pub statuses: Vec<Value>,
}

/// One attempt of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct JobAttempt {
    /// Its number, from 1.
    pub attempt: u32,
    /// For how long the job had waited for it, in seconds. Null: that status is not kept any more.
    pub wait_s: Option<f64>,
    /// Why it waited: the code of the reason for which it was queued again. Null: nothing went before it.
    pub wait_reason: Option<String>,
    /// When it started.
    pub started: Option<String>,
    /// For how long it ran, in seconds. Null: it runs, or has not started.
    pub ran_s: Option<f64>,
    /// How it ended: the last status of it, such as `preempted`; `failed` also where it is tried again. Null: it has not.
    pub ended: Option<String>,
    /// Why it ended: a reason's code.
    pub end_reason: Option<String>,
    /// Checkpoints that were verified.
    pub checkpoints: u32,
    /// Its nodes.
    pub nodes: BTreeSet<String>,
    /// Their instance types, each with how it was paid for.
    pub types: BTreeSet<String>,
    /// What it cost, in US dollars.
    pub cost_usd: f64,
}

/// What a status says, without its envelope.
struct StatusLine<'a> {
    kind: &'a str,
    at: Option<jiff::Timestamp>,
    attempt: u32,
    reason: Option<&'a str>,
    exit_code: Option<i64>,
    nodes: &'a [Value],
}

impl<'a> StatusLine<'a> {
    fn of(status: &'a Value) -> StatusLine<'a> {
        let kind = status["type"].as_str().unwrap_or_default();
        StatusLine {
            kind: kind.strip_prefix("status.").unwrap_or(kind),
            at: status["time"].as_str().and_then(|at| at.parse().ok()),
            attempt: status["data"]["attempt"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            reason: status["data"]["reason"]["code"].as_str(),
            exit_code: status["data"]["exitCode"].as_i64(),
            nodes: status["data"]["nodes"].as_array().map_or(&[], Vec::as_slice),
        }
    }
}

/// The attempts of a job, by its statuses and its bill.
#[must_use]
pub fn attempts(statuses: &[Value], cost: &JobCost) -> Vec<JobAttempt> {
    let mut all: BTreeMap<u32, JobAttempt> = BTreeMap::new();
    let (mut waits_since, mut waits_for) = (None, None);
    let mut runs_since: Option<jiff::Timestamp> = None;
    for line in statuses.iter().map(StatusLine::of) {
        let number = line.attempt;
        let attempt = || JobAttempt { attempt: number, ..JobAttempt::default() };
        match line.kind {
            "queued" | "requeued" => {
                (waits_since, waits_for) = (line.at, line.reason.map(str::to_owned));
                // A run that nothing has stopped ended by itself.
                if let Some(one) = all.get_mut(&number).filter(|one| one.started.is_some() && one.ended.is_none()) {
                    let failed = line.exit_code.is_some_and(|code| code != 0);
                    end(one, &line, if failed { "failed" } else { line.kind }, runs_since.take());
                }
            }
            "started" => {
                let one = all.entry(number).or_insert_with(attempt);
                one.wait_s = seconds_between(waits_since.take(), line.at);
                one.wait_reason = waits_for.take();
                one.started = line.at.map(|at| at.to_string());
                runs_since = line.at;
                note_nodes(one, line.nodes);
            }
            "checkpointed" => all.entry(number).or_insert_with(attempt).checkpoints += 1,
            "preempted" | "completed" | "failed" | "cancelled" if number > 0 => {
                end(all.entry(number).or_insert_with(attempt), &line, line.kind, runs_since.take());
            }
            _ => {}
        }
    }
    for row in cost.rows.iter().filter(|row| row.attempt > 0) {
        let one =
            all.entry(row.attempt).or_insert_with(|| JobAttempt { attempt: row.attempt, ..JobAttempt::default() });
        one.cost_usd += row.cost_usd;
        one.types.insert(format!("{} {}", row.instance_type, row.capacity_type));
    }
    all.into_values().collect()
}

/// A status says how an attempt ended.
fn end(attempt: &mut JobAttempt, line: &StatusLine<'_>, how: &str, since: Option<jiff::Timestamp>) {
    attempt.ran_s = seconds_between(since, line.at);
    attempt.ended = Some(how.to_owned());
    attempt.end_reason = line.reason.map(str::to_owned);
    note_nodes(attempt, line.nodes);
}

fn seconds_between(from: Option<jiff::Timestamp>, to: Option<jiff::Timestamp>) -> Option<f64> {
    from.zip(to).map(|(from, to)| (to.as_millisecond() - from.as_millisecond()) as f64 / 1000.0)
}

fn note_nodes(attempt: &mut JobAttempt, nodes: &[Value]) {
    for node in nodes {
        attempt.nodes.extend(node["node"].as_str().map(str::to_owned));
        let of = |name: &str| node[name].as_str().unwrap_or_default();
        attempt.types.insert(format!("{} {}", of("instanceType"), of("capacityType")));
    }
}

/// All of it for people.
#[must_use]
pub fn text(record: &JobRecord, paint: Paint) -> String {
    let JobRecord { job, attempts, cost, statuses } = record;
    let view = &job.job;
    let mut parts = vec![lists::why(view, job.now_s, paint)];
    let mut about = vec![format!("queue {}", short(&view.queue, 60))];
    about.extend(view.tier.as_ref().map(|tier| format!("tier {}", short(tier, 30))));
    about.extend(view.pool.as_ref().map(|pool| format!("pool {}", short(pool, 30))));
    about.extend(view.progress_s.filter(|done| done.0 > 0).map(|done| format!("{} saved", length(done.0))));
    about.extend(view.labels.iter().map(|(name, value)| format!("{}={}", short(name, 30), short(value, 40))));
    parts.push(about.join(", "));
    parts.extend(job.kubernetes.iter().map(|note| format!("kubernetes: {}", short(note, 400))));
    if !attempts.is_empty() {
        parts.push(attempts_table(attempts, paint));
    }
    if !statuses.is_empty() {
        parts.push(statuses_table(statuses, paint));
    }
    if let Some(service) = &view.of {
        parts.push(format!("charged to its service, {service}:"));
    }
    if !cost.rows.is_empty() {
        parts.push(cost_table(cost, paint));
    }
    parts.push(format!("{} USD, {} GPU-hours", paint.strong(&number(cost.cost_usd, 2)), number(cost.gpu_hours, 2)));
    parts.join("\n\n")
}

fn attempts_table(attempts: &[JobAttempt], paint: Paint) -> String {
    let span = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), seconds);
    let word = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), |text| short(text, 24));
    let several = |set: &BTreeSet<String>, most: usize| match set.len() {
        0 => "-".to_owned(),
        1 => short(set.first().map_or("", String::as_str), most),
        n => format!("{} and {} more", short(set.first().map_or("", String::as_str), most), n - 1),
    };
    TextTable::of(attempts, paint)
        .right("ATTEMPT", |one| one.attempt.to_string())
        .right("WAITED", |one| span(one.wait_s))
        .left("AFTER", |one| word(&one.wait_reason))
        .right("RAN", |one| span(one.ran_s))
        .left("ENDED", |one| word(&one.ended))
        .left("WHY", |one| word(&one.end_reason))
        .right("SAVES", |one| one.checkpoints.to_string())
        .left("NODES", |one| several(&one.nodes, 12))
        .left("TYPES", |one| several(&one.types, 28))
        .right("USD", |one| number(one.cost_usd, 2))
        .text()
}

fn statuses_table(statuses: &[Value], paint: Paint) -> String {
    let lines: Vec<(&Value, StatusLine<'_>)> = statuses.iter().map(|status| (status, StatusLine::of(status))).collect();
    TextTable::of(&lines, paint)
        .left("TIME", |(_, line)| {
            line.at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
        })
        .left("STATUS", |(_, line)| short(line.kind, 14))
        .right("ATTEMPT", |(_, line)| line.attempt.to_string())
        .left("WHY", |(status, line)| {
            let text = status["data"]["reason"]["text"].as_str().unwrap_or_default();
            line.reason.map(|code| format!("{code}: {}", short(text, 80))).unwrap_or_default()
        })
        .text()
}

fn cost_table(cost: &JobCost, paint: Paint) -> String {
    TextTable::of(&cost.rows, paint)
        .right("ATTEMPT", |row| row.attempt.to_string())
        .left("KIND", |row| row.kind.clone())
        .left("TYPE", |row| short(&row.instance_type, 24))
        .left("CAPACITY", |row| row.capacity_type.clone())
        .right("GPU-HOURS", |row| number(row.gpu_hours, 2))
        .right("USD", |row| number(row.cost_usd, 4))
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::document::cost::JobCostRow;
    use serde_json::json;

    fn status(kind: &str, at: &str, attempt: u32, reason: Option<&str>) -> Value {
        let node = json!({ "node": "node-3", "instanceType": "g5.xlarge", "capacityType": "spot" });
        json!({ "type": format!("status.{kind}"), "time": format!("2026-11-25T{at}Z"),
            "data": { "attempt": attempt, "reason": reason.map(|code| json!({ "code": code, "text": "t" })), "nodes": [node] } })
    }

    #[test]
    fn attempts_have_their_waits_runs_ends_and_money() {
        let statuses = [
            status("queued", "00:00:00", 0, None),
            status("started", "00:01:30", 1, None),
            status("checkpointed", "00:05:00", 1, None),
            status("preempted", "00:10:00", 1, Some("PreemptedBy")),
            status("requeued", "00:10:00", 1, Some("PreemptedBy")),
            status("started", "00:12:00", 2, None),
        ];
        let row = |attempt, kind: &str, cost_usd| JobCostRow {
            attempt,
            kind: kind.to_owned(),
            instance_type: "g5.xlarge".to_owned(),
            capacity_type: "spot".to_owned(),
            cost_usd,
            gpu_hours: 1.0,
        };
        let rows = vec![row(1, "worked", 0.5), row(1, "lost", 0.25), row(2, "worked", 1.0)];
        let cost = JobCost { rows, cost_usd: 1.75, ..JobCost::default() };
        let found = attempts(&statuses, &cost);
        let of = |one: &JobAttempt| (one.attempt, one.wait_s, one.ran_s, one.checkpoints, one.cost_usd);
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [(1, Some(90.0), Some(510.0), 1, 0.75), (2, Some(120.0), None, 0, 1.0)]
        );
        assert_eq!(found[0].ended.as_deref(), Some("preempted"));
        assert_eq!((found[1].wait_reason.as_deref(), found[1].types.len()), (Some("PreemptedBy"), 1));
    }

    #[test]
    fn an_attempt_that_failed_has_ended_though_it_is_tried_again() {
        let mut failed = status("requeued", "00:02:20", 1, Some("BackOff"));
        failed["data"]["exitCode"] = json!(1);
        let statuses = [
            status("started", "00:01:30", 1, None),
            failed,
            status("started", "00:03:00", 2, None),
            status("requeued", "00:04:00", 2, Some("NodeLost")),
        ];
        let found = attempts(&statuses, &JobCost::default());
        let of = |one: &JobAttempt| (one.ran_s, one.ended.clone(), one.end_reason.clone());
        let ended = |ran: f64, how: &str, why: &str| (Some(ran), Some(how.to_owned()), Some(why.to_owned()));
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [ended(50.0, "failed", "BackOff"), ended(60.0, "requeued", "NodeLost")]
        );
    }
}
