//! A piece of what somebody wrote, as an error message may repeat it: short, on one line, and unable to change the text around it.
//!
//! Never: the whole of a long text.

/// The longest piece that [`escaped`] repeats, in characters.
pub const ESCAPED_CHARS: usize = 80;

/// The longest piece that [`one_line`] repeats, in characters.
pub const ONE_LINE_CHARS: usize = 60;

/// The text with control characters, quotes and other special characters escaped, cut at [`ESCAPED_CHARS`]. An apostrophe stays.
///
/// ```
/// assert_eq!(forebay_quantity::excerpt::escaped("it's\n"), "it's\\n");
/// ```
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == ESCAPED_CHARS {
            out.push_str("...");
            break;
        }
        if c == '\'' { out.push(c) } else { out.extend(c.escape_debug()) }
    }
    out
}

/// The text with a blank for each control character, cut at [`ONE_LINE_CHARS`].
///
/// ```
/// assert_eq!(forebay_quantity::excerpt::one_line("a\tb"), "a b");
/// ```
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut out: String = text.chars().take(ONE_LINE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > ONE_LINE_CHARS {
        out.push_str("...");
    }
    out
}
