//! `jobs`, `nodes`, `queues`, `sources`, `why`, `cancel`: ask a running Forebay and show its answer.
//!
//! Never: computes what the server should say.

use super::Output;
use super::args::{CancelArgs, JobArgs, JobsArgs, ListArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::client::encoded;
use crate::api::jobs::OneJob;
use crate::show::lists;
use forebay_wire::document::views::JobPhase;

pub(super) fn jobs(args: &JobsArgs, out: Output) -> Result<Exit, Failure> {
    let mut filter = String::new();
    if let Some(phase) = &args.phase {
        let known: Result<JobPhase, _> = serde_json::from_value(phase.to_lowercase().into());
        let phase = known.map_err(|_| {
            Failure::input(format_args!(
                "--phase {phase}: no such phase: write new, backing-off, held, queued, booked, starting, running, stopping, ended, \
                 completed, failed, cancelled or rejected"
            ))
        })?;
        filter.push_str(&format!("&phase={phase}"));
    } else if !args.all {
        filter.push_str("&open=true");
    }
    if let Some(queue) = &args.queue {
        filter.push_str(&format!("&queue={}", encoded(queue)));
    }
    let found = args.server.client()?.jobs(&filter)?;
    if args.server.json {
        print_json(&found)?;
    } else if found.jobs.is_empty() {
        print(if args.all || args.phase.is_some() {
            "no jobs\n"
        } else {
            "no open jobs; --all shows those that are over\n"
        })?;
    } else {
        print(&format!("{}\n", lists::jobs(&found.jobs, found.now_s, out.paint)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn nodes(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.server.client()?.nodes()?;
    if args.server.json {
        print_json(&found)?;
    } else if found.nodes.is_empty() {
        print("no nodes\n")?;
    } else {
        print(&format!("{}\n", lists::nodes(&found.nodes, found.now_s, out.paint)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn queues(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.server.client()?.queues()?;
    if args.server.json {
        print_json(&found)?;
    } else if found.queues.is_empty() {
        print("no queues yet; the policy declares none and no job has come\n")?;
    } else {
        print(&format!("{}\n", lists::queues(&found.queues, out.paint)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn sources(args: &ListArgs, out: Output) -> Result<Exit, Failure> {
    let found = args.server.client()?.sources()?;
    if args.server.json {
        print_json(&found)?;
    } else if found.sources.is_empty() {
        print("no sources; events come by HTTP alone (forebay.yaml names others, see docs/SOURCES.md)\n")?;
    } else {
        print(&format!("{}\n", crate::show::sources::table(&found, crate::show::table::terminal_width(), out.paint)))?;
    }
    if !args.server.json {
        let rejected: u64 = found.http.rejected.values().sum();
        let line = format!("http: {} taken, {} seen before, {rejected} rejected", found.http.taken, found.http.seen);
        print(&format!("{}\n", out.paint.faint(&line)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn why(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    if args.server.json {
        print_json(&client.why(&args.job)?)?;
    } else {
        let found = client.job(&args.job)?;
        print(&format!("{}\n", lists::why(&found.job, found.now_s, out.paint)))?;
    }
    Ok(Exit::Done)
}

/// Asks for the end of each. One that cannot be cancelled does not keep the others running.
pub(super) fn cancel(args: &CancelArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let (mut cancelled, mut last) = (Vec::new(), None);
    for job in &args.jobs {
        match client.cancel(job) {
            Ok(found) => {
                if !args.server.json {
                    print(&cancelled_line(&found, out))?;
                }
                cancelled.push(found);
            }
            Err(error) => {
                // The last one is said by whoever ends the command.
                if let Some(before) = last.replace(Failure::from(error)) {
                    before.print(out.err);
                }
            }
        }
    }
    match (args.server.json, cancelled.as_slice()) {
        (true, [one]) if args.jobs.len() == 1 => print_json(one)?,
        (true, all) if args.jobs.len() > 1 => print_json(&all)?,
        _ => {}
    }
    last.map_or(Ok(Exit::Done), Err)
}

fn cancelled_line(found: &OneJob, out: Output) -> String {
    let word = if found.job.phase == JobPhase::Cancelled { "cancelled" } else { "is being cancelled" };
    let subject = found.job.subject.as_deref().unwrap_or("-");
    format!("{} ({}) {word}\n", out.paint.strong(&found.job.job), crate::show::figures::short(subject, 60))
}
