//! What single values of an event can be: names, whole numbers within bounds, shares, times, memory, one of several words.
//!
//! Each is read and described in one place. Never: a rule that only one object knows.

use super::Rejected;
use super::json_cursor::JsonCursor;
use super::shape::WireType;
use crate::document::within::{WithinView, known};
use forebay_kernel::ids::JobId;
use forebay_kernel::job::{Completion, Level, TopologyConstraint};
use forebay_kernel::units::{Mib, Span, Timestamp};
use forebay_quantity::mig;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// A text that can be a name: 1 to `MOST` bytes, all of them printable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word<const MOST: usize>(pub String);

/// A text of any length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnyText;

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole<const LEAST: i64, const MOST: i64>(pub i64);

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// The number, where the bounds are those of a `u32`.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(if self.0 < 0 { 0 } else { u32::MAX })
    }

    /// The number, where the bounds are those of an `i32`.
    #[must_use]
    pub fn as_i32(self) -> i32 {
        i32::try_from(self.0).unwrap_or(if self.0 < 0 { i32::MIN } else { i32::MAX })
    }
}

/// The largest `u32`, as a bound.
pub const MOST_U32: i64 = 4_294_967_295;

/// An exit code.
pub type ExitCode = Whole<-2_147_483_648, 2_147_483_647>;

/// A number with at most three decimals, kept in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thousandths(pub u64);

/// GPUs of one worker in thousandths: whole ones, at most 64, or a share of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerGpus(pub u16);

/// A share of one GPU in thousandths, from 1 to 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuShare(pub u16);

/// A length of time such as `10m`, `1h30m`, `90s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanText(pub Span);

/// A length of time that is longer than nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PositiveSpanText(pub Span);

/// A moment as RFC 3339, from 1970 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rfc3339(pub Timestamp);

/// An amount of memory such as `900GiB`, in MiB, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySize(pub Mib);

/// A list of at most `MOST` items.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundedList<T, const MOST: usize>(pub Vec<T>);

/// Names and texts, which are checked here and carried along as they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelTexts;

/// Anything: it is carried along, and nothing here reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carried;

/// A queue's path, such as `research/vision`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePath(pub String);

/// Where checkpoints are: `s3://bucket/path/`, `gs://bucket/path/` or `file:///path/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointUri(pub String);

/// The version of CloudEvents: `1.0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecVersion;

/// Whether a job shares GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharingChoice {
    /// It has its GPUs to itself.
    Exclusive,
    /// It shares them with others.
    Shared,
}

/// When a job is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionChoice(pub Completion);

/// Where no two replicas of a service are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpreadLevel(pub Level);

/// One slice of a partitioned GPU: the share and the memory that a job can count on, on whichever model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigSlice {
    /// Thousandths of the GPU.
    pub share: u16,
    /// Memory of the slice.
    pub memory: Mib,
}

/// A job's id as it is written: `job-12`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobName(pub JobId);

/// A secret that proves something: any text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenText(pub String);

/// Most GPUs of one worker: a node's GPUs are bits of 64.
const MOST_GPUS: u64 = 64;

impl<const MOST: usize> WireType for Word<MOST> {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.word(MOST).map(|text| Word(text.to_owned()))
    }
}

impl WireType for AnyText {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.text().map(|_| AnyText)
    }
}

impl WireType for bool {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.flag()
    }
}

impl<const LEAST: i64, const MOST: i64> WireType for Whole<LEAST, MOST> {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.whole(LEAST, MOST).map(Whole)
    }
}

impl WireType for Thousandths {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.thousandths().map(Thousandths)
    }
}

impl WireType for WorkerGpus {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let milli = at.thousandths()?;
        if milli > 1000 && milli % 1000 != 0 {
            return Err(at.bad("is neither whole GPUs nor a share of one", "write 2, or 0.5"));
        }
        let fits = u16::try_from(milli).ok().filter(|_| milli <= MOST_GPUS * 1000);
        let remedy = "write at most 64 for one worker, and more workers";
        fits.map(WorkerGpus).ok_or_else(|| at.bad("is more than any node has", remedy))
    }
}

impl WireType for GpuShare {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let milli = u16::try_from(at.thousandths()?).ok().filter(|n| (1..=1000).contains(n));
        milli.map(GpuShare).ok_or_else(|| at.bad("is not a share of a GPU", "write more than 0 and at most 1"))
    }
}

impl WireType for SpanText {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.span().map(SpanText)
    }
}

impl WireType for PositiveSpanText {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        match at.span()? {
            Span::ZERO => Err(at.bad("is no time at all", "write a longer one, or leave it out")),
            span => Ok(PositiveSpanText(span)),
        }
    }
}

impl WireType for Rfc3339 {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let remedy = "write a time as RFC 3339, such as 2026-11-02T09:00:00Z";
        let time: jiff::Timestamp = at.text()?.parse().map_err(|_| at.bad("is not a time", remedy))?;
        let ms = u64::try_from(time.as_millisecond()).map_err(|_| at.bad("is before 1970", remedy))?;
        Ok(Rfc3339(Timestamp(ms)))
    }
}

impl WireType for MemorySize {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let remedy = "write memory with its unit, such as 512MiB, 900GiB or 2TiB";
        let text = at.value.as_str().ok_or_else(|| at.bad("has no unit of memory", remedy))?;
        mib(text).map(MemorySize).ok_or_else(|| at.bad("is not an amount of memory", remedy))
    }
}

fn mib(text: &str) -> Option<Mib> {
    let units = [("KiB", 0), ("MiB", 1u64), ("GiB", 1 << 10), ("TiB", 1 << 20)];
    let (number, factor) =
        units.iter().find_map(|(unit, mib)| Some((text.trim().strip_suffix(unit)?.trim_end(), *mib)))?;
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if let Some((whole, part)) = number.split_once('.') {
        // `1.5GiB`: decimals as far as they are whole MiB, rounded up.
        if !digits(whole) || !digits(part) || part.len() > 3 || factor == 0 {
            return None;
        }
        let milli: u64 = format!("{whole}{part:0<3}").parse().ok()?;
        return Some(Mib(milli.checked_mul(factor)?.div_ceil(1000))).filter(|m| m.0 <= 1 << 40);
    }
    let n: u64 = number.parse().ok().filter(|_| digits(number))?;
    let mib = if factor == 0 { n.div_ceil(1024) } else { n.checked_mul(factor)? };
    Some(Mib(mib)).filter(|m| m.0 <= 1 << 40)
}

impl<T: WireType, const MOST: usize> WireType for BoundedList<T, MOST> {
    fn read(at: &JsonCursor<'_>, warnings: &mut Vec<String>) -> Result<Self, Rejected> {
        let items = at.at_most(MOST)?;
        items.iter().map(|item| T::read(item, warnings)).collect::<Result<_, _>>().map(BoundedList)
    }
}

impl<T: WireType> WireType for Vec<T> {
    fn read(at: &JsonCursor<'_>, warnings: &mut Vec<String>) -> Result<Self, Rejected> {
        at.list()?.iter().map(|item| T::read(item, warnings)).collect()
    }
}

impl WireType for LabelTexts {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        for (name, value) in at.object()? {
            at.field(name, value).text()?;
        }
        Ok(LabelTexts)
    }
}

impl WireType for Carried {
    fn read(_: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        Ok(Carried)
    }
}

impl WireType for QueuePath {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let path = at.word(MOST_NAME)?;
        let sound = path.split('/').all(|part| !part.is_empty() && part.trim() == part);
        if sound {
            Ok(QueuePath(path.to_owned()))
        } else {
            Err(at.bad("is not a queue's path", "write it as research/vision"))
        }
    }
}

/// The longest name of a queue, tier or batch, in bytes.
pub const MOST_NAME: usize = 253;

impl WireType for CheckpointUri {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let text = at.word(MOST_URI)?;
        let place = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
        if place.is_some_and(|p| !p.is_empty() && !p.contains(char::is_whitespace)) {
            return Ok(CheckpointUri(text.to_owned()));
        }
        let remedy = "write s3://bucket/path/, gs://bucket/path/ or file:///path/";
        Err(at.bad("is not an address of a checkpoint", remedy))
    }
}

/// Where checkpoints can be.
const SCHEMES: [&str; 3] = ["s3://", "gs://", "file://"];

/// The longest address of a checkpoint, in bytes.
const MOST_URI: usize = 2048;

impl WireType for SpecVersion {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        match at.text()? {
            "1.0" => Ok(SpecVersion),
            later if is_later(later) => {
                Err(at.future("is a later version of CloudEvents than is known here", "send specversion 1.0"))
            }
            _ => Err(at.bad("is not supported", "send specversion 1.0")),
        }
    }
}

/// Whether a text is a version after 1.0: `1.1`, `2.0`.
fn is_later(version: &str) -> bool {
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let number = |part: &str| part.parse::<u32>().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()));
    number(major).zip(number(minor)).is_some_and(|version| version > (1, 0))
}

impl WireType for SharingChoice {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        match at.text()? {
            "shared" => Ok(SharingChoice::Shared),
            "exclusive" => Ok(SharingChoice::Exclusive),
            _ => Err(at.bad("is not known", "write exclusive or shared")),
        }
    }
}

impl WireType for CompletionChoice {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        match at.text()? {
            "all" => Ok(CompletionChoice(Completion::All)),
            "leader" => Ok(CompletionChoice(Completion::Leader)),
            "any" => Ok(CompletionChoice(Completion::Any)),
            _ => Err(at.bad("is not known", "write all, leader or any")),
        }
    }
}

impl WireType for SpreadLevel {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let level = Level::named(at.text()?).filter(|l| matches!(l, Level::Node | Level::Rack | Level::Zone));
        level.map(SpreadLevel).ok_or_else(|| at.bad("is not known", "write node, rack or zone"))
    }
}

impl WireType for MigSlice {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let least = at.value.as_str().and_then(mig::least).ok_or_else(|| {
            let remedy = format!("write one of {}", mig::all_profiles().join(", "));
            at.bad("is not a MIG profile that is known", &remedy)
        })?;
        Ok(MigSlice { share: least.0, memory: least.1 })
    }
}

impl WireType for JobName {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let number = at.text()?.strip_prefix("job-").and_then(|n| n.parse().ok());
        number.map(|n| JobName(JobId(n))).ok_or_else(|| at.bad("is not a job's id", "write it as job-12"))
    }
}

impl WireType for TokenText {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        at.text().map(|text| TokenText(text.to_owned()))
    }
}

impl WireType for WithinView {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Self, Rejected> {
        let (word, required) = if at.value.is_object() { (at.need("prefer", &known())?, false) } else { (*at, true) };
        let level = word.value.as_str().and_then(Level::named);
        let within = level.map(|level| WithinView(TopologyConstraint { level, required }));
        within.ok_or_else(|| word.bad("is not a level of the topology", &known()))
    }
}

/// A schema that stands where the type is used.
macro_rules! schema {
    ([$($generic:tt)*] $type:ty, $name:expr, |$generator:ident| $schema:expr) => {
        impl<$($generic)*> JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}
pub(super) use schema;

schema!([const MOST: usize] Word<MOST>, format!("Word{MOST}"), |_g| {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MOST })
});
schema!([] AnyText, "Text", |_g| json_schema!({ "type": "string" }));
schema!([const LEAST: i64, const MOST: i64] Whole<LEAST, MOST>, format!("Whole{LEAST}To{MOST}"), |_g| {
    json_schema!({ "type": "integer", "minimum": LEAST, "maximum": MOST })
});
schema!([] Thousandths, "Thousandths", |_g| json_schema!({ "type": "number", "minimum": 0 }));
schema!([] WorkerGpus, "WorkerGpus", |_g| json_schema!({ "type": "number", "minimum": 0, "maximum": MOST_GPUS }));
schema!([] GpuShare, "GpuShare", |_g| json_schema!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }));
schema!([] SpanText, "Duration", |_g| {
    json_schema!({ "type": "string", "pattern": r"^\s*([0-9]+ *(ms|s|m|min|h|d|w)\s*)+$" })
});
schema!([] PositiveSpanText, "PositiveDuration", |_g| {
    json_schema!({ "type": "string", "pattern": r"^(?=.*[1-9])\s*([0-9]+ *(ms|s|m|min|h|d|w)\s*)+$" })
});
schema!([] Rfc3339, "Moment", |_g| json_schema!({ "type": "string", "format": "date-time" }));
schema!([] MemorySize, "MemorySize", |_g| {
    json_schema!({ "type": "string", "pattern": r"^\s*([0-9]+\s*KiB|[0-9]+(\.[0-9]{1,3})?\s*[MGT]iB)\s*$" })
});
schema!([T: WireType, const MOST: usize] BoundedList<T, MOST>, format!("List{}To{MOST}", T::schema_name()), |generator| {
    json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "maxItems": MOST })
});
schema!([] LabelTexts, "Labels", |_g| {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
});
schema!([] Carried, "Carried", |_g| json_schema!({}));
schema!([] QueuePath, "QueuePath", |_g| {
    let part = r"[^/\s]([^/]*[^/\s])?";
    json_schema!({ "type": "string", "maxLength": MOST_NAME, "pattern": format!("^{part}(/{part})*$") })
});
schema!([] CheckpointUri, "CheckpointUri", |_g| {
    json_schema!({ "type": "string", "maxLength": MOST_URI, "pattern": r"^(s3|gs|file)://\S+$" })
});
schema!([] SpecVersion, "SpecVersion", |_g| json_schema!({ "type": "string", "enum": ["1.0"] }));
schema!([] JobName, "JobName", |_g| json_schema!({ "type": "string", "pattern": "^job-[0-9]{1,20}$" }));
schema!([] TokenText, "Token", |_g| json_schema!({ "type": "string" }));
schema!([] SharingChoice, "SharingChoice", |_g| json_schema!({ "type": "string", "enum": ["exclusive", "shared"] }));
schema!([] CompletionChoice, "CompletionChoice", |_g| {
    json_schema!({ "type": "string", "enum": ["all", "leader", "any"] })
});
schema!([] SpreadLevel, "SpreadLevel", |_g| json_schema!({ "type": "string", "enum": ["node", "rack", "zone"] }));
schema!([] MigSlice, "MigSlice", |_g| json_schema!({ "type": "string", "enum": mig::all_profiles() }));
