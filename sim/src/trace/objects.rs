//! JSON objects out of a file, one at a time with their lines: an array of objects, or objects one after another.
//! It never parses: it finds where an object begins and ends, and holds one object at most.

use std::io::BufRead;
use std::path::PathBuf;

use forebay_catalog::input::{InputError, Opened};
use forebay_quantity::excerpt::escaped;
use forebay_quantity::slip::is_slip;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The longest object in bytes. The largest real ones, jobs with many attempts, stay below 1 MiB.
const OBJECT_BYTES: usize = 16 << 20;

/// Where a byte stands: in which line, from 1, and after how many others of it.
#[derive(Clone, Copy)]
struct Place {
    line: u64,
    byte: usize,
}

pub(super) struct Objects {
    pub(super) path: PathBuf,
    reader: Box<dyn BufRead>,
    next: Place,
    /// `Some` in a file that is an array: whether its end was seen.
    array: Option<bool>,
    begun: bool,
}

impl Objects {
    pub(super) fn new(opened: Opened) -> Self {
        Self { path: opened.path, reader: opened.reader, next: Place { line: 1, byte: 0 }, array: None, begun: false }
    }

    /// The next object and the line that it begins on.
    pub(super) fn next_object(&mut self) -> Result<Option<(u64, Value)>, InputError> {
        loop {
            let at = self.next;
            let line = at.line;
            match self.step()? {
                None if self.array == Some(false) => {
                    return Err(InputError::truncated(&self.path, line, "the JSON array is never closed"));
                }
                None => return Ok(None),
                Some(b' ' | b'\t' | b'\r' | b'\n') => {}
                Some(b'[') if !self.begun => {
                    self.begun = true;
                    self.array = Some(false);
                }
                Some(b']') if self.array == Some(false) => self.array = Some(true),
                Some(b',') if self.array == Some(false) => {}
                Some(b'{') if self.array != Some(true) => {
                    self.begun = true;
                    return self.object(at).map(|value| Some((line, value)));
                }
                Some(other) => {
                    let problem =
                        format!("\"{}\" where a JSON object should begin", escaped(&char::from(other).to_string()));
                    let remedy = "write JSON objects, one a line, or one array of them";
                    return Err(InputError::line(&self.path, line, problem, remedy));
                }
            }
        }
    }

    /// The object that begins at `start`; its brace is read.
    fn object(&mut self, start: Place) -> Result<Value, InputError> {
        let mut bytes = vec![b'{'];
        let (mut depth, mut quoted, mut after_backslash) = (1u32, false, false);
        while depth > 0 {
            let Some(byte) = self.step()? else {
                let cut = InputError::truncated(&self.path, start.line, "a JSON object begins and is never closed");
                return Err(self.broken(start, &bytes).unwrap_or(cut));
            };
            bytes.push(byte);
            if bytes.len() > OBJECT_BYTES {
                let remedy = "look for a brace or a quote that is not closed";
                let long = InputError::line(&self.path, start.line, "a JSON object of more than 16 MiB", remedy);
                return Err(self.broken(start, &bytes).unwrap_or(long));
            }
            match byte {
                _ if after_backslash => after_backslash = false,
                b'\\' if quoted => after_backslash = true,
                b'"' => quoted = !quoted,
                b'{' if !quoted => depth += 1,
                b'}' if !quoted => depth -= 1,
                _ => {}
            }
        }
        if std::str::from_utf8(&bytes).is_err() {
            return Err(InputError::line(&self.path, start.line, "not UTF-8 text", "give a text file, saved as UTF-8"));
        }
        serde_json::from_slice(&bytes).map_err(|e| self.not_json(start, &e))
    }

    /// The error for an object of which only the beginning is read, if that is broken already: then the file was not cut off.
    fn broken(&self, start: Place, beginning: &[u8]) -> Option<InputError> {
        let e = serde_json::from_slice::<IgnoredAny>(beginning).err().filter(|e| !e.is_eof())?;
        Some(self.not_json(start, &e))
    }

    fn not_json(&self, start: Place, e: &serde_json::Error) -> InputError {
        // The parser counts from the object's brace, and says where at the end of its message.
        let (lines, bytes) = (e.line().saturating_sub(1), e.column());
        let line = start.line + lines as u64;
        let (line, at) = match if lines == 0 { start.byte + bytes } else { bytes } {
            0 => (line - 1, String::from("at the end of the line")),
            byte => (line, format!("at byte {byte} of the line")),
        };
        let said = e.to_string();
        let what = said.rsplit_once(" at line ").map_or(&*said, |(what, _)| what);
        let problem = format!("not JSON {at}: {}", escaped(what));
        InputError::line(&self.path, line, problem, "correct the object, or write the file again with a JSON library")
    }

    fn step(&mut self) -> Result<Option<u8>, InputError> {
        let bytes = self.reader.fill_buf().map_err(|e| InputError::io(&self.path, e))?;
        let Some(byte) = bytes.first().copied() else {
            return Ok(None);
        };
        self.reader.consume(1);
        match byte {
            b'\n' => self.next = Place { line: self.next.line + 1, byte: 0 },
            _ => self.next.byte += 1,
        }
        Ok(Some(byte))
    }

    /// The error for a key that is missing from the object on `line`. Where one beside it is a slip of its name, that is to be mended.
    pub(super) fn missing(&self, line: u64, key: &str, object: &Value, remedy: &'static str) -> InputError {
        let found: Vec<&str> = object.as_object().into_iter().flat_map(|o| o.keys()).map(String::as_str).collect();
        let name = key.rsplit('.').next().unwrap_or(key);
        let slips: Vec<&str> = found.iter().copied().filter(|beside| is_slip(beside, name)).collect();
        let keys = found.join(",");
        match slips[..] {
            [slip] => {
                let remedy = format!("rename `{}` to `{name}`", escaped(slip));
                InputError::missing(&self.path, line, key, &keys, remedy)
            }
            _ => InputError::missing(&self.path, line, key, &keys, remedy),
        }
    }

    /// The error for a value that does not fit its key.
    pub(super) fn bad(
        &self,
        line: u64,
        key: &str,
        value: &Value,
        problem: &'static str,
        remedy: &'static str,
    ) -> InputError {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        InputError::column(&self.path, line, key, format!("{problem}, found \"{}\"", escaped(&text)), remedy)
    }
}
