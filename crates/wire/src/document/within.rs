//! How close together a gang's workers go, as it is written: `"rack"` (or not at all), or `{"prefer": "rack"}`.
//!
//! It has a `Deserialize` of its own, because serde's untagged enums lose the cause of an error.
//! Never: another spelling; an unknown word is refused with those that are known.

use forebay_kernel::job::{Level, TopologyConstraint};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// The levels, farthest first: as they are listed to people.
pub const LEVELS: [Level; 5] = [Level::Zone, Level::Rack, Level::Node, Level::Nvlink, Level::Numa];

/// How close together workers go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WithinView(pub TopologyConstraint);

/// What to write instead of a word that is no level.
#[must_use]
pub fn known() -> String {
    let names: Vec<&str> = LEVELS.iter().map(|l| l.as_str()).collect();
    format!("write {}; or {{\"prefer\":\"rack\"}} where farther will do", names.join(", "))
}

impl Serialize for WithinView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let level = self.0.level.as_str();
        if self.0.required {
            return to.serialize_str(level);
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("prefer", level)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for WithinView {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<WithinView, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = WithinView;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a level such as \"rack\", or {\"prefer\": \"rack\"}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WithinView, E> {
                named(text, true)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WithinView, A::Error> {
                let found = match map.next_entry::<String, String>()? {
                    Some((key, level)) if key == "prefer" => named(&level, false)?,
                    _ => return Err(A::Error::custom(known())),
                };
                match map.next_key::<String>()? {
                    Some(_) => Err(A::Error::custom(known())),
                    None => Ok(found),
                }
            }
        }
        from.deserialize_any(Shapes)
    }
}

fn named<E: Error>(text: &str, required: bool) -> Result<WithinView, E> {
    let level = Level::named(text);
    let level = level.ok_or_else(|| E::custom(format!("`{}` is not a level; {}", text.escape_debug(), known())))?;
    Ok(WithinView(TopologyConstraint { level, required }))
}

impl JsonSchema for WithinView {
    fn schema_name() -> Cow<'static, str> {
        "Within".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = LEVELS.iter().map(|l| l.as_str()).collect();
        json_schema!({
            "description": "All within one of these, or not at all; with `prefer`, where it can be.",
            "oneOf": [
                { "type": "string", "enum": names },
                {
                    "type": "object",
                    "properties": { "prefer": { "type": "string", "enum": names } },
                    "required": ["prefer"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for (text, level, required) in [("\"rack\"", Level::Rack, true), ("{\"prefer\":\"numa\"}", Level::Numa, false)]
        {
            let view: WithinView = serde_json::from_str(text).expect(text);
            assert_eq!(view, WithinView(TopologyConstraint { level, required }));
            assert_eq!(serde_json::to_string(&view).expect("JSON"), text);
        }
        for wrong in ["\"shelf\"", "{\"prefer\":\"shelf\"}", "{\"want\":\"rack\"}", "{}", "3"] {
            assert!(serde_json::from_str::<WithinView>(wrong).is_err(), "{wrong}");
        }
    }
}
