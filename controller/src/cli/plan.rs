//! `forebay plan`: one pass over a state, on an engine of its own.
//!
//! Never: talks to a server, or changes anything.

use super::Output;
use super::args::PlanArgs;
use super::check::compile_or_built_in;
use super::outcome::{Exit, Failure, print, print_json, read};
use crate::document::plan::plan;
use crate::document::state::load;
use crate::show::figures::{seconds, short};
use crate::show::table::TextTable;
use forebay_catalog::Catalogue;
use forebay_wire::document::plan::PlanDocument;
use forebay_wire::document::state::StateDocument;

pub(super) fn run(args: &PlanArgs, out: Output) -> Result<Exit, Failure> {
    let text = read(&args.state)?;
    let document = StateDocument::parse(&text).map_err(|f| Failure::in_file(&args.state, &f))?;
    // An export brings its policy along; a state written by hand has none.
    let policy = if args.policy.is_none() && document.snapshot.is_some() {
        None
    } else {
        let catalogue = catalogue(&document);
        Some(compile_or_built_in(args.policy.as_deref(), &catalogue)?.1.policy)
    };
    let loaded = load(&document, policy).map_err(|f| Failure::in_file(&args.state, &f))?;
    let planned = plan(loaded);
    if args.json {
        print_json(&planned)?;
    } else {
        print(&shown(&planned, out))?;
    }
    Ok(Exit::Done)
}

/// The built-in price list, sold in the simulated zones and in those where the document's nodes are.
fn catalogue(document: &StateDocument) -> Catalogue {
    let named = document.nodes.iter().map(|n| n.zone.as_str()).filter(|z| !z.is_empty());
    Catalogue::builtin().with_zones(named)
}

fn shown(planned: &PlanDocument, out: Output) -> String {
    let name = |job: &str, subject: &Option<String>| match subject {
        Some(subject) => format!("{} ({})", short(job, 24), short(subject, 32)),
        None => short(job, 40),
    };
    let table = TextTable::of(&planned.decisions, out.paint)
        .left("DECISION", |d| d.action.clone())
        .left("JOB", |d| d.job.as_ref().map_or_else(|| "-".to_owned(), |j| name(j, &d.subject)))
        .left("NODES", |d| short(&d.nodes.join(" "), 48))
        .left("WHAT", |d| d.offering.clone().or_else(|| d.reason.clone()).unwrap_or_default());
    let mut text =
        if planned.decisions.is_empty() { "nothing to decide\n".to_owned() } else { format!("{}\n", table.text()) };
    if planned.pending.is_empty() {
        text.push_str("\nno job waits\n");
        return text;
    }
    let table = TextTable::of(&planned.pending, out.paint)
        .left("WAITS", |p| name(&p.job, &p.subject))
        .left("REASON", |p| p.reason.clone())
        .right("ETA", |p| p.eta_s.map_or_else(|| "-".to_owned(), |s| seconds((s.0 / 1000) as f64)))
        .left("", |p| p.message.clone());
    text.push_str(&format!("\n{}\n", table.text()));
    text
}
