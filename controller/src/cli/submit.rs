//! `forebay submit`: sends events to a running Forebay, as they are, and waits for their jobs where it is asked to.
//!
//! Never: judges them, or reads them for the server: what is sent is what was written. The server's intake judges, the same for every way in.

use super::Output;
use super::args::SubmitArgs;
use super::outcome::{Exit, Failure, print, print_json, read};
use super::wait::{exit_of, say_late, until_over};
use crate::api::client::Client;
use crate::api::events::Taken;
use crate::show::figures::short;
use serde_json::value::RawValue;
use std::time::Instant;

/// Events a request at most: an eighth of what the server takes.
const AT_ONCE: usize = 2_000;

/// Bytes of the events of a request at most: a quarter of what the server takes.
const BYTES_AT_ONCE: usize = 1 << 20;

pub(super) fn run(args: &SubmitArgs, out: Output) -> Result<Exit, Failure> {
    let file = args.file.display().to_string();
    let text = read(&args.file)?;
    let written = events(&file, &text)?;
    let place = |at: usize| match written.get(at) {
        Some(WrittenEvent { line: Some(line), .. }) => format!("{file}, line {line}"),
        _ => format!("{file}, event {}", at + 1),
    };
    let events: Vec<&RawValue> = written.iter().map(|one| one.event).collect();
    let client = args.server.client()?;
    let end = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let (mut all, mut sent) = (Taken::default(), 0);
    for piece in pieces(&events) {
        let body = serde_json::to_vec(piece).map_err(Failure::outside)?;
        let taken = match client.events("application/cloudevents-batch+json", &body) {
            Ok(taken) => taken,
            Err(error) => {
                say(args, &all, &place, out)?;
                return Err(error.into());
            }
        };
        all.accepted.extend(taken.accepted);
        all.rejected.extend(taken.rejected.into_iter().map(|mut event| {
            event.index += sent;
            event
        }));
        sent += piece.len();
    }
    // With --wait, what becomes of them is the JSON.
    if !(args.wait && args.server.json) {
        say(args, &all, &place, out)?;
    }
    let over = if args.wait { wait(args, &client, &all, end, out)? } else { Exit::Done };
    Ok(if all.rejected.is_empty() { over } else { Exit::BadInput })
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
fn wait(args: &SubmitArgs, client: &Client, taken: &Taken, end: Option<Instant>, out: Output) -> Result<Exit, Failure> {
    let mut jobs: Vec<&String> = taken.accepted.iter().filter_map(|event| event.job.as_ref()).collect();
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

fn say(args: &SubmitArgs, taken: &Taken, place: &dyn Fn(usize) -> String, out: Output) -> Result<(), Failure> {
    if args.server.json {
        return print_json(taken);
    }
    let mut text = String::new();
    for event in &taken.accepted {
        let job = event.job.as_deref().unwrap_or("-");
        let known = if event.new { "" } else { "  (known already)" };
        text.push_str(&format!(
            "{}  {}{known}\n",
            out.paint.strong(job),
            short(event.subject.as_deref().unwrap_or("-"), 80)
        ));
    }
    print(&text)?;
    for event in &taken.accepted {
        let subject = event.subject.as_deref().map(|s| format!("{}: ", short(s, 60))).unwrap_or_default();
        for warning in &event.warnings {
            eprintln!("{} {subject}{warning}", out.err.warn("warning:"));
        }
    }
    for event in &taken.rejected {
        let subject = event.subject.as_deref().map(|s| format!(" ({})", short(s, 60))).unwrap_or_default();
        let place = place(event.index);
        eprintln!("{} {place}{subject}: {}: {}", out.err.bad("rejected:"), event.path, event.message);
    }
    Ok(())
}

/// An event of a file.
#[derive(Debug)]
struct WrittenEvent<'a> {
    /// As it is written there: a field that is given twice is for the intake to refuse.
    event: &'a RawValue,
    /// The line that it begins on. `None`: it is one of an array.
    line: Option<usize>,
}

/// One object, an array, or one object after the other.
fn events<'a>(name: &str, text: &'a str) -> Result<Vec<WrittenEvent<'a>>, Failure> {
    let no_json = |e: serde_json::Error| {
        Failure::input(format_args!("{name}: not JSON: {e}: send one object, an array of them, or one a line"))
    };
    let mut events = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&'a RawValue>();
    // Lines are counted on, not each time from the beginning.
    let (mut counted, mut line) = (0, 1);
    loop {
        let at = stream.byte_offset();
        let begins = at + (text[at..].len() - text[at..].trim_start().len());
        line += text[counted..begins].matches('\n').count();
        counted = begins;
        let Some(event) = stream.next() else { return Ok(events) };
        let event = event.map_err(no_json)?;
        match event.get().as_bytes().first() {
            Some(b'[') => {
                let list: Vec<&RawValue> = serde_json::from_str(event.get()).map_err(no_json)?;
                events.extend(list.into_iter().map(|event| WrittenEvent { event, line: None }));
            }
            Some(b'{') => events.push(WrittenEvent { event, line: Some(line) }),
            _ => {
                return Err(Failure::input(format_args!(
                    "{name}, line {line}: not a JSON object: send events, see `forebay schema event`"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_was_written() {
        let text = "{\"a\": 1, \"a\": 2}\n[{\"b\":1.50}, 7]";
        let events = events("f", text).unwrap();
        let sent: Vec<&RawValue> = events.iter().map(|one| one.event).collect();
        assert_eq!(serde_json::to_string(&sent).unwrap(), "[{\"a\": 1, \"a\": 2},{\"b\":1.50},7]");
    }

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
            let written = events("f", &text).unwrap();
            let sent: Vec<&RawValue> = written.iter().map(|one| one.event).collect();
            let found: Vec<usize> = pieces(&sent).map(|piece| piece.len()).collect();
            assert_eq!(found, sizes);
        }
    }

    #[test]
    fn each_event_is_known_by_the_line_that_it_begins_on() {
        let text = "\n{\"a\": 1}\n{\n \"b\": 2\n}  {\"c\": 3}\n\n[{\"d\": 4}]\n{\"e\": 5}";
        let lines: Vec<Option<usize>> = events("f", text).unwrap().iter().map(|one| one.line).collect();
        assert_eq!(lines, [Some(2), Some(3), Some(5), None, Some(8)]);
        let error = events("f", "{\"a\": 1").unwrap_err();
        assert!(error.text.starts_with("f: not JSON: "), "{}", error.text);
        let error = events("f", "{}\n\n17").unwrap_err();
        assert!(error.text.starts_with("f, line 3: not a JSON object"), "{}", error.text);
    }
}
