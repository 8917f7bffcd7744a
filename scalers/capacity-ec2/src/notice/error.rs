//! Why a message cannot be read.
//!
//! Never: more of a stranger's text than is needed to find it.

/// Characters that are repeated of what a stranger wrote.
const SHOWN: usize = 120;

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoticeError {
    /// Larger than any message of SQS.
    #[error("notice: {bytes} bytes; a message of EventBridge has at most {}", super::MOST_BYTES)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not what EventBridge sends.
    #[error("notice: {place}: {why}; let only EventBridge rules write to the queue (deploy/aws)")]
    Malformed {
        /// Where: the envelope, the notification around it, or the detail of which type.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// A field holds something else than it should.
    #[error(
        "notice: `{path}` is `{value}`, which is no {wanted}; let only EventBridge rules write to the queue (deploy/aws)"
    )]
    BadValue {
        /// The field.
        path: &'static str,
        /// What it holds, cut and escaped.
        value: String,
        /// What it should.
        wanted: &'static str,
    },
    /// More instances than are taken.
    #[error("notice: {found} instances in one message; {most} are taken: see to the rest by hand")]
    TooMany {
        /// How many.
        found: usize,
        /// How many are taken.
        most: usize,
    },
}

impl NoticeError {
    pub(super) fn json(place: &str, error: &serde_json::Error) -> NoticeError {
        NoticeError::Malformed { place: shown(place), why: shown(&error.to_string()) }
    }

    pub(super) fn bad(path: &'static str, value: &str, wanted: &'static str) -> NoticeError {
        NoticeError::BadValue { path, value: shown(value), wanted }
    }
}

/// The beginning of a stranger's text, without control characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}
