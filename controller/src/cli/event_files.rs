//! Files of events as they were written: each event with the place that it begins at, so that whatever is said of one names it.
//!
//! ```text
//! text -> objects one after the other, and what stands in arrays -> as written, with file, line and column
//! ```
//!
//! Never: judges an event. A field that is given twice, or what stands in an array and is no object, is for the intake to refuse.

use super::outcome::{Failure, name_of, read};
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt;
use std::path::PathBuf;

/// What JSON may have around a value.
const BLANKS: &[char] = &[' ', '\t', '\r', '\n'];

/// What an array may have between two values.
const SEPARATORS: &[char] = &[' ', '\t', '\r', '\n', ','];

/// A file of events, read whole.
#[derive(Debug)]
pub(super) struct EventFile {
    /// As messages call it.
    pub name: String,
    pub text: String,
}

/// Where an event begins: file, line, and, where more than blanks stands before it on its line, column. Both are counted from 1, the column in
/// characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct EventPlace<'a> {
    pub file: &'a str,
    pub line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl fmt::Display for EventPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ", column {column}"))
    }
}

/// An event of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenEvent<'a> {
    /// As it is written there.
    pub event: &'a RawValue,
    pub place: EventPlace<'a>,
}

/// Reads files, so that nothing is sent where one of them cannot be read.
pub(super) fn read_files(paths: &[PathBuf]) -> Result<Vec<EventFile>, Failure> {
    if paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(Failure::input("`-` stands there more than once, and stdin can be read once: leave one of them"));
    }
    paths.iter().map(|path| Ok(EventFile { name: name_of(path), text: read(path)? })).collect()
}

/// The events of a text: one object, an array, or one of either after the other. `file`: as messages call it.
pub(super) fn events_of<'a>(file: &'a str, text: &'a str) -> Result<Vec<WrittenEvent<'a>>, Failure> {
    let mut events = Vec::new();
    let mut counted = Counted::new(file, text);
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&'a RawValue>();
    loop {
        let at = values.byte_offset();
        let begins = at + skipped(text, at, BLANKS);
        let Some(value) = values.next() else { return Ok(events) };
        let value: &'a RawValue = value.map_err(|error| not_json(file, text, &error))?;
        match value.get().as_bytes().first() {
            Some(b'{') => events.push(WrittenEvent { event: value, place: counted.place(begins) }),
            Some(b'[') => {
                let list: Vec<&'a RawValue> =
                    serde_json::from_str(value.get()).map_err(|error| not_json(file, text, &error))?;
                let mut at = begins + 1;
                for event in list {
                    at += skipped(text, at, SEPARATORS);
                    events.push(WrittenEvent { event, place: counted.place(at) });
                    at += event.get().len();
                }
            }
            _ => {
                let place = counted.place(begins);
                return Err(Failure::input(format_args!(
                    "{place}: not a JSON object: send events, see `forebay schema event`"
                )));
            }
        }
    }
}

fn not_json(file: &str, text: &str, error: &serde_json::Error) -> Failure {
    let said = error.to_string();
    // It ends with the place, which stands at the beginning here.
    let what = said.split(" at line ").next().unwrap_or(&said);
    Failure::input(format_args!(
        "{file}, line {}, column {}: not JSON: {what}: send one object, an array of them, or one a line",
        error.line(),
        column(text, error)
    ))
}

/// The column of an error in characters: it counts bytes itself.
fn column(text: &str, error: &serde_json::Error) -> usize {
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let before = error.column().saturating_sub(1);
    let characters = line.char_indices().take_while(|(at, _)| *at < before).count();
    // Behind the end of the line it is where the line ends.
    characters + before.saturating_sub(line.len()) + 1
}

/// How many bytes from an offset on are such characters.
fn skipped(text: &str, at: usize, these: &[char]) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.len() - rest.trim_start_matches(these).len()
}

/// Lines and columns, counted on from event to event: not each time from the beginning.
struct Counted<'a> {
    file: &'a str,
    text: &'a str,
    /// What lies before this offset is counted.
    upto: usize,
    /// The line that it is on.
    line: usize,
    /// Characters before it on this line.
    chars: usize,
    /// Whether these are blank.
    is_blank: bool,
}

impl<'a> Counted<'a> {
    fn new(file: &'a str, text: &'a str) -> Counted<'a> {
        Counted { file, text, upto: 0, line: 1, chars: 0, is_blank: true }
    }

    /// The place of an offset, which is no earlier than the last one that was asked for.
    fn place(&mut self, at: usize) -> EventPlace<'a> {
        let passed = self.text.get(self.upto..at).unwrap_or_default();
        self.upto = at;
        let rest = match passed.rsplit_once('\n') {
            Some((before, rest)) => {
                self.line += before.matches('\n').count() + 1;
                (self.chars, self.is_blank) = (0, true);
                rest
            }
            None => passed,
        };
        self.chars += rest.chars().count();
        self.is_blank = self.is_blank && rest.trim().is_empty();
        let column = (!self.is_blank).then_some(self.chars + 1);
        EventPlace { file: self.file, line: self.line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Lines and columns of the events of a text.
    fn places(text: &str) -> Vec<(usize, Option<usize>)> {
        events_of("f", text).unwrap().iter().map(|one| (one.place.line, one.place.column)).collect()
    }

    #[test]
    fn what_is_sent_is_what_was_written() {
        let text = "{\"a\": 1, \"a\": 2}\n[{\"b\":1.50}, 7]";
        let events = events_of("f", text).unwrap();
        let sent: Vec<&RawValue> = events.iter().map(|one| one.event).collect();
        assert_eq!(serde_json::to_string(&sent).unwrap(), "[{\"a\": 1, \"a\": 2},{\"b\":1.50},7]");
    }

    #[test]
    fn each_event_is_known_by_the_place_that_it_begins_at() {
        type Place = (usize, Option<usize>);
        let cases: [(&str, &[Place]); 7] = [
            (
                "\n{\"a\": 1}\n{\n \"b\": 2\n}  {\"c\": 3}\n\n[{\"d\": 4}]\n{\"e\": 5}",
                &[(2, None), (3, None), (5, Some(4)), (7, Some(2)), (8, None)],
            ),
            ("{\"a\": 1}\r\n\r\n  {\"b\": 2}\r\n", &[(1, None), (3, None)]),
            ("[\n  {\"a\": 1},\n  {\n  \"b\": [1, 2]}\n, {\"c\": 3}\n]\n", &[(2, None), (3, None), (5, Some(3))]),
            ("[{\"é\": \"\u{1f600}\"}, 7 ,\"x\"]", &[(1, Some(2)), (1, Some(14)), (1, Some(17))]),
            ("[{\"a\": \"}, {\"}, [{}]]\n[]\n[ {} ]", &[(1, Some(2)), (1, Some(17)), (3, Some(3))]),
            ("[\n]", &[]),
            ("{}{}", &[(1, None), (1, Some(3))]),
        ];
        for (text, expected) in cases {
            assert_eq!(places(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused_with_its_place() {
        let refused = |text: &str| events_of("f", text).unwrap_err().text;
        let torn = refused("{}\n\n{\"a\": ");
        assert!(torn.starts_with("f, line 3, column ") && torn.contains(": not JSON: EOF while parsing"), "{torn}");
        // Columns are characters, also where those before it take several bytes.
        let wide = refused("{}\n{\"é\": x}");
        assert!(wide.starts_with("f, line 2, column 7: not JSON: "), "{wide}");
        let remedy = ": send one object, an array of them, or one a line";
        assert!(!torn.contains(" at line ") && torn.ends_with(remedy), "{torn}");
        let torn = refused("[{},\n{]");
        assert!(torn.starts_with("f, line 2, column ") && torn.contains(": not JSON: "), "{torn}");
        assert!(refused("{}\n\n17").starts_with("f, line 3: not a JSON object"));
        assert!(refused("{} 17").starts_with("f, line 1, column 4: not a JSON object"));
    }

    #[test]
    fn a_place_names_its_file_and_stdin_is_called_so() {
        let place = EventPlace { file: "stdin", line: 3, column: None };
        assert_eq!(place.to_string(), "stdin, line 3");
        assert_eq!(EventPlace { column: Some(7), ..place }.to_string(), "stdin, line 3, column 7");
        assert_eq!([name_of(Path::new("-")), name_of(Path::new("a/b.json"))], ["stdin", "a/b.json"]);
        let twice = read_files(&[PathBuf::from("-"), PathBuf::from("-")]).unwrap_err();
        assert!(twice.text.contains("stdin can be read once"), "{}", twice.text);
    }

    #[test]
    fn a_line_of_many_events_is_gone_through_once() {
        let text = format!("[{}{{}}]", "{\"a\":1},".repeat(200_000));
        let places = places(&text);
        assert_eq!((places.len(), places.last()), (200_001, Some(&(1, Some(1_600_002)))));
    }
}
