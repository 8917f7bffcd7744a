//! Decimal text to whole units, in integer arithmetic: no float ever stands between a file and a millisecond.
//! It never guesses: a number that is negative, endless or no number is a fault with its own words.

/// Why a text is not the number that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFault {
    /// Not a decimal number at all (this includes `nan` and `inf`).
    Malformed,
    /// Below zero.
    Negative,
    /// Above what the column can mean.
    TooLarge,
    /// A fraction where a whole number is needed.
    Fraction,
}

impl NumberFault {
    /// What is wrong, as an error says it before the value.
    #[must_use]
    pub fn problem(self) -> &'static str {
        match self {
            Self::Malformed => "not a number",
            Self::Negative => "negative",
            Self::TooLarge => "too large",
            Self::Fraction => "not a whole number",
        }
    }
}

/// `text` times ten to the power `scale`, rounded half up; the flag is true where nothing was rounded away.
///
/// Reads plain decimals and the `1.5e3` that number printers write. At most 40 digits count; more are malformed.
///
/// # Errors
/// Why the text is not such a number.
pub fn scaled(text: &str, scale: i32) -> Result<(u64, bool), NumberFault> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((m, e)) => (m, exponent(e)?),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.len().saturating_add(fraction.len());
    if digits == 0 || digits > 40 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return Err(NumberFault::Malformed);
    }
    // Where the point stands after scaling: so many of the digits are kept.
    let kept = i64::try_from(whole.len()).unwrap_or(0) + i64::from(exponent) + i64::from(scale);
    let mut value: u128 = 0;
    let mut exact = true;
    let mut round_up = false;
    for (n, digit) in (0i64..).zip(whole.bytes().chain(fraction.bytes()).map(|b| b - b'0')) {
        if n < kept {
            value = value.saturating_mul(10).saturating_add(u128::from(digit));
        } else {
            exact &= digit == 0;
            round_up |= n == kept && digit >= 5;
        }
    }
    let missing = kept.saturating_sub(i64::try_from(digits).unwrap_or(0)).max(0);
    for _ in 0..missing.min(40) {
        value = value.saturating_mul(10);
    }
    if value == 0 && !round_up {
        return if negative && !exact { Err(NumberFault::Negative) } else { Ok((0, exact)) };
    }
    if negative {
        return Err(NumberFault::Negative);
    }
    let value = value.saturating_add(u128::from(round_up));
    Ok((u64::try_from(value).map_err(|_| NumberFault::TooLarge)?, exact))
}

/// A whole number of at most `max`; `4.0` is one, `4.5` is not.
///
/// # Errors
/// Why the text is not such a number.
pub fn whole(text: &str, max: u64) -> Result<u64, NumberFault> {
    let (value, exact) = scaled(text, 0)?;
    if !exact {
        return Err(NumberFault::Fraction);
    }
    if value > max { Err(NumberFault::TooLarge) } else { Ok(value) }
}

fn exponent(text: &str) -> Result<i32, NumberFault> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberFault::Malformed);
    }
    text.parse().map_err(|_| NumberFault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::{NumberFault, scaled, whole};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn decimals_become_milliseconds() {
        let cases = [
            ("0", 0, true),
            ("573.2", 573_200, true),
            ("3881.59660090849", 3_881_597, false),
            ("0.0005", 1, false),
            ("0.0004", 0, false),
            (".5", 500, true),
            ("5.", 5_000, true),
            ("1.5e3", 1_500_000, true),
            ("1E-3", 1, true),
            ("+7", 7_000, true),
            ("-0", 0, true),
            ("-0.0", 0, true),
            ("0e9999", 0, true),
        ];
        for (text, ms, exact) in cases {
            assert_eq!(scaled(text, 3), Ok((ms, exact)), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_says_how() {
        for text in ["", ".", "-", "nan", "inf", "1,5", "0x10", "1e", "1e99999", "12a", "1.2.3", "٣"] {
            assert_eq!(scaled(text, 3), Err(NumberFault::Malformed), "{text}");
        }
        assert_eq!(scaled("-1", 3), Err(NumberFault::Negative));
        assert_eq!(scaled("-0.0001", 3), Err(NumberFault::Negative));
        assert_eq!(scaled("1e30", 3), Err(NumberFault::TooLarge));
        assert_eq!(whole("4.5", 10), Err(NumberFault::Fraction));
        assert_eq!(whole("11", 10), Err(NumberFault::TooLarge));
        assert_eq!(whole("4.0", 10), Ok(4));
    }

    proptest! {
        // Always the same cases; PROPTEST_RNG_SEED gives others.
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_number_or_a_fault(text in "\\PC{0,60}", scale in -3i32..9) {
            let _ = scaled(&text, scale);
        }

        #[test]
        fn printed_milliseconds_come_back(ms in 0u64..1_000_000_000_000_000) {
            let text = format!("{}.{:03}", ms / 1000, ms % 1000);
            prop_assert_eq!(scaled(&text, 3), Ok((ms, true)));
        }
    }
}
