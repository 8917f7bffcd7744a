//! Checks the configured queues without using the network.

use super::MAX_QUEUES;

/// Why the configured queues cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// No queue is configured.
    #[error(
        "interruption queue: none is configured; configure one (deploy/aws creates it), or use the node agent for interruptions"
    )]
    None,
    /// More queues are configured than one reader reads.
    #[error(
        "interruption queue: {count} are configured, and at most {MAX_QUEUES} are read; let the rules of several regions write to one"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A queue cannot have this name, or it is a FIFO queue.
    #[error(
        "interruption queue: `{queue}` is not a queue; give its URL, or its name of 1 to 80 letters, digits, `-` and `_` (FIFO queues do \
         not work: the rules of deploy/aws send no message group)"
    )]
    BadQueue {
        /// The configured text, shortened and escaped.
        queue: String,
    },
    /// A queue is configured twice.
    #[error("interruption queue: `{queue}` is listed twice; remove one")]
    Twice {
        /// The configured text.
        queue: String,
    },
}

/// Checks the configured queues.
pub(super) fn check(queues: &[String]) -> Result<(), QueueError> {
    match queues.len() {
        0 => return Err(QueueError::None),
        count if count > MAX_QUEUES => return Err(QueueError::TooMany { count }),
        _ => {}
    }
    for (at, queue) in queues.iter().enumerate() {
        if !is_valid(queue) {
            return Err(QueueError::BadQueue { queue: forebay_aws::printable(queue) });
        }
        if queues[..at].contains(queue) {
            return Err(QueueError::Twice { queue: queue.clone() });
        }
    }
    Ok(())
}

fn is_valid(queue: &str) -> bool {
    forebay_aws::queue_name(queue).is_some_and(|name| !name.ends_with(".fifo"))
}

/// The name of a queue, which is the last part of its URL.
pub(crate) fn short_name(queue: &str) -> &str {
    queue.rsplit('/').next().unwrap_or(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_queues_are_refused_with_a_remedy() {
        let check_all = |queues: &[&str]| check(&queues.iter().map(|queue| (*queue).to_owned()).collect::<Vec<_>>());
        assert_eq!(check_all(&["a", "https://sqs.eu-west-1.amazonaws.com/123456789012/b"]), Ok(()));
        for (queues, part) in [
            (&[][..], "none is configured"),
            (&["a", "a"], "`a` is listed twice"),
            (&["a.fifo"], "`a.fifo` is not a queue"),
            (&["a b"], "`a b` is not a queue"),
            (&["ftp://h/1/a"], "is not a queue"),
            (&["https://h"], "is not a queue"),
            (&["\u{7}"], r"`\u{7}` is not a queue"),
            (&["a"; 17], "17 are configured"),
        ] {
            let error = check_all(queues).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(short_name("https://sqs.eu-west-1.amazonaws.com/123456789012/b"), "b");
    }
}
