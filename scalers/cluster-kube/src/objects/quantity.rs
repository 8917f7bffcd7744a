//! Quantities as Kubernetes writes them: `250m`, `1.5`, `16Gi`, `1e3`.
//!
//! Never: a float, or an error. What cannot be read is 0: the API server checked it when it was written.

/// A quantity in thousandths, rounded down and rounded up, capped at what 64 bits hold.
#[must_use]
pub fn milli(text: &str) -> (u64, u64) {
    read(text.trim()).unwrap_or((0, 0))
}

fn read(text: &str) -> Option<(u64, u64)> {
    let ends = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(ends);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    let mut mantissa: u128 =
        if digits.is_empty() { return None } else { digits.get(..30.min(digits.len()))?.parse().ok()? };
    let mut tens = 3 - i32::try_from(part.len()).ok()?;
    match suffix {
        "" => {}
        "n" => tens -= 9,
        "u" => tens -= 6,
        "m" => tens -= 3,
        "k" => tens += 3,
        "M" => tens += 6,
        "G" => tens += 9,
        "T" => tens += 12,
        "P" => tens += 15,
        "E" => tens += 18,
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => {
            let power = "KMGTPE".find(suffix.get(..1)?)? as u32 + 1;
            mantissa = mantissa.saturating_mul(1u128 << (10 * power));
        }
        _ => tens += suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?,
    }
    let power = 10u128.checked_pow(tens.unsigned_abs()).unwrap_or(u128::MAX);
    let (down, up) = if tens >= 0 {
        let all = mantissa.saturating_mul(power);
        (all, all)
    } else {
        (mantissa / power, mantissa.div_ceil(power))
    };
    let capped = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    Some((capped(down), capped(up)))
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, down, up) in [
            ("0", 0, 0),
            ("8", 8_000, 8_000),
            ("250m", 250, 250),
            ("1.5", 1_500, 1_500),
            (".5", 500, 500),
            ("100u", 0, 1),
            ("1500u", 1, 2),
            ("1e3", 1_000_000, 1_000_000),
            ("2E", 2_000_000_000_000_000_000_000u128.min(u128::from(u64::MAX)) as u64, u64::MAX),
            ("1Ki", 1_024_000, 1_024_000),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736_000),
            ("129M", 129_000_000_000, 129_000_000_000),
            ("1E3", 1_000_000, 1_000_000),
            ("123456789012345678901234567890123", u64::MAX, u64::MAX),
            ("", 0, 0),
            ("many", 0, 0),
            ("1x", 0, 0),
        ] {
            assert_eq!(milli(text), (down, up), "{text}");
        }
    }
}
