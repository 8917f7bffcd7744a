//! The tables of `jobs`, `nodes`, `queues` and `why`.
//!
//! Never: more columns than fit a terminal of 120 characters with usual names.

use super::colour::Paint;
use super::figures::{gpus, number, seconds, short};
use super::table::{Alignment, Column, rows};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{Capacity, JobPhase, JobView, NodePhaseView, NodeView, QueueView, QuotaView};

use Alignment::{Left, Right};

/// Jobs, one a line.
#[must_use]
pub fn jobs(list: &[JobView], now: Seconds, paint: Paint) -> String {
    let columns = [
        Column("JOB", Left),
        Column("SUBJECT", Left),
        Column("QUEUE", Left),
        Column("TIER", Left),
        Column("GPUS", Right),
        Column("PHASE", Left),
        Column("FOR", Right),
        Column("RUNS", Right),
        Column("WHY", Left),
    ];
    let line = |job: &JobView| {
        let since = job.since_s.map_or_else(|| "-".to_owned(), |at| age(at, now));
        vec![
            short(&job.job, 16),
            short(job.subject.as_deref().unwrap_or("-"), 28),
            short(&job.queue, 24),
            short(job.tier.as_deref().unwrap_or("-"), 12),
            gpu_ask(job),
            phase(job.phase, paint),
            since,
            job.attempt.map_or_else(|| "-".to_owned(), |n| n.to_string()),
            job.reason.as_ref().map(|r| r.code.clone()).unwrap_or_default(),
        ]
    };
    rows(&columns, list.iter().map(line), paint)
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

/// Nodes, one a line.
#[must_use]
pub fn nodes(list: &[NodeView], now: Seconds, paint: Paint) -> String {
    let columns = [
        Column("NODE", Left),
        Column("POOL", Left),
        Column("TYPE", Left),
        Column("ZONE", Left),
        Column("CAPACITY", Left),
        Column("PHASE", Left),
        Column("FOR", Right),
        Column("GPUS FREE", Right),
        Column("JOBS", Right),
        Column("USD/H", Right),
        Column("INSTANCE", Left),
    ];
    let line = |node: &NodeView| {
        let jobs = node.jobs.as_ref().map_or(0, Vec::len);
        let of = node.gpus.map_or_else(|| "-".to_owned(), |g| g.to_string());
        let free = node.gpus_free.map_or_else(|| "-".to_owned(), gpus);
        let reclaim = if node.reclaim_s.is_some() { paint.bad("reclaimed") } else { node_phase(node.phase, paint) };
        vec![
            short(&node.node, 16),
            short(node.pool.as_deref().unwrap_or("-"), 16),
            short(&node.instance_type, 20),
            short(&node.zone, 16),
            capacity(node.capacity_type).to_owned(),
            reclaim,
            node.since_s.map_or_else(|| "-".to_owned(), |at| age(at, now)),
            format!("{free} of {of}"),
            jobs.to_string(),
            node.price_usd_per_hour.map_or_else(|| "-".to_owned(), |p| number(p, 2)),
            short(node.instance.as_deref().unwrap_or("-"), 22),
        ]
    };
    rows(&columns, list.iter().map(line), paint)
}

fn node_phase(phase: NodePhaseView, paint: Paint) -> String {
    match phase {
        NodePhaseView::Requested => paint.faint("requested"),
        NodePhaseView::Booting => paint.faint("booting"),
        NodePhaseView::Ready => paint.good("ready"),
        NodePhaseView::Draining => paint.warn("draining"),
        NodePhaseView::Terminating => paint.faint("terminating"),
    }
}

/// As it is written in policies.
#[must_use]
pub fn capacity(capacity: Capacity) -> &'static str {
    match capacity {
        Capacity::Reserved => "reserved",
        Capacity::Spot => "spot",
        Capacity::OnDemand => "on-demand",
    }
}

/// Queues, one a line for each pool.
#[must_use]
pub fn queues(list: &[QueueView], paint: Paint) -> String {
    let columns = [
        Column("QUEUE", Left),
        Column("TIER", Left),
        Column("WAITING", Right),
        Column("RUNNING", Right),
        Column("OVER", Right),
        Column("GPUS WAITING", Right),
        Column("POOL", Left),
        Column("QUOTA", Right),
        Column("USED", Right),
        Column("FREE", Right),
    ];
    let lines = list.iter().flat_map(|queue| {
        let none = [None];
        let quotas = queue.quota.iter().map(Some);
        let quotas: Vec<Option<&QuotaView>> = if queue.quota.is_empty() { none.to_vec() } else { quotas.collect() };
        let line = |(at, quota): (usize, Option<&QuotaView>)| queue_line(queue, at == 0, quota);
        quotas.into_iter().enumerate().map(line).collect::<Vec<_>>()
    });
    rows(&columns, lines, paint)
}

fn queue_line(queue: &QueueView, first: bool, quota: Option<&QuotaView>) -> Vec<String> {
    let once = |text: String| if first { text } else { String::new() };
    let of = |value: Option<f64>| value.map_or_else(|| "any".to_owned(), gpus);
    vec![
        once(short(&queue.queue, 28)),
        once(short(queue.tier.as_deref().unwrap_or("-"), 12)),
        once(queue.waiting.to_string()),
        once(queue.running.to_string()),
        once(queue.over.to_string()),
        once(gpus(queue.gpus_waiting)),
        quota.map_or_else(|| "-".to_owned(), |q| short(&q.pool, 16)),
        quota.map_or_else(|| "-".to_owned(), |q| of(q.gpus)),
        quota.map_or_else(|| "-".to_owned(), |q| gpus(q.used)),
        quota.map_or_else(|| "-".to_owned(), |q| of(q.available)),
    ]
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
