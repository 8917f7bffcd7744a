//! What must hold of every input, whatever it is.
//!
//! ```text
//! rejected: a path and a message, bounded, printable, without the value of a secret
//! accepted: decoded twice it is equal; so it is with its fields in another order; it survives the journal; its names are printable;
//!           its gang has a worker; what is kept is bounded by what was sent; a report carried its attempt's token
//! a file or document: read twice it is the same, and so is what is wrong with it; a message is bounded by what was sent
//! ```
//!
//! Never: changes the input.

use crate::input::KEY;
use crate::sizes::{MOST_KEPT, MOST_REPORT, MOST_TEXT, MOST_WARNINGS};
use crate::targets::Broken;
use crate::vocabulary;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::Seq;
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::units::Timestamp;
use forebay_wire::intake::{Decoded, Rejected};
use serde_json::Value;

/// A decoder of events.
pub type Decode<'a> = &'a dyn Fn(&[u8]) -> Result<Decoded, Rejected>;

/// What must hold of a rejection.
///
/// # Errors
/// When it does not hold: the rule that is broken.
pub fn of_rejected(why: &Rejected, bytes: &[u8]) -> Result<(), Broken> {
    printable(&why.path, "the path")?;
    printable(&why.message, "the message")?;
    keeps_secrets(&why.to_string(), bytes)
}

/// What must hold of an event that was taken, however it was sent.
///
/// # Errors
/// When it does not hold: the rule that is broken.
pub fn of_taken(taken: &Decoded, bytes: &[u8]) -> Result<(), Broken> {
    if taken.warnings.len() > MOST_WARNINGS {
        return Err(format!("{} warnings", taken.warnings.len()));
    }
    for warning in &taken.warnings {
        printable(warning, "a warning")?;
        keeps_secrets(warning, bytes)?;
    }
    if let Event::JobSubmitted(spec) = &taken.event {
        of_job(spec)?;
    }
    let tick = Tick { now: Timestamp(1), resumed: false, delivered: 0 };
    let batch = Batch {
        version: APPLY_VERSION,
        first_seq: Seq(1),
        tick,
        events: vec![taken.event.clone()],
        decisions: Vec::new(),
    };
    let encoded = batch.encode().map_err(|e| format!("a batch that was read cannot be written: {e}"))?;
    if encoded.len() > bytes.len() * MOST_KEPT + MOST_TEXT {
        return Err(format!("{} bytes sent became {} bytes in the journal", bytes.len(), encoded.len()));
    }
    match Batch::decode(&encoded) {
        Ok(again) if again == batch => Ok(()),
        other => Err(format!("the journal gives back something else: {other:?}")),
    }
}

/// What must hold of an event that was taken as JSON.
///
/// # Errors
/// When it does not hold: the rule that is broken.
pub fn of_text(taken: &Decoded, bytes: &[u8], decode: Decode<'_>) -> Result<(), Broken> {
    let once = Ok(taken.clone());
    same(&once, &decode(bytes), "the second time")?;
    let value: Value = serde_json::from_slice(bytes).map_err(|e| format!("it was taken and is not JSON: {e}"))?;
    if reads_back(&value) {
        let mut turned = Vec::with_capacity(bytes.len());
        reversed(&value, &mut turned);
        same(&once, &decode(&turned), "with its fields in another order")?;
    }
    proven(&taken.event, &value)
}

/// Compares two decodings. The order of warnings is that of the fields.
///
/// # Errors
/// When they differ: both of them.
pub fn same(a: &Result<Decoded, Rejected>, b: &Result<Decoded, Rejected>, when: &str) -> Result<(), Broken> {
    match (a, b) {
        (Ok(a), Ok(b)) if a.event == b.event && a.envelope == b.envelope && a.warnings.len() == b.warnings.len() => {
            Ok(())
        }
        _ => Err(format!("it is another event {when}: {a:?} and {b:?}")),
    }
}

/// What must hold of a batch that could be read.
///
/// # Errors
/// When it does not hold: the rule that is broken.
pub fn of_batch(batch: &Batch, bytes: &[u8]) -> Result<(), Broken> {
    let encoded = batch.encode().map_err(|e| format!("a batch that was read cannot be written: {e}"))?;
    // Numbers may be written longer than they need be, never shorter.
    if encoded.len() > bytes.len() {
        return Err(format!("{} bytes became {}", bytes.len(), encoded.len()));
    }
    if Batch::decode(&encoded).as_ref() == Ok(batch) {
        Ok(())
    } else {
        Err("it does not survive the journal".to_owned())
    }
}

/// What must hold of a message about a file or a document: there is one, and it is bounded by what was sent.
///
/// # Errors
/// When it does not hold: the rule that is broken.
pub fn of_message(message: &str, bytes: &[u8]) -> Result<(), Broken> {
    if message.is_empty() || message.len() > MOST_REPORT + 8 * bytes.len() {
        return Err(format!("a message about {} bytes has {}", bytes.len(), message.len()));
    }
    Ok(())
}

fn of_job(spec: &JobSpec) -> Result<(), Broken> {
    let names = [Some(&spec.subject), Some(&spec.queue), spec.tier.as_ref(), spec.batch.as_ref()];
    for name in names.into_iter().flatten().chain(&spec.models) {
        if name.is_empty() || name.chars().any(char::is_control) || name.contains(['\u{202e}', '\u{2028}', '\u{feff}'])
        {
            return Err(format!("{name:?} is a name"));
        }
    }
    let sound = match spec.gang {
        Gang::Workers { min, max, each } => min >= 1 && max >= min && (1..=1000).contains(&each.share),
        Gang::Spanning { gpus, per_gpu } => gpus >= 1 && per_gpu.gpus == 1,
    };
    if sound { Ok(()) } else { Err(format!("{:?} is a gang", spec.gang)) }
}

/// A report that was taken carried the token of its attempt.
fn proven(event: &Event, sent: &Value) -> Result<(), Broken> {
    let (job, attempt) = match event {
        Event::RunIdle { job, attempt, .. }
        | Event::RunCheckpointed { job, attempt, .. }
        | Event::RunCompleted { job, attempt, .. }
        | Event::RunFailed { job, attempt, .. } => (*job, *attempt),
        _ => return Ok(()),
    };
    let given = sent.get("data").and_then(|d| d.get("token")).and_then(Value::as_str);
    if given == Some(KEY.token(job, attempt).as_str()) { Ok(()) } else { Err("a forged report was taken".to_owned()) }
}

fn printable(text: &str, what: &str) -> Result<(), Broken> {
    if text.is_empty() || text.len() > MOST_TEXT {
        return Err(format!("{what} has {} bytes", text.len()));
    }
    match text.chars().find(|c| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}')) {
        Some(c) => Err(format!("{what} has {c:?} in it: {text:?}")),
        None => Ok(()),
    }
}

/// A text for people repeats no secret that was sent where secrets are looked for.
fn keeps_secrets(text: &str, bytes: &[u8]) -> Result<(), Broken> {
    for (secret, within) in [(vocabulary::SECRET, "/data/run"), (vocabulary::KEY, "/data")] {
        if !text.contains(secret) {
            continue;
        }
        // A mutation may have put it where nobody looks for one, such as the event's type.
        let Ok(sent) = serde_json::from_slice::<Value>(bytes) else { continue };
        let mut value = sent.clone();
        if let Some(inside) = value.pointer_mut(within) {
            *inside = Value::Null;
        }
        if !value.to_string().contains(secret) && !names(&sent, secret) {
            return Err(format!("a secret is repeated: {text}"));
        }
    }
    Ok(())
}

/// Whether a field is called so. Names are not secrets: a message says where.
fn names(value: &Value, secret: &str) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| (secret == vocabulary::SECRET && name.contains(secret)) || names(field, secret)),
        Value::Array(items) => items.iter().any(|item| names(item, secret)),
        _ => false,
    }
}

/// Whether each number is read as what it is written as. `serde_json` may be off by the last bit of a long one, the same each time.
pub fn reads_back(value: &Value) -> bool {
    match value {
        Value::Number(n) if n.is_f64() => {
            serde_json::from_str::<Value>(&n.to_string()).is_ok_and(|again| again == *value)
        }
        Value::Object(fields) => fields.values().all(reads_back),
        Value::Array(items) => items.iter().all(reads_back),
        _ => true,
    }
}

/// The same value, the fields of each object from last to first.
fn reversed(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            out.push(b'{');
            for (at, (name, field)) in fields.iter().rev().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                drop(serde_json::to_writer(&mut *out, name));
                out.push(b':');
                reversed(field, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                reversed(item, out);
            }
            out.push(b']');
        }
        plain => drop(serde_json::to_writer(out, plain)),
    }
}
