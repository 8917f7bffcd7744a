//! The CloudEvents 1.0 envelope: structured JSON, a bare JSON object with a `type`, and the headers of binary mode.
//!
//! Never: judges `data`.

use super::json_cursor::{JsonCursor, shown};
use super::scalar::{SpecVersion, Word};
use super::shape::WireType;
use super::submission::EventAttributes;
use super::{MOST_SCHEMA, MOST_SUBJECT, RejectCode, Rejected, json};
use serde_json::{Map, Value};

/// The attributes of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// `type`.
    pub kind: String,
    /// `source`, empty for a bare object.
    pub source: String,
    /// `id`, empty for a bare object.
    pub id: String,
    /// `subject`.
    pub subject: Option<String>,
    /// `time`, in ms since 1970.
    pub time_ms: Option<u64>,
}

impl Envelope {
    /// Reads and checks the attributes of an event.
    ///
    /// # Errors
    /// The event is no object, an attribute is not what CloudEvents wants, or the version is later than is known here.
    pub fn read(event: &Value) -> Result<Envelope, Rejected> {
        let Some(fields) = event.as_object() else {
            let message = "not a JSON object; send one CloudEvent, or a bare object with a `type`";
            return Err(Rejected::new(RejectCode::Malformed, "$", message));
        };
        let root = JsonCursor::root(event);
        let kind = root.need("type", "such as job.submitted")?.text()?.to_owned();
        if let Some(version) = root.get("specversion") {
            SpecVersion::read(&version, &mut Vec::new())?;
        }
        // CloudEvents 1.0 requires both; a bare object is not one.
        if fields.contains_key("specversion") {
            root.need("source", "CloudEvents 1.0 requires it")?;
            root.need("id", "CloudEvents 1.0 requires it")?;
        }
        let said = EventAttributes::read(&root, &mut Vec::new())?;
        let text = |word: Option<Word<MOST_SUBJECT>>| word.map(|word| word.0).unwrap_or_default();
        let (source, id) = (text(said.source), text(said.id));
        let time_ms = said.time.map(|time| time.0.0);
        Ok(Envelope { kind, source, id, subject: said.subject.map(|subject| subject.0), time_ms })
    }

    /// Warns of attributes that are slips of those that are read; other extensions are carried along.
    pub(super) fn warn_slips(event: &Value, warnings: &mut Vec<String>) {
        let known: Vec<&str> =
            EventAttributes::FIELDS.iter().copied().chain(["type", "data", "datacontenttype"]).collect();
        JsonCursor::root(event).warn_slips(&known, warnings);
    }

    /// Checks `dataschema`: absent, or of this type and a version that is known. Another address than Forebay's is carried along.
    pub(super) fn schema(&self, event: &Value, warnings: &mut Vec<String>) -> Result<(), Rejected> {
        let Some(at) = JsonCursor::root(event).get("dataschema") else { return Ok(()) };
        let text = at.word(MOST_SCHEMA)?;
        let Some(name) = text.strip_prefix("urn:forebay:") else {
            warnings.push(format!("`dataschema`: `{}` is not a schema of Forebay's; it has no effect", shown(text)));
            return Ok(());
        };
        let remedy = format!("write urn:forebay:{}:{SCHEMA_VERSION}, or leave it out", shown(&self.kind));
        let (kind, version) = name.rsplit_once(':').unwrap_or((name, ""));
        let whole = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) && !version.starts_with('0');
        if kind != self.kind || !whole {
            return Err(at.bad("is not a schema of this event's type", &remedy));
        }
        // A version too long for a number is a later one.
        if version.parse().is_ok_and(|n: u32| n <= SCHEMA_VERSION) {
            return Ok(());
        }
        Err(at.future("is a later version of the schema than is known here", &remedy))
    }

    /// The subject, which is there, not empty, and not in the form of a job's number.
    pub(super) fn subject(&self) -> Result<&str, Rejected> {
        let subject = self.subject.as_deref().ok_or_else(|| {
            Rejected::new(RejectCode::Missing, "subject", "is missing; give the job's name, it is the job's identity")
        })?;
        if subject.starts_with('#') {
            let message = "begins with `#`, as the numbers of jobs do; begin it with another character";
            return Err(Rejected::new(RejectCode::BadValue, "subject", format!("`{}` {message}", shown(subject))));
        }
        Ok(subject)
    }
}

/// The version of the events' schemas that is read here.
const SCHEMA_VERSION: u32 = 1;

/// Puts a binary-mode event (`ce-*` headers, the data in the body) into structured form.
///
/// # Errors
/// A header is given twice, or the body is no JSON.
pub fn from_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>, body: &[u8]) -> Result<Value, Rejected> {
    let mut event = Map::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if let Some(attribute) = name.strip_prefix("ce-").or_else(|| name.strip_prefix("ce_"))
            && event.insert(attribute.to_owned(), Value::from(value)).is_some()
        {
            let message = format!("the header `{}` is given twice; give each once", shown(&name));
            return Err(Rejected::new(RejectCode::Malformed, "$", message));
        }
    }
    if !body.iter().all(u8::is_ascii_whitespace) {
        let data = json::parse(body, "data")?;
        event.insert("data".to_owned(), data);
    }
    Ok(Value::Object(event))
}
