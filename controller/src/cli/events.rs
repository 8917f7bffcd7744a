//! `forebay events`: what happened to jobs, one status a line; with `--follow`, what happens from then on.
//!
//! Never: a status twice, or one left out while the server keeps it. A connection that is lost is made again from where it was.

use super::Output;
use super::args::EventsArgs;
use super::connection::Connection;
use super::outcome::{Exit, Failure, is_read};
use crate::api::client::{Client, ClientError};
use crate::show::status_line;
use std::time::Duration;

/// Between two looks at what is followed.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &EventsArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut connection = Connection::new(out);
    let mut after = (args.after > 0).then_some(args.after);
    loop {
        let before = after;
        let (read, answer) = show_after(&client, &mut after, args, out);
        if !read? {
            return Ok(Exit::Done);
        }
        if !args.follow {
            return answer.map(|()| Exit::Done).map_err(Failure::from);
        }
        if after != before {
            connection.heard();
        }
        if connection.answer(answer)?.is_some() {
            std::thread::sleep(PAUSE);
        }
    }
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
