//! What SQS takes: characters, ids, sizes.
//!
//! Never: changes what a JSON text says, only how it is written.

use std::borrow::Cow;

/// Ids that SQS compares may be this long.
const LONGEST_ID: usize = 128;

/// A JSON text without the characters that SQS refuses (it takes #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD and #x10000 to
/// #x10FFFF). They can only stand in a string, where an escape says the same.
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

/// A group's id: a hash of the key, since a key may be longer than an id and have characters that none has.
pub(crate) fn group(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// An id by which SQS drops a second copy within five minutes: the note's own, or a hash of it where SQS would not take it.
pub(crate) fn deduplication(id: &str) -> String {
    let fits = (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    if fits { id.to_owned() } else { group(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sqs_refuses_is_escaped_and_says_the_same() {
        let plain = "{\"a\":\"\u{7f}\u{fffd}\u{10fffe}\u{e9}\",\n\t\"b\":1}\r\n";
        assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        let odd = "{\"a\":\"x\u{fffe}y\u{ffff}z\"}";
        let text = escaped(odd);
        assert_eq!(text, "{\"a\":\"x\\ufffey\\uffffz\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&text), value(odd));
        // Not JSON any more, but nothing that would hold up the rest.
        assert_eq!(escaped("\u{1}"), "\\u0001");
    }

    #[test]
    fn ids_are_what_sqs_takes() {
        assert_eq!(deduplication("0f3c-12/s"), "0f3c-12/s");
        for odd in ["", "two words", "\u{e9}", &"x".repeat(129)] {
            let id = deduplication(odd);
            assert_eq!((id.len(), &id), (64, &deduplication(odd)));
        }
        assert_ne!(group("a/b"), group("a/c"));
    }
}
