//! Adapts texts and ids to what SQS accepts. The meaning of a JSON text never changes, only its encoding.

use std::borrow::Cow;

/// The longest id that SQS accepts.
const MAX_ID_LEN: usize = 128;

/// A JSON text without the characters that SQS refuses. It accepts #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD and #x10000 to
/// #x10FFFF; others can only be in a JSON string, where an escape means the same.
pub(crate) fn escaped(json: &str) -> Cow<'_, str> {
    let refused =
        |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if !json.contains(refused) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if refused(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

/// The message group of a key: its hash, because a key may be longer than an id and contain other characters.
pub(crate) fn message_group(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// The id by which SQS drops a second copy within five minutes: the message's own, or its hash where SQS would refuse it.
pub(crate) fn deduplication_id(id: &str) -> String {
    let fits = (1..=MAX_ID_LEN).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    if fits { id.to_owned() } else { message_group(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_sqs_refuses_are_escaped() {
        let plain = "{\"a\":\"\u{7f}\u{fffd}\u{10fffe}\u{e9}\",\n\t\"b\":1}\r\n";
        assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        let odd = "{\"a\":\"x\u{fffe}y\u{ffff}z\"}";
        let text = escaped(odd);
        assert_eq!(text, "{\"a\":\"x\\ufffey\\uffffz\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&text), value(odd));
        // The input is not JSON; the output is at least accepted.
        assert_eq!(escaped("\u{1}"), "\\u0001");
    }

    #[test]
    fn ids_are_accepted_by_sqs() {
        assert_eq!(deduplication_id("0f3c-12/s"), "0f3c-12/s");
        for odd in ["", "two words", "\u{e9}", &"x".repeat(129)] {
            let id = deduplication_id(odd);
            assert_eq!((id.len(), &id), (64, &deduplication_id(odd)));
        }
        assert_ne!(message_group("a/b"), message_group("a/c"));
    }
}
