//! `forebay submit`: sends events to a running Forebay, as they are, and waits for their jobs where it is asked to.
//!
//! ```text
//! files -> events with their places -> a request for each piece -> what was taken and what was refused, with its place
//! ```
//!
//! Never: judges them, or reads them for the server: what is sent is what was written. The server's intake judges, the same for every way in.

use super::Output;
use super::args::SubmitArgs;
use super::event_files::{EventPlace, WrittenEvent, events_of, read_files};
use super::outcome::{Exit, Failure, print, print_json};
use super::wait::{exit_of, say_late, until_over};
use crate::api::client::{Client, ClientError};
use crate::api::events::{MOST_WARNINGS, RefusedEvent, Taken, TakenEvent};
use crate::show::Paint;
use crate::show::figures::short;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::time::Instant;

/// Events a request at most: an eighth of what the server takes.
const AT_ONCE: usize = 2_000;

/// Bytes of the events of a request at most: a quarter of what the server takes.
const BYTES_AT_ONCE: usize = 1 << 20;

pub(super) fn run(args: &SubmitArgs, out: Output) -> Result<Exit, Failure> {
    let files = read_files(&args.files)?;
    let mut written = Vec::new();
    for file in &files {
        written.extend(events_of(&file.name, &file.text)?);
    }
    let events: Vec<&RawValue> = written.iter().map(|one| one.event).collect();
    let client = args.server.client()?;
    let end = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let (mut all, mut sent) = (Answered::default(), 0);
    for piece in pieces(&events) {
        let body = serde_json::to_vec(piece).map_err(Failure::outside)?;
        match client.events("application/cloudevents-batch+json", &body) {
            Ok(taken) => all.add(taken, sent, &written),
            Err(error) => {
                say(args, &all, out)?;
                return Err(unanswered(error, written.get(sent).filter(|_| sent > 0)));
            }
        }
        sent += piece.len();
    }
    // With --wait, what becomes of them is the JSON.
    if !(args.wait && args.server.json) {
        say(args, &all, out)?;
    }
    let over = if args.wait { wait(args, &client, &all, end, out)? } else { Exit::Done };
    Ok(if all.rejected.is_empty() { over } else { Exit::BadInput })
}

/// Why the rest was not taken, and with which event that begins. `None`: with the first of all.
fn unanswered(error: ClientError, first: Option<&WrittenEvent<'_>>) -> Failure {
    let failure = Failure::from(error);
    let Some(WrittenEvent { place, .. }) = first else { return failure };
    let text = format!(
        "{}; nothing from {place} on was answered: submit all of it again, jobs that were taken are known",
        failure.text
    );
    Failure { text, ..failure }
}

/// What became of an event, and where it was written.
#[derive(Debug, Serialize)]
struct Placed<'a, T> {
    /// `None`: the server answered more than it was asked.
    #[serde(flatten)]
    place: Option<EventPlace<'a>>,
    #[serde(flatten)]
    event: T,
}

/// What became of the events of all requests.
#[derive(Debug, Default, Serialize)]
struct Answered<'a> {
    accepted: Vec<Placed<'a, TakenEvent>>,
    /// Their positions count from the first event of all.
    rejected: Vec<Placed<'a, RefusedEvent>>,
    /// Whether an answer had as many warnings as it may have: there may be further ones.
    #[serde(skip)]
    is_full: bool,
}

impl<'a> Answered<'a> {
    /// Takes in the answer to the request whose first event is the one after so many.
    fn add(&mut self, taken: Taken, sent: usize, written: &[WrittenEvent<'a>]) {
        let position = |index: usize| sent.saturating_add(index);
        let place = |index: usize| written.get(position(index)).map(|one| one.place);
        let refused: BTreeSet<usize> = taken.rejected.iter().map(|event| event.index).collect();
        self.is_full |= taken.accepted.iter().map(|event| event.warnings.len()).sum::<usize>() >= MOST_WARNINGS;
        // An answer has what was taken in the order of the request.
        let kept = (0_usize..).filter(|index| !refused.contains(index));
        let accepted = taken.accepted.into_iter().zip(kept);
        self.accepted.extend(accepted.map(|(event, index)| Placed { place: place(index), event }));
        self.rejected.extend(taken.rejected.into_iter().map(|event| {
            let (place, index) = (place(event.index), position(event.index));
            Placed { place, event: RefusedEvent { index, ..event } }
        }));
    }

    /// Warnings and refusals, a line each, and what helps.
    fn remarks(&self, paint: Paint) -> Vec<String> {
        let mut lines = Vec::new();
        for Placed { place, event } in &self.accepted {
            let name = name_of_event(*place, event.subject.as_deref());
            lines.extend(event.warnings.iter().map(|warning| format!("{} {name}: {warning}", paint.warn("warning:"))));
        }
        let is_warned = !lines.is_empty();
        for Placed { place, event } in &self.rejected {
            let name = name_of_event(*place, event.subject.as_deref());
            let rerun = event.job.as_ref().map_or_else(String::new, |job| {
                format!(" ({job} is over with that: submit it mended, with `\"rerun\": true` in its `data`)")
            });
            lines.push(format!("{} {name}: {}: {}{rerun}", paint.bad("rejected:"), event.path, event.message));
        }
        let cut = format!("note: an answer has {MOST_WARNINGS} warnings at most: there may be more of them");
        lines.extend(self.is_full.then_some(cut));
        lines.extend(is_warned.then(|| MEND_TAKEN.to_owned()));
        lines.extend((!self.rejected.is_empty() && !self.accepted.is_empty()).then(|| MEND_REJECTED.to_owned()));
        lines
    }
}

/// What to do about warnings.
const MEND_TAKEN: &str = "note: what was warned of was taken as it is; `forebay schema event` says what an event may \
                          hold; to mend a job, `forebay cancel` it and submit it again with `\"rerun\": true` in its `data`";

/// What to do about refusals among what was taken.
const MEND_REJECTED: &str = "note: mend what was rejected and submit all of it again: jobs that were taken are known";

/// An event in words: where it stands, and its subject.
fn name_of_event(place: Option<EventPlace<'_>>, subject: Option<&str>) -> String {
    let subject = subject.map(|subject| short(subject, 60));
    match (place, subject) {
        (Some(place), Some(subject)) => format!("{place} ({subject})"),
        (Some(place), None) => place.to_string(),
        (None, subject) => subject.unwrap_or_else(|| "an event".to_owned()),
    }
}

/// The events in pieces of which each fits one request. One that is larger than a piece goes alone: the server judges it.
fn pieces<'e>(mut rest: &'e [&'e RawValue]) -> impl Iterator<Item = &'e [&'e RawValue]> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = |event: &&&RawValue| {
            // With the comma behind it.
            bytes += event.get().len() + 1;
            bytes <= BYTES_AT_ONCE
        };
        let count = rest.iter().take(AT_ONCE).take_while(fits).count().max(1);
        let (piece, later) = rest.split_at(count);
        rest = later;
        Some(piece)
    })
}

/// Waits for every job that was taken: the worst end of them: failed, then cancelled, then late.
fn wait(
    args: &SubmitArgs,
    client: &Client,
    taken: &Answered<'_>,
    end: Option<Instant>,
    out: Output,
) -> Result<Exit, Failure> {
    let mut jobs: Vec<&String> = taken.accepted.iter().filter_map(|one| one.event.job.as_ref()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let (mut ends, mut found) = (Vec::new(), Vec::new());
    for job in jobs {
        // In the form that no subject has: another job's subject may be `job-17`.
        let one = until_over(client, &job.replacen("job-", "#", 1), end)?;
        let exit = exit_of(&one);
        ends.push(exit);
        if exit == Exit::TimedOut {
            say_late(&one, out);
        }
        if !args.server.json {
            let subject = short(one.job.subject.as_deref().unwrap_or("-"), 80);
            print(&format!("{}  {subject}  {}\n", out.paint.strong(&one.job.job), one.job.phase))?;
        }
        found.push(one);
    }
    if args.server.json {
        print_json(&serde_json::json!({ "accepted": taken.accepted, "rejected": taken.rejected, "jobs": found }))?;
    }
    let worst = [Exit::JobFailed, Exit::JobCancelled, Exit::TimedOut].into_iter().find(|exit| ends.contains(exit));
    Ok(worst.unwrap_or(Exit::Done))
}

fn say(args: &SubmitArgs, taken: &Answered<'_>, out: Output) -> Result<(), Failure> {
    if args.server.json {
        return print_json(taken);
    }
    let mut text = String::new();
    for Placed { event, .. } in &taken.accepted {
        let job = event.job.as_deref().unwrap_or("-");
        let known = if event.new { "" } else { "  (known already)" };
        text.push_str(&format!(
            "{}  {}{known}\n",
            out.paint.strong(job),
            short(event.subject.as_deref().unwrap_or("-"), 80)
        ));
    }
    print(&text)?;
    taken.remarks(out.err).iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_has_no_more_than_the_server_takes() {
        let large = |bytes: usize| format!("{{\"a\":\"{}\"}}\n", "x".repeat(bytes));
        let two_fifths = large(BYTES_AT_ONCE * 2 / 5);
        let cases = [
            ("{}\n".repeat(AT_ONCE + 1), vec![AT_ONCE, 1]),
            (two_fifths.repeat(5), vec![2, 2, 1]),
            (format!("{{}}\n{}{{}}", large(2 * BYTES_AT_ONCE)), vec![1, 1, 1]),
        ];
        for (text, sizes) in cases {
            let written = events_of("f", &text).unwrap();
            let sent: Vec<&RawValue> = written.iter().map(|one| one.event).collect();
            let found: Vec<usize> = pieces(&sent).map(|piece| piece.len()).collect();
            assert_eq!(found, sizes);
        }
    }

    /// As a server answers it: what was taken with its warnings, what was not with its position.
    fn answer(accepted: &[(&str, &[&str])], rejected: &[(usize, &str)]) -> Taken {
        let taken = |(subject, warnings): &(&str, &[&str])| {
            json!({ "job": "job-1", "subject": subject,
                "new": true, "warnings": warnings })
        };
        let refused = |(index, subject): &(usize, &str)| {
            json!({ "index": index, "subject": subject, "code": "Missing", "path": "data.gang",
                "message": "is missing; send it" })
        };
        let accepted: Vec<_> = accepted.iter().map(taken).collect();
        let rejected: Vec<_> = rejected.iter().map(refused).collect();
        serde_json::from_value(json!({ "accepted": accepted, "rejected": rejected })).unwrap()
    }

    #[test]
    fn whatever_is_said_of_an_event_names_its_file_and_line() {
        let mut written = events_of("one.ndjson", "{\"n\": 1}\n\n{\"n\": 2}\n{\"n\": 3}\n").unwrap();
        written.extend(events_of("stdin", "[{\"n\": 4},\n  {\"n\": 5}, {\"n\": 6}]").unwrap());
        // Two requests, of four and of two events.
        let mut all = Answered::default();
        all.add(answer(&[("b", &["x is odd"]), ("d", &["y is odd", "z is odd"])], &[(0, "a"), (2, "c")]), 0, &written);
        all.add(answer(&[("f", &["w is odd"])], &[(0, "e")]), 4, &written);
        let said = [
            "warning: one.ndjson, line 3 (b): x is odd",
            "warning: stdin, line 1, column 2 (d): y is odd",
            "warning: stdin, line 1, column 2 (d): z is odd",
            "warning: stdin, line 2, column 13 (f): w is odd",
            "rejected: one.ndjson, line 1 (a): data.gang: is missing; send it",
            "rejected: one.ndjson, line 4 (c): data.gang: is missing; send it",
            "rejected: stdin, line 2 (e): data.gang: is missing; send it",
            MEND_TAKEN,
            MEND_REJECTED,
        ];
        assert_eq!(all.remarks(Paint::PLAIN), said);
        let json = serde_json::to_value(&all).unwrap();
        let places = |list: &str| -> Vec<serde_json::Value> {
            let list = json[list].as_array().unwrap();
            list.iter().map(|one| json!([one["file"], one["line"], one["column"], one["index"]])).collect()
        };
        assert_eq!(
            places("accepted"),
            [json!(["one.ndjson", 3, null, null]), json!(["stdin", 1, 2, null]), json!(["stdin", 2, 13, null])]
        );
        assert_eq!(
            places("rejected"),
            [json!(["one.ndjson", 1, null, 0]), json!(["one.ndjson", 4, null, 2]), json!(["stdin", 2, null, 4])]
        );
        assert_eq!((&json["accepted"][0]["subject"], &json["accepted"][0]["job"]), (&json!("b"), &json!("job-1")));
    }

    #[test]
    fn warnings_that_an_answer_has_no_room_for_are_told_of_and_no_answer_is_lost() {
        let written = events_of("f", "{}").unwrap();
        let mut all = Answered::default();
        // More than was asked.
        all.add(answer(&[("a", &["odd"; MOST_WARNINGS]), ("b", &[])], &[]), 0, &written);
        assert_eq!(all.accepted.len(), 2);
        let said = all.remarks(Paint::PLAIN);
        assert_eq!((said.len(), said[0].as_str()), (MOST_WARNINGS + 2, "warning: f, line 1 (a): odd"));
        assert!(said[MOST_WARNINGS].contains("there may be more"), "{said:?}");
        let mut none = Answered::default();
        none.add(answer(&[], &[(usize::MAX, "a")]), 1, &written);
        assert_eq!(none.remarks(Paint::PLAIN), ["rejected: a: data.gang: is missing; send it"]);
        // One that became a job is another one, or a rerun.
        none.rejected[0].event.job = Some("job-17".to_owned());
        let said = none.remarks(Paint::PLAIN);
        let end = " (job-17 is over with that: submit it mended, with `\"rerun\": true` in its `data`)";
        assert!(said[0].ends_with(end), "{said:?}");
    }

    #[test]
    fn an_error_between_two_requests_names_the_event_from_which_on_nothing_is_answered() {
        let written = events_of("f", "{}\n{}").unwrap();
        let lost = || ClientError::Unreachable { server: "http://s".to_owned(), why: "it is gone".to_owned() };
        let failure = unanswered(lost(), written.last());
        assert_eq!(failure.exit, Exit::Outside);
        assert!(
            failure.text.starts_with("no answer from http://s") && failure.text.contains("nothing from f, line 2 on"),
            "{}",
            failure.text
        );
        assert_eq!(unanswered(lost(), None).text, lost().to_string());
    }
}
