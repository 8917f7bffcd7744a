//! Characters that nobody sees, or that change how what is around them looks: no name has one, and none is shown.
//!
//! Never: a judgement of letters. Two that look alike are two.

/// Whether a character cannot be seen, looks like a space and is none, or turns or joins what is around it: control characters,
/// separators, marks of direction, joiners, fillers, variation selectors, tags, and what Unicode says is to be ignored where it is not
/// known (`Default_Ignorable_Code_Point`); characters for private use and those that are none.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || c.is_whitespace() && c != ' '
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
        || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::is_unseen;

    #[test]
    fn what_hides_is_unseen_and_what_people_write_is_not() {
        for c in [
            '\0',
            '\n',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{ad}',
            '\u{200d}',
            '\u{202e}',
            '\u{2066}',
            '\u{3000}',
            '\u{fe0f}',
            '\u{e0041}',
        ] {
            assert!(is_unseen(c), "{c:?}");
        }
        for c in ['\u{2003}', '\u{3164}', '\u{ffff}', '\u{1fffe}', '\u{e123}', '\u{f0000}', '\u{feff}', '\u{115f}'] {
            assert!(is_unseen(c), "{c:?}");
        }
        for c in [' ', 'a', '/', 'é', 'ß', '中', 'ह', '़', '🚀', '\u{301}', '\u{fffd}', '한'] {
            assert!(!is_unseen(c), "{c:?}");
        }
    }
}
