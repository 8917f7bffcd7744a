//! Quantities as Kubernetes writes them: `500m`, `1.5`, `2Gi`, `1e3`.
//!
//! Never: rounded down. What is asked for is at least there.

/// A quantity in thousandths, rounded up. `None`: it is none, or is below zero.
pub(super) fn milli(text: &str) -> Option<u128> {
    let text = text.trim().trim_start_matches('+');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') || whole.len() > 20 || part.len() > 12 {
        return None;
    }
    let digits: u128 = format!("0{whole}{part}").parse().ok()?;
    let (times, over) = factor(suffix)?;
    let over = over.checked_mul(10u128.checked_pow(part.len() as u32)?)?;
    Some(digits.checked_mul(times)?.checked_mul(1000)?.div_ceil(over))
}

/// What a suffix multiplies by, and divides by.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    let binary = |power: u32| Some((1024u128.pow(power), 1));
    let decimal = |power: u32| Some((1000u128.pow(power), 1));
    match suffix {
        "" => decimal(0),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10u128.checked_pow(power.unsigned_abs()).filter(|_| power.abs() <= 18)?;
            Some(if power < 0 { (1, ten) } else { (ten, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("1", 1000),
            ("500m", 500),
            ("1.5", 1500),
            (".5", 500),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("5e-1", 500),
            ("2Gi", 2 * 1024 * 1024 * 1024 * 1000),
            ("1k", 1_000_000),
            ("1n", 1),
            ("0", 0),
        ] {
            assert_eq!(milli(text), Some(expected), "{text}");
        }
        for text in ["", ".", "1x", "-1", "1.2.3", "e3", "1e99", "99999999999999999999999"] {
            assert_eq!(milli(text), None, "{text}");
        }
    }
}
