//! Fields that are a word or a map: `reject` or `{under: ...}`, `auto` or `{after: ...}`, `any` or a list, a number or a schedule.
//!
//! They have a `Deserialize` of their own, because serde's untagged enums lose the place and the cause of an error.
//! Never: more than two shapes a field.

use super::fault::shown;
use super::written::WrittenQuota;
use forebay_kernel::units::Timestamp;
use forebay_quantity::Time;
use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// What happens to a job whose queue is not declared.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UndeclaredQueues {
    /// It is rejected.
    Reject,
    /// All such queues share one rule and one quota.
    #[serde(untagged)]
    Shared(Under),
}

/// One rule for all undeclared queues.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "`reject`, or a map such as `{under: shared, atMost: 200}`")]
pub struct Under {
    /// The queue whose rules and quota they share. If it is not declared, it has the rules of the nearest declared queue above it, and
    /// without one those of a queue that states nothing.
    pub under: String,
    /// How many undeclared queues may be in use at once; a job of one more is rejected. Names without jobs do not count. Default: 100.
    pub at_most: Option<u32>,
    /// By pool, what they are promised all together, within the quota of `under` if that is declared.
    pub quota_together: Option<IndexMap<String, WrittenQuota>>,
}

/// When an idle node is given back.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WrittenDrain {
    /// After as long as buying it back would take.
    Auto,
    /// After some time idle.
    #[serde(untagged)]
    After(After),
}

/// A time idle, after which a node is given back.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`auto`, or a map such as `{after: 5m}`")]
pub struct After {
    /// So long idle.
    pub after: Time,
}

/// Which instance types a pool has.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceTypes {
    /// All of the catalogue.
    Any,
    /// Names and globs.
    #[serde(untagged)]
    Listed(Vec<String>),
}

/// Nodes kept ready.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum KeepReady {
    /// So many, always.
    Always(u32),
    /// By schedule; the largest that holds counts.
    Scheduled(Vec<ReadyLine>),
}

/// One line of a keepReady schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a line such as `{nodes: 2, when: Mon-Fri 09:00-18:00}`")]
#[schemars(rename = "Ready")]
pub struct ReadyLine {
    /// So many nodes.
    pub nodes: u32,
    /// Days and hours. Default: always.
    pub when: Option<Hours>,
    /// The time zone of `when`. Default: `UTC`.
    pub zone: Option<TimeZone>,
    /// Bought only when fewer than this are to spare, then up to `high` at once. Needs `high`, and a line without `when`. Default: `nodes`.
    pub low: Option<u32>,
    /// Given back only when more than this are to spare: those idle for their `drain` time, down to `nodes`. Needs `low`. Default: `nodes`.
    pub high: Option<u32>,
}

/// Days and hours of a week, such as `Mon-Fri 09:00-18:00`. Hours that end before they begin end on the next day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct Hours {
    /// As written.
    text: String,
    /// Bit 0 is Monday.
    #[serde(skip)]
    pub days: u8,
    /// From this minute of the day.
    #[serde(skip)]
    pub from: u16,
    /// Up to this minute; at or before `from`: of the next day.
    #[serde(skip)]
    pub to: u16,
}

/// An IANA time zone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
                    $(fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let map = <$map_type>::deserialize(de::value::MapAccessDeserializer::new(map))?;
                        Ok($from_map(map))
                    })?
                    $(fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<$name, A::Error> {
                        let items = Vec::<$item>::deserialize(de::value::SeqAccessDeserializer::new(list))?;
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
two_shapes!(WrittenDrain, "`auto`, or a map such as `{after: 5m}`",
    word: |w| (w == "auto").then_some(WrittenDrain::Auto), map: After => WrittenDrain::After);
two_shapes!(InstanceTypes, "`any`, or a list such as `[g5.xlarge, g6.*]`",
    word: |w| (w == "any").then_some(InstanceTypes::Any), list: String => InstanceTypes::Listed);
two_shapes!(KeepReady, "a number of nodes, or a list such as `[{nodes: 2, when: Mon-Fri 09:00-18:00}]`",
    word: |w| w.parse().ok().map(KeepReady::Always), list: ReadyLine => KeepReady::Scheduled);
two_shapes!(Hours, "days and hours such as `Mon-Fri 09:00-18:00`", word: hours);
two_shapes!(TimeZone, "an IANA time zone such as `Europe/Berlin`", word: |w| {
    zones().get(w).is_ok().then(|| TimeZone(w.to_owned()))
});

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// `Mon-Fri 09:00-18:00`, `Sat,Sun 10:00-12:00`, `22:00-06:00`, `Mon-Fri`, `Fri-Mon`.
fn hours(text: &str) -> Option<Hours> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (days, (from, to)) = match words[..] {
        [one] => match days(one) {
            Some(days) => (days, (0, MINUTES)),
            None => (EVERY_DAY, minutes(one)?),
        },
        [first, second] => (days(first)?, minutes(second)?),
        _ => return None,
    };
    Some(Hours { text: text.to_owned(), days, from, to })
}

/// Minutes of a day.
const MINUTES: u16 = 24 * 60;
const EVERY_DAY: u8 = 0b111_1111;

/// Days and ranges of days with commas between them, as bits. A range may go round the week.
fn days(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|d| *d == name);
    let mut bits = 0u8;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let length = (last + 7 - first) % 7;
        (0..=length).for_each(|n| bits |= 1 << ((first + n) % 7));
    }
    Some(bits)
}

/// `09:00-18:00` in minutes. The same time twice is neither nothing nor a day, so it is refused.
fn minutes(text: &str) -> Option<(u16, u16)> {
    let number = |n: &str, below: u16| n.parse::<u16>().ok().filter(|v| n.len() == 2 && *v < below);
    let time = |t: &str| match t.split_once(':')? {
        ("24", "00") => Some(MINUTES),
        (hours, minutes) => Some(number(hours, 24)? * 60 + number(minutes, 60)?),
    };
    let (from, to) = text.split_once('-')?;
    let (from, to) = (time(from)?, time(to)?);
    (from != to && from < MINUTES).then_some((from, to))
}

/// The time zones that come with the program: the same on every machine, whatever its own files say.
fn zones() -> &'static jiff::tz::TimeZoneDatabase {
    static ZONES: std::sync::LazyLock<jiff::tz::TimeZoneDatabase> =
        std::sync::LazyLock::new(jiff::tz::TimeZoneDatabase::bundled);
    &ZONES
}

impl TimeZone {
    /// That of whoever names none.
    #[must_use]
    pub fn utc() -> TimeZone {
        TimeZone("UTC".to_owned())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Local time less UTC in seconds, each from its instant on: from 1970 to the end of 2060. Empty where it is always UTC.
    ///
    /// The last one holds ever after. A table, because the engine knows no time zones and must agree with itself on every machine.
    #[must_use]
    pub fn offsets(&self) -> Vec<(Timestamp, i32)> {
        /// 2061-01-01 in seconds since 1970.
        const LAST: i64 = 2_871_763_200;
        let Ok(zone) = zones().get(&self.0) else {
            return Vec::new();
        };
        let epoch = jiff::Timestamp::UNIX_EPOCH;
        let mut out = vec![(Timestamp(0), zone.to_offset(epoch).seconds())];
        for change in zone.following(epoch).take_while(|t| t.timestamp().as_second() < LAST) {
            let seconds = change.offset().seconds();
            let at = Timestamp(u64::try_from(change.timestamp().as_millisecond()).unwrap_or(0));
            if out.last().is_some_and(|(_, before)| *before != seconds) {
                out.push((at, seconds));
            }
        }
        if out == [(Timestamp(0), 0)] { Vec::new() } else { out }
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
schema!(WrittenDrain, "Drain", |g| {
    let after = g.subschema_for::<After>();
    json_schema!({"oneOf": [{"const": "auto"}, after], "description": "`auto`, or a time idle"})
});
schema!(InstanceTypes, "InstanceTypes", |_g| {
    json_schema!({"oneOf": [{"const": "any"}, {"type": "array", "items": {"type": "string"}}], "description": "`any`, or names and globs"})
});
schema!(KeepReady, "KeepReady", |g| {
    let lines = g.subschema_for::<Vec<ReadyLine>>();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_hours_are_bits_and_minutes() {
        let read = |text: &str| hours(text).map(|h| (h.days, h.from, h.to));
        assert_eq!(read("Mon-Fri 09:00-18:00"), Some((0b001_1111, 540, 1080)));
        assert_eq!(read("Sat,Sun 10:00-24:00"), Some((0b110_0000, 600, 1440)));
        assert_eq!(read("22:00-06:30"), Some((0b111_1111, 1320, 390)));
        assert_eq!(read("Sun"), Some((0b100_0000, 0, 1440)));
        assert_eq!(read("Fri-Mon,Wed"), Some((0b111_0101, 0, 1440)));
        for wrong in
            ["", "weekdays", "Mon 9:00-18:00", "09:00-09:00", "24:00-06:00", "Mon-", "Mon 09:00-18:60", "Mon Tue 1"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    /// Known changes of the clock: summer time in Europe since 1980, at 01:00 UTC on the last Sundays of March and October since 1996.
    #[test]
    fn offsets_follow_the_zones_clock() {
        let berlin = TimeZone("Europe/Berlin".to_owned()).offsets();
        assert_eq!(berlin.first(), Some(&(Timestamp(0), 3600)));
        assert!(berlin.is_sorted_by_key(|(at, _)| *at));
        let at = |ms: u64| berlin.iter().rev().find(|(from, _)| from.0 <= ms).map(|(_, s)| *s);
        let march = 1_774_746_000_000; // 2026-03-29T01:00Z
        let october = 1_792_890_000_000; // 2026-10-25T01:00Z
        assert_eq!((at(march - 1), at(march)), (Some(3600), Some(7200)));
        assert_eq!((at(october - 1), at(october)), (Some(7200), Some(3600)));
        assert_eq!(berlin.len(), 1 + 2 * 81, "two changes a year, 1980 to 2060");
        assert_eq!(TimeZone("UTC".to_owned()).offsets(), []);
        assert_eq!(TimeZone("Asia/Kolkata".to_owned()).offsets(), [(Timestamp(0), 19_800)]);
    }
}
