//! `forebay events`: what happened to jobs, one status a line; with `--follow`, what happens from then on.
//!
//! Never: a status twice, or one left out while the server keeps it. A connection that is lost is made again from where it was.

use super::Output;
use super::args::EventsArgs;
use super::outcome::{Exit, Failure, is_read};
use crate::api::client::{Client, ClientError};
use crate::show::status_line;
use std::time::Duration;

/// Between two looks at what is followed.
const PAUSE: Duration = Duration::from_secs(2);

/// Between two tries to reach a server that is gone.
const PAUSE_UNREACHABLE: Duration = Duration::from_secs(10);

pub(super) fn run(args: &EventsArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let begins = (args.after > 0).then_some(args.after);
    let (mut after, mut answered) = (begins, false);
    loop {
        let (read, answer) = show_after(&client, &mut after, args, out);
        if !read? {
            return Ok(Exit::Done);
        }
        answered |= answer.is_ok() || after != begins;
        let pause = match answer {
            Ok(()) if !args.follow => return Ok(Exit::Done),
            Ok(()) => PAUSE,
            // Who was never answered has a wrong address, and who is refused is refused again.
            Err(error) if args.follow && answered && is_lost(&error) => {
                eprintln!("{}", out.err.warn(&format!("{error}; trying again")));
                PAUSE_UNREACHABLE
            }
            Err(error) => return Err(error.into()),
        };
        std::thread::sleep(pause);
    }
}

/// Whether the server may be back: there is no answer, or it goes on saying "later".
fn is_lost(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { .. }) || error.is_passing()
}

/// Prints what there is after a number, and notes the last. The first: whether anybody still reads.
fn show_after(
    client: &Client,
    after: &mut Option<u64>,
    args: &EventsArgs,
    out: Output,
) -> (Result<bool, Failure>, Result<(), ClientError>) {
    let mut read = Ok(true);
    let answer = client.statuses(*after, |number, event| {
        let line = if args.server.json { event.to_owned() } else { status_line::text(number, event, out.paint) };
        *after = Some(number);
        read = is_read(&format!("{line}\n"));
        matches!(read, Ok(true))
    });
    (read, answer)
}
