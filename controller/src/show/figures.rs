//! Figures as people read them: thousands apart, few decimals, the unit beside them.
//!
//! Never: rounds what a program will read.

use forebay_quantity::is_unseen;

/// `1234567` as `1,234,567`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with so many decimals, thousands apart.
#[must_use]
pub fn number(x: f64, decimals: usize) -> String {
    if !x.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{:.decimals$}", x.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let sign = if x < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) { "-" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// GPUs: whole where they are whole.
#[must_use]
pub fn gpus(x: f64) -> String {
    if x.fract().abs() < 0.0005 { number(x, 0) } else { number(x, 2) }
}

/// Dollars.
#[must_use]
pub fn usd(x: f64) -> String {
    format!("{} USD", number(x, 2))
}

/// A part of one as percent.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{} %", number(part * 100.0, 1))
}

/// A length of time in milliseconds, told as [`seconds`] tells it, the last of them whole.
#[must_use]
pub fn length(ms: u64) -> String {
    seconds((ms / 1000) as f64)
}

/// A length of time in at most two units: `45s`, `12m30s`, `3h05m`, `2d04h`.
#[must_use]
pub fn seconds(s: f64) -> String {
    if !s.is_finite() || s < 0.0 {
        return "-".to_owned();
    }
    if s > 0.0 && s < 10.0 && s.fract() > 0.0 {
        return format!("{s:.1}s");
    }
    let s = s.round() as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, 0) => format!("{m}m"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, 0, _) => format!("{h}h"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, 0, _, _) => format!("{d}d"),
        (d, h, _, _) => format!("{d}d{h:02}h"),
    }
}

/// At most so many characters; the middle of what is longer is left out. What cannot be seen, or turns what is around it, never reaches
/// the terminal.
#[must_use]
pub fn short(text: &str, most: usize) -> String {
    let clean: Vec<char> = text.chars().map(|c| if is_unseen(c) { '\u{fffd}' } else { c }).collect();
    if clean.len() <= most {
        return clean.into_iter().collect();
    }
    let head = most.saturating_sub(1) / 2;
    let tail = most.saturating_sub(1) - head;
    let (front, back) = (&clean[..head], &clean[clean.len() - tail..]);
    front.iter().chain(&['…']).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(number(-1234.5, 1), "-1,234.5");
        assert_eq!(number(-0.01, 1), "0.0");
        assert_eq!(number(f64::NAN, 1), "-");
        assert_eq!(gpus(8.0), "8");
        assert_eq!(gpus(0.25), "0.25");
        assert_eq!(percent(0.873), "87.3 %");
    }

    #[test]
    fn times_take_two_units_at_most() {
        let cases = [
            (0.0, "0s"),
            (2.5, "2.5s"),
            (59.0, "59s"),
            (60.0, "1m"),
            (750.0, "12m30s"),
            (3600.0, "1h"),
            (11_100.0, "3h05m"),
            (187_200.0, "2d04h"),
        ];
        for (s, text) in cases {
            assert_eq!(seconds(s), text, "{s}");
        }
        assert_eq!((length(2_999), length(60_000)), ("2s".to_owned(), "1m".to_owned()));
    }

    #[test]
    fn long_names_lose_their_middle_and_control_characters() {
        assert_eq!(short("resnet", 10), "resnet");
        assert_eq!(short("abcdefghij", 5), "ab…ij");
        assert_eq!(short("a\u{1b}[31mb", 20), "a\u{fffd}[31mb");
    }
}
