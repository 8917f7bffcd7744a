//! Intake: what a pipeline or a run sent, checked once and turned into an engine event. What cannot be taken is `Rejected`, with the
//! JSON path, what is wrong and what to write instead.
//!
//! ```text
//! bytes -> envelope (CloudEvents 1.0, structured, binary or bare) -> by type:
//!     job.submitted -> submit -> route -> Event::JobSubmitted     job.cancelled -> Event::JobCancelled
//!     service.demand -> Event::ServiceDemand
//!     run.*         -> report (token checked)                     anything else -> Rejected
//! ```
//!
//! Never: takes the principal from the payload, lets a secret's value into the journal, or stops a stream for one bad event.

mod canonical;
mod envelope;
mod event_id;
mod json;
mod json_cursor;
mod report;
mod rules;
mod run;
mod scalar;
mod shape;
mod submission;
mod submit;
#[cfg(test)]
mod tests;
mod workers;

pub use envelope::{Envelope, from_headers};
pub use event_id::EventId;
pub use report::{AttemptKeys, CheckpointReport, CompletionReport, FailureReport, ProgressReport, RunReport, token};
pub use run::{Environment, ReferenceName, RunRequest};
pub use scalar::{
    AnyText, BoundedList, Carried, CheckpointUri, CompletionChoice, ExitCode, GpuShare, JobName, LabelTexts,
    MemorySize, MigSlice, PositiveSpanText, QueuePath, Rfc3339, SharingChoice, SpanText, SpecVersion, SpreadLevel,
    Thousandths, TokenText, Whole, Word, WorkerGpus,
};
pub use submission::{
    CancelledEvent, CheckpointShape, Demand, DemandEvent, EachShape, EventAttributes, GangShape, JobEvent,
    JobSubmission, RetryShape, RunShape, ServiceShape, SubmittedEvent,
};
pub use submit::checkpoint_uri;
pub use workers::WorkerCount;

use crate::document::state::DEFAULT_TENANT;
use forebay_kernel::event::Event;
use forebay_kernel::units::Timestamp;
use forebay_quantity::is_unseen;
use forebay_quantity::slip::is_slip;
use json_cursor::JsonCursor;
use serde_json::Value;
use shape::WireType;
use std::sync::Arc;

/// The largest event that is taken. A job is about 1 KiB; the journal keeps every byte for ever.
pub const MOST_BYTES: usize = 1 << 20;

/// The longest message of a rejection, in bytes. What was sent is repeated in it in small pieces only.
pub const MOST_MESSAGE: usize = 1000;

/// The remedy for what is too large.
const BY_ADDRESS: &str = "refer to large things by their address";

/// The longest `dataschema`, in bytes.
const MOST_SCHEMA: usize = 2048;

/// The longest subject, in bytes.
pub const MOST_SUBJECT: usize = 512;

/// Who sent something, by its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose namespace of subjects it is in.
    pub tenant: String,
    /// Who it is; queues list whom they take jobs from.
    pub principal: String,
    /// It may act on every job of its tenant, whatever queues list.
    pub operator: bool,
}

impl Caller {
    /// Whoever can reach a controller that asks for no token: the loopback, and files given on the command line. It is an operator.
    #[must_use]
    pub fn local() -> Caller {
        Caller { operator: true, ..Caller::named(DEFAULT_TENANT, "local") }
    }

    /// Whoever holds a token, or whose messages a source brings. It is no operator.
    #[must_use]
    pub fn named(tenant: &str, principal: &str) -> Caller {
        Caller { tenant: tenant.to_owned(), principal: principal.to_owned(), operator: false }
    }

    /// In whose name it cancels a job or reports demand: its principal. `None`: in an operator's, who always may.
    #[must_use]
    pub fn asks_as(&self) -> Option<String> {
        (!self.operator).then(|| self.principal.clone())
    }
}

/// Chooses a job's queue: the policy's routes.
pub trait Router: Send + Sync {
    /// The queue for an event, or `None` where no route matches.
    ///
    /// # Errors
    /// Why a route cannot be evaluated on the event.
    fn route(&self, event: &Value, caller: &Caller) -> Result<Option<String>, String>;

    /// Whether it chooses without looking at the event.
    fn is_trivial(&self) -> bool {
        false
    }

    /// The labels of jobs by which the policy bills. Of these, a job keeps its own.
    fn billing_labels(&self) -> Arc<[String]> {
        Arc::default()
    }
}

/// Every job goes to the queue that it names.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoutes;

impl Router for NoRoutes {
    fn route(&self, _: &Value, _: &Caller) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn is_trivial(&self) -> bool {
        true
    }
}

/// What decoding needs to know.
#[derive(Clone, Copy)]
pub struct Intake<'a> {
    /// Who sent it.
    pub caller: &'a Caller,
    /// The policy's routes.
    pub routes: &'a dyn Router,
    /// What attempt tokens are made with. `None`: reports of runs are not taken from here.
    pub key: Option<&'a AttemptKeys>,
}

/// An event that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// For the engine.
    pub event: Event,
    /// The event's own id and source, where it has them.
    pub envelope: Envelope,
    /// What was not understood and is carried along, a sentence each.
    pub warnings: Vec<String>,
    /// By which it is known when it comes again. `None`: it has no id of its own.
    pub id: Option<EventId>,
    /// The manifest that a report of a checkpoint names, from the job's `checkpoint.uri` on.
    pub manifest: Option<String>,
}

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Rejected {
    /// A stable code.
    pub code: RejectCode,
    /// The JSON path of what is wrong, such as `data.gang.workers`.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// The stable codes of rejections at intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectCode {
    /// More than [`MOST_BYTES`].
    TooLarge,
    /// No JSON, or not an object.
    Malformed,
    /// A field that is needed is not there.
    Missing,
    /// A value cannot be what its field is for.
    BadValue,
    /// A version of CloudEvents or of the event's schema that this controller does not know yet.
    FutureVersion,
    /// An event type that is not known, or not taken here.
    UnknownType,
    /// A pod specification or the value of a secret.
    Inline,
    /// A route of the policy cannot be evaluated on this event.
    Route,
    /// The token is not this attempt's.
    Token,
    /// A checkpoint that was reported is not there, or differs from its manifest.
    Unverified,
}

impl RejectCode {
    /// As programs match on it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RejectCode::TooLarge => "TooLarge",
            RejectCode::Malformed => "Malformed",
            RejectCode::Missing => "Missing",
            RejectCode::BadValue => "BadValue",
            RejectCode::FutureVersion => "FutureVersion",
            RejectCode::UnknownType => "UnknownType",
            RejectCode::Inline => "Inline",
            RejectCode::Route => "Route",
            RejectCode::Token => "Token",
            RejectCode::Unverified => "Unverified",
        }
    }
}

impl Rejected {
    fn too_large(path: &str, bytes: usize) -> Rejected {
        let message = format!("{bytes} bytes; an event may have {MOST_BYTES}: {BY_ADDRESS}");
        Rejected::new(RejectCode::TooLarge, path, message)
    }

    /// A rejection. What a message repeats of what was sent is made printable, and the whole is cut at [`MOST_MESSAGE`].
    #[must_use]
    pub fn new(code: RejectCode, path: &str, message: impl Into<String>) -> Rejected {
        let mut message = message.into();
        // Errors of routes and of units may repeat what they were read from.
        if message.contains(is_unseen) {
            message = message.chars().map(|c| if is_unseen(c) { ' ' } else { c }).collect();
        }
        Rejected { code, path: path.to_owned(), message: json_cursor::cut(message, MOST_MESSAGE) }
    }
}

impl Rejected {
    /// Where a field is missing and one beside it is a slip of its name, that is to be mended.
    fn with_slip(self, event: &Value) -> Rejected {
        let missing = self.code == RejectCode::Missing || (self.path == "data" && event.get("data").is_none());
        let (parent, name) = self.path.rsplit_once('.').unwrap_or(("", &self.path));
        let mut steps = parent.split('.').filter(|step| !step.is_empty());
        let beside = steps.try_fold(event, |at, step| at.get(step)).and_then(Value::as_object).filter(|_| missing);
        let slips: Vec<&String> =
            beside.into_iter().flat_map(|all| all.keys()).filter(|key| is_slip(key, name)).collect();
        let [slip] = slips[..] else { return self };
        let message = format!("is missing; rename `{}` to `{name}`", json_cursor::shown(slip));
        Rejected::new(RejectCode::Missing, &self.path, message)
    }
}

impl Intake<'_> {
    /// Decodes the bytes of one structured or bare event.
    ///
    /// # Errors
    /// What is wrong with it, with its path and what to write instead.
    pub fn decode(&self, bytes: &[u8]) -> Result<Decoded, Rejected> {
        self.decode_value(&json::parse(bytes, "$")?)
    }

    /// Decodes one event that is JSON already. Whoever read it bounded its size.
    ///
    /// # Errors
    /// What is wrong with it, with its path and what to write instead.
    pub fn decode_value(&self, event: &Value) -> Result<Decoded, Rejected> {
        self.decoded(event).map_err(|rejected| rejected.with_slip(event))
    }

    fn decoded(&self, event: &Value) -> Result<Decoded, Rejected> {
        let envelope = Envelope::read(event)?;
        let data = event.get("data").unwrap_or(&Value::Null);
        let mut warnings = Vec::new();
        Envelope::warn_slips(event, &mut warnings);
        envelope.schema(event, &mut warnings)?;
        run::no_keys(data)?;
        let manifest = report::manifest(&envelope.kind, data)?;
        let event = match envelope.kind.as_str() {
            "job.submitted" => {
                let mut spec = submit::job(self.caller, &envelope, data, &mut warnings)?;
                let routed = self.routes.route(event, self.caller);
                if let Some(queue) = routed.map_err(|e| Rejected::new(RejectCode::Route, "$", e))? {
                    spec.queue = queue;
                }
                spec.labels = submit::billed_labels(data, &self.routes.billing_labels());
                if spec.deadline.is_some() && spec.expected.is_none() && spec.service.is_none() {
                    warnings.push(
                        "`data.deadline`: it is only counted without `expectedRun`: state how long the job runs"
                            .to_owned(),
                    );
                }
                Event::JobSubmitted(Box::new(spec))
            }
            "job.cancelled" => {
                let (tenant, subject) = (self.caller.tenant.clone(), envelope.subject()?.to_owned());
                let sent = envelope.time_ms.map(Timestamp);
                Event::JobCancelled { tenant, subject, by: self.caller.asks_as(), sent }
            }
            kind if kind.starts_with("run.") => report::decode(kind, data, self.key)?,
            "service.demand" => {
                let (tenant, subject) = (self.caller.tenant.clone(), envelope.subject()?.to_owned());
                let by = self.caller.asks_as();
                let demand = Demand::read(&JsonCursor::under(data, "data"), &mut warnings)?;
                Event::ServiceDemand { tenant, subject, by, concurrency: demand.concurrency.as_u32() }
            }
            kind => {
                let message = format!(
                    "`{}` is not known; send job.submitted, job.cancelled, service.demand or run.{{progress,checkpointed,completed,failed}}",
                    json_cursor::shown(kind)
                );
                return Err(Rejected::new(RejectCode::UnknownType, "type", message));
            }
        };
        let id = EventId::of(self.caller, &envelope, &event).map_err(|e| {
            Rejected::new(
                RejectCode::BadValue,
                "$",
                format!("a fault of this program: it has no identity ({e}); report it"),
            )
        })?;
        Ok(Decoded { event, envelope, warnings, id, manifest })
    }
}
