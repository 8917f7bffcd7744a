//! `jobs`, `nodes`, `queues`, `why`, `cancel`: ask a running Forebay and show its answer.
//!
//! Never: computes what the server should say.

use super::Output;
use super::args::{JobArgs, JobsArgs, ListArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::client::{Client, encoded};
use crate::document::views::JobPhase;
use crate::show::lists;

pub(super) fn jobs(args: &JobsArgs, out: Output) -> Result<Exit, Failure> {
    let mut filter = String::new();
    if let Some(phase) = &args.phase {
        let known: Result<JobPhase, _> = serde_json::from_value(phase.to_lowercase().into());
        let phase = known.map_err(|_| {
            Failure::input(format_args!(
                "--phase {phase}: no such phase: write new, backing-off, queued, booked, starting, running, stopping, ended, \
                 completed, failed, cancelled or rejected"
            ))
        })?;
        filter.push_str(&format!("&phase={}", phase.as_str()));
    } else if !args.all {
        filter.push_str("&open=true");
    }
    if let Some(queue) = &args.queue {
        filter.push_str(&format!("&queue={}", encoded(queue)));
    }
    let found = Client::new(&args.server.server).jobs(&filter)?;
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
    let found = Client::new(&args.server.server).nodes()?;
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
    let found = Client::new(&args.server.server).queues()?;
    if args.server.json {
        print_json(&found)?;
    } else if found.queues.is_empty() {
        print("no queues yet; the policy declares none and no job has come\n")?;
    } else {
        print(&format!("{}\n", lists::queues(&found.queues, out.paint)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn why(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.server.server);
    if args.server.json {
        print_json(&client.why(&args.job)?)?;
    } else {
        let found = client.job(&args.job, None)?;
        print(&format!("{}\n", lists::why(&found.job, found.now_s, out.paint)))?;
    }
    Ok(Exit::Done)
}

pub(super) fn cancel(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let found = Client::new(&args.server.server).cancel(&args.job)?;
    if args.server.json {
        print_json(&found)?;
    } else {
        let word = if found.job.phase == JobPhase::Cancelled { "cancelled" } else { "is being cancelled" };
        let subject = found.job.subject.as_deref().unwrap_or("-");
        print(&format!(
            "{} ({}) {word}\n",
            out.paint.strong(&found.job.job),
            crate::show::figures::short(subject, 60)
        ))?;
    }
    Ok(Exit::Done)
}
