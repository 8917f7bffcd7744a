//! The tables of `jobs`, `nodes`, `queues` and `why`.
//!
//! Never: more columns than fit a terminal of 120 characters with usual names.

use super::colour::Paint;
use super::figures::{gpus, number, seconds, short};
use super::table::TextTable;
use crate::clock::instant;
use crate::policy::history::PolicyEntry;
use forebay_kernel::catalog::CapacityType;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{BrakeView, JobPhase, JobView, NodePhaseView, NodeView, QueueView, QuotaView};

/// Jobs, one a line.
#[must_use]
pub fn jobs(list: &[JobView], now: Seconds, paint: Paint) -> String {
    let table = TextTable::of(list, paint)
        .left("JOB", |job| short(&job.job, 16))
        .left("SUBJECT", |job| short(job.subject.as_deref().unwrap_or("-"), 28))
        .left("QUEUE", |job| short(&job.queue, 24))
        .left("TIER", |job| short(job.tier.as_deref().unwrap_or("-"), 12))
        .right("GPUS", gpu_ask)
        .left("PHASE", move |job| phase(job.phase, paint))
        .right("FOR", move |job| job.since_s.map_or_else(|| "-".to_owned(), |at| age(at, now)))
        .right("RUNS", |job| job.attempt.map_or_else(|| "-".to_owned(), |n| n.to_string()))
        .left("WHY", |job| job.reason.as_ref().map(|r| r.code.clone()).unwrap_or_default());
    table.text()
}

fn gpu_ask(job: &JobView) -> String {
    match (job.gpu_milli, job.workers) {
        (Some(milli), _) if milli < 1000 => gpus(f64::from(milli) * f64::from(job.gpus.max(1)) / 1000.0),
        (_, Some(workers)) if workers > 1 => format!("{workers}x{}", job.gpus / workers),
        _ => job.gpus.to_string(),
    }
}

fn phase(phase: JobPhase, paint: Paint) -> String {
    let text = phase.to_string();
    match phase {
        JobPhase::Failed | JobPhase::Rejected => paint.bad(&text),
        JobPhase::Running | JobPhase::Serving | JobPhase::Completed => paint.good(&text),
        JobPhase::BackingOff | JobPhase::Held | JobPhase::Stopping => paint.warn(&text),
        _ => text,
    }
}

fn age(since: Seconds, now: Seconds) -> String {
    seconds((now.0.saturating_sub(since.0) / 1000) as f64)
}

/// What operators have stopped, one a line.
#[must_use]
pub fn brakes(list: &[BrakeView], now: Seconds, paint: Paint) -> String {
    let left = move |at: Seconds| format!("in {}", seconds((at.0.saturating_sub(now.0) / 1000) as f64));
    let table = TextTable::of(list, paint)
        .left("STOPPED", move |brake| paint.warn(&brake.brake))
        .left("TARGET", |brake| short(brake.target.as_deref().unwrap_or("-"), 28))
        .left("BY", |brake| short(&brake.by, 20))
        .right("FOR", move |brake| age(brake.since_s, now))
        .right("ENDS", move |brake| brake.until_s.map_or_else(|| "-".to_owned(), left))
        .left("WHY", |brake| short(&brake.why, 60));
    table.text()
}

/// Policies, newest first, one a line.
#[must_use]
pub fn policies(list: &[PolicyEntry], paint: Paint) -> String {
    let since = |entry: &PolicyEntry| instant(entry.since_s.0).map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
    let told = |text: &Option<String>, width| short(text.as_deref().unwrap_or("-"), width);
    let table = TextTable::of(list, paint)
        .left("SINCE", since)
        .left("HASH", |entry| entry.hash.chars().take(8).collect())
        .left("FROM", move |entry| told(&entry.from, 28))
        .left("BY", move |entry| told(&entry.by, 20))
        .left("DIFFERENT", move |entry| told(&entry.changes, 120));
    table.text()
}

/// Nodes, one a line.
#[must_use]
pub fn nodes(list: &[NodeView], now: Seconds, paint: Paint) -> String {
    let free = |node: &NodeView| node.gpus_free.map_or_else(|| "-".to_owned(), gpus);
    let table = TextTable::of(list, paint)
        .left("NODE", |node| short(&node.node, 16))
        .left("POOL", |node| short(node.pool.as_deref().unwrap_or("-"), 16))
        .left("TYPE", |node| short(&node.instance_type, 20))
        .left("ZONE", |node| short(&node.zone, 16))
        .left("CAPACITY", |node| CapacityType::from(node.capacity_type).to_string())
        .left("PHASE", move |node| node_phase(node, paint))
        .right("FOR", move |node| node.since_s.map_or_else(|| "-".to_owned(), |at| age(at, now)))
        .right("GPUS FREE", |node| {
            format!("{} of {}", free(node), node.gpus.map_or_else(|| "-".to_owned(), |g| g.to_string()))
        })
        .right("JOBS", |node| node.jobs.as_ref().map_or(0, Vec::len).to_string())
        .right("USD/H", |node| node.price_usd_per_hour.map_or_else(|| "-".to_owned(), |p| number(p, 2)))
        .left("INSTANCE", |node| short(node.instance.as_deref().unwrap_or("-"), 22));
    table.text()
}

fn node_phase(node: &NodeView, paint: Paint) -> String {
    match node.phase {
        _ if node.reclaim_s.is_some() => paint.bad("reclaimed"),
        NodePhaseView::Requested | NodePhaseView::Booting | NodePhaseView::Ready if node.drained.is_some() => {
            paint.warn("drained")
        }
        NodePhaseView::Requested => paint.faint("requested"),
        NodePhaseView::Booting => paint.faint("booting"),
        NodePhaseView::Ready => paint.good("ready"),
        NodePhaseView::Draining => paint.warn("draining"),
        NodePhaseView::Terminating => paint.faint("terminating"),
    }
}

/// Queues, one a line for each pool.
#[must_use]
pub fn queues(list: &[QueueView], paint: Paint) -> String {
    // A queue with several pools has a line for each, and says what is the same in the first.
    let lines: Vec<QueueLine<'_>> = list
        .iter()
        .flat_map(|queue| {
            let quotas = queue.quota.iter().map(Some).chain(queue.quota.is_empty().then_some(None));
            quotas.enumerate().map(move |(at, quota)| QueueLine { queue: Some(queue).filter(|_| at == 0), quota })
        })
        .collect();
    let once = |line: &QueueLine<'_>, text: fn(&QueueView) -> String| line.queue.map(text).unwrap_or_default();
    let of = |line: &QueueLine<'_>, text: fn(&QuotaView) -> String| line.quota.map_or_else(|| "-".to_owned(), text);
    let table = TextTable::of(&lines, paint)
        .left("QUEUE", move |line| once(line, |q| short(&q.queue, 28)))
        .left("HELD BY", move |line| {
            once(line, |q| q.held.as_ref().map_or_else(String::new, |held| short(&held.by, 12)))
        })
        .left("TIER", move |line| once(line, |q| short(q.tier.as_deref().unwrap_or("-"), 12)))
        .right("WAITING", move |line| once(line, |q| q.waiting.to_string()))
        .right("RUNNING", move |line| once(line, |q| q.running.to_string()))
        .right("OVER", move |line| once(line, |q| q.over.to_string()))
        .right("GPUS WAITING", move |line| once(line, |q| gpus(q.gpus_waiting)))
        .left("POOL", move |line| of(line, |q| short(&q.pool, 16)))
        .right("QUOTA", move |line| of(line, |q| q.gpus.map_or_else(|| "any".to_owned(), gpus)))
        .right("USED", move |line| of(line, |q| gpus(q.used)))
        .right("FREE", move |line| of(line, |q| q.available.map_or_else(|| "any".to_owned(), gpus)));
    table.text()
}

/// A line of the table of queues: one of its pools, and the queue itself in its first line.
struct QueueLine<'a> {
    queue: Option<&'a QueueView>,
    quota: Option<&'a QuotaView>,
}

/// Where a job is and why, in a few lines.
#[must_use]
pub fn why(job: &JobView, now: Seconds, paint: Paint) -> String {
    let subject = job.subject.as_deref().map(|s| format!(" ({})", short(s, 60))).unwrap_or_default();
    let over = job.phase.terminal();
    let is = if over { "was" } else { "is" };
    let time = |at| if over { format!(" {} ago", age(at, now)) } else { format!(" for {}", age(at, now)) };
    let since = job.since_s.map(time).unwrap_or_default();
    let mut lines = vec![format!("{}{subject} {is} {}{since}", paint.strong(&job.job), phase(job.phase, paint))];
    if let Some(reason) = &job.reason {
        lines.push(format!("{}: {}", paint.warn(&reason.code), reason.message));
        // Instants of the engine's clock say nothing to people; the time until then follows.
        for (name, value) in reason.figures.iter().filter(|(name, _)| *name != "at_s" && *name != "until_s") {
            lines.push(format!("  {name}: {value}"));
        }
        if let Some(eta) = reason.eta_s {
            lines.push(format!("expected to move on in {}", seconds((eta.0 / 1000) as f64)));
        }
    } else if job.phase == JobPhase::Running {
        lines.push(format!("runs on {}", job.nodes.join(", ")));
    }
    lines.join("\n")
}
