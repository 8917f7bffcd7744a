//! Seconds in documents: a number with up to three decimals, kept as milliseconds so that nothing is lost on the way.
//!
//! Never: negative, never a float once it is read.

use forebay_kernel::units::{Span, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// A time or a length of time, written in seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Seconds(pub u64);

/// The most that is written: past the year 287000. From there on a float no longer counts milliseconds.
const MOST: u64 = 9_007_199_254_740_000;

impl From<Timestamp> for Seconds {
    fn from(at: Timestamp) -> Seconds {
        Seconds(at.0.min(MOST))
    }
}

impl From<Span> for Seconds {
    fn from(span: Span) -> Seconds {
        Seconds(span.0.min(MOST))
    }
}

impl From<Seconds> for Timestamp {
    fn from(s: Seconds) -> Timestamp {
        Timestamp(s.0)
    }
}

impl From<Seconds> for Span {
    fn from(s: Seconds) -> Span {
        Span(s.0)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1000) {
            to.serialize_u64(self.0 / 1000)
        } else {
            to.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        let seconds = f64::deserialize(from)?;
        if !(0.0..=MOST as f64 / 1000.0).contains(&seconds) {
            return Err(D::Error::custom(format!("{seconds} is not a time: give seconds from 0 on")));
        }
        Ok(Seconds((seconds * 1000.0).round() as u64))
    }
}

impl JsonSchema for Seconds {
    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "description": "Seconds, with up to three decimals." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for ms in [0, 1, 999, 1000, 1_234_567, 1_763_715_600_123] {
            let text = serde_json::to_string(&Seconds(ms)).expect("writes");
            assert_eq!(serde_json::from_str::<Seconds>(&text).expect("reads"), Seconds(ms), "{text}");
        }
        assert_eq!(serde_json::to_string(&Seconds(2000)).expect("writes"), "2");
        assert!(serde_json::from_str::<Seconds>("-1").is_err());
        assert!(serde_json::from_str::<Seconds>("1e300").is_err());
    }
}
