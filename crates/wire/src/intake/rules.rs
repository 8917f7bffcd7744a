//! Rules about several fields of one object: what excludes what, and what goes only together. Each is checked once the object's fields
//! were read, and its error names the field to change.
//!
//! Never: a rule about one field. That belongs to its type.

use super::Rejected;
use super::json_cursor::JsonCursor;
use super::scalar::{SharingChoice, WorkerGpus};
use super::submission::{EachShape, GangShape, JobSubmission, MOST_REPLICAS, ServiceShape};

/// One worker: a MIG profile stands alone, a share goes with one GPU, and something is asked for.
pub(super) fn worker(asked: &EachShape, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    if asked.mig.is_some() {
        return slice_alone(asked, at);
    }
    share_of_one(asked, at)?;
    let has_gpus = asked.gpus.is_some_and(|gpus| gpus.0 > 0);
    let has_cpu = asked.cpu.is_some_and(|cpu| cpu.0 > 0);
    let has_memory = asked.memory.is_some_and(|memory| memory.0.0 > 0);
    if has_gpus || has_cpu || has_memory {
        return Ok(());
    }
    Err(at.bad("asks for nothing", "say what one worker needs, such as {\"gpus\":1}"))
}

/// Beside a profile, which names its share and memory, only `gpus: 1` may stand.
fn slice_alone(asked: &EachShape, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    let one = asked.gpus == Some(WorkerGpus(1000));
    let others = ["gpus", "share", "gpuMilli", "gpuMemory"].into_iter().filter(|name| !(*name == "gpus" && one));
    match others.filter_map(|name| at.get(name)).next() {
        Some(other) => {
            Err(other.bad("and `mig` say the same", "write one of them: a profile names its share and memory"))
        }
        None => Ok(()),
    }
}

/// `share` and `gpuMilli` exclude each other, and go with `gpus: 1`. Without `gpus` they have no effect.
fn share_of_one(asked: &EachShape, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    let Some(gpus) = asked.gpus else { return Ok(()) };
    let share = match (asked.share, asked.gpu_milli) {
        (None, None) => return Ok(()),
        (Some(share), None) => u32::from(share.0),
        (None, Some(milli)) => milli.as_u32(),
        (Some(_), Some(_)) => return Err(at.at("share").bad("and `gpuMilli` say the same", "write one of them")),
    };
    if share == 1000 || gpus == WorkerGpus(1000) {
        return Ok(());
    }
    let stated = at.get("share").unwrap_or_else(|| at.at("gpuMilli"));
    Err(stated.bad("is a share, which goes with `gpus: 1` only", "ask for whole GPUs, or a share of one"))
}

/// A gang has `workers` with `each`, or whole GPUs that may span nodes.
pub(super) fn gang(asked: &GangShape, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    if asked.gpus.is_none() {
        let remedy = "say what one worker needs, such as {\"gpus\":1}";
        return if asked.each.is_some() { Ok(()) } else { Err(at.missing("each", remedy)) };
    }
    if asked.each.as_ref().is_some_and(|each| each.mig.is_some()) {
        let slice = at.at("each").at("mig");
        return Err(slice.bad("is part of a GPU, but `gang.gpus` asks for whole ones", "give `workers` instead"));
    }
    if asked.workers.is_some() {
        let remedy = "give `workers` with `each`, or `gpus` for a gang that may span nodes";
        return Err(at.at("gpus").bad("and `workers` exclude each other", remedy));
    }
    Ok(())
}

/// A service has at most as many replicas as at least, or more.
pub(super) fn service(asked: &ServiceShape, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    let least = asked.min.map_or(1, |n| n.as_u32()).max(1);
    at.at("max").count(least, MOST_REPLICAS).map(drop)
}

/// A job on a share of a GPU is not exclusive, and a service does not end.
pub(super) fn submission(asked: &JobSubmission, at: &JsonCursor<'_>) -> Result<(), Rejected> {
    if asked.sharing == Some(SharingChoice::Exclusive) && asked.gang.is_part_of_a_gpu() {
        let remedy = "write shared, or ask for a whole GPU";
        return Err(at.at("sharing").bad("contradicts a share of a GPU", remedy));
    }
    if asked.service.is_some() {
        for field in ["deadline", "expectedRun"] {
            if let Some(end) = at.get(field) {
                return Err(end.bad("is for jobs that end, and a service does not", "leave it out"));
            }
        }
    }
    Ok(())
}
