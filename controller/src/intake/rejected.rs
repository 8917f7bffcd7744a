//! `rejected.jsonl`: every event that was not taken, with its original bytes and why, one JSON object a line.
//!
//! Never: loses the bytes (what is not UTF-8 is base64), nor grows a line beyond what was sent.

use super::Rejected;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file's name in the journal's folder.
pub const FILE: &str = "rejected.jsonl";

/// A line of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedLine<'a> {
    /// Where it came from: a file's name, `http`.
    pub source: &'a str,
    /// Where in it: a line, a batch's index. 0: not known.
    pub position: u64,
    /// The stable code.
    pub code: &'a str,
    /// The JSON path.
    pub path: &'a str,
    /// What is wrong and what to do.
    pub message: &'a str,
    /// The event as sent, where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<&'a str>,
    /// The event as sent, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_base64: Option<String>,
}

/// The open file. Each line is written whole; a line that was torn by a crash is cut when it is opened.
#[derive(Debug)]
pub struct RejectedFile {
    file: File,
    path: PathBuf,
    /// Lines in it.
    pub lines: u64,
    /// The highest position in it.
    pub last_position: u64,
}

#[derive(Deserialize)]
struct Position {
    position: u64,
}

impl RejectedFile {
    /// Opens it in a folder, or makes it.
    pub fn open(folder: &Path) -> std::io::Result<RejectedFile> {
        let path = folder.join(FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut last_position = 0;
        let (end, lines) = crate::status::whole_lines(&mut file, |line| {
            let position = serde_json::from_slice(line).map_or(0, |Position { position }| position);
            last_position = last_position.max(position);
            Ok(())
        })?;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(RejectedFile { file, path, lines, last_position })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one rejection.
    pub fn write(&mut self, source: &str, position: u64, bytes: &[u8], why: &Rejected) -> std::io::Result<()> {
        let text = std::str::from_utf8(bytes).ok();
        let line = RejectedLine {
            source,
            position,
            code: why.code.as_str(),
            path: &why.path,
            message: &why.message,
            event: text,
            event_base64: text.is_none().then(|| base64(bytes)),
        };
        let mut out = serde_json::to_vec(&line)?;
        out.push(b'\n');
        self.file.write_all(&out)?;
        self.lines += 1;
        Ok(())
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

/// RFC 4648 base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let n = three.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(n >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= three.len() { letter as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::RejectCode;

    #[test]
    fn base64_as_in_the_rfc() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn bytes_come_back_and_a_torn_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let why = Rejected { code: RejectCode::Malformed, path: "$".into(), message: "not JSON".into() };
        let mut file = RejectedFile::open(folder.path()).unwrap();
        file.write("f.jsonl", 3, b"{\"a", &why).unwrap();
        file.write("f.jsonl", 4, &[0xff, 0xfe], &why).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        std::fs::write(file.path(), format!("{text}{{\"torn")).unwrap();
        let again = RejectedFile::open(folder.path()).unwrap();
        assert_eq!((again.lines, again.last_position), (2, 4));
        assert_eq!(std::fs::read_to_string(again.path()).unwrap(), text);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&lines[0]["event"], &lines[0]["position"]), (&"{\"a".into(), &3.into()));
        assert_eq!((&lines[1]["eventBase64"], &lines[1]["code"]), (&"//4=".into(), &"Malformed".into()));
    }
}
