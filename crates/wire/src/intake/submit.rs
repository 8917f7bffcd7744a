//! `job.submitted`: what a submission asks for as a job's specification.
//!
//! ```text
//! data -> Submission (fields by their shapes, then rules about several) -> JobSpec
//! digest = blake3(data without `simulation` and `rerun`), so that the same job said twice is one job
//! ```
//!
//! Never: resolves a queue or tier (the engine does, against the policy in force), nor fills in what a policy decides.

use super::envelope::Envelope;
use super::json_cursor::JsonCursor;
use super::scalar::SharingChoice;
use super::shape::WireType;
use super::submission::{CheckpointShape, EachShape, GangShape, JobSubmission, RetryShape, ServiceShape};
use super::workers::WorkerCount;
use super::{Caller, MOST_BYTES, Rejected, canonical};
use forebay_kernel::job::{Checkpointing, Gang, JobSpec, Retry, Service, WorkerAsk};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use forebay_quantity::is_unseen;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields of `data` that are not read here, only checked: they are carried along with those that nobody knows.
const CARRIED: [&str; 5] = ["run", "labels", "simulation", "kind", "user"];

/// The longest value of a label that bills are asked by, in bytes: each is a row of a bill.
const MOST_LABEL: usize = 256;

/// Where the checkpoint's address is carried.
const CHECKPOINT_URI: &str = "checkpoint.uri";

/// The queue of a job that names none and that no route sends anywhere.
pub(super) const DEFAULT_QUEUE: &str = "default";

/// Decodes a submission.
pub(super) fn job(
    caller: &Caller,
    envelope: &Envelope,
    data: &Value,
    warnings: &mut Vec<String>,
) -> Result<JobSpec, Rejected> {
    let data = JsonCursor::under(data, "data");
    let fields = data.object()?;
    let asked = JobSubmission::read(&data, warnings)?;
    let serves = asked.service.as_ref();
    // A service is on spot only if it asks for that.
    let spot = serves.and_then(|service| service.spot).or(asked.spot).unwrap_or(serves.is_none());
    Ok(JobSpec {
        tenant: caller.tenant.clone(),
        subject: envelope.subject()?.to_owned(),
        principal: caller.principal.clone(),
        queue: asked.queue.map_or_else(|| DEFAULT_QUEUE.to_owned(), |queue| queue.0),
        tier: asked.tier.map(|tier| tier.0),
        priority: asked.priority.map_or(0, |n| n.as_i32()),
        gang: gang(&asked.gang),
        models: models(&asked.gang),
        spot,
        service: serves.map(service),
        shares: asked.sharing.map_or(asked.gang.is_part_of_a_gpu(), |choice| choice == SharingChoice::Shared),
        checkpoint: asked.checkpoint.as_ref().map(checkpoint),
        restart: asked.restart.map_or(Span::ZERO, |restart| restart.0),
        retry: asked.retry.map(retry).unwrap_or_default(),
        completion: asked.completion.map(|choice| choice.0).unwrap_or_default(),
        expected: asked.expected_run.map(|run| run.0),
        max_run: asked.max_run.map(|run| run.0),
        deadline: asked.deadline.map(|at| at.0),
        digest: canonical::digest(fields, &["simulation", "rerun"]),
        rerun: asked.rerun.unwrap_or(false),
        run: carried(fields)?,
        batch: asked.batch_key.map(|key| key.0),
        within: asked.gang.within.map(|within| within.0),
        sent: envelope.time_ms.map(Timestamp),
        labels: BTreeMap::new(),
    })
}

/// The values of the labels that bills are asked by, each cut at [`MOST_LABEL`] bytes, with a blank for what cannot be seen: they are shown and written
/// to files that people open. They are texts: the submission was read.
pub(super) fn billed_labels(data: &Value, names: &[String]) -> BTreeMap<String, String> {
    let labels = data.get("labels").and_then(Value::as_object);
    let value = |name: &String| Some((name.clone(), cut(labels?.get(name)?.as_str()?)));
    names.iter().filter_map(value).collect()
}

fn cut(value: &str) -> String {
    let end = (0..=value.len().min(MOST_LABEL)).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
    value[..end].chars().map(|c| if is_unseen(c) { ' ' } else { c }).collect()
}

/// The gang: its workers, or whole GPUs that may span nodes.
fn gang(asked: &GangShape) -> Gang {
    let each = asked.each.as_ref().map(worker).unwrap_or_default();
    match (asked.gpus, asked.workers) {
        (Some(gpus), _) => Gang::Spanning { gpus: gpus.as_u32(), per_gpu: WorkerAsk { gpus: 1, share: 1000, ..each } },
        (None, Some(WorkerCount { min, max })) => Gang::Workers { min, max, each },
        (None, None) => Gang::Workers { min: 1, max: 1, each },
    }
}

/// What one worker needs on its node.
fn worker(asked: &EachShape) -> WorkerAsk {
    let (gpus, share) = asked.mig.map_or_else(|| asked.gpus_and_share(), |slice| (1, slice.share));
    let gpu_mem = asked.mig.map(|slice| slice.memory).or(asked.gpu_memory.map(|memory| memory.0));
    WorkerAsk {
        gpus,
        share,
        gpu_mem: gpu_mem.unwrap_or(Mib(0)),
        cpu: MilliCpu(asked.cpu.map_or(0, |cpu| cpu.0)),
        mem: asked.memory.map_or(Mib(0), |memory| memory.0),
    }
}

/// The models that a gang's workers accept, in lower case, each once.
fn models(gang: &GangShape) -> Vec<String> {
    let mut models = Vec::new();
    for model in gang.each.iter().filter_map(|each| each.models.as_ref()).flat_map(|listed| &listed.0) {
        let name = model.0.to_lowercase();
        if !models.contains(&name) {
            models.push(name);
        }
    }
    models
}

fn service(asked: &ServiceShape) -> Service {
    Service {
        min: asked.min.map_or(1, |n| n.as_u32()),
        max: asked.max.as_u32(),
        target: asked.target.as_u32(),
        spread: asked.spread.map(|level| level.0),
    }
}

fn checkpoint(asked: &CheckpointShape) -> Checkpointing {
    Checkpointing {
        every: asked.every.map_or(Span::mins(10), |every| every.0),
        grace: asked.grace.map_or(Span::secs(90), |grace| grace.0),
    }
}

fn retry(asked: RetryShape) -> Retry {
    let usual = Retry::default();
    Retry {
        attempts: asked.attempts.map_or(usual.attempts, |n| n.as_u32()),
        backoff: asked.backoff.map_or(usual.backoff, |pause| pause.0),
        never: asked.never.map(|codes| codes.0.iter().map(|code| code.as_i32()).collect()).unwrap_or_default(),
        start_failures: asked.start_failures.map(|n| n.as_u32()),
    }
}

/// What the executor needs and the engine never reads: everything but the fields that are read here.
///
/// `simulation` is among it: to the simulated cluster it is what there is to run.
fn carried(fields: &Map<String, Value>) -> Result<Vec<u8>, Rejected> {
    let uri = fields.get("checkpoint").and_then(|f| f.get("uri"));
    let is_read = |name: &str| JobSubmission::FIELDS.contains(&name) && !CARRIED.contains(&name);
    // A field that is called like what is put there is none of theirs to give.
    let kept = canonical::named(fields).filter(|(name, _)| !is_read(name) && *name != CHECKPOINT_URI);
    let mut kept = kept.chain(uri.map(|uri| (CHECKPOINT_URI, uri))).peekable();
    if kept.peek().is_none() {
        return Ok(Vec::new());
    }
    let text = canonical::text(kept);
    if text.len() > MOST_BYTES {
        return Err(Rejected::too_large("data", text.len()));
    }
    Ok(text)
}

/// The address of a job's checkpoints, from what its specification carries.
#[must_use]
pub fn checkpoint_uri(run: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct CarriedFields {
        #[serde(rename = "checkpoint.uri")]
        uri: Option<String>,
    }
    serde_json::from_slice::<CarriedFields>(run).ok()?.uri
}
