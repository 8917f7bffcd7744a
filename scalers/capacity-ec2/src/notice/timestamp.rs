//! Parses AWS's timestamps: `2026-11-21T20:30:00Z`, and in the details of AWS Health `Sat, 21 Nov 2026 20:30:00 GMT`.

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use forebay_kernel::units::Timestamp;

/// The longest text that is a timestamp.
const MAX_LEN: usize = 40;

/// The time since 1970. `None`: the text is not a timestamp, or before 1970.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    if text.len() > MAX_LEN {
        return None;
    }
    let formats = [DateTimeFormat::DateTimeWithOffset, DateTimeFormat::HttpDate];
    let read = formats.into_iter().find_map(|format| DateTime::from_str(text, format).ok())?;
    u64::try_from(read.to_millis().ok()?).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_parsed_and_nothing_else() {
        let at = Some(Timestamp(1_795_293_000_000));
        for (text, expected) in [
            ("2026-11-21T20:30:00Z", at),
            ("2026-11-21T21:30:00+01:00", at),
            ("2026-11-21T20:30:00.250Z", Some(Timestamp(1_795_293_000_250))),
            ("Sat, 21 Nov 2026 20:30:00 GMT", at),
            // The weekdays in AWS's own examples are wrong.
            ("Mon, 21 Nov 2026 20:30:00 GMT", at),
            ("1969-12-31T23:59:59Z", None),
            ("2026-11-21", None),
            ("2026-13-41T20:30:00Z", None),
            ("soon", None),
            ("", None),
            ("2026-11-21T20:30:00Z                      ", None),
        ] {
            assert_eq!(parse_timestamp(text), expected, "{text}");
        }
    }
}
