//! The state document: everything a plan needs, readable by people and programs, written by `forebay state export` or by hand.
//!
//! ```text
//! with snapshot:     digest checked -> engine, byte for byte; the views must say what the snapshot says
//! without snapshot:  jobs + nodes + a policy -> an engine in which all of it has happened
//! ```
//!
//! Never: half of both. An edited export is refused until its snapshot is removed.

use super::{rebuild, write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::ids::NodeId;
use forebay_kernel::journal::APPLY_VERSION;
use forebay_kernel::policy::Policy;
use forebay_wire::document::DocumentFault;
use forebay_wire::document::state::{API_VERSION, DocumentKind, Snapshot, StateDocument};
use std::collections::BTreeMap;

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
        jobs: state.jobs().map(|(job, spec)| write::job_view(engine, job, spec)).collect(),
        nodes: write::nodes(state),
        queues: Some(write::queues(state)),
        offerings: Some(write::offerings(state)),
        snapshot: Some(Snapshot {
            apply_version: APPLY_VERSION,
            blake3: blake3::hash(&bytes).to_hex().to_string(),
            bytes: STANDARD.encode(&bytes),
        }),
    })
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

/// Whether the readable part still says what the snapshot says.
fn agrees_with(document: &StateDocument, engine: &Engine) -> Result<(), DocumentFault> {
    let truth = StateDocument { snapshot: document.snapshot.clone(), ..state_document(engine)? };
    if *document == truth {
        return Ok(());
    }
    let remedy = "remove `snapshot` to plan on the edited document, or export it again";
    let differ = |path: String| Err(DocumentFault::at(path, "differs from what the snapshot holds", remedy));
    let first =
        |a: usize, b: usize, same: &dyn Fn(usize) -> bool| (0..a.max(b)).find(|&i| i >= a || i >= b || !same(i));
    if let Some(at) = first(document.jobs.len(), truth.jobs.len(), &|i| document.jobs[i] == truth.jobs[i]) {
        return differ(format!("jobs[{at}]"));
    }
    if let Some(at) = first(document.nodes.len(), truth.nodes.len(), &|i| document.nodes[i] == truth.nodes[i]) {
        return differ(format!("nodes[{at}]"));
    }
    let other = [
        ("now_s", document.now_s != truth.now_s),
        ("policy", document.policy != truth.policy),
        ("queues", document.queues != truth.queues),
        ("offerings", document.offerings != truth.offerings),
    ];
    differ(other.iter().find(|o| o.1).map_or_else(String::new, |o| o.0.to_owned()))
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
