//! The page of what is going on: what is queued, running, bought and stopped; queues and why they wait; nodes; jobs; for operators sources and sinks.
//!
//! Never: a job that its reader may not see.

use super::answer;
use super::html::{Cell, Page, Table, Tile, document, tiles};
use crate::api::Api;
use crate::api::auth::Browser;
use crate::api::error::ApiError;
use crate::api::listing::first_jobs;
use crate::api::reads::{OwnSummary, summary_for};
use crate::api::status::recent;
use crate::api::visible;
use crate::config::tokens::Who;
use crate::document::write::{self, QueueCounts};
use crate::show::figures::{count, gpus, length, number, percent, short, usd};
use crate::sources::registry::{SourceView, SourcesView};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::Status;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::units::{Rate, Span, Timestamp};
use forebay_wire::document::reason::Words;
use forebay_wire::document::views::{BrakeView, JobView, QueueView, Summary};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Jobs shown: those that are not over first, then the latest.
const SHOWN: usize = 200;

/// Queues shown: those that wait for most GPUs first.
const MOST_QUEUES: usize = 50;

/// Of what happened to jobs, the last so many.
const MOST_RECENT: usize = 20;

/// The page loads itself again this often.
const RELOAD_S: u32 = 10;

/// What the page shows beside sources and jobs.
#[derive(Default)]
struct Overview {
    queues: Vec<QueueLine>,
    /// Queues that are not shown.
    more_queues: usize,
    nodes: BTreeMap<NodeGroupKey, NodeGroup>,
    /// What happened to jobs last, newest first.
    recent: Vec<Arc<Status>>,
}

/// A queue, and why its first job waits.
struct QueueLine {
    view: QueueView,
    head_wait: Span,
    why: String,
}

/// What nodes are alike by: pool, instance type, how it is paid for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeGroupKey {
    pool: String,
    instance_type: String,
    capacity: &'static str,
}

/// Nodes that are alike.
#[derive(Clone, Copy, Default)]
struct NodeGroup {
    nodes: u64,
    coming: u64,
    empty: u64,
    gpus: u64,
    free_milli: u64,
    price: Rate,
}

pub(in crate::api) async fn page(State(api): State<Api>, Browser(who): Browser) -> Response {
    made(&api, &who).await.map_or_else(tried_again, answer)
}

/// An error in the place of a page that is left open: the browser asks again by itself, as the page would have.
fn tried_again(error: ApiError) -> Response {
    ([(header::REFRESH, RELOAD_S.to_string())], error).into_response()
}

async fn made(api: &Api, who: &Arc<Who>) -> Result<String, ApiError> {
    let sources = if who.operates() { api.sources.view(&api.handle) } else { SourcesView::default() };
    let mut summary = summary_for(api, who).await?;
    let judge = Arc::clone(who);
    let mut overview = api.ask(who, move |engine, _| overview(engine, &judge)).await?;
    overview.recent = recent(api, who, MOST_RECENT).await?;
    let (jobs, cut) = first_jobs(api, who, SHOWN).await?;
    summary.cut = summary.cut.or(cut);
    Ok(html(&summary, &overview, &sources, &jobs, jiff::Timestamp::now()))
}

fn overview(engine: &Engine, who: &Who) -> Overview {
    let state = engine.state();
    let counts = write::queue_counts(state);
    let by_path: BTreeMap<&str, QueueCounts> = state
        .queues()
        .iter()
        .map(|(id, queue)| (queue.path.as_str(), counts.get(&id).copied().unwrap_or_default()))
        .collect();
    let mut views = write::counted_queues(state, &counts);
    views.retain(|view| visible::queue_takes(state, who, &view.queue));
    views.sort_by(|a, b| b.gpus_waiting.total_cmp(&a.gpus_waiting).then(b.waiting.cmp(&a.waiting)));
    let more_queues = views.len().saturating_sub(MOST_QUEUES);
    views.truncate(MOST_QUEUES);
    let line = |view: QueueView| {
        let count = by_path.get(view.queue.as_str()).copied().unwrap_or_default();
        let head = count.head.filter(|id| visible::sees(state, who, *id)).and_then(|id| write::job(engine, id));
        // Where something waits and nothing is queued, all of it has its nodes.
        let booked =
            if view.waiting > 0 && count.head.is_none() { "Booked on nodes that are not ready yet." } else { "" };
        let reason = head.and_then(|job| job.reason).map(|reason| reason.message);
        let why = reason.unwrap_or_else(|| booked.to_owned());
        QueueLine { view, head_wait: count.head_wait, why }
    };
    Overview {
        queues: views.into_iter().map(line).collect(),
        more_queues,
        nodes: node_groups(state),
        recent: Vec::new(),
    }
}

fn node_groups(state: &EngineState) -> BTreeMap<NodeGroupKey, NodeGroup> {
    // By what tells them apart without a text: ten thousand nodes are of a few kinds.
    let mut alike: BTreeMap<_, NodeGroup> = BTreeMap::new();
    for node in state.nodes() {
        let group = alike.entry((node.pool, node.offering)).or_default();
        let gpus = state.offerings().get(node.offering.index()).map_or(0, |row| u64::from(row.offer.gpus));
        group.nodes += 1;
        group.coming += u64::from(node.phase.is_coming());
        group.empty += u64::from(node.idle_since.is_some());
        group.gpus += gpus;
        group.free_milli += node.free_share() - u64::from(node.foreign_gpus()) * 1000;
        group.price = group.price + node.price;
    }
    let mut groups: BTreeMap<NodeGroupKey, NodeGroup> = BTreeMap::new();
    for ((pool, offering), more) in alike {
        let Some(row) = state.offerings().get(offering.index()) else { continue };
        let key = NodeGroupKey {
            pool: write::pool_name(state.policy(), pool).unwrap_or_default(),
            instance_type: row.offer.instance_type.clone(),
            capacity: row.offer.capacity.as_str(),
        };
        // Zones are not told apart here.
        let group = groups.entry(key).or_default();
        *group = NodeGroup {
            nodes: group.nodes + more.nodes,
            coming: group.coming + more.coming,
            empty: group.empty + more.empty,
            gpus: group.gpus + more.gpus,
            free_milli: group.free_milli + more.free_milli,
            price: group.price + more.price,
        };
    }
    groups
}

fn html(
    own: &OwnSummary,
    overview: &Overview,
    sources: &SourcesView,
    jobs: &[JobView],
    made: jiff::Timestamp,
) -> String {
    let mut body = String::with_capacity(16 * 1024);
    let summary = &own.summary;
    let nodes = summary.reserved_nodes + summary.spot_nodes + summary.on_demand_nodes + summary.owned_nodes;
    let kinds = [
        (summary.spot_nodes, "spot"),
        (summary.on_demand_nodes, "on-demand"),
        (summary.reserved_nodes, "reserved"),
        (summary.owned_nodes, "owned"),
        (summary.booting_nodes, "of them booting"),
    ];
    let there = kinds.iter().filter(|(nodes, _)| *nodes > 0).map(|(nodes, kind)| format!("{} {kind}", count(*nodes)));
    let by_kind = there.collect::<Vec<_>>().join(", ");
    let over = format!("{} failed, {} cancelled, {} rejected", summary.failed, summary.cancelled, summary.rejected);
    let not_all = if own.cut.is_some() { "not all were looked at: forebay jobs" } else { "" };
    let tile = |name, value, detail| Tile { name, value, detail };
    let spend = format!("{} USD/h", number(summary.spend_usd_per_hour, 2));
    tiles(
        &mut body,
        &[
            tile("Queued", counted(own, summary.queued), not_all.to_owned()),
            tile("Running", counted(own, summary.running), String::new()),
            tile("Nodes", count(nodes), by_kind),
            tile("Spend", spend, format!("{} so far", usd(summary.cost_usd))),
            tile("Completed", counted(own, summary.completed), over),
        ],
    );
    if !summary.brakes.is_empty() {
        brakes_table(summary).write(&mut body);
    }
    queues_table(overview).write(&mut body);
    if !overview.nodes.is_empty() {
        nodes_table(&overview.nodes).write(&mut body);
    }
    if !sources.sources.is_empty() {
        sources_table(sources).write(&mut body);
    }
    if !overview.recent.is_empty() {
        recent_table(Timestamp(summary.now_s.0), &overview.recent).write(&mut body);
    }
    jobs_table(own, jobs).write(&mut body);
    let detail = format!("policy {}, as of {}", summary.policy, made.strftime("%Y-%m-%d %H:%M:%S UTC"));
    document(&Page { name: "Now", detail: &detail, reload_s: Some(RELOAD_S) }, &body)
}

/// A number of jobs, which is the least that there are where not all were looked at.
fn counted(own: &OwnSummary, jobs: u64) -> String {
    if own.cut.is_some() { format!("at least {}", count(jobs)) } else { count(jobs) }
}

/// Who waits where, and why in a sentence.
fn queues_table(overview: &Overview) -> Table {
    let row = |line: &QueueLine| {
        let view = &line.view;
        let promised = view.quota.iter().filter_map(|quota| quota.gpus).sum::<f64>();
        let used = view.quota.iter().map(|quota| quota.used).sum::<f64>();
        let share = if promised > 0.0 { format!(" ({})", percent(used / promised)) } else { String::new() };
        let held = view.held.as_ref().map(|brake| format!("Stopped by {}. ", short(&brake.by, 60))).unwrap_or_default();
        [
            Cell::text(short(&view.queue, 60)),
            Cell::figure(count(view.waiting)),
            Cell::figure(gpus(view.gpus_waiting)),
            Cell::figure(if line.head_wait > Span::ZERO { length(line.head_wait.0) } else { "-".to_owned() }),
            Cell::figure(count(view.running)),
            Cell::figure(format!("{}{share}", gpus(used))),
            Cell { class: "why".to_owned(), ..Cell::text(format!("{held}{}", short(&line.why, 300))) },
        ]
    };
    let headings =
        ["Queue", "Waiting", "GPUs asked", "Longest wait", "Running", "GPUs used (of quota)", "Why the first waits"];
    let more = match overview.more_queues {
        0 => String::new(),
        more => format!("and {} more that wait for less: forebay queues", count(more as u64)),
    };
    Table { detail: more, ..Table::new("Queues", headings, overview.queues.iter().map(row)) }
}

fn nodes_table(nodes: &BTreeMap<NodeGroupKey, NodeGroup>) -> Table {
    let row = |(key, group): (&NodeGroupKey, &NodeGroup)| {
        [
            Cell::text(short(&key.pool, 60)),
            Cell::text(short(&key.instance_type, 60)),
            Cell::text(key.capacity),
            Cell::figure(count(group.nodes)),
            Cell::figure(count(group.coming)),
            Cell::figure(count(group.empty)),
            Cell::figure(count(group.gpus)),
            Cell::figure(gpus(group.free_milli as f64 / 1000.0)),
            Cell::figure(number(group.price.0 as f64 / 1e6, 2)),
        ]
    };
    let headings = ["Pool", "Type", "Capacity", "Nodes", "Booting", "Empty", "GPUs", "GPUs free", "USD/h"];
    Table::new("Nodes", headings, nodes.iter().map(row))
}

/// What happened to jobs last.
fn recent_table(now: Timestamp, recent: &[Arc<Status>]) -> Table {
    let why = |status: &Status| {
        let words = status.reason.map(|reason| Words { reason, named: status.named.as_deref() });
        words.map(|words| short(&words.to_string(), 300)).unwrap_or_default()
    };
    let row = |status: &Arc<Status>| {
        [
            Cell::figure(length(now.since(status.at).0)),
            Cell::text(short(&status.subject, 60)),
            Cell::coloured(status.kind.as_str()),
            Cell { class: "why".to_owned(), ..Cell::text(why(status)) },
        ]
    };
    Table::new("What happened last", ["Ago", "Subject", "What", "Why"], recent.iter().map(row))
}

fn jobs_table(own: &OwnSummary, jobs: &[JobView]) -> Table {
    let summary = &own.summary;
    let (shown, all) = (count(jobs.len() as u64), counted(own, summary.jobs));
    let caption = format!("{shown} of {all} jobs; those that are not over come first");
    let headings = ["Job", "Subject", "Queue", "Tier", "GPUs", "Phase", "For", "Why"];
    let row = |job: &JobView| {
        let since = job.since_s.map_or(0, |at| summary.now_s.0.saturating_sub(at.0));
        let share = f64::from(job.gpus) * f64::from(job.gpu_milli.unwrap_or(1000)) / 1000.0;
        let why = job.reason.as_ref().map(|reason| format!("{}: {}", reason.code, short(&reason.message, 300)));
        [
            Cell::text(&job.job),
            Cell::text(short(job.subject.as_deref().unwrap_or("-"), 60)),
            Cell::text(short(&job.queue, 60)),
            Cell::text(short(job.tier.as_deref().unwrap_or("-"), 30)),
            Cell::figure(gpus(share)),
            Cell::coloured(&job.phase.to_string()),
            Cell::figure(length(since)),
            Cell { class: "why".to_owned(), ..Cell::text(why.unwrap_or_default()) },
        ]
    };
    Table::new(caption, headings, jobs.iter().map(row))
}

/// What operators have stopped.
fn brakes_table(summary: &Summary) -> Table {
    let now = summary.now_s.0;
    let between = |from: u64, to: u64| length(to.saturating_sub(from));
    let row = |brake: &BrakeView| {
        [
            Cell { class: "failing".to_owned(), ..Cell::text(&brake.brake) },
            Cell::text(short(brake.target.as_deref().unwrap_or("-"), 60)),
            Cell::text(short(&brake.by, 60)),
            Cell::figure(between(brake.since_s.0, now)),
            Cell::figure(brake.until_s.map_or_else(|| "-".to_owned(), |until| between(now, until.0))),
            Cell::text(short(&brake.why, 300)),
        ]
    };
    let headings = ["What", "Target", "By", "For", "Ends in", "Why"];
    Table::new("Stopped by operators", headings, summary.brakes.iter().map(row))
}

/// What events come from and statuses go to. Only operators have any here.
fn sources_table(found: &SourcesView) -> Table {
    let figure = |n: Option<u64>| Cell::figure(n.map_or_else(|| "-".to_owned(), count));
    let row = |one: &SourceView| {
        let messages = one.messages.as_ref();
        [
            Cell::text(short(&one.name, 60)),
            Cell::text(&one.direction),
            Cell::coloured(&one.condition),
            Cell::figure(one.backlog.map_or_else(|| "?".to_owned(), count)),
            figure(messages.map(|messages| messages.taken)),
            figure(messages.map(|messages| messages.rejected.values().sum())),
            figure(messages.and_then(|messages| messages.latency_ms).map(|latency| latency.p99)),
            Cell::figure(count(one.missed)),
            Cell::text(short(one.why.as_deref().unwrap_or_default(), 300)),
        ]
    };
    let headings = ["Name", "Direction", "Condition", "Backlog", "Taken", "Rejected", "P99 ms", "Missed", "Why"];
    Table::new("Sources and sinks; `?`: nobody can say", headings, found.sources.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rows::ReadCut;
    use forebay_kernel::ids::QueueId;
    use forebay_kernel::reason::Reason;

    #[test]
    fn hostile_names_stay_text() {
        let job = serde_json::json!({ "job": "job-1", "subject": "<script>alert('x')</script>", "gpus": 1, "phase": "queued",
            "queue": "\"><img src=x onerror=alert(1)>\u{202e}", "tier": "a&b",
            "reason": { "code": "Stockout", "message": "tries <b> again", "figures": {}, "eta_s": null } });
        let job: JobView = serde_json::from_value(job).expect("a job");
        let brake =
            serde_json::json!({ "brake": "queue", "target": "<b>", "by": "<img", "why": "<script", "since_s": 0 });
        let brakes = vec![serde_json::from_value(brake).expect("a brake")];
        let summary = Summary { policy: "<b>".into(), brakes, ..Summary::default() };
        let summary = OwnSummary { summary, cut: None };
        let queue = serde_json::json!({ "queue": "<b>", "declared": false, "tier": null, "waiting": 1, "running": 0, "over": 0,
            "gpusWaiting": 1.0, "quota": [] });
        let view = serde_json::from_value(queue).expect("a queue");
        let queues = vec![QueueLine { view, head_wait: Span(90_000), why: "wants <b>".into() }];
        let key = NodeGroupKey { pool: "<b>".into(), instance_type: "<img".into(), capacity: "spot" };
        let status = Status {
            number: 1,
            at: Timestamp(0),
            tenant: "default".into(),
            subject: "<img".into(),
            job: None,
            attempt: forebay_kernel::ids::Attempt(0),
            seq: 0,
            kind: forebay_kernel::effect::StatusKind::Rejected,
            reason: None,
            named: None,
            run: None,
            labels: BTreeMap::new(),
        };
        let overview = Overview {
            queues,
            more_queues: 2,
            nodes: [(key, NodeGroup::default())].into(),
            recent: vec![Arc::new(status)],
        };
        let source = serde_json::json!({ "sources": [{ "name": "kafka:<b>", "direction": "in", "channels": [], "condition": "failing\"><img",
            "why": "topic <script>", "backlog": null, "backlogs": {}, "restarts": 0, "missed": 0, "remarks": [] }] });
        let sources: SourcesView = serde_json::from_value(source).expect("a source");
        let made = jiff::Timestamp::UNIX_EPOCH;
        let page = html(&summary, &overview, &sources, &[job], made);
        for bad in ["<script>", "<img", "<b>", "\u{202e}", "a&b"] {
            assert!(!page.contains(bad), "{bad} in {page}");
        }
        assert!(
            page.contains("topic &lt;script&gt;") && page.contains("data-h=\"Backlog\" class=\"n\">?</td>"),
            "{page}"
        );
        assert!(
            !html(&summary, &Overview::default(), &SourcesView::default(), &[], made).contains("Backlog"),
            "who is no operator has none"
        );
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
        assert!(page.contains(">Stockout: tries &lt;b&gt; again</td>"), "the sentence is text: {page}");
        assert!(page.contains("as of 1970-01-01 00:00:00 UTC"), "{page}");
        // On a narrow screen a cell says itself what it is.
        let cells = page.matches("<td ").count();
        assert_eq!(
            (page.matches("<td role=\"cell\" data-h=\"").count(), page.matches("<section ").count()),
            (cells, 6)
        );
    }

    #[test]
    fn what_was_not_looked_at_is_not_counted_as_nothing() {
        let page = |cut: Option<ReadCut>| {
            let own = OwnSummary { summary: Summary::default(), cut };
            html(&own, &Overview::default(), &SourcesView::default(), &[], jiff::Timestamp::UNIX_EPOCH)
        };
        let (all, some) = (page(None), page(Some(ReadCut::Time)));
        assert!(all.contains("<dt>Queued</dt><dd>0<small></small>") && !all.contains("at least"), "{all}");
        let queued = "<dt>Queued</dt><dd>at least 0<small>not all were looked at: forebay jobs</small>";
        assert!(some.contains(queued) && some.contains("0 of at least 0 jobs"), "{some}");
    }

    #[test]
    fn a_status_names_what_it_was_stopped_for() {
        let status = Status {
            number: 1,
            at: Timestamp(0),
            tenant: "default".into(),
            subject: "train".into(),
            job: None,
            attempt: forebay_kernel::ids::Attempt(0),
            seq: 0,
            kind: forebay_kernel::effect::StatusKind::Preempted,
            reason: Some(Reason::PreemptedBy { queue: QueueId(3) }),
            named: Some("prod/search".into()),
            run: None,
            labels: BTreeMap::new(),
        };
        let mut text = String::new();
        recent_table(Timestamp(0), &[Arc::new(status)]).write(&mut text);
        assert!(text.contains("for a job of queue `prod/search`"), "{text}");
    }

    #[test]
    fn a_page_that_could_not_be_made_is_asked_for_again() {
        let response = tried_again(ApiError::new(503, "Stopped", "the controller has stopped", "start it again"));
        let refresh = &response.headers()[header::REFRESH];
        assert_eq!((response.status().as_u16(), refresh), (503, &header::HeaderValue::from(10)));
    }
}
