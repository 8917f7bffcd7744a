//! Times as AWS writes them: `2026-11-21T20:30:00Z`, and in the details of AWS Health `Sat, 21 Nov 2026 20:30:00 GMT`.
//!
//! Never: a time before 1970, or a guess.

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use forebay_engine::units::Millis;

/// The longest text that is a time.
const LONGEST: usize = 40;

/// Since 1970. `None`: it is no time.
pub(super) fn time(text: &str) -> Option<Millis> {
    if text.len() > LONGEST {
        return None;
    }
    let formats = [DateTimeFormat::DateTimeWithOffset, DateTimeFormat::HttpDate];
    let read = formats.into_iter().find_map(|format| DateTime::from_str(text, format).ok())?;
    u64::try_from(read.to_millis().ok()?).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_nothing_else() {
        let at = Some(Millis(1_795_293_000_000));
        for (text, wanted) in [
            ("2026-11-21T20:30:00Z", at),
            ("2026-11-21T21:30:00+01:00", at),
            ("2026-11-21T20:30:00.250Z", Some(Millis(1_795_293_000_250))),
            ("Sat, 21 Nov 2026 20:30:00 GMT", at),
            // The weekdays of AWS's own examples are wrong.
            ("Mon, 21 Nov 2026 20:30:00 GMT", at),
            ("1969-12-31T23:59:59Z", None),
            ("2026-11-21", None),
            ("2026-13-41T20:30:00Z", None),
            ("soon", None),
            ("", None),
            ("2026-11-21T20:30:00Z                      ", None),
        ] {
            assert_eq!(time(text), wanted, "{text}");
        }
    }
}
