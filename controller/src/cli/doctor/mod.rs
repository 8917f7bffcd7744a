//! `forebay doctor`: every connection and permission that a configuration needs, tried without changing anything.
//!
//! ```text
//! files: configuration, policy, secrets, submitters --.
//! machine: data folder, address ----------------------+--side by side, 20 s in all--> findings -> table or JSON, exit code
//! outside: what `sources::open` names ----------------'
//! ```
//!
//! Never: opens the journal, joins a group, receives or sends, or waits for an answer without an end.

mod files;
mod machine;
mod outside;

use super::Output;
use super::args::DoctorArgs;
use super::outcome::{Exit, Failure, print, print_json};
use crate::config::Config;
use crate::show::doctor::{Row, table, word};
use forebay_source::{Diagnostic, Severity};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

pub(super) use files::{configuration, secrets, submitters, summary};

/// For all that is tried, side by side. Every probe has a shorter limit of its own; this is for a file system that hangs, and for
/// clusters with so many topics that their answers add up.
const WITHIN: Duration = Duration::from_secs(20);

/// Where a finding has its ground, and with that who can mend it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// In the files: configuration, policy, secrets.
    Files,
    /// On this machine or beyond it: disks, ports, brokers, permissions.
    Outside,
}

/// One finding, and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Checked {
    group: String,
    /// What was tried, without what the group says already.
    label: String,
    ground: Ground,
    pub(super) finding: Diagnostic,
}

impl Checked {
    pub(super) fn new(group: &str, ground: Ground, finding: Diagnostic) -> Checked {
        Checked { group: group.to_owned(), label: finding.subject.clone(), ground, finding }
    }

    /// The same of a thing whose name says little without its group's.
    fn within(group: &str, ground: Ground, mut finding: Diagnostic) -> Checked {
        let label = std::mem::take(&mut finding.subject);
        finding.subject = format!("{group}: {label}");
        Checked { group: group.to_owned(), label, ground, finding }
    }
}

/// What machines get.
#[derive(Serialize)]
struct Report<'a> {
    findings: Vec<Line<'a>>,
    bad: usize,
    warnings: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    what: &'a str,
    /// `ok`, `warning`, `bad`.
    outcome: &'static str,
    said: &'a str,
}

pub(super) fn run(args: &DoctorArgs, out: Output) -> Result<Exit, Failure> {
    let all = examine(args.config.as_deref())?;
    let count = |outcome| all.iter().filter(|one| one.finding.severity == outcome).count();
    let (bad, warnings) = (count(Severity::Error), count(Severity::Warning));
    if args.json {
        let findings = all.iter().map(|Checked { finding: Diagnostic { subject, severity, message }, .. }| Line {
            what: subject,
            outcome: word(*severity),
            said: message,
        });
        print_json(&Report { findings: findings.collect(), bad, warnings })?;
    } else {
        let rows: Vec<Row<'_>> =
            all.iter().map(|Checked { group, label, finding, .. }| Row { group, label, finding }).collect();
        print(&format!("{}\n", table(&rows, crate::show::table::terminal_width(), out.paint)))?;
    }
    let is_bad = |ground| all.iter().any(|one| one.finding.severity == Severity::Error && one.ground == ground);
    Ok(match (is_bad(Ground::Files), is_bad(Ground::Outside)) {
        (true, _) => Exit::BadInput,
        (false, true) => Exit::Outside,
        (false, false) => Exit::Done,
    })
}

/// Tries everything. Findings come in the order in which a person would mend them.
fn examine(path: Option<&Path>) -> Result<Vec<Checked>, Failure> {
    let config = match configuration(path) {
        Ok(config) => Arc::new(config),
        Err(failure) => {
            let finding = Diagnostic::error("configuration", plain(&failure.text));
            return Ok(vec![Checked::new(files::GROUP, Ground::Files, finding)]);
        }
    };
    let name = path.map_or_else(|| "defaults, no file is named".to_owned(), |path| path.display().to_string());
    let said = format!("{name}: {}", summary(&config));
    let mut all = vec![Checked::new(files::GROUP, Ground::Files, Diagnostic::ok("configuration", said))];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Failure::outside)?;
    let mut tasks = Vec::new();
    type Work = fn(&Config) -> Vec<Checked>;
    let own: [(&str, Work); 4] = [
        (files::GROUP, files::policy),
        (files::GROUP, |config| secrets(config, Severity::Error)),
        (machine::DATA, machine::data),
        (machine::LISTEN, machine::listen),
    ];
    for (group, work) in own {
        let config = Arc::clone(&config);
        tasks.push(Task::start(group.to_owned(), move || work(&config))?);
    }
    tasks.extend(outside::start(&config, runtime.handle())?);
    let end = Instant::now() + WITHIN;
    all.extend(tasks.into_iter().flat_map(|task| task.findings(end)));
    // What has not ended by now is not waited for.
    runtime.shutdown_background();
    Ok(all)
}

/// A part of the examination, on a thread of its own.
struct Task {
    group: String,
    from: Receiver<Vec<Checked>>,
}

impl Task {
    fn start(group: String, work: impl FnOnce() -> Vec<Checked> + Send + 'static) -> Result<Task, Failure> {
        let (to, from) = sync_channel(1);
        let spawned = std::thread::Builder::new().name("doctor".to_owned()).spawn(move || {
            // Nobody waits any more: it took too long, which has been said.
            let _ = to.send(work());
        });
        spawned
            .map_err(|e| Failure::outside(format_args!("no thread for {group}: {e}: raise the limit of processes")))?;
        Ok(Task { group, from })
    }

    /// What it found by then.
    fn findings(self, end: Instant) -> Vec<Checked> {
        let said = match self.from.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(findings) => return findings,
            Err(RecvTimeoutError::Timeout) => {
                format!(
                    "not done within {} s: something in it does not answer; try again, or look there",
                    WITHIN.as_secs()
                )
            }
            Err(RecvTimeoutError::Disconnected) => {
                "ended by a fault of this program; its message is on standard error: please report it".to_owned()
            }
        };
        vec![Checked::new(&self.group, Ground::Outside, Diagnostic::error(self.group.clone(), said))]
    }
}

/// A failure's text without the heading that it may bring.
fn plain(text: &str) -> String {
    text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_or_breaks_is_told_and_not_waited_for() {
        let (held, holds) = sync_channel::<()>(0);
        let slow = Task::start("slow".to_owned(), move || {
            let _ = holds.recv();
            Vec::new()
        });
        let found = slow.unwrap().findings(Instant::now());
        assert!(
            found[0].finding.message.contains("not done within 20 s") && found[0].ground == Ground::Outside,
            "{found:?}"
        );
        drop(held);
        let broken = Task::start("broken".to_owned(), || panic!("a fault of the test's own")).unwrap();
        let found = broken.findings(Instant::now() + WITHIN);
        assert!(found[0].finding.message.contains("please report it"), "{found:?}");
    }
}
