//! The lines of a folder of segments (statuses, rejected events), read as a consumer would who has docs/JOURNAL.md and nothing else.
//!
//! Never: code of the controller. The checksum is computed here from its definition.

use std::path::Path;

/// All whole lines, in order, as they were before their checksum was put in. A last line that is on its way is left out.
///
/// # Panics
/// When a segment does not follow the one before it, or a line's checksum does not agree.
#[must_use]
pub fn lines(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let mut lines: Vec<String> = Vec::new();
    let mut first = None;
    for (at, name) in names.iter().enumerate() {
        let number: u64 = name.trim_end_matches(".jsonl").parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        let begins = *first.get_or_insert(number);
        assert_eq!(number, begins + lines.len() as u64, "{name} does not follow the one before it");
        let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        assert!(whole == text || at + 1 == names.len(), "{name} is torn, and another segment follows");
        for line in whole.lines() {
            let (object, trailer) = line.rsplit_once(",\"crc32c\":\"").unwrap_or_else(|| panic!("no checksum: {line}"));
            let stated = u32::from_str_radix(trailer.trim_end_matches("\"}"), 16);
            assert_eq!(stated, Ok(crc32c(object.as_bytes())), "{name}: {line}");
            lines.push(format!("{object}}}"));
        }
    }
    lines
}

/// CRC-32C (Castagnoli), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_its_definition() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}
