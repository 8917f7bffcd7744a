//! `forebay logs`: what the workers of a job have printed last; with `--follow`, what they print from then on.
//!
//! ```text
//! follow: the job -> its attempts since the one that was shown last -> the end of each worker's log -> what is behind the known end of it
//! ```
//!
//! Never: a control character of a log in a terminal. What goes elsewhere goes as it is. A line twice while it is followed, or one left out
//! without a word.

use super::Output;
use super::args::{LogsArgs, MOST_LINES};
use super::connection::Connection;
use super::outcome::{Exit, Failure, is_read, print, print_json};
use crate::api::client::{Client, ClientError};
use crate::api::logs::JobLogs;
use crate::cluster::logs::WorkerLog;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Between two looks at logs that are followed.
const PAUSE: Duration = Duration::from_secs(2);

/// So many bytes of a line are found again in it: ten updates of a bar that shows progress, and no two say the same.
const PART: usize = 1 << 10;

pub(super) fn run(args: &LogsArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let shown = Shown { terminal: std::io::stdout().is_terminal(), out };
    if args.follow {
        return follow(&client, args, shown);
    }
    let logs = client.logs(&args.job, &filter(args, args.attempt, args.tail))?;
    if args.server.json {
        print_json(&logs)?;
        return Ok(Exit::Done);
    }
    shown.remarks(&logs);
    for log in &logs.workers {
        print(&shown.lines(&log.text, prefix(&logs, log).as_deref()))?;
    }
    Ok(Exit::Done)
}

fn filter(args: &LogsArgs, attempt: Option<u32>, lines: u32) -> String {
    let mut filter = format!("tail={lines}");
    for (name, value) in [("worker", args.worker), ("attempt", attempt)] {
        if let Some(value) = value {
            filter.push_str(&format!("&{name}={value}"));
        }
    }
    filter
}

/// Prints what is new until the job is over, or the attempt that was asked for.
fn follow(client: &Client, args: &LogsArgs, shown: Shown) -> Result<Exit, Failure> {
    let connection = Connection::new(shown.out);
    let mut follower = Follower { client, args, shown, connection, attempt: None, known: BTreeMap::new() };
    'looks: loop {
        // Looked at first: what a job that is over has printed is complete.
        let Some(job) = follower.connection.answer(client.job(&args.job))? else { continue };
        let last = args.attempt.or(job.job.attempt).filter(|attempt| *attempt > 0);
        let over = job.terminal || args.attempt.is_some_and(|attempt| job.job.attempt.is_some_and(|now| now > attempt));
        match last {
            Some(last) => {
                // What earlier attempts printed at their end, while nobody looked, comes first.
                for attempt in follower.attempt.unwrap_or(last)..=last {
                    match follower.look(attempt, over, attempt < last)? {
                        Looked::Shown => {}
                        Looked::Lost => continue 'looks,
                        Looked::Unread => return Ok(Exit::Done),
                    }
                }
            }
            // It never ran, which the server says.
            None if over => return Err(no_log(client.logs(&args.job, &filter(args, None, args.tail)))),
            None => {}
        }
        if over {
            return Ok(Exit::Done);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why there is no log of a job that is over and never ran.
fn no_log(answer: Result<JobLogs, ClientError>) -> Failure {
    match answer {
        Err(error) => error.into(),
        Ok(logs) => {
            Failure::outside(format_args!("{}: it is over, and its state names no attempt: ask again", logs.job))
        }
    }
}

/// How a look at what is followed ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    /// All that there is was shown.
    Shown,
    /// There was no answer, and a pause.
    Lost,
    /// Nobody reads any more.
    Unread,
}

/// What has been shown of a job that is followed.
struct Follower<'a> {
    client: &'a Client,
    args: &'a LogsArgs,
    shown: Shown,
    connection: Connection,
    /// The attempt that was shown last.
    attempt: Option<u32>,
    /// The ends of its logs, by worker.
    known: BTreeMap<u32, String>,
}

impl Follower<'_> {
    /// Shows what is new of an attempt. One that is past, or whose job is over, prints nothing more: its last line is whole.
    fn look(&mut self, attempt: u32, over: bool, past: bool) -> Result<Looked, Failure> {
        // As much as there is: what was printed meanwhile has to reach back to what is known.
        let mut logs = match self.client.logs(&self.args.job, &filter(self.args, Some(attempt), MOST_LINES)) {
            // Nothing has been printed yet, nothing is kept of an attempt that is past, or one after those that were shown never printed.
            Err(ClientError::Refused { status: 404, body, .. })
                if body.code == "NoLogs" && (past || !over || self.attempt.is_some_and(|shown| shown < attempt)) =>
            {
                self.connection.heard();
                return Ok(Looked::Shown);
            }
            answer => match self.connection.answer(answer)? {
                Some(logs) => logs,
                None => return Ok(Looked::Lost),
            },
        };
        let lines = if self.attempt.is_none() { self.args.tail } else { MOST_LINES };
        if self.attempt != Some(attempt) {
            for log in &mut logs.workers {
                log.truncated |= last_lines(&log.text, lines).len() < log.text.len();
            }
            self.shown.remarks(&logs);
            if self.attempt.replace(attempt).is_some() {
                eprintln!("{}", self.shown.out.err.faint(&format!("attempt {attempt}")));
            }
            self.known.clear();
        }
        for log in logs.workers.iter().filter(|log| log.why.is_none()) {
            let text = if over || past { log.text.as_str() } else { whole_lines(&log.text) };
            if text.is_empty() {
                continue;
            }
            let known = self.known.entry(log.worker).or_default();
            let new = grown(known, text).unwrap_or_else(|| {
                if log.truncated {
                    self.shown.say_missing(log.worker);
                }
                text
            });
            if !is_read(&self.shown.lines(last_lines(new, lines), prefix(&logs, log).as_deref()))? {
                return Ok(Looked::Unread);
            }
            text.clone_into(known);
        }
        Ok(Looked::Shown)
    }
}

/// The lines that are whole: what is behind the last end of one may still grow. A carriage return ends a line too, for bars that show progress; the
/// very last one may be half of an end.
fn whole_lines(text: &str) -> &str {
    let settled = text.strip_suffix('\r').unwrap_or(text);
    settled.rfind(['\n', '\r']).map_or("", |at| &text[..=at])
}

/// The last lines of a text.
fn last_lines(text: &str, lines: u32) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let before = (lines as usize).saturating_sub(1);
    body.rmatch_indices('\n').nth(before).map_or(text, |(at, _)| &text[at + 1..])
}

/// What is behind the known text. Both are ends of one log: the new one may begin later. `None`: they have nothing in common.
fn grown<'t>(known: &str, text: &'t str) -> Option<&'t str> {
    if known.is_empty() {
        return Some(text);
    }
    let mut rest = known;
    while !rest.is_empty() {
        if let Some(new) = text.strip_prefix(rest) {
            return Some(new);
        }
        rest = rest.split_once('\n').map_or("", |(_, later)| later);
    }
    // A bar that shows progress is one line, soon longer than what is kept: then the text begins within it.
    let part = &known[known.floor_char_boundary(known.len().saturating_sub(PART))..];
    let at = text.find(part).filter(|_| part.len() >= PART && !part.contains('\n'))?;
    Some(&text[at + part.len()..])
}

/// What stands before the lines of a worker. `None`: there is one worker only.
fn prefix(logs: &JobLogs, log: &WorkerLog) -> Option<String> {
    (logs.workers.len() + logs.omitted > 1).then(|| format!("w{} | ", log.worker))
}

/// How it is shown.
#[derive(Clone, Copy)]
struct Shown {
    terminal: bool,
    out: Output,
}

impl Shown {
    /// Lines with what stands before each.
    fn lines(self, text: &str, prefix: Option<&str>) -> String {
        if text.is_empty() {
            return String::new();
        }
        let text = if self.terminal { harmless(text) } else { text.to_owned() };
        let Some(prefix) = prefix else {
            let end = if text.ends_with(['\n', '\r']) { "" } else { "\n" };
            return format!("{text}{end}");
        };
        let prefix = self.out.paint.faint(prefix);
        text.lines().map(|line| format!("{prefix}{line}\n")).collect()
    }

    /// That lines of a log were printed and are kept nowhere any more.
    fn say_missing(self, worker: u32) {
        let text = format!(
            "worker {worker}: lines are missing here: more was printed since the last look than is kept of a log, its last 64 KiB"
        );
        eprintln!("{}", self.out.err.warn(&text));
    }

    /// What a reader should know beside the lines.
    fn remarks(self, logs: &JobLogs) {
        let say = |text: &str| eprintln!("{}", self.out.err.faint(text));
        for log in &logs.workers {
            if let Some(why) = &log.why {
                say(&format!("worker {}: no log: {}", log.worker, crate::show::figures::short(why, 400)));
            } else if log.truncated {
                say(&format!("worker {}: there is more before this", log.worker));
            }
        }
        if logs.omitted > 0 {
            say(&format!("{} more workers are left out: name one with --worker", logs.omitted));
        }
    }
}

/// The text for a terminal: a carriage return begins a new line, other control characters but tabs are replaced.
fn harmless(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\r' => '\n',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::logs::LogSource;
    use crate::show::Paint;

    const OUT: Output = Output { paint: Paint::PLAIN, err: Paint::PLAIN };

    #[test]
    fn what_is_new_of_a_log_is_what_is_behind_the_known_end() {
        for (known, text, new) in [
            ("", "a\n", Some("a\n")),
            ("a\n", "a\n", Some("")),
            ("a\n", "a\nb\n", Some("b\n")),
            ("a\nb\nc\n", "b\nc\nd\n", Some("d\n")),
            ("a\nb", "a\nbc\n", Some("c\n")),
            ("a\n", "x\ny\n", None),
            ("a\nb", "x\n", None),
        ] {
            assert_eq!(grown(known, text), new, "{known:?} {text:?}");
        }
    }

    #[test]
    fn a_bar_that_is_longer_than_what_is_kept_is_not_shown_again() {
        let bar = |updates: std::ops::Range<u32>| updates.map(|n| format!("{n:>99}%\r")).collect::<String>();
        assert_eq!(grown(&bar(0..200), &bar(100..300)), Some(bar(200..300).as_str()));
        assert_eq!(grown(&bar(0..100), &bar(200..300)), None);
    }

    #[test]
    fn a_line_that_grows_is_not_shown_in_parts_and_progress_is() {
        for (text, whole) in [
            ("a\nhal", "a\n"),
            ("hal", ""),
            ("a\r\nb\r", "a\r\n"),
            ("\r 10%\r 20%\r 3", "\r 10%\r 20%\r"),
            ("a\n", "a\n"),
        ] {
            assert_eq!(whole_lines(text), whole, "{text:?}");
        }
        let bar = Shown { terminal: false, out: OUT };
        assert_eq!(bar.lines("\r 10%\r", None), "\r 10%\r", "what goes elsewhere goes as it is");
    }

    #[test]
    fn the_last_lines_are_as_many_as_were_asked_for() {
        for (lines, last) in [(1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")] {
            assert_eq!(last_lines("a\nb\nc\n", lines), last, "{lines}");
        }
        assert_eq!(last_lines("a\nb", 1), "b");
    }

    #[test]
    fn a_log_cannot_drive_a_terminal_and_a_file_gets_it_as_it_is() {
        let evil = "a\u{1b}]0;title\u{7}\tb\r\n50%\r60%\n\u{9b}2J";
        let terminal = Shown { terminal: true, out: OUT };
        assert_eq!(terminal.lines(evil, None), "a\u{fffd}]0;title\u{fffd}\tb\n50%\n60%\n\u{fffd}2J\n");
        let file = Shown { terminal: false, out: OUT };
        assert_eq!(file.lines(evil, None), format!("{evil}\n"));
    }

    #[test]
    fn lines_of_several_workers_name_theirs() {
        let log =
            |worker| WorkerLog { worker, source: LogSource::Live, text: String::new(), truncated: false, why: None };
        let of = |workers: Vec<WorkerLog>| JobLogs { job: "job-1".to_owned(), attempt: 1, workers, omitted: 0 };
        assert_eq!(prefix(&of(vec![log(3)]), &log(3)), None);
        let two = of(vec![log(0), log(1)]);
        let shown = Shown { terminal: true, out: OUT };
        assert_eq!(shown.lines("a\nb\n", prefix(&two, &log(1)).as_deref()), "w1 | a\nw1 | b\n");
    }
}
