//! `why`, `cancel`, `confirm-dead`: ask a running Forebay about one job and show its answer.
//!
//! Never: computes what the server should say.

use super::Output;
use super::args::{CancelArgs, ConfirmDeadArgs, JobArgs, ServerArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::confirm_dead::DeathConfirmation;
use crate::api::jobs::CancelledJob;
use crate::show::figures::short;
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
        let notes: String =
            found.kubernetes.iter().map(|note| format!("  kubernetes: {}\n", short(note, 400))).collect();
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

fn cancelled_line(found: &CancelledJob, out: Output) -> String {
    let job = &found.one.job;
    let word = if job.phase == JobPhase::Cancelled { "cancelled" } else { "is being cancelled" };
    let subject = job.subject.as_deref().unwrap_or("-");
    format!("{} ({}){} {word}\n", out.paint.strong(&job.job), short(subject, 60), of_whom(found))
}

/// Whose job it was, where it was not the caller's own.
fn of_whom(found: &CancelledJob) -> String {
    let Some(principal) = found.principal.as_deref().filter(|_| !found.own) else { return String::new() };
    let tenant = found.one.job.tenant.as_deref().unwrap_or("-");
    format!(", submitted by {} in tenant {},", short(principal, 60), short(tenant, 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Paint;
    use serde_json::json;

    #[test]
    fn whose_job_is_cancelled_is_said_where_it_is_anothers() {
        let out = Output { paint: Paint::default(), err: Paint::default() };
        let line = |own: bool, principal: Option<&str>, phase: &str| {
            let mut answer = json!({"now_s": 1, "terminal": false, "job": "job-17", "subject": "train",
                "tenant": "vision", "queue": "q", "phase": phase, "gpus": 1, "own": own});
            if let Some(principal) = principal {
                answer["principal"] = json!(principal);
            }
            cancelled_line(&serde_json::from_value(answer).unwrap(), out)
        };
        let others = "job-17 (train), submitted by airflow in tenant vision, is being cancelled\n";
        assert_eq!(line(false, Some("airflow"), "running"), others);
        assert_eq!(line(true, Some("airflow"), "running"), "job-17 (train) is being cancelled\n");
        assert_eq!(line(true, Some("airflow"), "cancelled"), "job-17 (train) cancelled\n");
        assert_eq!(line(false, None, "cancelled"), "job-17 (train) cancelled\n", "an earlier server does not say");
        let hostile = line(false, Some("a\u{1b}[31m"), "running");
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
    }
}
