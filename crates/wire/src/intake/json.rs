//! JSON as it is taken from outside: UTF-8, each field once, and a bound on what it takes up once it is read.
//!
//! ```text
//! bytes -> UTF-8 -> values, counted as they are read -> Value
//! ```
//!
//! A field that is given twice is refused: readers of JSON keep the first or the last, and a job would run on what its sender did not
//! see. Depth is bounded by `serde_json` (128).
//! Never: repairs, or keeps one of two.

use super::json_cursor::shown;
use super::{BY_ADDRESS, MOST_BYTES, RejectCode, Rejected};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// What one event may weigh: a value is 1, an object 8 more. A job has some 50 values. 16,384 take 1 MiB at most beside their text,
/// where 1 MiB of `{"a":0},` would take 85 MiB.
const MOST_VALUES: u32 = 1 << 14;

/// What an object weighs beside itself: its first node takes eleven fields of 56 bytes.
const OBJECT: u32 = 8;

/// Reads the JSON of one event, or of its data. A fault is said to be at `place`, with the line, column or byte of the text.
pub(super) fn parse(bytes: &[u8], place: &str) -> Result<Value, Rejected> {
    if bytes.len() > MOST_BYTES {
        return Err(Rejected::too_large(place, bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let message = format!("not UTF-8 at byte {}; send JSON as UTF-8", e.valid_up_to());
        Rejected::new(RejectCode::Malformed, place, message)
    })?;
    if text.starts_with('\u{feff}') {
        let message = "begins with a byte order mark; send JSON without it";
        return Err(Rejected::new(RejectCode::Malformed, place, message));
    }
    let mut left = MOST_VALUES;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { left: &mut left }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|e| match (left, e.is_data()) {
        (0, true) => {
            let message = format!("{e}; {BY_ADDRESS}");
            Rejected::new(RejectCode::TooLarge, place, message)
        }
        (_, true) => Rejected::new(RejectCode::Malformed, place, format!("{e}; give each field once")),
        _ => {
            Rejected::new(RejectCode::Malformed, place, format!("not JSON: {e}; send one CloudEvent as a JSON object"))
        }
    })
}

/// Reads a value as `serde_json` does, but for what this module is about.
struct Strict<'a> {
    /// What may still be read.
    left: &'a mut u32,
}

impl Strict<'_> {
    fn takes<E: Error>(&mut self, weight: u32) -> Result<(), E> {
        *self.left = self.left.saturating_sub(weight);
        if *self.left == 0 { Err(E::custom("has more values than an event may have")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Value, E> {
        self.takes(1).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Value, E> {
        self.takes(1).map(|()| Value::from(value))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Value, E> {
        self.takes(1).map(|()| Value::from(value))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Value, E> {
        // JSON has no infinity; what is too large for a double was refused as it was read.
        self.takes(1).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.takes(1).map(|()| Value::from(value))
    }

    fn visit_unit<E: Error>(mut self) -> Result<Value, E> {
        self.takes(1).map(|()| Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.takes(1)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict { left: self.left })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        self.takes(1 + OBJECT)?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field `{}` is given twice", shown(&name))));
            }
            let value = fields.next_value_seed(Strict { left: self.left })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads() {
        let text = r#"{"a":[1,-1,1.5,1e300,"\u00e9\ud83d\ude00",true,null,{}],"b":18446744073709551615,"c":-0,"":""}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse(text.as_bytes(), "$").unwrap(), value);
    }

    #[test]
    fn what_it_does_not_take_is_said_with_its_place() {
        let many = format!("[{}0]", "{},".repeat(1900));
        let deep = "[".repeat(200);
        let cases: [(&[u8], RejectCode, &str); 9] = [
            (b"\xff{}", RejectCode::Malformed, "not UTF-8 at byte 0"),
            (b"{\"a\":\"\xc3\x28\"}", RejectCode::Malformed, "not UTF-8 at byte 6"),
            ("\u{feff}{}".as_bytes(), RejectCode::Malformed, "byte order mark"),
            (
                br#"{"a":1,"b":{"c":1,"c":1}}"#,
                RejectCode::Malformed,
                "the field `c` is given twice at line 1 column 21",
            ),
            (b"[1e999]", RejectCode::Malformed, "number out of range at line 1"),
            (b"{} {}", RejectCode::Malformed, "trailing characters"),
            (br#"["\ud800"]"#, RejectCode::Malformed, "line 1 column"),
            (deep.as_bytes(), RejectCode::Malformed, "recursion limit"),
            (many.as_bytes(), RejectCode::TooLarge, "more values"),
        ];
        for (bytes, code, part) in cases {
            let rejected = parse(bytes, "$").unwrap_err();
            assert_eq!(rejected.code, code, "{rejected}");
            assert!(rejected.message.contains(part), "{part} is missing in: {rejected}");
        }
    }
}
