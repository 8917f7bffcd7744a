//! Running other programs: printed first, then run from the workspace's root.
//!
//! Never through a shell, so nothing needs quoting and nothing is expanded.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::ChoreFailure;

/// The cargo that started this chore, or the one on the path.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Git on a repository.
pub fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    command
}

/// The command as a person would type it, with the variables that were set for it.
pub fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    // Cargo passes its own full path to what it starts; nobody types that.
    let program = Path::new(command.get_program());
    let is_cargo = program.file_stem().is_some_and(|stem| stem == "cargo");
    words.push(if is_cargo { "cargo".to_owned() } else { quoted(&program.to_string_lossy()) });
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

/// One word, quoted where a shell would take it apart.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Prints the command, runs it with its output passed through, and fails unless it exits with 0.
pub fn run(command: &mut Command) -> Result<(), ChoreFailure> {
    eprintln!("$ {}", shown(command));
    let status = command.status().map_err(|e| cannot_start(command, &e))?;
    succeeded(command, status)
}

/// Prints the command, runs it, prints its output and its errors in the order in which they come, and gives each line to `line`
/// with the time since the command began.
pub fn run_reading(command: &mut Command, mut line: impl FnMut(&str, Duration)) -> Result<(), ChoreFailure> {
    eprintln!("$ {}", shown(command));
    let begun = Instant::now();
    let (reader, writer) = std::io::pipe().map_err(|e| cannot_start(command, &e))?;
    let errors = writer.try_clone().map_err(|e| cannot_start(command, &e))?;
    let mut child = command.stdout(writer).stderr(errors).spawn().map_err(|e| cannot_start(command, &e))?;
    // `command` holds the writing ends until it gets others, and the pipe ends when all of them are closed.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let read = read_lines(reader, |text| line(text, begun.elapsed()));
    read.map_err(|e| ChoreFailure::new(format!("{}: reading its output: {e}", shown(command))))?;
    let status = child.wait().map_err(|e| cannot_start(command, &e))?;
    succeeded(command, status)
}

fn read_lines(output: impl Read, mut line: impl FnMut(&str)) -> std::io::Result<()> {
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes);
        print!("{text}");
        line(text.trim_end());
    }
}

/// Runs the command without printing it and returns what it wrote to its standard output.
pub fn capture(command: &mut Command) -> Result<String, ChoreFailure> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| cannot_start(command, &e))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout)
        .map_err(|_| ChoreFailure::new(format!("{}: its output is not UTF-8", shown(command))))
}

/// As [`capture`], but what was written before the command failed comes as well.
pub fn capture_all(command: &mut Command) -> (String, Result<(), ChoreFailure>) {
    match command.stderr(Stdio::inherit()).output() {
        Err(error) => (String::new(), Err(cannot_start(command, &error))),
        Ok(output) => (String::from_utf8_lossy(&output.stdout).into_owned(), succeeded(command, output.status)),
    }
}

/// Whether the command can be started and exits with 0; its output is dropped.
pub fn answers(words: &[&str]) -> bool {
    let Some((program, args)) = words.split_first() else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> ChoreFailure {
    ChoreFailure::new(format!("{}: cannot be run: {error}", shown(command)))
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<(), ChoreFailure> {
    if status.success() { Ok(()) } else { Err(ChoreFailure::new(format!("{}: {status}", shown(command)))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_errors_are_read_in_the_order_in_which_they_come() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let mut lines = Vec::new();
        let ended = run_reading(&mut command, |line, _| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "two", "three"]);
        assert!(ended.unwrap_err().message.ends_with("exit status: 3"));
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "-p", "forebay-engine", "--", "two words", "it's"]).env("FOREBAY_BIN", "/a b");
        assert_eq!(shown(&command), r"FOREBAY_BIN='/a b' cargo test -p forebay-engine -- 'two words' 'it'\''s'");
    }
}
