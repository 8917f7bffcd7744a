//! Fields that are a word or a map: `reject` or `{under: ...}`, `auto` or `{after: ...}`, `any` or a list, a number or a schedule.
//!
//! Read by hand, because serde's untagged enums lose the place and the cause of an error.
//! Never: more than two shapes a field.

use super::fault::shown;
use super::units::Time;
use super::written::Quota;
use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// What happens to a job whose queue is not declared.
#[derive(Clone, PartialEq, Debug)]
pub enum UndeclaredQueues {
    /// It is rejected.
    Reject,
    /// All such queues share one rule and one quota.
    Shared(Under),
}

/// One rule for all undeclared queues.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "`reject`, or a map such as `{under: shared, atMost: 200}`"
)]
pub struct Under {
    /// The queue whose rules and quota they share. If it is not declared it is one of tier `normal` that may use all pools.
    pub under: String,
    /// How many different undeclared queues there may be; a job of one more is rejected. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
    /// By pool, what they are promised all together, within the quota of `under` if that is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_together: Option<IndexMap<String, Quota>>,
}

/// When an idle node is given back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Drain {
    /// After as long as buying it back would take.
    Auto,
    /// After this time idle.
    After(Time),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`auto`, or a map such as `{after: 5m}`")]
struct After {
    /// So long idle.
    after: Time,
}

/// Which instance types a pool has.
#[derive(Clone, PartialEq, Debug)]
pub enum InstanceTypes {
    /// All of the catalogue.
    Any,
    /// Names and globs.
    Listed(Vec<String>),
}

/// Nodes kept ready.
#[derive(Clone, PartialEq, Debug)]
pub enum KeepReady {
    /// So many, always.
    Always(u32),
    /// By schedule; the largest that holds counts.
    Scheduled(Vec<Ready>),
}

/// One line of a keepReady schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a line such as `{nodes: 2, when: Mon-Fri 09:00-18:00}`"
)]
pub struct Ready {
    /// So many nodes.
    pub nodes: u32,
    /// Days and hours. Default: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Hours>,
    /// The time zone of `when`. Default: `UTC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<TimeZone>,
}

/// Days and hours of a week, such as `Mon-Fri 09:00-18:00`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hours {
    /// As written.
    text: String,
}

/// An IANA time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeZone(String);

/// A visitor of one shape as a word and another as a map or list.
macro_rules! two_shapes {
    ($name:ident, $expecting:literal, word: $word:expr $(, map: $map_type:ty => $from_map:expr)? $(, list: $item:ty => $from_list:expr)?) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Shapes;
                impl<'de> Visitor<'de> for Shapes {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        let word: fn(&str) -> Option<$name> = $word;
                        word(text).ok_or_else(|| E::custom(format!("`{}` is not known here; write {}", shown(text), $expecting)))
                    }
                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$name, E> {
                        self.visit_str(&n.to_string())
                    }
                    $(fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let map = <$map_type>::deserialize(de::value::MapAccessDeserializer::new(map))?;
                        Ok($from_map(map))
                    })?
                    $(fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<$name, A::Error> {
                        let mut items: Vec<$item> = Vec::new();
                        while let Some(item) = list.next_element()? {
                            items.push(item);
                        }
                        Ok($from_list(items))
                    })?
                }
                d.deserialize_any(Shapes)
            }
        }
    };
}

two_shapes!(UndeclaredQueues, "`reject`, or a map such as `{under: shared, atMost: 200}`",
    word: |w| (w == "reject").then_some(UndeclaredQueues::Reject), map: Under => UndeclaredQueues::Shared);
two_shapes!(Drain, "`auto`, or a map such as `{after: 5m}`",
    word: |w| (w == "auto").then_some(Drain::Auto), map: After => |a: After| Drain::After(a.after));
two_shapes!(InstanceTypes, "`any`, or a list such as `[g5.xlarge, g6.*]`",
    word: |w| (w == "any").then_some(InstanceTypes::Any), list: String => InstanceTypes::Listed);
two_shapes!(KeepReady, "a number of nodes, or a list such as `[{nodes: 2, when: Mon-Fri 09:00-18:00}]`",
    word: |w| w.parse().ok().map(KeepReady::Always), list: Ready => KeepReady::Scheduled);
two_shapes!(Hours, "days and hours such as `Mon-Fri 09:00-18:00`", word: |w| is_hours(w).then(|| Hours { text: w.to_owned() }));
two_shapes!(TimeZone, "an IANA time zone such as `Europe/Berlin`", word: |w| {
    jiff::tz::TimeZone::get(w).is_ok().then(|| TimeZone(w.to_owned()))
});

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// `Mon-Fri 09:00-18:00`, `Sat,Sun 10:00-12:00`, `22:00-06:00`, `Mon-Fri`.
fn is_hours(text: &str) -> bool {
    let day = |d: &str| DAYS.contains(&d);
    let days =
        |t: &str| t.split(',').all(|part| part.split_once('-').map_or_else(|| day(part), |(a, b)| day(a) && day(b)));
    let time = |t: &str| {
        let number = |n: &str, below: u8| n.len() == 2 && n.parse::<u8>().is_ok_and(|n| n < below);
        t == "24:00" || t.split_once(':').is_some_and(|(h, m)| number(h, 24) && number(m, 60))
    };
    let hours = |t: &str| t.split_once('-').is_some_and(|(a, b)| a != b && a != "24:00" && time(a) && time(b));
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [one] => days(one) || hours(one),
        [first, second] => days(first) && hours(second),
        _ => false,
    }
}

impl Serialize for UndeclaredQueues {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            UndeclaredQueues::Reject => s.serialize_str("reject"),
            UndeclaredQueues::Shared(under) => under.serialize(s),
        }
    }
}

impl Serialize for Drain {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Drain::Auto => s.serialize_str("auto"),
            Drain::After(after) => After { after: *after }.serialize(s),
        }
    }
}

impl Serialize for InstanceTypes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            InstanceTypes::Any => s.serialize_str("any"),
            InstanceTypes::Listed(names) => names.serialize(s),
        }
    }
}

impl Serialize for KeepReady {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            KeepReady::Always(nodes) => s.serialize_u32(*nodes),
            KeepReady::Scheduled(lines) => lines.serialize(s),
        }
    }
}

impl Serialize for Hours {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl Serialize for TimeZone {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

macro_rules! schema {
    ($name:ident, $shown:literal, |$generator:ident| $schema:expr) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $shown.into()
            }
            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

schema!(UndeclaredQueues, "UndeclaredQueues", |g| {
    let under = g.subschema_for::<Under>();
    json_schema!({"oneOf": [{"const": "reject"}, under], "description": "`reject`, or one rule for all undeclared queues"})
});
schema!(Drain, "Drain", |g| {
    let after = g.subschema_for::<After>();
    json_schema!({"oneOf": [{"const": "auto"}, after], "description": "`auto`, or a time idle"})
});
schema!(InstanceTypes, "InstanceTypes", |_g| {
    json_schema!({"oneOf": [{"const": "any"}, {"type": "array", "items": {"type": "string"}}], "description": "`any`, or names and globs"})
});
schema!(KeepReady, "KeepReady", |g| {
    let lines = g.subschema_for::<Vec<Ready>>();
    json_schema!({"oneOf": [{"type": "integer", "minimum": 0}, lines], "description": "a number of nodes, or a schedule"})
});
schema!(Hours, "Hours", |_g| {
    json_schema!({"type": "string", "description": "days and hours, such as `Mon-Fri 09:00-18:00`"})
});
schema!(
    TimeZone,
    "TimeZone",
    |_g| json_schema!({"type": "string", "description": "an IANA time zone, such as `Europe/Berlin`"})
);
