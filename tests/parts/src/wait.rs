//! Waiting for something with a time limit, and reading the end of a log.
//!
//! Never: waits without a limit.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::PartError;

/// Short beside what is waited for (a second and more), long beside what one question costs.
const PAUSE: Duration = Duration::from_millis(25);

/// Asks until there is an answer, or returns nothing once the limit has passed. Asks at least once.
pub(crate) fn until<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>, PartError>,
) -> Result<Option<T>, PartError> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// How far back the tail of a log is read: forty long lines.
const TAIL_BYTES: u64 = 8 * 1024;

/// The last lines of a file, at most forty; for a file that cannot be read, the error.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("{}: {error}", path.display()));
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
    shown.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_answer_or_at_its_limit() {
        let mut asked = 0;
        let answer = until(Duration::from_secs(60), || {
            asked += 1;
            Ok((asked == 3).then_some(asked))
        });
        assert_eq!(answer.unwrap(), Some(3));
        let none = until(Duration::ZERO, || -> Result<Option<()>, PartError> {
            asked += 1;
            Ok(None)
        });
        assert_eq!((none.unwrap(), asked), (None, 4));
    }

    #[test]
    fn a_tail_is_the_last_forty_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, (0..10_000).map(|i| format!("line {i}\n")).collect::<String>()).unwrap();
        let shown = tail(&log);
        assert_eq!(shown.lines().count(), 40);
        assert!(shown.ends_with("  | line 9999"), "{shown}");
        assert!(tail(&folder.path().join("none")).contains("none: No such file"), "names what it could not read");
    }
}
