//! Words of a command that is printed to be pasted into a shell.
//!
//! Never: a word that a shell takes for more than itself.

use std::path::Path;

/// A path as one word of a POSIX shell.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    // A word that begins with a dash would be an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
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
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
