//! `why`, `cancel`, `confirm-dead`: ask a running Forebay about one job and show its answer.
//!
//! Never: computes what the server should say.

use super::Output;
use super::args::{CancelArgs, ConfirmDeadArgs, JobArgs, ServerArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::confirm_dead::DeathConfirmation;
use crate::api::jobs::OneJob;
use crate::show::{lists, outlook};
use forebay_wire::document::views::JobPhase;

/// An answer as JSON where that is asked for, or as text.
fn show<T: serde::Serialize>(server: &ServerArgs, found: &T, text: String) -> Result<Exit, Failure> {
    if server.json {
        print_json(found)?
    } else {
        print(&(text + "\n"))?
    }
    Ok(Exit::Done)
}

pub(super) fn why(args: &JobArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    if args.server.json {
        print_json(&client.why(&args.job)?)?;
    } else {
        let found = client.job(&args.job)?;
        let asks = !found.terminal && found.job.phase != JobPhase::Running;
        let told = asks.then(|| client.why(&args.job)).transpose()?;
        let outlook = told.map(|why| outlook::outlook(why.position, why.start.as_ref())).unwrap_or_default();
        let outlook: String = outlook.into_iter().map(|line| format!("{line}\n")).collect();
        let notes: String = found
            .kubernetes
            .iter()
            .map(|note| format!("  kubernetes: {}\n", crate::show::figures::short(note, 400)))
            .collect();
        print(&format!("{}\n{outlook}{notes}", lists::why(&found.job, found.now_s, out.paint)))?;
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

/// Confirms deaths, and says what is held now.
pub(super) fn confirm_dead(args: &ConfirmDeadArgs, out: Output) -> Result<Exit, Failure> {
    let confirmation = DeathConfirmation { attempt: args.attempt, workers: args.workers.clone() };
    let found = args.server.client()?.confirm_dead(&args.job, &confirmation)?;
    let workers: Vec<String> = args.workers.iter().map(u32::to_string).collect();
    let noun = if workers.len() == 1 { "worker" } else { "workers" };
    let text = format!(
        "{noun} {} of attempt {} of {} confirmed dead; `forebay why {}` says what is held still",
        workers.join(", "),
        args.attempt,
        out.paint.strong(&found.job.job),
        found.job.job,
    );
    show(&args.server, &found, text)
}

fn cancelled_line(found: &OneJob, out: Output) -> String {
    let word = if found.job.phase == JobPhase::Cancelled { "cancelled" } else { "is being cancelled" };
    let subject = found.job.subject.as_deref().unwrap_or("-");
    format!("{} ({}) {word}\n", out.paint.strong(&found.job.job), crate::show::figures::short(subject, 60))
}
