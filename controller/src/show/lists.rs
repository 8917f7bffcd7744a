//! The tables of `jobs`, `nodes`, `queues` and `why`.
//!
//! Never: a line that the terminal breaks, as long as there is a column to leave out.

use super::colour::Paint;
use super::figures::{gpus, length, number, short, usd};
use super::table::{ShownColumns, TextTable, UnknownColumn};
use crate::api::brakes::Brakes;
use crate::api::listing::ListedJob;
use crate::clock::instant;
use crate::policy::history::PolicyEntry;
use forebay_kernel::catalog::CapacityType;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, JobView, NodePhaseView, NodeView, QueueView, QuotaView};

/// Jobs, one a line.
///
/// # Errors
/// A column is asked for that is not there.
pub fn jobs(list: &[ListedJob], now: Seconds, columns: &ShownColumns, paint: Paint) -> Result<String, UnknownColumn> {
    let time = move |at: Option<Seconds>| at.map_or_else(|| "-".to_owned(), |at| age(at, now));
    let table = TextTable::of(list, paint)
        .left("JOB", |job| short(&job.job, 16))
        .left("SUBJECT", |job| short(job.subject.as_deref().unwrap_or("-"), 28))
        .left("QUEUE", |job| short(&job.queue, 24))
        .left("TIER", |job| short(job.tier.as_deref().unwrap_or("-"), 12))
        .where_it_fits()
        .right("GPUS", |job| gpu_ask(job))
        .left("PHASE", move |job| phase(job.phase, paint))
        .right("FOR", move |job| time(job.since_s))
        .right("RUNS", |job| job.attempt.map_or_else(|| "-".to_owned(), |n| n.to_string()))
        .where_it_fits()
        .left("WHY", |job| job.reason.as_ref().map(|r| r.code.clone()).unwrap_or_default())
        .where_it_fits()
        .left("IN WORDS", |job| job.reason.as_ref().map(|r| short(&r.message, 120)).unwrap_or_default())
        .where_it_fits()
        .left("TENANT", |job| short(job.tenant.as_deref().unwrap_or("-"), 24))
        .where_asked()
        .right("PRIORITY", |job| job.priority.to_string())
        .where_asked()
        .left("MODELS", |job| if job.models.is_empty() { "any".to_owned() } else { short(&job.models.join(","), 40) })
        .where_asked()
        .right("AGE", move |job| time(job.submit_s))
        .where_asked()
        .right("SAVED", |job| job.progress_s.map_or_else(|| "-".to_owned(), |at| length(at.0)))
        .where_asked()
        .left("POOL", |job| short(job.pool.as_deref().unwrap_or("-"), 16))
        .where_asked()
        .left("LABELS", |job| labels(job))
        .where_asked()
        .right("COST", |job| job.cost_usd.map_or_else(|| "-".to_owned(), usd))
        .where_asked()
        .left("NODES", |job| if job.nodes.is_empty() { "-".to_owned() } else { short(&job.nodes.join(","), 60) })
        .where_asked();
    table.shown(columns)
}

fn gpu_ask(job: &JobView) -> String {
    match (job.gpu_milli, job.workers) {
        (Some(milli), _) if milli < 1000 => gpus(f64::from(milli) * f64::from(job.gpus.max(1)) / 1000.0),
        (_, Some(workers)) if workers > 1 => format!("{workers}x{}", job.gpus / workers),
        _ => job.gpus.to_string(),
    }
}

fn labels(job: &JobView) -> String {
    let all: Vec<String> = job.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if all.is_empty() { "-".to_owned() } else { short(&all.join(","), 60) }
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
    length(now.0.saturating_sub(since.0))
}

/// What operators have stopped, one a line.
///
/// # Errors
/// A column is asked for that is not there.
pub fn brakes(found: &Brakes, columns: &ShownColumns, paint: Paint) -> Result<String, UnknownColumn> {
    if found.brakes.is_empty() {
        return Ok("nothing is stopped".to_owned());
    }
    let now = found.now_s;
    let left = move |at: Seconds| format!("in {}", length(at.0.saturating_sub(now.0)));
    let table = TextTable::of(&found.brakes, paint)
        .left("STOPPED", move |brake| paint.warn(&brake.brake))
        .left("TARGET", |brake| short(brake.target.as_deref().unwrap_or("-"), 28))
        .left("BY", |brake| short(&brake.by, 20))
        .right("FOR", move |brake| age(brake.since_s, now))
        .right("ENDS", move |brake| brake.until_s.map_or_else(|| "-".to_owned(), left))
        .left("WHY", |brake| short(&brake.why, 60))
        .where_it_fits();
    table.shown(columns)
}

/// Policies, newest first, one a line, within so many columns of the terminal.
#[must_use]
pub fn policies(list: &[PolicyEntry], width: Option<usize>, paint: Paint) -> String {
    let since = |entry: &PolicyEntry| instant(entry.since_s.0).map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
    let told = |text: &Option<String>, width| short(text.as_deref().unwrap_or("-"), width);
    let table = TextTable::of(list, paint)
        // Not a name: it is never shortened.
        .right("SINCE", since)
        .left("HASH", |entry| entry.hash.chars().take(8).collect())
        .left("FROM", move |entry| told(&entry.from, 28))
        .left("BY", move |entry| told(&entry.by, 20))
        .left("DIFFERENT", move |entry| told(&entry.changes, 120));
    table.within(width)
}

/// Nodes, one a line.
///
/// # Errors
/// A column is asked for that is not there.
pub fn nodes(list: &[NodeView], now: Seconds, columns: &ShownColumns, paint: Paint) -> Result<String, UnknownColumn> {
    let free = |node: &NodeView| node.gpus_free.map_or_else(|| "-".to_owned(), gpus);
    let table = TextTable::of(list, paint)
        .left("NODE", |node| short(&node.node, 16))
        .left("POOL", |node| short(node.pool.as_deref().unwrap_or("-"), 16))
        .left("TYPE", |node| short(&node.instance_type, 20))
        .left("ZONE", |node| short(&node.zone, 16))
        .where_it_fits()
        .left("CAPACITY", |node| CapacityType::from(node.capacity_type).to_string())
        .left("PHASE", move |node| node_phase(node, paint))
        .right("FOR", move |node| node.since_s.map_or_else(|| "-".to_owned(), |at| age(at, now)))
        .right("GPUS FREE", |node| {
            format!("{} of {}", free(node), node.gpus.map_or_else(|| "-".to_owned(), |g| g.to_string()))
        })
        .right("JOBS", |node| node.jobs.as_ref().map_or(0, Vec::len).to_string())
        .where_it_fits()
        .right("USD/H", |node| node.price_usd_per_hour.map_or_else(|| "-".to_owned(), |p| number(p, 2)))
        .where_it_fits()
        .left("INSTANCE", |node| short(node.instance.as_deref().unwrap_or("-"), 22))
        .where_it_fits()
        .left("RACK", |node| short(node.rack.as_deref().unwrap_or("-"), 24))
        .where_asked()
        .left("KEPT FOR", |node| short(node.reserved_for.as_deref().unwrap_or("-"), 16))
        .where_asked();
    table.shown(columns)
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

/// Queues as a tree, one a line for each pool; within 80 columns with usual names.
///
/// # Errors
/// A column is asked for that is not there.
pub fn queues(list: &[QueueView], columns: &ShownColumns, paint: Paint) -> Result<String, UnknownColumn> {
    let mut list: Vec<&QueueView> = list.iter().collect();
    // A queue comes right before those below it, whatever other names sort between.
    list.sort_by(|a, b| a.queue.split('/').cmp(b.queue.split('/')));
    let names: Vec<String> = list.iter().map(|queue| tree_name(&queue.queue, &list)).collect();
    // A queue with several pools has a line for each, and says what is the same in the first.
    let lines: Vec<QueueLine<'_>> = list
        .iter()
        .zip(&names)
        .flat_map(|(queue, name)| {
            let quotas = queue.quota.iter().map(Some).chain(queue.quota.is_empty().then_some(None));
            let first = move |at: usize| Some((name.as_str(), *queue)).filter(|_| at == 0);
            quotas.enumerate().map(move |(at, quota)| QueueLine { queue: first(at), quota })
        })
        .collect();
    let once = |line: &QueueLine<'_>, text: fn(&QueueView) -> String| {
        line.queue.map(|(_, queue)| text(queue)).unwrap_or_default()
    };
    let of = |line: &QueueLine<'_>, text: fn(&QuotaView) -> String| line.quota.map_or_else(|| "-".to_owned(), text);
    let some = |n: f64| if n > 0.0 { gpus(n) } else { "-".to_owned() };
    let mut table = TextTable::of(&lines, paint)
        .left("QUEUE", |line| line.queue.map(|(name, _)| name.to_owned()).unwrap_or_default());
    if list.iter().any(|queue| queue.held.is_some()) {
        table = table.left("HELD BY", move |line| {
            once(line, |q| q.held.as_ref().map_or_else(String::new, |held| short(&held.by, 12)))
        });
    }
    table = table
        .left("TIER", move |line| once(line, |q| short(q.tier.as_deref().unwrap_or("-"), 12)))
        .where_it_fits()
        .right("WAIT", move |line| once(line, |q| q.waiting.to_string()))
        .right("RUN", move |line| once(line, |q| q.running.to_string()))
        .left("POOL", move |line| of(line, |q| short(&q.pool, 16)))
        .right("QUOTA", move |line| of(line, |q| q.gpus.map_or_else(|| "-".to_owned(), gpus)))
        .right("USED", move |line| of(line, |q| gpus(q.used)))
        .right("BORROWED", move |line| line.quota.map_or_else(|| "-".to_owned(), |q| some(q.borrowed)))
        .where_it_fits()
        .right("LENT", move |line| line.quota.map_or_else(|| "-".to_owned(), |q| some(q.lent)))
        .where_it_fits()
        .right("FREE", move |line| of(line, |q| q.available.map_or_else(|| "any".to_owned(), gpus)));
    table.shown(columns)
}

/// A queue's name below those above it that are listed too: indented, and without their names.
fn tree_name(path: &str, list: &[&QueueView]) -> String {
    let above = |queue: &&&QueueView| path.strip_prefix(queue.queue.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let depth = list.iter().filter(above).count();
    let named = list.iter().filter(above).map(|queue| queue.queue.len() + 1).max().unwrap_or(0);
    format!("{}{}", "  ".repeat(depth), short(&path[named..], 28))
}

/// A line of the table of queues: one of its pools, and the queue itself in its first line.
struct QueueLine<'a> {
    queue: Option<(&'a str, &'a QueueView)>,
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
            lines.push(format!("expected to move on in {}", length(eta.0)));
        }
    } else if job.phase == JobPhase::Running {
        lines.push(format!("runs on {}", job.nodes.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_their_cost_where_it_is_asked_for_and_nothing_where_it_is_not_known() {
        let job = |cost_usd: serde_json::Value| {
            let view = serde_json::json!({ "job": "job-1", "queue": "a", "phase": "running", "gpus": 1,
                "labels": { "team": "vision" }, "cost_usd": cost_usd });
            serde_json::from_value::<ListedJob>(view).expect("a job of a list")
        };
        let list = [job(serde_json::json!(1_234.567_891)), job(serde_json::json!(0)), job(serde_json::Value::Null)];
        let named = ["job", "labels", "cost"].map(str::to_owned).to_vec();
        let columns = ShownColumns { named, ..ShownColumns::default() };
        let text = jobs(&list, Seconds(0), &columns, Paint::PLAIN).expect("all columns");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "JOB    LABELS               COST",
                "job-1  team=vision  1,234.57 USD",
                "job-1  team=vision      0.00 USD",
                "job-1  team=vision             -",
            ],
            "{text}"
        );
        let usual = jobs(&list, Seconds(0), &ShownColumns::default(), Paint::PLAIN).expect("all columns");
        assert!(!usual.contains("COST"), "{usual}");
    }

    #[test]
    fn queues_stand_below_those_above_them() {
        let queue = |path: &str, quota: serde_json::Value| {
            let view = serde_json::json!({ "queue": path, "declared": true, "tier": "scavenger", "waiting": 1, "running": 2, "over": 3,
                "gpusWaiting": 8.0, "quota": quota });
            serde_json::from_value::<QueueView>(view).expect("a queue")
        };
        let quota = |pool: &str, gpus: u32, borrowed: u32, lent: u32| {
            let (none, used) = (serde_json::Value::Null, 40.0);
            serde_json::json!({ "pool": pool, "gpus": gpus, "used": used, "borrowed": borrowed, "lent": lent, "available": none })
        };
        let list = [
            queue("language", serde_json::json!([quota("small", 100, 0, 0), quota("large", 800, 0, 0)])),
            queue("language-old", serde_json::json!([])),
            queue("language/interactive", serde_json::json!([quota("small", 40, 0, 16)])),
            queue("x/y", serde_json::json!([quota("small", 20, 20, 0)])),
        ];
        let text = queues(&list, &ShownColumns::default(), Paint::PLAIN).expect("all columns");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "QUEUE          TIER       WAIT  RUN  POOL   QUOTA  USED  BORROWED  LENT  FREE",
                "language       scavenger     1    2  small    100    40         -     -   any",
                "                                     large    800    40         -     -   any",
                "  interactive  scavenger     1    2  small     40    40         -    16   any",
                "language-old   scavenger     1    2  -          -     -         -     -     -",
                "x/y            scavenger     1    2  small     20    40        20     -   any",
            ],
            "{text}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }
}
