//! The state document: everything a plan needs, readable by people and programs, written by `forebay state export` or by hand.
//!
//! ```text
//! with snapshot:     digest checked -> engine, byte for byte; the views must say what the snapshot says
//! without snapshot:  jobs + nodes + memory + a policy -> an engine in which all of it has happened
//! ```
//!
//! Never: half of both. An edited export is refused until its snapshot is removed.

use super::{rebuild, remember, write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::ids::NodeId;
use forebay_kernel::journal::APPLY_VERSION;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_wire::document::DocumentFault;
use forebay_wire::document::memory::StateMemory;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::state::{API_VERSION, DocumentKind, Snapshot, StateDocument};
use forebay_wire::document::views::{OfferingView, QueueView};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// An engine made from a document, and the names that the document has for its rows.
#[derive(Debug)]
pub struct Loaded {
    /// The engine, ready for a pass.
    pub engine: Engine,
    /// Jobs whose name in the document is not `job-N`.
    pub jobs: BTreeMap<JobId, String>,
    /// Nodes whose name in the document is not `node-N`.
    pub nodes: BTreeMap<NodeId, String>,
}

/// The document of an engine.
///
/// # Errors
/// The engine's state cannot be encoded, which is a fault of this program.
pub fn state_document(engine: &Engine) -> Result<StateDocument, DocumentFault> {
    let bytes =
        engine.snapshot().map_err(|e| DocumentFault::at("snapshot", e.to_string(), "report this with the journal"))?;
    let state = engine.state();
    Ok(StateDocument {
        api_version: API_VERSION.to_owned(),
        kind: DocumentKind::State,
        now_s: Some(state.now().into()),
        policy: state.policy().map(|p| p.name.clone()),
        jobs: state
            .jobs()
            .map(|(row, spec)| remember::job(state, write::job_view(engine, row, spec), row, spec))
            .collect(),
        nodes: state.nodes().map(|row| remember::node(state, write::node_view(state, row), row)).collect(),
        queues: Some(write::queues(state)),
        offerings: Some(offerings(state)),
        memory: Some(Box::new(remember::state(state))),
        snapshot: Some(Snapshot {
            apply_version: APPLY_VERSION,
            blake3: blake3::hash(&bytes).to_hex().to_string(),
            bytes: STANDARD.encode(&bytes),
        }),
    })
}

/// The same document, made while it is written: a job at a time, and the snapshot's bytes as they come.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamedState<'a> {
    api_version: &'static str,
    kind: DocumentKind,
    #[serde(rename = "now_s")]
    now_s: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    jobs: JobsWritten<'a>,
    nodes: NodesWritten<'a>,
    queues: Vec<QueueView>,
    offerings: Vec<OfferingView>,
    memory: StateMemory,
    snapshot: SnapshotWritten<'a>,
}

impl<'a> StreamedState<'a> {
    /// The document of an engine.
    ///
    /// # Errors
    /// The engine's state cannot be encoded, which is a fault of this program.
    pub fn new(engine: &'a Engine) -> Result<StreamedState<'a>, DocumentFault> {
        let state = engine.state();
        let digest = state
            .encode_into(Digest::default())
            .map_err(|e| DocumentFault::at("snapshot", e.to_string(), "report this with the journal"))?;
        let blake3 = digest.hex();
        Ok(StreamedState {
            api_version: API_VERSION,
            kind: DocumentKind::State,
            now_s: state.now().into(),
            policy: state.policy().map(|p| p.name.as_str()),
            jobs: JobsWritten(engine),
            nodes: NodesWritten(state),
            queues: write::queues(state),
            offerings: offerings(state),
            memory: remember::state(state),
            snapshot: SnapshotWritten { apply_version: APPLY_VERSION, blake3, bytes: BytesWritten(state) },
        })
    }
}

fn offerings(state: &State) -> Vec<OfferingView> {
    write::offerings(state).into_iter().zip(state.offerings()).map(|(v, row)| remember::offering(v, row)).collect()
}

struct JobsWritten<'a>(&'a Engine);

impl Serialize for JobsWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (engine, state) = (self.0, self.0.state());
        let view = |(row, spec)| remember::job(state, write::job_view(engine, row, spec), row, spec);
        serializer.collect_seq(state.jobs().map(view))
    }
}

struct NodesWritten<'a>(&'a State);

impl Serialize for NodesWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.0;
        serializer.collect_seq(state.nodes().map(|row| remember::node(state, write::node_view(state, row), row)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotWritten<'a> {
    apply_version: u32,
    blake3: String,
    bytes: BytesWritten<'a>,
}

/// The bytes of a state as base64.
struct BytesWritten<'a>(&'a State);

impl Serialize for BytesWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for BytesWritten<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Base64Text { to: f, kept: Vec::with_capacity(GROUP), failed: None };
        let mut text = self.0.encode_into(text).map_err(|_| fmt::Error)?;
        text.end();
        text.failed.map_or(Ok(()), Err)
    }
}

/// Bytes that are encoded together: whole groups of three, so that the pieces follow each other without padding.
const GROUP: usize = 3 * 1024;

struct Base64Text<'f, 'g> {
    to: &'f mut fmt::Formatter<'g>,
    kept: Vec<u8>,
    failed: Option<fmt::Error>,
}

impl Base64Text<'_, '_> {
    fn end(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.write_str(&STANDARD.encode(&self.kept)).err();
        }
        self.kept.clear();
    }
}

impl Extend<u8> for Base64Text<'_, '_> {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        for byte in bytes {
            self.kept.push(byte);
            if self.kept.len() == GROUP {
                self.end();
            }
        }
    }
}

/// A digest of bytes as they come.
#[derive(Default)]
struct Digest {
    hasher: blake3::Hasher,
    kept: Vec<u8>,
}

impl Digest {
    fn hex(mut self) -> String {
        self.hasher.update(&self.kept);
        self.hasher.finalize().to_hex().to_string()
    }
}

impl Extend<u8> for Digest {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        self.kept.extend(bytes);
        if self.kept.len() >= GROUP {
            self.hasher.update(&self.kept);
            self.kept.clear();
        }
    }
}

/// An engine in this state. `policy` replaces the snapshot's own; a document without a snapshot needs one.
///
/// # Errors
/// What in the document contradicts itself, its snapshot or the policy, with its place.
pub fn load(document: &StateDocument, policy: Option<Policy>) -> Result<Loaded, DocumentFault> {
    match (&document.snapshot, policy) {
        (Some(snapshot), policy) => {
            let mut engine = restore(snapshot)?;
            agrees_with(document, &engine)?;
            if let Some(policy) = policy {
                rebuild::configure(&mut engine, policy);
            }
            Ok(Loaded { engine, jobs: BTreeMap::new(), nodes: BTreeMap::new() })
        }
        (None, Some(policy)) => rebuild::engine(document, policy),
        (None, None) => {
            Err(DocumentFault::at("snapshot", "a state without a snapshot has no policy", "give one with --policy"))
        }
    }
}

/// Whether the readable part still says what the snapshot says. What it leaves out, an older version did not write; a reason is worded by
/// the version that wrote it.
fn agrees_with(document: &StateDocument, engine: &Engine) -> Result<(), DocumentFault> {
    let truth = state_document(engine)?;
    let value = |document: &StateDocument| {
        serde_json::to_value(StateDocument { snapshot: None, ..document.clone() })
            .map_err(|e| DocumentFault::at("", e.to_string(), "report this with the document"))
    };
    match difference(&value(document)?, &value(&truth)?, "") {
        None => Ok(()),
        Some(path) => {
            let remedy = "to plan on the edited document, remove `snapshot` and give its policy with `--policy FILE`; or export it again";
            Err(DocumentFault::at(path, "differs from what the snapshot holds", remedy))
        }
    }
}

/// What exports of before lack.
const LATER: [&str; 10] =
    ["memory", "places", "stop", "layout", "rack", "grace_s", "maxRun_s", "retry", "completion", "workersNow"];

/// The row or field in which a document says other than the truth.
fn difference(said: &Value, truth: &Value, path: &str) -> Option<String> {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { path.to_owned() };
    match (said, truth) {
        (Value::Object(said), Value::Object(truth)) => {
            let keys = said.keys().chain(truth.keys().filter(|key| !LATER.contains(&key.as_str())));
            let of =
                |object: &'_ serde_json::Map<String, Value>, key: &str| object.get(key).cloned().unwrap_or_default();
            keys.filter(|key| *key != "reason").find_map(|key| difference(&of(said, key), &of(truth, key), &below(key)))
        }
        (Value::Array(said), Value::Array(truth)) => {
            let row = |at: usize| if path.contains('[') { path.to_owned() } else { format!("{path}[{at}]") };
            let length = (said.len() != truth.len()).then(|| row(said.len().min(truth.len())));
            let mut both = said.iter().zip(truth).enumerate();
            both.find_map(|(at, (said, truth))| difference(said, truth, &row(at))).or(length)
        }
        (said, truth) => (said != truth).then(|| path.to_owned()),
    }
}

fn restore(snapshot: &Snapshot) -> Result<Engine, DocumentFault> {
    let again = "export the state again";
    if snapshot.apply_version > APPLY_VERSION {
        let message =
            format!("written by a newer version ({}, this one reads up to {APPLY_VERSION})", snapshot.apply_version);
        return Err(DocumentFault::at(
            "snapshot.applyVersion",
            message,
            "use the forebay that wrote it, or a newer one",
        ));
    }
    let bytes = STANDARD
        .decode(&snapshot.bytes)
        .map_err(|e| DocumentFault::at("snapshot.bytes", format!("not base64: {e}"), again))?;
    if blake3::hash(&bytes).to_hex().as_str() != snapshot.blake3 {
        return Err(DocumentFault::at("snapshot.bytes", "damaged: its digest is not `snapshot.blake3`", again));
    }
    Engine::restore(&bytes)
        .map_err(|e| DocumentFault::at("snapshot.bytes", format!("not a state of this version: {e}"), again))
}
