//! Running other programs: printed first, then run from the workspace's root.
//!
//! Never through a shell, so nothing needs quoting and nothing is expanded.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;

/// The cargo that started this chore, or the one on the path.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
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
    // Cargo hands its own full path to what it starts; nobody types that.
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
pub fn run(command: &mut Command) -> Result<(), Failure> {
    eprintln!("$ {}", shown(command));
    let status = command.status().map_err(|e| cannot_start(command, &e))?;
    if status.success() { Ok(()) } else { Err(ended(command, &status)) }
}

/// Prints the command, runs it, and hands each line of its output to `line` besides printing it.
pub fn run_reading(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), Failure> {
    eprintln!("$ {}", shown(command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| cannot_start(command, &e))?;
    let output = child.stdout.take().ok_or_else(|| Failure::new("no pipe to the command's output"))?;
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.read_until(b'\n', &mut bytes);
        if read.map_err(|e| Failure::new(format!("{}: reading its output: {e}", shown(command))))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        print!("{text}");
        line(text.trim_end());
    }
    let status = child.wait().map_err(|e| cannot_start(command, &e))?;
    if status.success() { Ok(()) } else { Err(ended(command, &status)) }
}

/// Runs the command without printing it and returns what it wrote to its standard output.
pub fn capture(command: &mut Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| cannot_start(command, &e))?;
    if !output.status.success() {
        return Err(ended(command, &output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::new(format!("{}: its output is not UTF-8", shown(command))))
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

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: cannot be run: {error}", shown(command)))
}

fn ended(command: &Command, status: &std::process::ExitStatus) -> Failure {
    Failure::new(format!("{}: {status}", shown(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "-p", "forebay-engine", "--", "two words", "it's"]).env("FOREBAY_BIN", "/a b");
        assert_eq!(shown(&command), r"FOREBAY_BIN='/a b' cargo test -p forebay-engine -- 'two words' 'it'\''s'");
    }
}
