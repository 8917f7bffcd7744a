//! What the configuration says about SQS, and its check.
//!
//! Never: a secret in its `Debug`, or a look at the network.

use forebay_aws::{Keys, is_endpoint, shown};
use std::time::Duration;

/// Receivers that a queue may have: each holds room for ten letters while it polls.
const MOST_RECEIVERS: usize = 64;

/// Where the queues are and how they are read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The region, such as `eu-central-1`. `None`: that of the first queue given by an AWS URL, else of the environment, the profile or
    /// the machine.
    pub region: Option<String>,
    /// Another endpoint than that of AWS, `http://` or `https://`. `None`: AWS, or `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// Queues by name (of the credentials' own account) or by URL. The index is the parcel's channel.
    pub queues: Vec<String>,
    /// Receivers for each queue. Each reserves room for ten letters while it polls.
    pub receivers: usize,
    /// Explicit credentials. `None`: the usual chain (environment, profile, web identity, container, machine).
    pub keys: Option<Keys>,
    /// Waits and time limits.
    pub pace: Pace,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { region: None, endpoint: None, queues: Vec::new(), receivers: 2, keys: None, pace: Pace::default() }
    }
}

/// Waits and time limits. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a poll waits for messages, at most 20 s by SQS. Up to 5 s the end of the source waits for it; a longer one is dropped
    /// then, and what SQS still gives it stays hidden for a visibility timeout. Two receivers with 5 s make a million calls a month.
    pub wait: Duration,
    /// How long an answer may take beyond that.
    pub patience: Duration,
    /// The first pause after a failure; it doubles.
    pub first_pause: Duration,
    /// The longest pause after a failure that may pass by itself.
    pub longest_pause: Duration,
    /// The pause after a failure that somebody has to mend: no permission, no queue.
    pub slow_pause: Duration,
    /// How often the backlog and the queue's attributes are asked for.
    pub backlog: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            wait: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(20),
            slow_pause: Duration::from_secs(30),
            backlog: Duration::from_secs(10),
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqsError {
    /// Nothing to read.
    #[error("sqs: no queue is named; name one, or leave out the source")]
    NoQueue,
    /// No queue has such a name.
    #[error(
        "sqs: `{queue}` is no queue; give a name of 1 to 80 letters, digits, `-` and `_` (and `.fifo` at its end), or the queue's URL"
    )]
    BadQueue {
        /// As it is written, cut and escaped.
        queue: String,
    },
    /// The same queue twice.
    #[error("sqs: queue `{queue}` is named twice; whose its messages are would be a matter of luck, leave one out")]
    Twice {
        /// Its name.
        queue: String,
    },
    /// Too few or too many.
    #[error("sqs: {receivers} receivers a queue; give 1 to {MOST_RECEIVERS}")]
    Receivers {
        /// As given.
        receivers: usize,
    },
    /// No URL.
    #[error("sqs: endpoint `{endpoint}` is none; give `http://host:port` or `https://host`, or leave it out for AWS")]
    BadEndpoint {
        /// As it is written, cut and escaped.
        endpoint: String,
    },
    /// A wait that SQS does not take.
    #[error("sqs: a poll waits at most 20 s, not {wait:?}")]
    Wait {
        /// As given.
        wait: Duration,
    },
}

/// The name of a queue that is given by name or URL. `None`: it is neither.
pub(crate) fn name_of(queue: &str) -> Option<&str> {
    let name = match queue.split_once("://") {
        Some(("http" | "https", rest)) => rest.split_once('/')?.1.rsplit('/').next()?,
        Some(_) => return None,
        None => queue,
    };
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let fits = (1..=80).contains(&name.len()) && !stem.is_empty();
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (fits && stem.chars().all(known)).then_some(name)
}

/// The region that an AWS URL of a queue names: `https://sqs.REGION.amazonaws.com/account/name`.
pub(crate) fn region_of(queue: &str) -> Option<&str> {
    let host = queue.strip_prefix("https://sqs.")?.split('/').next()?;
    let (region, domain) = host.split_once('.')?;
    domain.starts_with("amazonaws.com").then_some(region)
}

/// A queue's name, or why it has none.
pub(crate) fn checked_name(queue: &str) -> Result<String, SqsError> {
    name_of(queue).map(str::to_owned).ok_or_else(|| SqsError::BadQueue { queue: shown(queue) })
}

impl Settings {
    /// Whether it can work, as far as that can be told without a network. `written`: queues that sinks write to.
    ///
    /// # Errors
    /// The first setting that cannot be, and what to write.
    pub fn check_with<'a>(&self, written: impl IntoIterator<Item = &'a str>) -> Result<(), SqsError> {
        if self.queues.is_empty() {
            self.check_place()?
        } else {
            self.check().map(drop)?
        }
        written.into_iter().try_for_each(|queue| checked_name(queue).map(drop))
    }

    /// What holds for a source and a sink.
    pub(crate) fn check_place(&self) -> Result<(), SqsError> {
        if let Some(endpoint) = self.endpoint.as_ref().filter(|endpoint| !is_endpoint(endpoint)) {
            return Err(SqsError::BadEndpoint { endpoint: shown(endpoint) });
        }
        if self.pace.wait > Duration::from_secs(20) {
            return Err(SqsError::Wait { wait: self.pace.wait });
        }
        Ok(())
    }

    /// The queues' names, in order.
    pub(crate) fn check(&self) -> Result<Vec<String>, SqsError> {
        self.check_place()?;
        if self.queues.is_empty() {
            return Err(SqsError::NoQueue);
        }
        if !(1..=MOST_RECEIVERS).contains(&self.receivers) {
            return Err(SqsError::Receivers { receivers: self.receivers });
        }
        let names = self.queues.iter().map(|queue| checked_name(queue)).collect::<Result<Vec<_>, _>>()?;
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(SqsError::Twice { queue: name.clone() });
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_known_by_its_name_or_its_url() {
        let long = "a".repeat(81);
        for (given, name) in [
            ("jobs", Some("jobs")),
            ("jobs.fifo", Some("jobs.fifo")),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/jobs", Some("jobs")),
            ("http://127.0.0.1:4566/000000000000/jobs.fifo", Some("jobs.fifo")),
            ("", None),
            (".fifo", None),
            ("jobs and more", None),
            ("jobs\n", None),
            ("jobs.txt", None),
            ("https://sqs.eu-west-1.amazonaws.com", None),
            ("ftp://host/jobs", None),
            (&long, None),
        ] {
            assert_eq!(name_of(given), name, "{given}");
        }
        assert_eq!(region_of("https://sqs.eu-west-1.amazonaws.com/123456789012/jobs"), Some("eu-west-1"));
        assert_eq!(region_of("http://127.0.0.1:4566/000000000000/jobs"), None);
    }

    #[test]
    fn what_cannot_be_is_told_with_its_remedy() {
        let good = Settings { queues: vec!["a".into(), "b.fifo".into()], ..Settings::default() };
        assert_eq!(good.check(), Ok(vec!["a".to_owned(), "b.fifo".to_owned()]));
        let changed = |change: fn(&mut Settings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.check().expect_err("refused").to_string()
        };
        assert!(changed(|s| s.queues.clear()).contains("name one"));
        assert!(changed(|s| s.queues.push("x/\u{7}y".into())).contains(r"`x/\u{7}y` is no queue"));
        assert!(changed(|s| s.queues.push("http://h/1/a".into())).contains("`a` is named twice"));
        assert!(changed(|s| s.receivers = 0).contains("give 1 to 64"));
        assert!(changed(|s| s.endpoint = Some("localhost:4566".into())).contains("http://host:port"));
        assert!(changed(|s| s.pace.wait = Duration::from_secs(21)).contains("at most 20 s"));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let keys = Keys {
            access_key_id: "AKIAEXAMPLE".into(),
            secret_access_key: "hush".into(),
            session_token: Some("hush".into()),
        };
        let text = format!("{:?}", Settings { keys: Some(keys), ..Settings::default() });
        assert!(text.contains("AKIAEXAMPLE") && !text.contains("hush"), "{text}");
    }
}
