//! What kwok has given up is put before it again. A kubelet tries for ever; kwok tries a stage again only where the API server was away or said
//! that it is busy, and forgets the pod or the node where it got a plain 500 or a closed connection, until the object changes.
//!
//! ```text
//! kwok.log: "failed to apply stage" --every second--> kubectl annotate: all pods and nodes have changed, and kwok looks at them
//! ```

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::kubectl::Kubectl;
use crate::{PartError, RepeatingThread};

/// Between two looks at the log.
const PAUSE: Duration = Duration::from_secs(1);

/// As kwok writes that a stage was not applied.
const GIVEN_UP: &str = "failed to apply stage";

/// Changes with each time that something is put before kwok again.
const ANNOTATION: &str = "kwok.test/again";

/// Reads kwok's log until the thread is dropped.
pub(super) fn be_patient(kubectl: Kubectl, log: &Path) -> RepeatingThread {
    let mut log = LogReader { path: log.to_owned(), read: 0 };
    let (mut again, mut times) = (false, 0_u64);
    RepeatingThread::start(PAUSE, move || {
        again |= log.has_new(GIVEN_UP).unwrap_or(false);
        if again {
            times += 1;
            // The API server may be away: then it is tried again.
            again = put_again(&kubectl, times).is_err();
        }
    })
}

fn put_again(kubectl: &Kubectl, times: u64) -> Result<(), PartError> {
    let annotation = format!("{ANNOTATION}={times}");
    kubectl.run(&["annotate", "nodes", "--all", "--overwrite", &annotation], "")?;
    kubectl.run(&["annotate", "pods", "--all", "--all-namespaces", "--overwrite", &annotation], "").map(drop)
}

/// A log, and how much of it was read.
struct LogReader {
    path: PathBuf,
    read: u64,
}

impl LogReader {
    /// Whether one of the lines that came since has these words.
    fn has_new(&mut self, words: &str) -> std::io::Result<bool> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        // A line that is not whole yet is read with its rest.
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        Ok(String::from_utf8_lossy(&new[..whole]).contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_is_read_once_and_when_it_is_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = LogReader { path: file.path().to_owned(), read: 0 };
        assert!(!log.has_new(GIVEN_UP).unwrap());
        write!(file, "started\nfailed to ").unwrap();
        assert!(!log.has_new(GIVEN_UP).unwrap());
        writeln!(file, "apply stage").unwrap();
        assert!(log.has_new(GIVEN_UP).unwrap());
        assert!(!log.has_new(GIVEN_UP).unwrap());
    }
}
