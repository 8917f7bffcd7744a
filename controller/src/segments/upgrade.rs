//! One long file of lines, as releases before this one wrote it, becomes a folder of segments.
//!
//! ```text
//! status.jsonl -> status.new/ (segments, synced) -> renamed to status/        status.jsonl stays until the journal is upgraded
//! ```
//!
//! Never: changes the old file.

use super::{LogPosition, NumberedLine, ReadHead, SegmentError, SegmentLog};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Lines that are written together.
const AT_ONCE: usize = 1_000;

/// Writes the lines of `old` as segments into `folder`, in the place of what is there. A torn last line is left out. Returns how many there
/// are; 0 where there is no such file.
///
/// # Errors
/// What the file system says, or a line in the middle that is not one.
pub fn split_into_segments(old: &Path, folder: &Path, head: ReadHead) -> Result<u64, SegmentError> {
    let file = match File::open(old) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(SegmentError::io(old)(e)),
    };
    let draft = folder.with_extension("new");
    for left_over in [&draft, folder] {
        match std::fs::remove_dir_all(left_over) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(SegmentError::io(left_over)(e)),
            _ => {}
        }
    }
    let mut log = SegmentLog::open(&draft, LogPosition::default(), head)?;
    let (mut lines, mut count) = (Vec::new(), 0);
    for_each_line(old, file, head, &mut |line| {
        lines.push(line);
        count += 1;
        if lines.len() < AT_ONCE { Ok(()) } else { log.append(std::mem::take(&mut lines)) }
    })?;
    log.append(lines)?;
    log.sync()?;
    drop(log);
    std::fs::rename(&draft, folder).map_err(SegmentError::io(folder))?;
    Ok(count)
}

fn for_each_line(
    path: &Path,
    file: File,
    head: ReadHead,
    take: &mut dyn FnMut(NumberedLine) -> Result<(), SegmentError>,
) -> Result<(), SegmentError> {
    let mut file = BufReader::with_capacity(1 << 18, file);
    let (mut at, mut last, mut bad) = (0, None, None);
    loop {
        let mut json = Vec::new();
        file.read_until(b'\n', &mut json).map_err(SegmentError::io(path))?;
        if json.pop() != Some(b'\n') {
            return Ok(());
        }
        at += 1;
        if let Some(line) = bad {
            let what = "it is no line of this log, and others follow".to_owned();
            return Err(SegmentError::Damaged { path: path.to_owned(), line, what });
        }
        match head(&json).filter(|head| last.is_none_or(|last| head.number == last + 1)) {
            Some(head) => {
                last = Some(head.number);
                take(NumberedLine { head, json })?;
            }
            None => bad = Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{LineHead, read_all};

    fn head(line: &[u8]) -> Option<LineHead> {
        let number = serde_json::from_slice::<serde_json::Value>(line).ok()?["number"].as_u64()?;
        Some(LineHead { number, at_ms: number * 10_000_000 })
    }

    #[test]
    fn every_line_is_there_afterwards_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("status.jsonl"), folder.path().join("status"));
        assert_eq!(split_into_segments(&old, &new, head).unwrap(), 0);
        let lines: Vec<String> = (5..2_505).map(|number| format!("{{\"number\":{number}}}")).collect();
        std::fs::write(&old, lines.join("\n") + "\n{\"numb").unwrap();
        // Twice: as after a crash between the two.
        for _ in 0..2 {
            assert_eq!(split_into_segments(&old, &new, head).unwrap(), 2_500);
        }
        let found = read_all(&new).unwrap();
        assert!(found.iter().eq(lines.iter().map(String::as_bytes)), "{} lines", found.len());
        std::fs::write(&old, lines.join("\n").replace("{\"number\":77}", "\0\0\0")).unwrap();
        let error = split_into_segments(&old, &new, head).unwrap_err();
        assert!(matches!(error, SegmentError::Damaged { line: 73, .. }), "{error}");
    }
}
