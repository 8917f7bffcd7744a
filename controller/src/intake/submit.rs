//! `job.submitted`: the data of a submission as a job's specification.
//!
//! ```text
//! data -> gang, models, sharing | checkpoint, retry, completion | times | run (checked, carried as bytes)
//! digest = blake3(data without `simulation` and `rerun`), so that the same job said twice is one job
//! ```
//!
//! Never: looks a queue or tier up (the engine does, against the policy in force), nor fills in what a policy decides.

use super::envelope::Envelope;
use super::look::At;
use super::{Caller, MOST_BYTES, Rejected, canonical, run, service};
use crate::document::within::known;
use crate::policy::mig;
use forebay_engine::job::{Checkpointing, Completion, Gang, JobSpec, Level, Retry, Within, WorkerAsk};
use forebay_engine::units::{Mib, MilliCpu, Millis, Span};
use serde_json::{Map, Value};

/// Most workers of a gang: ten times the largest cluster that one controller holds.
const MOST_WORKERS: u32 = 100_000;

/// Most GPUs of one worker: a node's GPUs are bits of 64.
const MOST_GPUS: u64 = 64;

/// Most models that a gang lists: more than any cloud has. Each is compared with each.
const MOST_MODELS: usize = 64;

/// Most exit codes that are never retried: there are 256.
const MOST_CODES: usize = 256;

/// Fields of `data` that are read here. What else there is, is carried along.
const READ: [&str; 16] = [
    "queue",
    "gang",
    "sharing",
    "completion",
    "retry",
    "checkpoint",
    "expectedRun",
    "maxRun",
    "deadline",
    "priority",
    "tier",
    "rerun",
    "spot",
    "restart",
    "service",
    "batchKey",
];

/// Fields that are known and only carried along.
const CARRIED: [&str; 5] = ["run", "labels", "simulation", "kind", "user"];

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
    let data = At::under(data, "data");
    let fields = data.object()?;
    data.warn_unknown(&[&READ, &CARRIED], warnings);
    let gang_at = data.need("gang", "say what it needs, such as {\"workers\":1,\"each\":{\"gpus\":1}}")?;
    let (gang, models) = gang(&gang_at, warnings)?;
    let within = gang_at.get("within").map(|at| within(&at)).transpose()?;
    let shared = sharing(&data, &gang)?;
    let serves = service::read(&data)?;
    let spot = match serves {
        Some((_, spot)) => spot,
        None => data.get("spot").map(|at| at.flag()).transpose()?.unwrap_or(true),
    };
    let text = |name: &str, most: usize| data.get(name).map(|at| at.word(most).map(str::to_owned)).transpose();
    let span = |name: &str| data.get(name).map(|at| at.span()).transpose();
    if let Some(at) = data.get("run") {
        run::check(&at)?;
    }
    if let Some(at) = data.get("labels") {
        for (name, value) in at.object()? {
            at.field(name, value).text()?;
        }
    }
    let priority = data.get("priority").map(|at| at.whole(-1_000_000, 1_000_000)).transpose()?;
    Ok(JobSpec {
        tenant: caller.tenant.clone(),
        subject: envelope.subject()?.to_owned(),
        principal: caller.principal.clone(),
        queue: data.get("queue").map(|at| queue(&at)).transpose()?.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        tier: text("tier", 253)?,
        priority: priority.and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
        gang,
        models,
        spot,
        service: serves.map(|(rule, _)| rule),
        shares: shared,
        checkpoint: data.get("checkpoint").map(|at| checkpoint(&at)).transpose()?,
        restart: span("restart")?.unwrap_or(Span::ZERO),
        retry: data.get("retry").map(|at| retry(&at)).transpose()?.unwrap_or_default(),
        completion: data.get("completion").map(|at| completion(&at)).transpose()?.unwrap_or_default(),
        expected: span("expectedRun")?,
        max_run: data.get("maxRun").map(|at| positive(&at)).transpose()?,
        deadline: data.get("deadline").map(|at| at.instant()).transpose()?,
        digest: canonical::digest(fields, &["simulation", "rerun"]),
        rerun: data.get("rerun").map(|at| at.flag()).transpose()?.unwrap_or(false),
        run: carried(fields)?,
        batch: text("batchKey", 253)?,
        within,
        sent: envelope.time_ms.map(Millis),
    })
}

fn queue(at: &At<'_>) -> Result<String, Rejected> {
    let path = at.word(253)?;
    let sound = path.split('/').all(|part| !part.is_empty() && part.trim() == part);
    if sound { Ok(path.to_owned()) } else { Err(at.bad("is not a queue's path", "write it as research/vision")) }
}

/// The gang, and the models that its workers accept.
fn gang(at: &At<'_>, warnings: &mut Vec<String>) -> Result<(Gang, Vec<String>), Rejected> {
    at.object()?;
    at.warn_unknown(&[&["workers", "each", "within", "gpus"]], warnings);
    let each_at = match at.get("each") {
        Some(each) => each,
        None if at.get("gpus").is_some() => At::under(&Value::Null, "data.gang.each"),
        None => return Err(at.missing("each", "say what one worker needs, such as {\"gpus\":1}")),
    };
    let (each, models) = each(&each_at, warnings)?;
    if let Some(gpus) = at.get("gpus") {
        if let Some(slice) = each_at.get("mig") {
            return Err(slice.bad("is part of a GPU, but `gang.gpus` asks for whole ones", "give `workers` instead"));
        }
        if at.get("workers").is_some() {
            return Err(gpus.bad(
                "and `workers` exclude each other",
                "give `workers` with `each`, or `gpus` for a gang that may span nodes",
            ));
        }
        let gpus = gpus.count(1, MOST_WORKERS)?;
        return Ok((Gang::Spanning { gpus, per_gpu: WorkerAsk { gpus: 1, share: 1000, ..each } }, models));
    }
    let (min, max) = match at.get("workers") {
        None => (1, 1),
        Some(workers) if workers.value.is_object() => {
            let least = workers.need("min", "say how few will do")?.count(1, MOST_WORKERS)?;
            let most = workers.get("max").map(|m| m.count(least, MOST_WORKERS)).transpose()?.unwrap_or(least);
            (least, most)
        }
        Some(workers) => {
            let n = workers.count(1, MOST_WORKERS)?;
            (n, n)
        }
    };
    Ok((Gang::Workers { min, max, each }, models))
}

/// How close together the workers go: a level, or one that is preferred.
fn within(at: &At<'_>) -> Result<Within, Rejected> {
    let (word, required) = if at.value.is_object() { (at.need("prefer", &known())?, false) } else { (*at, true) };
    let level = word.value.as_str().and_then(Level::named);
    level.map(|level| Within { level, required }).ok_or_else(|| word.bad("is not a level of the topology", &known()))
}

fn each(at: &At<'_>, warnings: &mut Vec<String>) -> Result<(WorkerAsk, Vec<String>), Rejected> {
    at.warn_unknown(&[&["gpus", "share", "gpuMilli", "mig", "models", "cpu", "memory", "gpuMemory"]], warnings);
    let slice = slice(at)?;
    let (gpus, share) = match slice {
        Some((share, _)) => (1, share),
        None => gpus(at)?,
    };
    let cpu = at.get("cpu").map(|c| c.thousandths()).transpose()?.unwrap_or(0);
    let memory = |name: &str| at.get(name).map(|m| m.memory()).transpose();
    let ask = WorkerAsk {
        gpus,
        share,
        gpu_mem: slice.map(|(_, mem)| mem).or(memory("gpuMemory")?).unwrap_or(Mib(0)),
        cpu: MilliCpu(cpu),
        mem: memory("memory")?.unwrap_or(Mib(0)),
    };
    if ask.gpus == 0 && ask.cpu.0 == 0 && ask.mem.0 == 0 && !at.value.is_null() {
        return Err(at.bad("asks for nothing", "say what one worker needs, such as {\"gpus\":1}"));
    }
    let mut models = Vec::new();
    for model in at.get("models").map(|m| m.at_most(MOST_MODELS)).transpose()?.unwrap_or_default() {
        let name = model.word(64)?.to_lowercase();
        if !models.contains(&name) {
            models.push(name);
        }
    }
    Ok((ask, models))
}

/// One slice of a partitioned GPU, `mig: 3g.40gb`: its share of the GPU and the memory that it has on any model.
fn slice(at: &At<'_>) -> Result<Option<(u16, Mib)>, Rejected> {
    let Some(field) = at.get("mig") else { return Ok(None) };
    let least = field.value.as_str().and_then(mig::least).ok_or_else(|| {
        field.bad("is not a MIG profile that is known", &format!("write one of {}", mig::all_profiles().join(", ")))
    })?;
    let whole = |gpus: &At<'_>| gpus.thousandths().is_ok_and(|n| n == 1000);
    let mut others =
        ["gpus", "share", "gpuMilli", "gpuMemory"].into_iter().filter_map(|name| Some((name, at.get(name)?)));
    match others.find(|(name, other)| !(*name == "gpus" && whole(other))) {
        Some((_, other)) => {
            Err(other.bad("and `mig` say the same", "write one of them: a profile names its share and memory"))
        }
        None => Ok(Some(least)),
    }
}

/// GPUs and the share of each: `gpus: 8`, `gpus: 0.25`, or `gpus: 1` with `share: 0.25` or `gpuMilli: 250`.
fn gpus(at: &At<'_>) -> Result<(u16, u16), Rejected> {
    let Some(field) = at.get("gpus") else { return Ok((0, 1000)) };
    let milli = field.thousandths()?;
    let (gpus, own) = match milli {
        1..1000 => (1, milli),
        _ if milli % 1000 != 0 => return Err(field.bad("is neither whole GPUs nor a share of one", "write 2, or 0.5")),
        _ => (milli / 1000, 1000),
    };
    if gpus > MOST_GPUS {
        return Err(field.bad("is more than any node has", "write at most 64 for one worker, and more workers"));
    }
    let stated = match (at.get("share"), at.get("gpuMilli")) {
        (None, None) => None,
        (Some(share), None) => Some((share.thousandths()?, share)),
        (None, Some(share)) => Some((u64::from(share.count(1, 1000)?), share)),
        (Some(share), Some(_)) => return Err(share.bad("and `gpuMilli` say the same", "write one of them")),
    };
    let share = match stated {
        None => own,
        Some((n, at)) if n == 0 || n > 1000 => {
            return Err(at.bad("is not a share of a GPU", "write more than 0 and at most 1"));
        }
        Some((n, at)) if n < 1000 && (gpus != 1 || own != 1000) => {
            return Err(at.bad("is a share, which goes with `gpus: 1` only", "ask for whole GPUs, or a share of one"));
        }
        Some((n, _)) => n,
    };
    let small = |n: u64| u16::try_from(n).unwrap_or(u16::MAX);
    Ok((small(gpus), small(share)))
}

/// Whether it shares GPUs. A share of a GPU is a consent in itself, unless the job says otherwise.
fn sharing(data: &At<'_>, gang: &Gang) -> Result<bool, Rejected> {
    let slice = data.get("gang").and_then(|g| g.get("each")).is_some_and(|each| each.get("mig").is_some());
    let part = slice || matches!(gang, Gang::Workers { each, .. } if each.share < 1000);
    let Some(at) = data.get("sharing") else { return Ok(part) };
    match at.text()? {
        "shared" => Ok(true),
        "exclusive" if part => Err(at.bad("contradicts a share of a GPU", "write shared, or ask for a whole GPU")),
        "exclusive" => Ok(false),
        _ => Err(at.bad("is not known", "write exclusive or shared")),
    }
}

fn checkpoint(at: &At<'_>) -> Result<Checkpointing, Rejected> {
    at.object()?;
    let uri = at.need("uri", "say where it saves, such as s3://bucket/path/")?;
    let text = uri.word(2048)?;
    let place = ["s3://", "gs://", "file://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    if !place.is_some_and(|p| !p.is_empty() && !p.contains(char::is_whitespace)) {
        return Err(
            uri.bad("is not an address of a checkpoint", "write s3://bucket/path/, gs://bucket/path/ or file:///path/")
        );
    }
    let every = at.get("every").map(|e| positive(&e)).transpose()?.unwrap_or(Span::mins(10));
    let grace = at.get("grace").map(|g| g.span()).transpose()?.unwrap_or(Span::secs(90));
    Ok(Checkpointing { every, grace })
}

fn retry(at: &At<'_>) -> Result<Retry, Rejected> {
    at.object()?;
    let usual = Retry::default();
    let mut never = Vec::new();
    for code in at.get("never").map(|n| n.at_most(MOST_CODES)).transpose()?.unwrap_or_default() {
        let n = code.whole(i64::from(i32::MIN), i64::from(i32::MAX))?;
        never.push(i32::try_from(n).unwrap_or(i32::MAX));
    }
    Ok(Retry {
        attempts: at.get("attempts").map(|n| n.count(1, 1000)).transpose()?.unwrap_or(usual.attempts),
        backoff: at.get("backoff").map(|b| b.span()).transpose()?.unwrap_or(usual.backoff),
        never,
    })
}

fn completion(at: &At<'_>) -> Result<Completion, Rejected> {
    match at.text()? {
        "all" => Ok(Completion::All),
        "leader" => Ok(Completion::Leader),
        "any" => Ok(Completion::Any),
        _ => Err(at.bad("is not known", "write all, leader or any")),
    }
}

fn positive(at: &At<'_>) -> Result<Span, Rejected> {
    let span = at.span()?;
    if span == Span::ZERO { Err(at.bad("is no time at all", "write a longer one, or leave it out")) } else { Ok(span) }
}

/// What the executor needs and the engine never reads: everything but the fields that are read here.
///
/// `simulation` is among it: to the simulated cluster it is what there is to run.
fn carried(fields: &Map<String, Value>) -> Result<Vec<u8>, Rejected> {
    let uri = fields.get("checkpoint").and_then(|f| f.get("uri"));
    // A field that is called like what is put there is none of theirs to give.
    let kept = canonical::named(fields).filter(|(name, _)| !READ.contains(name) && *name != CHECKPOINT_URI);
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
    struct Carried {
        #[serde(rename = "checkpoint.uri")]
        uri: Option<String>,
    }
    serde_json::from_slice::<Carried>(run).ok()?.uri
}
