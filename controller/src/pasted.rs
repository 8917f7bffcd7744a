//! Words of a command that is printed to be pasted into a shell.
//!
//! Never: a word that a shell takes for more than itself.

use std::path::Path;

/// A text as one word of a POSIX shell, whatever is in it: names come from outside, and people paste commands.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A path as one word of a POSIX shell.
pub(crate) fn shell_path(path: &Path) -> String {
    let text = path.display().to_string();
    // A word that begins with a dash would be an option.
    shell_word(&if text.starts_with('-') { format!("./{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        for (path, word) in [
            ("/data/last-week", "/data/last-week"),
            ("last week", "'last week'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("-out", "./-out"),
            ("", "''"),
        ] {
            assert_eq!(shell_path(Path::new(path)), word);
        }
    }
}
