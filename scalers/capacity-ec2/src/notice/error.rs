//! Why a message is not a notice, with at most 120 characters of a sender's text.

/// The most characters of a message's text in an error.
const MAX_SHOWN_CHARS: usize = 120;

/// Why a message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoticeError {
    /// It is larger than any message of SQS.
    #[error("notice: {bytes} bytes; an EventBridge message has at most {}", super::MAX_MESSAGE_BYTES)]
    TooLarge {
        /// The size of the message.
        bytes: usize,
    },
    /// It is not a message of EventBridge.
    #[error("notice: {part}: {why}; let only EventBridge rules write to the queue (deploy/aws)")]
    Malformed {
        /// The part of the message: the message itself, the envelope, or the detail type.
        part: String,
        /// The error.
        why: String,
    },
    /// A field has an invalid value.
    #[error(
        "notice: `{path}` is `{value}`, which is not {expected}; let only EventBridge rules write to the queue (deploy/aws)"
    )]
    BadValue {
        /// The path of the field.
        path: &'static str,
        /// Its value, shortened and escaped.
        value: String,
        /// What it should be, with its article.
        expected: &'static str,
    },
    /// It has more instances than are accepted.
    #[error("notice: {found} instances in one message, and {most} are accepted; handle the others manually")]
    TooMany {
        /// How many.
        found: usize,
        /// How many are accepted.
        most: usize,
    },
}

impl NoticeError {
    pub(super) fn json(part: &str, error: &serde_json::Error) -> NoticeError {
        NoticeError::Malformed { part: printable(part), why: printable(&error.to_string()) }
    }

    pub(super) fn bad_value(path: &'static str, value: &str, expected: &'static str) -> NoticeError {
        NoticeError::BadValue { path, value: printable(value), expected }
    }
}

/// The beginning of a text, with control characters escaped.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect()
}
