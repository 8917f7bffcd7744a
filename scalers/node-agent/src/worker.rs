//! The name of a worker: `job-12/3/0` is worker 0 of the third attempt of job 12. It stands in a pod's annotation or in a process's
//! environment, so it comes from outside and is checked here.
//!
//! Never: a second spelling of the same name. `job-012/3/0` and `job-12/+3/0` are no names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name: 20 digits, twice 10, `job-` and two slashes have 46 characters.
pub(crate) const MOST_NAME: usize = 46;

/// One worker of one attempt of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerName {
    /// The number of the job.
    pub job: u64,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The number of the worker within its gang, from 0.
    pub worker: u32,
}

/// A text is not the name of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a worker; write job-JOB/ATTEMPT/WORKER, such as job-12/3/0")]
pub struct WorkerNameError;

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job-{}/{}/{}", self.job, self.attempt, self.worker)
    }
}

impl FromStr for WorkerName {
    type Err = WorkerNameError;

    fn from_str(text: &str) -> Result<WorkerName, WorkerNameError> {
        let parse = || {
            let mut parts = text.strip_prefix("job-").filter(|_| text.len() <= MOST_NAME)?.split('/');
            let (job, attempt, worker) = (parts.next()?, parts.next()?, parts.next()?);
            if parts.next().is_some() {
                return None;
            }
            let name =
                WorkerName { job: job.parse().ok()?, attempt: attempt.parse().ok()?, worker: worker.parse().ok()? };
            // What is written back is the one spelling.
            (name.attempt > 0 && name.to_string() == text).then_some(name)
        };
        parse().ok_or(WorkerNameError)
    }
}

impl TryFrom<String> for WorkerName {
    type Error = WorkerNameError;

    fn try_from(text: String) -> Result<WorkerName, WorkerNameError> {
        text.parse()
    }
}

impl From<WorkerName> for String {
    fn from(name: WorkerName) -> String {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_has_one_spelling() {
        let name = WorkerName { job: 12, attempt: 3, worker: 0 };
        assert_eq!("job-12/3/0".parse(), Ok(name));
        let longest = WorkerName { job: u64::MAX, attempt: u32::MAX, worker: u32::MAX };
        assert_eq!((longest.to_string().len(), longest.to_string().parse()), (MOST_NAME, Ok(longest)));
        for text in [
            "",
            "job-",
            "job-12",
            "job-12/3",
            "job-12/3/0/",
            "job-12/3/0/1",
            "job-012/3/0",
            "job-12/+3/0",
            "job-12/3/-1",
            "job-12/0/0",
            " job-12/3/0",
            "job-12/3/0\n",
            "Job-12/3/0",
            "12/3/0",
            "job-18446744073709551616/1/0",
            "job-1/4294967296/0",
            "job-1/1/../../x",
            "job-\u{661}/1/0",
        ] {
            assert_eq!(text.parse::<WorkerName>(), Err(WorkerNameError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back_as_it_was(text in "(job-)?[0-9/+ \\-a]{0,50}|.{0,60}") {
            if let Ok(name) = text.parse::<WorkerName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
