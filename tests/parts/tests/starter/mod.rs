//! A process that starts a part and is killed.
//!
//! Never: a check of process ids, which others may get; a port that refuses is the part's own word.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts `forebay-part`, kills it by SIGKILL, and waits until its part no longer answers and its folder is gone.
///
/// # Panics
/// When the part does not come up, or does not go.
pub fn dies_with_it(part: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let mut starter = Command::new(env!("CARGO_BIN_EXE_forebay-part"))
        .arg(part)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_start_matches("https://").to_owned();
    assert!(TcpStream::connect(&address).is_ok(), "{part} is at `{address}`");
    // `kill` is SIGKILL: no destructor runs.
    starter.kill().unwrap();
    starter.wait().unwrap();
    let start = Instant::now();
    let is_empty = || std::fs::read_dir(temporary.path()).unwrap().next().is_none();
    while TcpStream::connect(&address).is_ok() || !is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "{part} answers at {address}, or left its folder");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
