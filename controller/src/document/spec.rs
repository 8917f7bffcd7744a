//! What a written job asks for, as the engine takes it.
//!
//! Never: guesses at contradictions; each is a fault with its path.

use super::write::rule_of;
use forebay_kernel::job::{Checkpointing, Gang, JobSpec, Level, Retry, Service, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use forebay_wire::document::DocumentFault;
use forebay_wire::document::memory::{JobMemory, RetryView};
use forebay_wire::document::state::DEFAULT_TENANT;
use forebay_wire::document::views::{JobView, ServiceView};

/// Most GPUs on one node: a worker's GPUs are a 64-bit mask.
const MOST_GPUS: u32 = 64;

/// The specification of `jobs[at]`.
///
/// # Errors
/// When a field has a value that no job can have; the field is named.
pub fn of(at: usize, view: &JobView, policy: Option<&Policy>) -> Result<JobSpec, DocumentFault> {
    let subject = view.subject.clone().unwrap_or_else(|| view.job.clone());
    let gang = gang(at, view)?;
    if let (Some(tier), Some(policy)) = (&view.tier, policy)
        && policy.tier_named(tier).is_none()
    {
        let known: Vec<&str> = policy.tiers.iter().map(|t| t.name.as_str()).collect();
        let message = format!("the policy has no tier `{tier}`");
        return Err(DocumentFault::at(
            format!("jobs[{at}].tier"),
            message,
            format!("write one of: {}", known.join(", ")),
        ));
    }
    let rule = policy.and_then(|p| rule_of(p, &view.queue));
    let grace = view.grace_s.map_or_else(|| policy.map_or(Span::secs(90), |p| p.lifecycle.grace), Span::from);
    let none = JobMemory::default();
    let memory = view.memory.as_deref().unwrap_or(&none);
    let shared = view.gpu_milli.is_some_and(|m| m < 1000);
    Ok(JobSpec {
        tenant: view.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
        subject,
        // Whoever wrote the state down says that the queue has taken it.
        principal: memory
            .principal
            .clone()
            .unwrap_or_else(|| rule.and_then(|r| r.submitters.first().cloned()).unwrap_or_default()),
        queue: view.queue.clone(),
        tier: view.tier.clone(),
        priority: view.priority,
        gang,
        models: view.models.iter().map(|m| m.to_lowercase()).collect(),
        spot: view.spot.unwrap_or(true),
        shares: view.shares.unwrap_or(shared),
        checkpoint: view.checkpoint_every_s.map(|every| Checkpointing { every: every.into(), grace }),
        retry: view.retry.as_ref().map_or_else(Retry::default, retry),
        completion: view.completion.unwrap_or_default(),
        max_run: view.max_run_s.map(Span::from),
        sent: memory.sent_s.map(Timestamp::from),
        restart: view.restart_s.unwrap_or_default().into(),
        expected: view.expected_s.map(Span::from),
        deadline: view.deadline_s.map(Timestamp::from),
        digest: digest(at, view, memory)?,
        service: view.service.as_ref().map(|s| service(at, s)).transpose()?,
        batch: view.batch_key.clone(),
        within: view.within.map(|w| w.0),
        labels: view.labels.clone(),
        ..JobSpec::default()
    })
}

fn retry(view: &RetryView) -> Retry {
    Retry {
        attempts: view.attempts,
        backoff: view.backoff_s.into(),
        never: view.never.clone(),
        start_failures: view.start_failures,
    }
}

/// What tells this specification from another of the same identity.
fn digest(at: usize, view: &JobView, memory: &JobMemory) -> Result<u128, DocumentFault> {
    if let Some(hex) = &memory.digest {
        let path = format!("jobs[{at}].memory.digest");
        return u128::from_str_radix(hex, 16)
            .map_err(|e| DocumentFault::at(path, format!("not a number in hex: {e}"), "leave it out"));
    }
    let digest = blake3::hash(format!("{view:?}").as_bytes());
    let mut low = [0; 16];
    low.copy_from_slice(&digest.as_bytes()[..16]);
    Ok(u128::from_le_bytes(low))
}

fn service(at: usize, view: &ServiceView) -> Result<Service, DocumentFault> {
    let spread = view.spread.as_deref().map(|name| {
        let path = format!("jobs[{at}].service.spread");
        Level::named(name)
            .ok_or_else(|| DocumentFault::at(path, format!("`{name}` is not known"), "write node, rack or zone"))
    });
    Ok(Service { min: view.min, max: view.max, target: view.target, spread: spread.transpose()? })
}

fn gang(at: usize, view: &JobView) -> Result<Gang, DocumentFault> {
    let fault = |field: &str, message: String, remedy: &str| {
        Err(DocumentFault::at(format!("jobs[{at}].{field}"), message, remedy))
    };
    let share = view.gpu_milli.unwrap_or(1000);
    if !(1..=1000).contains(&share) {
        return fault("gpuMilli", format!("{share} is not a share of a GPU"), "write 1 to 1000");
    }
    let mut ask = WorkerAsk {
        gpus: 1,
        share,
        gpu_mem: Mib(view.gpu_mem_mib.unwrap_or(0)),
        cpu: MilliCpu(view.cpu_milli.unwrap_or(0)),
        mem: Mib(view.mem_mib.unwrap_or(0)),
    };
    let workers = match (view.workers, view.gpus) {
        (Some(workers), _) => workers,
        // What an engine wrote says how many workers there are, but for a gang that may span nodes.
        (None, 1) if share == 1000 && view.attempt.is_some() => return Ok(Gang::Spanning { gpus: 1, per_gpu: ask }),
        (None, 0 | 1) => 1,
        (None, gpus) if share == 1000 => return Ok(Gang::Spanning { gpus, per_gpu: ask }),
        (None, gpus) => gpus,
    };
    if workers == 0 {
        return fault("workers", "a gang has at least one worker".to_owned(), "write 1 or more, or leave it out");
    }
    if !view.gpus.is_multiple_of(workers) {
        let message = format!("{} GPUs do not divide among {workers} workers", view.gpus);
        return fault("gpus", message, "give each worker the same number of GPUs");
    }
    let each = view.gpus / workers;
    if each > MOST_GPUS {
        return fault(
            "gpus",
            format!("{each} GPUs a worker are more than a node has"),
            "use more workers, or leave `workers` out",
        );
    }
    if share < 1000 && each > 1 {
        return fault(
            "gpuMilli",
            format!("a share goes with one GPU a worker, not {each}"),
            "write 1000, or one GPU a worker",
        );
    }
    let max = view.workers_max.unwrap_or(workers);
    if max < workers {
        return fault("workersMax", format!("{max} is below `workers`, which is {workers}"), "give as many or more");
    }
    ask.gpus = each as u16;
    Ok(Gang::Workers { min: workers, max, each: ask })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::document::views::JobPhase;

    fn written(gpus: u32, workers: Option<u32>, gpu_milli: Option<u16>) -> Result<Gang, DocumentFault> {
        let text = serde_json::json!({ "job": "a", "queue": "q", "gpus": gpus, "phase": JobPhase::Queued,
            "workers": workers, "gpuMilli": gpu_milli });
        gang(0, &serde_json::from_value(text).expect("a job"))
    }

    #[test]
    fn gangs_are_what_the_columns_of_a_trace_mean() {
        let cases =
            [(8, Some(2), None, Some((2, 4))), (1, None, Some(250), Some((1, 1))), (0, None, None, Some((1, 0)))];
        for (gpus, workers, milli, wanted) in cases {
            let found = match written(gpus, workers, milli).expect("a gang") {
                Gang::Workers { min, each, .. } => Some((min, each.gpus)),
                Gang::Spanning { .. } => None,
            };
            assert_eq!(found, wanted, "{gpus} {workers:?} {milli:?}");
        }
        assert!(matches!(written(12, None, None), Ok(Gang::Spanning { gpus: 12, .. })));
        let exported = serde_json::json!({ "job": "a", "queue": "q", "gpus": 1, "phase": "queued", "attempt": 0 });
        let exported: JobView = serde_json::from_value(exported).expect("a job");
        assert!(matches!(gang(0, &exported), Ok(Gang::Spanning { gpus: 1, .. })));
    }

    #[test]
    fn contradictions_are_named() {
        for (gpus, workers, milli, path) in [
            (8, Some(3), None, "jobs[0].gpus"),
            (8, Some(0), None, "jobs[0].workers"),
            (4, Some(2), Some(500), "jobs[0].gpuMilli"),
            (1, None, Some(0), "jobs[0].gpuMilli"),
        ] {
            assert_eq!(written(gpus, workers, milli).expect_err("a fault").path, path);
        }
    }
}
