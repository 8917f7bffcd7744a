//! The page for people: what is queued, running, bought and spent, the jobs, and for operators sources and sinks. No JavaScript; it loads itself again.
//!
//! Never: a name from outside unescaped (every text goes through [`escaped`]), nor a job that its reader may not see.

use super::Api;
use super::auth::Browser;
use super::error::ApiError;
use super::listing::first_jobs;
use super::reads::{OwnSummary, summary_for};
use crate::show::figures::{count, gpus, number, seconds, short, usd};
use crate::sources::registry::{SourceView, SourcesView};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_quantity::is_unseen;
use forebay_wire::document::views::{BrakeView, JobView, Summary};
use std::fmt::Write as _;

/// Jobs shown: those that are not over first, then the latest.
const SHOWN: usize = 200;

/// Nothing but this page's own style.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; } h1 small { font-weight: normal; opacity: .65; font-size: .9rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 1rem; margin: 0 0 2rem; }
dl div { border-top: 3px solid #0a7ea4; padding-top: .4rem; }
dt { opacity: .7; font-size: .85rem; } dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
dd small { font-size: .8rem; opacity: .7; display: block; }
section { overflow-x: auto; margin: 0 0 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .4rem 0; opacity: .7; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.n, th.n { text-align: right; } .failed, .rejected, .failing { color: #c0392b; } .running, .completed, .working { color: #1e8449; }
@media (max-width: 40rem) {
body { margin: 1rem auto; } dl { grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); }
thead { display: none; } table, caption, tbody, tr, td { display: block; }
tr { border-bottom: 1px solid #8884; padding: .4rem 0; }
td, td.n { border: 0; display: flex; gap: 1rem; padding: .1rem 0; text-align: left; overflow-wrap: anywhere; min-width: 0; }
td::before { content: attr(data-h); flex: 0 0 6rem; opacity: .7; } td:empty { display: none; }
}
";

pub(super) async fn page(State(api): State<Api>, Browser(who): Browser) -> Result<Response, ApiError> {
    let sources = if who.operates() { api.sources.view(&api.handle) } else { SourcesView::default() };
    let OwnSummary { summary, .. } = summary_for(&api, &who).await?;
    let jobs = first_jobs(&api, &who, SHOWN).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, html(&summary, &sources, &jobs)).into_response())
}

/// Text as HTML text or attribute value.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Marks that turn the direction of the text around them could hide what stands there.
            c if is_unseen(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn html(summary: &Summary, sources: &SourcesView, jobs: &[JobView]) -> String {
    let mut out = String::with_capacity(16 * 1024);
    let policy = escaped(&summary.policy);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"5\"><title>Forebay</title><style>{STYLE}</style></head><body>\
         <h1>Forebay <small>policy {policy}</small></h1><dl>"
    );
    let nodes = summary.reserved_nodes + summary.spot_nodes + summary.on_demand_nodes;
    let by_kind = format!(
        "{} spot, {} on-demand, {} reserved; {} booting",
        summary.spot_nodes, summary.on_demand_nodes, summary.reserved_nodes, summary.booting_nodes
    );
    let over = format!("{} failed, {} cancelled, {} rejected", summary.failed, summary.cancelled, summary.rejected);
    let tiles = [
        ("Queued", count(summary.queued), String::new()),
        ("Running", count(summary.running), String::new()),
        ("Nodes", count(nodes), by_kind),
        (
            "Spend",
            format!("{} USD/h", number(summary.spend_usd_per_hour, 2)),
            format!("{} so far", usd(summary.cost_usd)),
        ),
        ("Completed", count(summary.completed), over),
    ];
    for (name, value, detail) in tiles {
        let _ =
            write!(out, "<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>", escaped(&value), escaped(&detail));
    }
    out.push_str("</dl>");
    if !summary.brakes.is_empty() {
        brakes_table(&mut out, summary);
    }
    if !sources.sources.is_empty() {
        sources_table(&mut out, sources);
    }
    jobs_table(&mut out, summary, jobs);
    out.push_str("</body></html>\n");
    out
}

/// A cell of a table: its text, and the class and the longer text that it may have. All of it is escaped where it is written.
#[derive(Default)]
struct Cell {
    text: String,
    class: String,
    title: String,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A figure, which stands to the right.
    fn figure(text: impl Into<String>) -> Cell {
        Cell { class: "n".to_owned(), ..Cell::text(text) }
    }

    /// A word in the colour of what it says.
    fn coloured(text: &str) -> Cell {
        Cell { class: text.to_owned(), ..Cell::text(text) }
    }
}

/// A table in a region of its own, which scrolls where it is too wide. On a narrow screen each row is a list of its headings and cells.
fn table<const N: usize>(out: &mut String, caption: &str, headings: [&str; N], rows: impl Iterator<Item = [Cell; N]>) {
    let caption = escaped(caption);
    let _ = write!(
        out,
        "<section tabindex=\"0\" aria-label=\"{caption}\"><table role=\"table\"><caption>{caption}</caption><thead><tr>"
    );
    let mut rows = rows.peekable();
    for (at, heading) in headings.iter().enumerate() {
        let figures = rows.peek().is_some_and(|row| row[at].class == "n");
        let _ = write!(out, "<th{}>{heading}</th>", if figures { " class=\"n\"" } else { "" });
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr role=\"row\">");
        for (heading, Cell { text, class, title }) in headings.iter().zip(row) {
            let _ = write!(out, "<td role=\"cell\" data-h=\"{heading}\"");
            for (name, value) in [("class", class), ("title", title)] {
                if !value.is_empty() {
                    let _ = write!(out, " {name}=\"{}\"", escaped(&value));
                }
            }
            let _ = write!(out, ">{}</td>", escaped(&text));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

fn jobs_table(out: &mut String, summary: &Summary, jobs: &[JobView]) {
    let caption =
        format!("{} of {} jobs; those that are not over come first", count(jobs.len() as u64), count(summary.jobs));
    let headings = ["Job", "Subject", "Queue", "Tier", "GPUs", "Phase", "For", "Why"];
    let row = |job: &JobView| {
        let since = job.since_s.map_or(0, |at| summary.now_s.0.saturating_sub(at.0) / 1000);
        let share = f64::from(job.gpus) * f64::from(job.gpu_milli.unwrap_or(1000)) / 1000.0;
        let (code, message) = job.reason.as_ref().map(|r| (r.code.clone(), r.message.clone())).unwrap_or_default();
        [
            Cell::text(&job.job),
            Cell::text(short(job.subject.as_deref().unwrap_or("-"), 60)),
            Cell::text(short(&job.queue, 60)),
            Cell::text(short(job.tier.as_deref().unwrap_or("-"), 30)),
            Cell::figure(gpus(share)),
            Cell::coloured(&job.phase.to_string()),
            Cell::figure(seconds(since as f64)),
            Cell { title: message, ..Cell::text(code) },
        ]
    };
    table(out, &caption, headings, jobs.iter().map(row));
}

/// What operators have stopped.
fn brakes_table(out: &mut String, summary: &Summary) {
    let now = summary.now_s.0;
    let length = |from: u64, to: u64| seconds((to.saturating_sub(from) / 1000) as f64);
    let row = |brake: &BrakeView| {
        [
            Cell { class: "failing".to_owned(), ..Cell::text(&brake.brake) },
            Cell::text(short(brake.target.as_deref().unwrap_or("-"), 60)),
            Cell::text(short(&brake.by, 60)),
            Cell::figure(length(brake.since_s.0, now)),
            Cell::figure(brake.until_s.map_or_else(|| "-".to_owned(), |until| length(now, until.0))),
            Cell::text(short(&brake.why, 300)),
        ]
    };
    let headings = ["What", "Target", "By", "For", "Ends in", "Why"];
    table(out, "Stopped by operators", headings, summary.brakes.iter().map(row));
}

/// What events come from and statuses go to. Only operators have any here.
fn sources_table(out: &mut String, found: &SourcesView) {
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
    table(out, "Sources and sinks; `?`: nobody can say", headings, found.sources.iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_text() {
        let job = serde_json::json!({ "job": "job-1", "subject": "<script>alert('x')</script>", "gpus": 1, "phase": "queued",
            "queue": "\"><img src=x onerror=alert(1)>\u{202e}", "tier": "a&b" });
        let job: JobView = serde_json::from_value(job).expect("a job");
        let brake =
            serde_json::json!({ "brake": "queue", "target": "<b>", "by": "<img", "why": "<script", "since_s": 0 });
        let brakes = vec![serde_json::from_value(brake).expect("a brake")];
        let summary = Summary { policy: "<b>".into(), brakes, ..Summary::default() };
        let source = serde_json::json!({ "sources": [{ "name": "kafka:<b>", "direction": "in", "channels": [], "condition": "failing\"><img",
            "why": "topic <script>", "backlog": null, "backlogs": {}, "restarts": 0, "missed": 0, "remarks": [] }] });
        let sources: SourcesView = serde_json::from_value(source).expect("a source");
        let page = html(&summary, &sources, &[job]);
        for bad in ["<script", "<img", "<b>", "\u{202e}", "a&b"] {
            assert!(!page.contains(bad), "{bad} in {page}");
        }
        assert!(
            page.contains("topic &lt;script&gt;") && page.contains("data-h=\"Backlog\" class=\"n\">?</td>"),
            "{page}"
        );
        assert!(!html(&summary, &SourcesView::default(), &[]).contains("Backlog"), "who is no operator has none");
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
        // On a narrow screen a cell says itself what it is.
        let cells = page.matches("<td ").count();
        assert_eq!(
            (page.matches("<td role=\"cell\" data-h=\"").count(), page.matches("<section ").count()),
            (cells, 3)
        );
    }
}
