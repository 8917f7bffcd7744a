//! Queues that cannot be read at all, told before any call.
//!
//! Never: a look at the network.

use super::MOST_QUEUES;

/// Queues that cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Nothing to read.
    #[error(
        "interruption queue: none is named; name one (deploy/aws makes it), or leave interruptions to the node agent"
    )]
    None,
    /// More than one reader reads.
    #[error(
        "interruption queue: {named} are named; at most {MOST_QUEUES} are read: let the rules of several regions write to one"
    )]
    TooMany {
        /// How many.
        named: usize,
    },
    /// No queue has such a name, or it is one that cannot hold these messages.
    #[error(
        "interruption queue: `{queue}` is none; give its URL, or its name of 1 to 80 letters, digits, `-` and `_` (no FIFO queue: \
         the rules of deploy/aws send no message group)"
    )]
    BadQueue {
        /// As it is written, cut and escaped.
        queue: String,
    },
    /// The same queue twice.
    #[error("interruption queue: `{queue}` is named twice; leave one out")]
    Twice {
        /// As it is written.
        queue: String,
    },
}

/// Whether these queues can be read, as far as that can be told without a network.
pub(super) fn check(queues: &[String]) -> Result<(), QueueError> {
    match queues.len() {
        0 => return Err(QueueError::None),
        named if named > MOST_QUEUES => return Err(QueueError::TooMany { named }),
        _ => {}
    }
    for (at, queue) in queues.iter().enumerate() {
        if !can_be(queue) {
            return Err(QueueError::BadQueue { queue: forebay_aws::shown(queue) });
        }
        if queues[..at].contains(queue) {
            return Err(QueueError::Twice { queue: queue.clone() });
        }
    }
    Ok(())
}

fn can_be(queue: &str) -> bool {
    let name = match queue.split_once("://") {
        Some(("http" | "https", rest)) => rest.split_once('/').and_then(|(_, path)| path.rsplit('/').next()),
        Some(_) => None,
        None => Some(queue),
    };
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.is_some_and(|name| (1..=80).contains(&name.len()) && name.chars().all(known))
}

/// What to call a queue: the last part of its URL.
pub(super) fn name_of(queue: &str) -> &str {
    queue.rsplit('/').next().unwrap_or(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_with_its_remedy() {
        let named = |queues: &[&str]| check(&queues.iter().map(|queue| (*queue).to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["a", "https://sqs.eu-west-1.amazonaws.com/123456789012/b"]), Ok(()));
        for (queues, part) in [
            (&[][..], "none is named"),
            (&["a", "a"], "`a` is named twice"),
            (&["a.fifo"], "`a.fifo` is none"),
            (&["a b"], "`a b` is none"),
            (&["ftp://h/1/a"], "is none"),
            (&["https://h"], "is none"),
            (&["\u{7}"], r"`\u{7}` is none"),
            (&["a"; 17], "17 are named"),
        ] {
            let error = named(queues).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(name_of("https://sqs.eu-west-1.amazonaws.com/123456789012/b"), "b");
    }
}
