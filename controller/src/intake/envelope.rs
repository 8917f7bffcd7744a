//! The CloudEvents 1.0 envelope: structured JSON, a bare JSON object with a `type`, and the headers of binary mode.
//!
//! Never: judges `data`.

use super::look::{At, shown};
use super::{MOST_SUBJECT, RejectCode, Rejected};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// What an event says of itself.
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
    /// Reads and checks it.
    pub fn read(event: &Value) -> Result<Envelope, Rejected> {
        let Some(fields) = event.as_object() else {
            let message = "not a JSON object; send one CloudEvent, or a bare object with a `type`";
            return Err(Rejected::new(RejectCode::Malformed, "$", message));
        };
        let root = At::root(event);
        let kind = root.need("type", "such as job.submitted")?.text()?.to_owned();
        let structured = fields.contains_key("specversion");
        if let Some(version) = root.get("specversion")
            && version.text()? != "1.0"
        {
            return Err(version.bad("is not supported", "send specversion 1.0"));
        }
        let word = |name: &str| -> Result<String, Rejected> {
            match root.get(name) {
                Some(at) => at.word(MOST_SUBJECT).map(str::to_owned),
                // CloudEvents 1.0 requires both; a bare object is not one.
                None if structured => Err(root.missing(name, "CloudEvents 1.0 requires it")),
                None => Ok(String::new()),
            }
        };
        let (source, id) = (word("source")?, word("id")?);
        let subject = root.get("subject").map(|at| at.word(MOST_SUBJECT).map(str::to_owned)).transpose()?;
        let time_ms = root.get("time").map(|at| at.time()).transpose()?;
        Ok(Envelope { kind, source, id, subject, time_ms })
    }

    /// The subject, which is there and not empty.
    pub(super) fn subject(&self) -> Result<&str, Rejected> {
        self.subject.as_deref().ok_or_else(|| {
            Rejected::new(RejectCode::Missing, "subject", "is missing; give the job's name, it is the job's identity")
        })
    }
}

/// Puts a binary-mode event (`ce-*` headers, the data in the body) into structured form.
pub fn from_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>, body: &[u8]) -> Result<Value, Rejected> {
    let mut event = Map::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if let Some(attribute) = name.strip_prefix("ce-").or_else(|| name.strip_prefix("ce_")) {
            event.insert(attribute.to_owned(), Value::from(value));
        }
    }
    if !body.iter().all(u8::is_ascii_whitespace) {
        let data = serde_json::from_slice(body).map_err(|e| {
            Rejected::new(RejectCode::Malformed, "data", format!("not JSON: {e}; send the data as JSON"))
        })?;
        event.insert("data".to_owned(), data);
    }
    Ok(Value::Object(event))
}

/// RFC 3339 as ms since 1970.
pub(super) fn unix_ms(text: &str) -> Result<u64, String> {
    let remedy = "write a time as RFC 3339, such as 2026-11-02T09:00:00Z";
    let at: Timestamp = text.parse().map_err(|_| format!("`{}` is not a time; {remedy}", shown(text)))?;
    u64::try_from(at.as_millisecond()).map_err(|_| format!("`{}` is before 1970; {remedy}", shown(text)))
}
