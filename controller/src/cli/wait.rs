//! `forebay wait`: until a job is over. Exits 0 completed, 3 failed or rejected, 4 cancelled, 5 timed out.
//!
//! Never: asks in a tight loop. The server answers when the job is over; a lost connection is tried again with a pause.

use super::Output;
use super::args::WaitArgs;
use super::outcome::{Exit, Failure, print, print_json};
use crate::api::client::{Client, ClientError};
use crate::api::jobs::OneJob;
use crate::show::lists;
use forebay_wire::document::views::JobPhase;
use std::time::{Duration, Instant};

/// One request waits so long at most; proxies cut longer ones.
const ONE_WAIT: Duration = Duration::from_secs(50);
/// The pause after an answer that came before its time.
const EARLY_PAUSE: Duration = Duration::from_secs(1);
/// Lost connections in a row before it is given up: with pauses of 1 to 10 s, some two minutes.
const TRIES: u32 = 15;

pub(super) fn run(args: &WaitArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let end = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let found = until_over(&client, &args.job, end)?;
    if args.server.json {
        print_json(&found)?;
    } else {
        print(&format!("{}\n", lists::why(&found.job, found.now_s, out.paint)))?;
    }
    if !found.terminal {
        say_late(&found, out);
    }
    Ok(exit_of(&found))
}

/// The job when it is over, or as it is at `end`. `None`: waits for ever.
pub(super) fn until_over(client: &Client, job: &str, end: Option<Instant>) -> Result<OneJob, Failure> {
    let (mut lost, mut answered) = (0, false);
    loop {
        let left = end.map(|e| e.saturating_duration_since(Instant::now()));
        // Whole seconds, rounded up: the last request must not ask for no wait at all.
        let wait = left.map_or(ONE_WAIT, |l| l.min(ONE_WAIT));
        let wait = Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        let asked = Instant::now();
        match client.job_over(job, wait) {
            Ok(found) if found.terminal || end.is_some_and(|end| Instant::now() >= end) => return Ok(found),
            Ok(_) => {
                (lost, answered) = (0, true);
                // A server that ends answers at once: it comes back, or another one takes over.
                if asked.elapsed() < wait {
                    std::thread::sleep(left.map_or(EARLY_PAUSE, |l| l.min(EARLY_PAUSE)));
                }
            }
            Err(error) if answered || error.is_passing() => pause(error, &mut lost, left)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits before another try, or gives up.
fn pause(error: ClientError, lost: &mut u32, left: Option<Duration>) -> Result<(), Failure> {
    let passing = error.is_passing() || matches!(error, ClientError::Unreachable { .. });
    *lost += 1;
    if !passing || *lost > TRIES || left.is_some_and(|l| l.is_zero()) {
        return Err(error.into());
    }
    let nap = Duration::from_secs(u64::from((*lost).min(10)));
    std::thread::sleep(left.map_or(nap, |l| nap.min(l)));
    Ok(())
}

/// How `wait` ends with a job.
pub(super) fn exit_of(found: &OneJob) -> Exit {
    match found.job.phase {
        JobPhase::Completed => Exit::Done,
        JobPhase::Cancelled => Exit::JobCancelled,
        JobPhase::Failed | JobPhase::Rejected => Exit::JobFailed,
        _ => Exit::TimedOut,
    }
}

/// Says that a job was not over in time.
pub(super) fn say_late(found: &OneJob, out: Output) {
    eprintln!(
        "{} not over in time; it goes on: `forebay cancel {}` would stop it",
        out.err.warn("timed out:"),
        found.job.job
    );
}
