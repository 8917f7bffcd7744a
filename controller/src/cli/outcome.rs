//! How a command ends: exit codes, and failures that say what, where, and how to mend it.
//!
//! Never: one code for two meanings. `forebay --help` lists them.

use crate::api::client::ClientError;
use crate::journal::{JournalError, StorageFailure};
use crate::key::KeyError;
use crate::segments::SegmentError;
use crate::show::Paint;
use crate::status::StatusError;
use forebay_wire::document::DocumentFault;
use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Done as asked.
    Done = 0,
    /// The run found violations or lost work, or this program did something wrong.
    Violations = 1,
    /// Bad input: what, where and how to mend it went to stderr.
    BadInput = 2,
    /// `wait`: the job failed, or was rejected.
    JobFailed = 3,
    /// `wait`: the job was cancelled.
    JobCancelled = 4,
    /// `wait`: it was not over in time.
    TimedOut = 5,
    /// Something outside failed: no answer from the server, a full or failing disk, a folder that may not be written to, a port in use.
    Outside = 6,
}

impl Exit {
    /// How a command ends that could not read or write what a Forebay keeps: the disk and the file system are outside, what lies there is input, and
    /// what this program did wrong is a violation.
    #[must_use]
    pub fn of_storage(failure: &(dyn StorageFailure + 'static)) -> Exit {
        let error: &(dyn std::error::Error + 'static) = failure;
        if let Some(error) = error.downcast_ref::<JournalError>() {
            return Exit::of_journal(error);
        }
        let is_outside = failure.is_full()
            || matches!(error.downcast_ref::<SegmentError>(), Some(SegmentError::Io { .. }))
            || matches!(error.downcast_ref::<StatusError>(), Some(StatusError::Segments(SegmentError::Io { .. })))
            || matches!(error.downcast_ref::<KeyError>(), Some(KeyError::Io { .. }));
        match failure.is_for_the_caller() {
            _ if is_outside => Exit::Outside,
            true => Exit::BadInput,
            false => Exit::Violations,
        }
    }

    fn of_journal(error: &JournalError) -> Exit {
        match error {
            JournalError::Full { .. }
            | JournalError::ReadOnly { .. }
            | JournalError::Io { .. }
            | JournalError::Sqlite { .. } => Exit::Outside,
            error if error.is_for_the_caller() => Exit::BadInput,
            _ => Exit::Violations,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The code to end with.
    pub exit: Exit,
    /// What, where, and what to do about it.
    pub text: String,
}

impl Failure {
    /// Bad input.
    pub fn input(text: impl fmt::Display) -> Failure {
        Failure { exit: Exit::BadInput, text: text.to_string() }
    }

    /// Bad input in a file.
    pub fn in_file(path: &std::path::Path, fault: &DocumentFault) -> Failure {
        Failure::input(format_args!("{}: {fault}", path.display()))
    }

    /// Something outside.
    pub fn outside(text: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Outside, text: text.to_string() }
    }

    /// What a Forebay keeps could not be read or written.
    pub fn storage(error: &(dyn StorageFailure + 'static)) -> Failure {
        Failure { exit: Exit::of_storage(error), text: error.to_string() }
    }

    /// A folder that could not be made or written to: what is no folder is a wrong path, all else is the file system's.
    pub fn folder(path: &std::path::Path, error: &std::io::Error) -> Failure {
        use std::io::ErrorKind::{AlreadyExists, InvalidFilename, NotADirectory};
        let remedy = "give a folder that can be made and written to";
        let text = format!("{}: {}: {remedy}", path.display(), plain(error));
        match error.kind() {
            AlreadyExists | InvalidFilename | NotADirectory => Failure::input(text),
            _ => Failure::outside(text),
        }
    }

    /// Says it on stderr.
    pub fn print(&self, paint: Paint) {
        // Texts that bring their own heading keep it.
        let text = self.text.strip_prefix("error: ").unwrap_or(&self.text);
        eprintln!("{} {text}", paint.bad("error:"));
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = match &error {
            ClientError::Refused { status, .. } if *status < 500 && *status != 429 => Exit::BadInput,
            _ => Exit::Outside,
        };
        Failure { exit, text: error.to_string() }
    }
}

/// Reads a file as it is. `-` is stdin.
///
/// # Errors
/// When there is no such file or it may not be read; exit 2, with the path.
pub fn read_bytes(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| Failure::outside(format_args!("stdin: {e}")))?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|e| {
        let remedy = "check the path (relative paths start at the current folder) and that you may read it";
        Failure::input(format_args!("{}: {}: {remedy}", path.display(), plain(&e)))
    })
}

/// What editors on Windows begin a file of text with. It says nothing, and no reader of JSON takes it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// What messages call a file. `-` is stdin.
#[must_use]
pub fn name_of(path: &std::path::Path) -> String {
    if path.as_os_str() == "-" { "stdin".to_owned() } else { path.display().to_string() }
}

/// Reads a file of text, without a byte order mark. `-` is stdin.
///
/// # Errors
/// As [`read_bytes`], and when the file is empty or is not UTF-8; the line is named.
pub fn read(path: &std::path::Path) -> Result<String, Failure> {
    let mut bytes = read_bytes(path)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::input(format_args!(
            "{}: the file is empty: check that it was written in full",
            name_of(path)
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        Failure::input(format_args!("{}, line {line}: not UTF-8 text: give a text file, unpacked", name_of(path)))
    })
}

/// An error of the system without its number.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "this is a folder".to_owned(),
        _ => error.to_string(),
    }
}

/// Writes a file whole or not at all: first beside it, then in its place.
///
/// # Errors
/// When the folder cannot be written to; the file is then as it was.
pub fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::outside(format_args!("{}: {}: give another path", path.display(), plain(&e)));
    if path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        // A pipe or a device is written to as it is.
        return if path.as_os_str() == "-" { print(text) } else { std::fs::write(path, text).map_err(failed) };
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = path.with_file_name(name);
    let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path));
    written.map_err(|e| {
        // The draft may not even be there.
        let _ = std::fs::remove_file(&draft);
        failed(e)
    })
}

/// Writes a file whole or not at all that nobody but its owner may read.
///
/// # Errors
/// When the folder cannot be written to; the file is then as it was.
pub fn write_private(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::outside(format_args!("{}: {}: check the folder", path.display(), plain(&e)));
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    crate::files::replace_private(path, &draft, text.as_bytes()).map_err(failed)
}

/// Writes to stdout; a reader that has gone (`| head`) is no failure.
///
/// # Errors
/// When stdout cannot be written to.
pub fn print(text: &str) -> Result<(), Failure> {
    is_read(text).map(|_| ())
}

/// The same, and whether anybody still reads: what goes on for ever ends when nobody does.
///
/// # Errors
/// As [`print`].
pub fn is_read(text: &str) -> Result<bool, Failure> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::outside(format_args!("stdout: {e}"))),
        Ok(()) => Ok(true),
    }
}

/// Writes JSON to stdout, for machines.
///
/// # Errors
/// When the value has no JSON, or stdout cannot be written to.
pub fn print_json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::outside)?;
    print(&format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error as IoError, ErrorKind};
    use std::path::PathBuf;

    #[test]
    fn what_a_journal_stops_ends_as_the_table_of_exit_codes_says() {
        let path = PathBuf::from("d/journal.sqlite");
        let io = || IoError::from(ErrorKind::TimedOut);
        let found: [(Box<dyn StorageFailure>, Exit); 8] = [
            (Box::new(JournalError::Io { path: path.clone(), source: io() }), Exit::Outside),
            (Box::new(JournalError::Full { path: path.clone() }), Exit::Outside),
            (Box::new(JournalError::Missing { path: path.clone() }), Exit::BadInput),
            (Box::new(JournalError::OutOfOrder { got: Default::default(), end: Default::default() }), Exit::Violations),
            (Box::new(SegmentError::Io { path: path.clone(), source: io() }), Exit::Outside),
            (Box::new(StatusError::Segments(SegmentError::Io { path: path.clone(), source: io() })), Exit::Outside),
            (Box::new(KeyError::Io { path: path.clone(), source: io() }), Exit::Outside),
            (Box::new(KeyError::Damaged { path }), Exit::BadInput),
        ];
        for (failure, exit) in found {
            assert_eq!(Exit::of_storage(&*failure), exit, "{failure}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path).map_err(|failure| failure.text)
        };
        assert_eq!(read("\u{feff}{}\r\n"), Ok("{}\r\n".to_owned()));
        assert!(read("\u{feff}\r\n").is_err_and(|text| text.contains("the file is empty")));
    }
}
