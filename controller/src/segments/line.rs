//! A line and its checksum: the last field of the object, so that the line stays JSON.
//!
//! ```text
//! {"a":1}  ->  {"a":1,"crc32c":"0123abcd"}      CRC-32C of {"a":1
//! ```

/// `,"crc32c":"` and `"}`.
const BEFORE: &[u8] = b",\"crc32c\":\"";
const AFTER: &[u8] = b"\"}";
const DIGITS: usize = 8;
const LENGTH: usize = BEFORE.len() + DIGITS + AFTER.len();

/// Gives a line its checksum. It must be an object that is not empty.
pub fn seal(line: &mut Vec<u8>) {
    line.truncate(line.len().saturating_sub(1));
    let crc = crc32c::crc32c(line);
    line.extend_from_slice(BEFORE);
    line.extend_from_slice(format!("{crc:0DIGITS$x}").as_bytes());
    line.extend_from_slice(AFTER);
}

/// The line as it was before it got its checksum.
///
/// # Errors
/// When the line has no checksum, or one that does not agree: which of these.
pub fn unseal(line: &[u8]) -> Result<Vec<u8>, &'static str> {
    let at = line.len().checked_sub(LENGTH).ok_or("it is too short to have a checksum")?;
    let (object, trailer) = line.split_at(at);
    let crc = trailer.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER)).ok_or("it has no checksum")?;
    let stated = std::str::from_utf8(crc).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
    if stated != Some(crc32c::crc32c(object)) {
        return Err("its checksum does not agree");
    }
    let mut whole = object.to_vec();
    whole.push(b'}');
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_json_comes_back_whole_and_no_changed_bit_passes() {
        let line = br#"{"a":1,"b":"}\"x"}"#.to_vec();
        let mut sealed = line.clone();
        seal(&mut sealed);
        let json: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
        assert!(json["crc32c"].as_str().is_some_and(|crc| crc.len() == DIGITS), "{json}");
        assert_eq!(unseal(&sealed).unwrap(), line);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The digits of the checksum may be written in capitals.
            assert!(unseal(&changed).is_err() || changed.eq_ignore_ascii_case(&sealed), "bit {bit}");
        }
    }
}
