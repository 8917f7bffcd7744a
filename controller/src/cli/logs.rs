//! `forebay logs`: what the workers of a job have printed last; with `--follow`, what they print from then on.
//!
//! Never: a control character of a log in a terminal. What goes elsewhere goes as it is.

use super::Output;
use super::args::LogsArgs;
use super::outcome::{Exit, Failure, is_read, print, print_json};
use crate::api::client::{Client, ClientError};
use crate::api::logs::JobLogs;
use crate::cluster::logs::WorkerLog;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

/// Between two looks at logs that are followed.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &LogsArgs, out: Output) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let shown = Shown { terminal: std::io::stdout().is_terminal(), out };
    if args.follow {
        return follow(&client, args, shown);
    }
    let logs = client.logs(&args.job, &filter(args))?;
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

fn filter(args: &LogsArgs) -> String {
    let mut filter = format!("tail={}", args.tail);
    for (name, value) in [("worker", args.worker), ("attempt", args.attempt)] {
        if let Some(value) = value {
            filter.push_str(&format!("&{name}={value}"));
        }
    }
    filter
}

/// Prints what is new until the job is over, or the attempt that was asked for.
fn follow(client: &Client, args: &LogsArgs, shown: Shown) -> Result<Exit, Failure> {
    let mut before: Option<(u32, BTreeMap<u32, String>)> = None;
    loop {
        // Looked at first: what a job that is over has printed is complete.
        let job = client.job(&args.job)?;
        let over = job.terminal || args.attempt.is_some_and(|attempt| job.job.attempt.is_some_and(|now| now > attempt));
        match client.logs(&args.job, &filter(args)) {
            Ok(logs) => {
                let mut texts = match before.take() {
                    Some((attempt, texts)) if attempt == logs.attempt => texts,
                    other => {
                        shown.remarks(&logs);
                        if other.is_some() {
                            eprintln!("{}", shown.out.err.faint(&format!("attempt {}", logs.attempt)));
                        }
                        BTreeMap::new()
                    }
                };
                for log in logs.workers.iter().filter(|log| log.why.is_none()) {
                    let known = texts.entry(log.worker).or_default();
                    if !is_read(&shown.lines(grown(known, &log.text), prefix(&logs, log).as_deref()))? {
                        return Ok(Exit::Done);
                    }
                    known.clone_from(&log.text);
                }
                before = Some((logs.attempt, texts));
            }
            // Nothing has been printed yet.
            Err(ClientError::Refused { status: 404, body, .. }) if body.code == "NoLogs" && !over => {}
            Err(error) => return Err(error.into()),
        }
        if over {
            return Ok(Exit::Done);
        }
        std::thread::sleep(PAUSE);
    }
}

/// What is behind the known text. Both are ends of one log: the new one may begin later. Where they have nothing in common, all is new.
fn grown<'t>(known: &str, text: &'t str) -> &'t str {
    let mut rest = known;
    loop {
        if let Some(new) = text.strip_prefix(rest) {
            return new;
        }
        match rest.split_once('\n') {
            Some((_, later)) => rest = later,
            None => return text,
        }
    }
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
            let end = if text.ends_with('\n') { "" } else { "\n" };
            return format!("{text}{end}");
        };
        let prefix = self.out.paint.faint(prefix);
        text.lines().map(|line| format!("{prefix}{line}\n")).collect()
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
            ("", "a\n", "a\n"),
            ("a\n", "a\n", ""),
            ("a\n", "a\nb\n", "b\n"),
            ("a\nb\nc\n", "b\nc\nd\n", "d\n"),
            ("a\nb", "a\nbc\n", "c\n"),
            ("a\n", "x\ny\n", "x\ny\n"),
            ("a\nb", "x\n", "x\n"),
        ] {
            assert_eq!(grown(known, text), new, "{known:?} {text:?}");
        }
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
