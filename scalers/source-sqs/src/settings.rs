//! The settings of a source and its sinks, and their validation without a network. No secret appears in `Debug` output.

use forebay_aws::{AwsSettings, RetryDelays, is_valid_endpoint, printable, queue_name};
use std::time::Duration;

/// The most receivers of one queue. Each reserves memory for ten messages while it polls.
const MAX_RECEIVERS: usize = 64;
/// The most receivers of all queues: 8,000 of the 16,384 messages that may wait for the journal are reserved by polls, and the rest are for others.
const MAX_ALL_RECEIVERS: usize = 800;

/// Where the queues are and how they are read.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// Region, endpoint and credentials. Without a region: that of the first queue that is given by an AWS URL, else that of the
    /// environment, the profile or the machine.
    pub aws: AwsSettings,
    /// Queues by name (in the account of the credentials) or by URL. The index is [`forebay_source::MessageBatch::channel`].
    pub queues: Vec<String>,
    /// Receivers of each queue. Each reserves memory for ten messages while it polls.
    pub receivers: usize,
    /// Time limits and delays.
    pub timings: SqsTimings,
}

impl Default for SqsSettings {
    fn default() -> Self {
        SqsSettings { aws: AwsSettings::default(), queues: Vec::new(), receivers: 2, timings: SqsTimings::default() }
    }
}

/// Time limits and delays. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqsTimings {
    /// How long a poll waits for messages; SQS allows 20 s. When the source stops, it waits for polls of up to 5 s. A longer one is
    /// dropped, and messages that SQS still hands to it stay hidden for one visibility timeout. Two receivers with 5 s make a million
    /// calls a month.
    pub poll_wait: Duration,
    /// How long a response may take, in addition to the wait of a poll.
    pub response_timeout: Duration,
    /// The delay after a first failure. It doubles with each further one.
    pub first_delay: Duration,
    /// The longest delay after a failure that may pass by itself.
    pub longest_delay: Duration,
    /// The delay after a failure that an operator has to fix, such as a missing permission or queue.
    pub operator_delay: Duration,
    /// The interval at which backlogs and attributes of queues are read.
    pub backlog_interval: Duration,
    /// The time limit of one call of a sink, which sends as many of its messages as it can until then.
    pub send_within: Duration,
}

impl Default for SqsTimings {
    fn default() -> Self {
        SqsTimings {
            poll_wait: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
            first_delay: Duration::from_millis(200),
            longest_delay: Duration::from_secs(20),
            operator_delay: Duration::from_secs(30),
            backlog_interval: Duration::from_secs(10),
            send_within: Duration::from_secs(8),
        }
    }
}

impl SqsTimings {
    /// The delays after failures in a row.
    pub(crate) fn delays(&self) -> RetryDelays {
        RetryDelays::new(self.first_delay, self.longest_delay)
    }
}

/// Why settings are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqsError {
    /// A source without a queue.
    #[error("sqs: no queue is named; name one, or leave out the source")]
    NoQueue,
    /// A text that is neither the name nor the URL of a queue.
    #[error(
        "sqs: `{queue}` is not a queue; give a name of 1 to 80 letters, digits, `-` and `_` (and `.fifo` at its end), or the queue's URL"
    )]
    BadQueue {
        /// The text as configured, shortened and escaped.
        queue: String,
    },
    /// A queue that is listed twice.
    #[error("sqs: queue `{queue}` is listed twice, so it is unclear who its messages are from; remove one")]
    Twice {
        /// The name of the queue.
        queue: String,
    },
    /// Too few or too many receivers.
    #[error("sqs: {receivers} receivers per queue; give 1 to {MAX_RECEIVERS}")]
    Receivers {
        /// The number as configured.
        receivers: usize,
    },
    /// Too many receivers of all queues together.
    #[error(
        "sqs: {queues} queues with {receivers} receivers each are {all} receivers, and may be {MAX_ALL_RECEIVERS}, because each poll reserves \
         memory: give fewer receivers, or read some queues with another controller"
    )]
    AllReceivers {
        /// The number of queues.
        queues: usize,
        /// The number of receivers of each.
        receivers: usize,
        /// The number of all of them.
        all: usize,
    },
    /// An endpoint that is not a URL.
    #[error("sqs: `{endpoint}` is not an endpoint; give `http://host:port` or `https://host`, or leave it out for AWS")]
    BadEndpoint {
        /// The text as configured, shortened and escaped.
        endpoint: String,
    },
    /// A longer poll than SQS allows.
    #[error("sqs: a poll waits at most 20 s, not {wait:?}")]
    Wait {
        /// The wait as configured.
        wait: Duration,
    },
}

/// The region in an AWS URL of a queue: `https://sqs.REGION.amazonaws.com/account/name`.
pub(crate) fn region_of(queue: &str) -> Option<&str> {
    let host = queue.strip_prefix("https://sqs.")?.split('/').next()?;
    let (region, domain) = host.split_once('.')?;
    domain.starts_with("amazonaws.com").then_some(region)
}

/// The name of a queue that is given by name or URL.
pub(crate) fn checked_name(queue: &str) -> Result<String, SqsError> {
    queue_name(queue).map(str::to_owned).ok_or_else(|| SqsError::BadQueue { queue: printable(queue) })
}

impl SqsSettings {
    /// Validates the settings without a network. `written` are the queues that sinks write to.
    ///
    /// # Errors
    /// The first setting that is not valid, and what to write instead.
    pub fn check_with<'a>(&self, written: impl IntoIterator<Item = &'a str>) -> Result<(), SqsError> {
        if self.queues.is_empty() {
            self.check_common()?
        } else {
            self.check().map(drop)?
        }
        written.into_iter().try_for_each(|queue| checked_name(queue).map(drop))
    }

    /// Validates what a source and a sink have in common.
    pub(crate) fn check_common(&self) -> Result<(), SqsError> {
        if let Some(endpoint) = self.aws.endpoint.as_ref().filter(|endpoint| !is_valid_endpoint(endpoint)) {
            return Err(SqsError::BadEndpoint { endpoint: printable(endpoint) });
        }
        if self.timings.poll_wait > Duration::from_secs(20) {
            return Err(SqsError::Wait { wait: self.timings.poll_wait });
        }
        Ok(())
    }

    /// Validates the settings of a source. Returns the names of the queues in their order.
    pub(crate) fn check(&self) -> Result<Vec<String>, SqsError> {
        self.check_common()?;
        if self.queues.is_empty() {
            return Err(SqsError::NoQueue);
        }
        if !(1..=MAX_RECEIVERS).contains(&self.receivers) {
            return Err(SqsError::Receivers { receivers: self.receivers });
        }
        let (queues, receivers) = (self.queues.len(), self.receivers);
        let all = queues * receivers;
        if all > MAX_ALL_RECEIVERS {
            return Err(SqsError::AllReceivers { queues, receivers, all });
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
    fn a_queue_is_given_by_its_name_or_its_url() {
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
            assert_eq!(queue_name(given), name, "{given}");
        }
        assert_eq!(region_of("https://sqs.eu-west-1.amazonaws.com/123456789012/jobs"), Some("eu-west-1"));
        assert_eq!(region_of("http://127.0.0.1:4566/000000000000/jobs"), None);
    }

    #[test]
    fn invalid_settings_are_reported_with_a_remedy() {
        let good = SqsSettings { queues: vec!["a".into(), "b.fifo".into()], ..SqsSettings::default() };
        assert_eq!(good.check(), Ok(vec!["a".to_owned(), "b.fifo".to_owned()]));
        let changed = |change: fn(&mut SqsSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.check().expect_err("refused").to_string()
        };
        assert!(changed(|s| s.queues.clear()).contains("name one"));
        assert!(changed(|s| s.queues.push("x/\u{7}y".into())).contains(r"`x/\u{7}y` is not a queue"));
        assert!(changed(|s| s.queues.push("http://h/1/a".into())).contains("`a` is listed twice"));
        assert!(changed(|s| s.receivers = 0).contains("give 1 to 64"));
        let many = |queues: usize| SqsSettings {
            queues: (0..queues).map(|n| format!("q{n}")).collect(),
            receivers: 64,
            ..SqsSettings::default()
        };
        assert!(many(12).check().is_ok());
        assert!(many(13).check().expect_err("refused").to_string().contains("832 receivers, and may be 800"));
        assert!(changed(|s| s.aws.endpoint = Some("localhost:4566".into())).contains("http://host:port"));
        assert!(changed(|s| s.timings.poll_wait = Duration::from_secs(21)).contains("at most 20 s"));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let access_key = Some(forebay_aws::AccessKey {
            access_key_id: "AKIAEXAMPLE".into(),
            secret_access_key: "hush".into(),
            session_token: Some("hush".into()),
        });
        let aws = AwsSettings { access_key, ..AwsSettings::default() };
        let text = format!("{:?}", SqsSettings { aws, ..SqsSettings::default() });
        assert!(text.contains("AKIAEXAMPLE") && !text.contains("hush"), "{text}");
    }
}
