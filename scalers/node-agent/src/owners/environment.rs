//! The worker that the environment of a process names: `FOREBAY_WORKER=job-12/3/0`, for processes that are started without Kubernetes.
//! Children inherit it, so what a worker leaves behind still belongs to it.
//!
//! Never: another variable. An environment may hold secrets; nothing of it is kept or logged.

use super::read_bytes;
use crate::worker::WorkerName;
use std::path::Path;

const VARIABLE: &[u8] = b"FOREBAY_WORKER=";
/// How much of an environment is read, in bytes. A process can have megabytes of it.
const MOST_ENVIRONMENT: u64 = 256 * 1024;

/// An environment that could not be read: the process has ended, or it is another user's and the agent is not root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The worker that the process in this folder of `/proc` belongs to by its environment.
pub(super) fn worker(process: &Path) -> Result<Option<WorkerName>, Unreadable> {
    read_bytes(&process.join("environ"), MOST_ENVIRONMENT).map(|bytes| named(&bytes)).ok_or(Unreadable)
}

/// The first of several counts, as in `getenv`.
fn named(environment: &[u8]) -> Option<WorkerName> {
    let value = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(VARIABLE))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_variable_with_a_valid_name_counts() {
        let name = |text: &str| named(text.as_bytes()).map(|name| name.to_string());
        assert_eq!(name("A=b\0FOREBAY_WORKER=job-1/2/3\0C=d\0").as_deref(), Some("job-1/2/3"));
        assert_eq!(name("FOREBAY_WORKER=job-1/2/3").as_deref(), Some("job-1/2/3"));
        assert_eq!(name("FOREBAY_WORKER=job-1/2/3\0FOREBAY_WORKER=job-7/7/7\0").as_deref(), Some("job-1/2/3"));
        for text in [
            "",
            "XFOREBAY_WORKER=job-1/2/3\0",
            "A=FOREBAY_WORKER=job-1/2/3\0",
            "FOREBAY_WORKER=\0",
            "FOREBAY_WORKER=job-1/2/3 \0",
        ] {
            assert_eq!(name(text), None, "{text:?}");
        }
        assert_eq!(named(b"FOREBAY_WORKER=\xff\xfe\0"), None);
    }
}
