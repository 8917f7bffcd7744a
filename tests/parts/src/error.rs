//! Why a part is not there or does not run, in words that end with what to do about it.
//!
//! Never: a password, or the environment of a process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why a part could not be installed, started, asked or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartError {
    /// A program that this machine does not have.
    #[error("{what} is not here, and {why}; get it: {how}")]
    Missing {
        /// The program, with the versions that will do.
        what: &'static str,
        /// What it is for.
        why: &'static str,
        /// How to install it.
        how: &'static str,
    },
    /// Neither variable that names the cache is set.
    #[error("no folder to install into: neither FOREBAY_CACHE nor HOME is set; set FOREBAY_CACHE to a folder")]
    NoCache,
    /// A file or folder that could not be read or written.
    #[error("{}: {source}; it must be a place that can be written and has free space", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A process that could not be started, signalled or waited for.
    #[error("{what}: {source}")]
    Process {
        /// The program, or what was asked of it.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process installs the same part and does not come to an end.
    #[error("{} has been held for {limit:?} by another process that installs the same; end that process, then try again", lock.display())]
    Locked {
        /// The lock's file.
        lock: PathBuf,
        /// How long this process waited.
        limit: Duration,
    },
    /// A command that ended with something else than 0, or not within its limit.
    #[error("`{command}` {ended}; its last lines:\n{tail}")]
    Command {
        /// The command, shortened to what identifies it.
        command: String,
        /// How it ended.
        ended: String,
        /// The end of its output.
        tail: String,
    },
    /// A server that did not come up.
    #[error("{part} {why}; the last lines of its log:\n{tail}")]
    NotReady {
        /// Which part.
        part: &'static str,
        /// What was seen instead.
        why: String,
        /// The end of its log.
        tail: String,
    },
    /// A port that was asked for and is taken.
    #[error("port {port} of 127.0.0.1 is taken; end what listens there, or choose another port")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// No free port was found.
    #[error("no free port among {tried} of 127.0.0.1; end servers that are no longer needed")]
    NoPort {
        /// How many were tried.
        tried: usize,
    },
    /// A server that is not running was asked for something.
    #[error("{part} is not running; restart it first")]
    NotRunning {
        /// Which part.
        part: &'static str,
    },
}

impl PartError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }

    pub(crate) fn process(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Process { what: what.into(), source }
    }
}
