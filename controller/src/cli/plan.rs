//! `forebay plan`: one pass over a state, or passes until nothing changes, on an engine of its own.
//!
//! Never: talks to a server, or changes anything.

use super::Output;
use super::args::{PlanArgs, PlanUntil};
use super::check::compile_or_built_in;
use super::outcome::{Exit, Failure, print, print_json, read};
use crate::document::plan::{plan, plan_until_steady};
use crate::document::state::load;
use crate::document::steady::{MOST_PASSES, QUIET};
use crate::document::write::rule_of;
use crate::show::figures::{length, short};
use crate::show::table::TextTable;
use forebay_catalog::Catalogue;
use forebay_kernel::policy::Policy;
use forebay_wire::document::memory::PlaceView;
use forebay_wire::document::plan::{PlanDocument, PlannedDecision, PlannedPass};
use forebay_wire::document::state::StateDocument;
use std::collections::BTreeMap;

/// Of passes that do not come to rest, so many tell what alternates.
const LAST_PASSES: usize = 20;

/// Of passes that do not come to rest, so many are shown from the beginning.
const SHOWN_PASSES: usize = 50;

pub(super) fn run(args: &PlanArgs, out: Output) -> Result<Exit, Failure> {
    let text = read(&args.state)?;
    let document = StateDocument::parse(&text).map_err(|f| Failure::in_file(&args.state, &f))?;
    // An export brings its policy along; a state written by hand has none.
    let policy = if args.policy.is_none() && document.snapshot.is_some() {
        if let Some(path) = &args.catalog.catalog {
            return Err(Failure::input(format_args!(
                "--catalog {}: it says what the types of a policy are, and the one in this export knows its own: leave it out, or give a policy \
                 with --policy FILE",
                path.display()
            )));
        }
        None
    } else {
        let catalogue = catalogue(args, &document)?;
        let policy = compile_or_built_in(args.policy.as_deref(), &catalogue)?.1.policy;
        if let Some(name) = document.policy.as_ref().filter(|name| **name != policy.name) {
            let (name, other) = (short(name, 60), short(&policy.name, 60));
            let note = format!(
                "the document is of policy `{name}`, and this plans under `{other}`: give `{name}` with `--policy FILE` to plan under it"
            );
            eprintln!("{} {note}", out.err.warn("warning:"));
        }
        Some(policy)
    };
    for note in policy.iter().flat_map(|policy| raised(&document, policy)) {
        eprintln!("{} {note}", out.err.warn("warning:"));
    }
    let loaded = load(&document, policy).map_err(|f| Failure::in_file(&args.state, &f))?;
    let planned = match args.until {
        None => plan(loaded),
        Some(PlanUntil::Steady) => plan_until_steady(loaded),
    };
    if args.json {
        print_json(&planned)?;
    } else {
        print(&shown(&planned, out))?;
    }
    if planned.steady == Some(false) {
        let text = format!("it does not come to rest: after {MOST_PASSES} passes it still changes");
        return Err(Failure { exit: Exit::Violations, text });
    }
    Ok(Exit::Done)
}

/// Jobs written by hand that ask for a tier which their queue may not use, by queue and tier: whoever wrote them down says that they were taken.
fn raised(document: &StateDocument, policy: &Policy) -> Vec<String> {
    let mut asked: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for job in document.jobs.iter().filter(|job| job.memory.is_none() && !job.phase.terminal()) {
        let Some((tier, rule)) = job.tier.as_deref().zip(rule_of(policy, &job.queue)) else { continue };
        if policy.tier_named(tier).is_some_and(|id| !policy.may_ask(rule, id)) {
            *asked.entry((&job.queue, tier)).or_default() += 1;
        }
    }
    let note = |((queue, tier), jobs): ((&str, &str), u32)| {
        let (queue, tier) = (short(queue, 60), short(tier, 30));
        format!(
            "{jobs} jobs of queue `{queue}` ask for tier `{tier}`, which it may not use: they are planned as they stand, and live they would be rejected (`ForbiddenTier`)"
        )
    };
    asked.into_iter().map(note).collect()
}

/// The catalogue, sold in the simulated zones and in those where the document's nodes are.
fn catalogue(args: &PlanArgs, document: &StateDocument) -> Result<Catalogue, Failure> {
    let named = document.nodes.iter().map(|n| n.zone.as_str()).filter(|z| !z.is_empty());
    Ok(args.catalog.read()?.with_zones(named))
}

fn shown(planned: &PlanDocument, out: Output) -> String {
    let mut text = String::new();
    match &planned.passes {
        None if planned.decisions.is_empty() => text.push_str("nothing to decide\n"),
        None => text.push_str(&format!("{}\n", decided(&planned.decisions, out))),
        Some(passes) => {
            let begins = planned.began_s.map_or(0, |began| began.0);
            let shown = if planned.steady == Some(true) { passes.len() } else { SHOWN_PASSES };
            for (nth, pass) in (1..).zip(passes).take(shown) {
                let heading = format!("pass {nth} after {}", length(pass.at_s.0.saturating_sub(begins)));
                text.push_str(&format!("{}\n{}\n\n", out.paint.strong(&heading), decided(&pass.decisions, out)));
            }
            let (count, quiet) = (passes.len(), length(QUIET.0));
            text.push_str(&match planned.steady {
                Some(true) => format!("at rest after {count} passes: for {quiet} the clock alone changes nothing\n"),
                _ => format!("it does not come to rest after {count} passes{}\n", again_and_again(passes)),
            });
        }
    }
    if planned.pending.is_empty() {
        text.push_str("\nno job waits\n");
        return text;
    }
    let table = TextTable::of(&planned.pending, out.paint)
        .left("WAITS", |p| named(&p.job, p.subject.as_ref()))
        .left("REASON", |p| p.reason.clone())
        .right("ETA", |p| p.eta_s.map_or_else(|| "-".to_owned(), |s| length(s.0)))
        .left("", |p| p.message.clone());
    text.push_str(&format!("\n{}\n", table.text()));
    text
}

/// What the last passes decide, where they are the same again and again.
fn again_and_again(passes: &[PlannedPass]) -> String {
    let said = |pass: &PlannedPass| {
        let one = |d: &PlannedDecision| format!("{} {}", d.action, d.job.as_deref().unwrap_or("-"));
        pass.decisions.iter().map(one).collect::<Vec<_>>()
    };
    let mut last: Vec<String> = passes.iter().rev().take(LAST_PASSES).flat_map(said).collect();
    last.sort();
    last.dedup();
    format!(": the last {LAST_PASSES} decide {}", short(&last.join(", "), 300))
}

fn named(job: &str, subject: Option<&String>) -> String {
    match subject {
        Some(subject) => format!("{} ({})", short(job, 24), short(subject, 32)),
        None => short(job, 40),
    }
}

fn decided(decisions: &[PlannedDecision], out: Output) -> String {
    TextTable::of(decisions, out.paint)
        .left("DECISION", |d| d.action.clone())
        .left("JOB", |d| d.job.as_ref().map_or_else(|| "-".to_owned(), |job| named(job, d.subject.as_ref())))
        .left("NODES", |d| short(&d.nodes.join(" "), 48))
        .left("WHAT", what)
        .text()
}

/// What is bought, where workers go, or why.
fn what(decision: &PlannedDecision) -> String {
    if let Some(offering) = &decision.offering {
        return offering.clone();
    }
    if !decision.workers.is_empty() {
        return short(&decision.workers.iter().map(worker).collect::<Vec<_>>().join(" "), 48);
    }
    match (&decision.message, &decision.reason, &decision.by) {
        (Some(message), Some(reason), _) => format!("{reason}: {message}"),
        (Some(message), None, None) => message.clone(),
        (None, Some(reason), Some(by)) => format!("{reason} for {}", short(by, 32)),
        (None, None, Some(by)) => format!("for {}", short(by, 32)),
        (_, reason, None) => reason.clone().unwrap_or_default(),
        (Some(message), None, Some(_)) => message.clone(),
    }
}

/// Such as `0@node-1:0-3`: worker 0 on GPUs 0 to 3.
fn worker(place: &PlaceView) -> String {
    let number = place.worker.map(|n| format!("{n}@")).unwrap_or_default();
    let gpus = match (place.gpus.first(), place.gpus.last()) {
        (Some(first), Some(last)) if place.gpus.len() > 1 && usize::from(last - first) + 1 == place.gpus.len() => {
            format!(":{first}-{last}")
        }
        (Some(_), _) => format!(":{}", place.gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        _ => String::new(),
    };
    let share = if place.share_milli < 1000 && !place.gpus.is_empty() {
        format!("/{}", f64::from(place.share_milli) / 1000.0)
    } else {
        String::new()
    };
    format!("{number}{}{gpus}{share}", place.node)
}
