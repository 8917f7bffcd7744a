//! What the cloud, runs and agents send: manifests of checkpoints, instance metadata, EventBridge notices, reports of activity.
//!
//! Never: the network. A manifest is in a folder of the fuzzer's own, and so is the one file that a right one names.

use crate::holds;
use crate::memory::decoding;
use crate::targets::{Broken, DecodeOutcome, is_json, rejected, unreadable};
use forebay::activity::view::{ObservedRun, ObservedService, ReportView};
use forebay::activity::{ActivityBook, WorkerStanding};
use forebay_capacity_ec2::ClockReading;
use forebay_capacity_ec2::notice::{
    ClaimStatus, InterruptionNotice, KnownInstances, NoticeError, QueueMessage, decode_message, notice_events,
};
use forebay_checkpoint_s3::{
    CheckError, CheckpointRefusal, CheckpointSettings, CheckpointVerifier, MAX_MANIFEST_BYTES, ManifestName,
    VerifyRequest,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::policy::Lifecycle;
use forebay_kernel::units::{Span, Timestamp};
use forebay_node_agent::{ActivityReport, AgentReport, MOST_WORKERS_REPORTED, ReportKind, WorkerName};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tokio::runtime::{Builder, Runtime};

/// What verifies checkpoints, and what that runs on. `None`: the system gave no thread.
static VERIFIER: LazyLock<Option<(Runtime, CheckpointVerifier)>> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(4).enable_time().build().ok()?;
    let settings = CheckpointSettings { files: true, ..CheckpointSettings::default() };
    Some((runtime, CheckpointVerifier::new(settings).ok()?))
});

/// The manifest of a checkpoint in a shared folder, verified as what run 3 of job 12 reports.
pub fn manifest(bytes: &[u8], folder: &Path) -> Result<DecodeOutcome, Broken> {
    let Some((runtime, verifier)) = &*VERIFIER else { return Err("no thread to verify checkpoints on".to_owned()) };
    let key = ManifestName { attempt: 3, sequence: 7 }.key();
    let root = folder.join("checkpoint");
    written(&root, &key, bytes).map_err(|e| format!("{}: {e}", root.display()))?;
    let uri = format!("file://{}/", root.display());
    let request = VerifyRequest { uri: &uri, job: "job-12", attempt: 3 };
    let refusal = match decoding(|| runtime.block_on(verifier.verify(&request, &key))) {
        Ok(_) => return Ok(DecodeOutcome::Accepted),
        // Such as a key that is longer than the file system's names.
        Err(CheckError::Unavailable(why)) => {
            holds::of_message(&why.to_string(), bytes)?;
            return Ok(rejected("Unavailable", "-"));
        }
        Err(CheckError::Refused(refusal)) => refusal,
    };
    holds::of_message(&refusal.to_string(), bytes)?;
    let code = match &refusal {
        CheckpointRefusal::Unreadable { .. } if bytes.len() as u64 > MAX_MANIFEST_BYTES || !is_json(bytes) => {
            return Ok(unreadable());
        }
        CheckpointRefusal::Unreadable { .. } => "Contents",
        CheckpointRefusal::Job { .. } => "Job",
        CheckpointRefusal::Attempt { .. } => "Attempt",
        CheckpointRefusal::Key { .. } => "Key",
        CheckpointRefusal::Missing { .. } => "Missing",
        CheckpointRefusal::Size { .. } => "Size",
        CheckpointRefusal::Checksum { .. } => "Checksum",
        CheckpointRefusal::Unverifiable { .. } => "Unverifiable",
        CheckpointRefusal::Address { .. }
        | CheckpointRefusal::NoBucket { .. }
        | CheckpointRefusal::Unnamed { .. }
        | CheckpointRefusal::NoManifest { .. }
        | CheckpointRefusal::NotThere { .. } => return Err(format!("the manifest was not looked at: {refusal}")),
    };
    Ok(rejected(code, "-"))
}

/// Writes the manifest, and once the file that a right one names.
fn written(root: &Path, key: &str, bytes: &[u8]) -> std::io::Result<()> {
    let file = root.join("step/model.bin");
    if !file.is_file() {
        std::fs::create_dir_all(root.join("step"))?;
        std::fs::create_dir_all(root.join("manifests"))?;
        std::fs::write(&file, b"a")?;
    }
    std::fs::write(root.join(key), bytes)
}

/// The instance metadata's texts. Whatever they are they announce something; what may be refused is the time.
pub fn metadata(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(unreadable()) };
    let [one, other] = decoding(|| [AgentReport::interruption(text), AgentReport::rebalance(text)]);
    if (one.kind, other.kind) != (ReportKind::Interruption, ReportKind::Rebalance) {
        return Err(format!("an announcement became another one: {one:?}, {other:?}"));
    }
    for report in [&one, &other] {
        holds::of_message(&report.describe(), bytes)?;
        // `2026-11-21T20:30:00Z` goes to the controller as it is.
        if let Some(at) = report.at.as_ref().filter(|at| at.len() != 20 || !at.is_ascii()) {
            return Err(format!("{at:?} is a time"));
        }
    }
    Ok(match one.at.or(other.at) {
        Some(_) => DecodeOutcome::Accepted,
        None if is_json(bytes) => rejected("NoTime", "-"),
        None => unreadable(),
    })
}

/// When the messages of EventBridge are received.
const RECEIVED: Timestamp = Timestamp(1_795_293_000_000);

/// A message of EventBridge in a queue, and the events that follow from it.
pub fn notices(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(unreadable()) };
    let decode = || decode_message(text, RECEIVED);
    let once = decoding(decode);
    if once != decode() {
        return Err("a message is another one the second time".to_owned());
    }
    match once {
        Ok(QueueMessage::Notice(notice)) => of_notice(&notice).map(|()| DecodeOutcome::Accepted),
        Ok(QueueMessage::Foreign { about }) => {
            holds::of_message(&about, bytes)?;
            Ok(rejected("Foreign", "-"))
        }
        Err(why) => {
            holds::of_message(&why.to_string(), bytes)?;
            Ok(match why {
                NoticeError::TooLarge { .. } => unreadable(),
                NoticeError::Malformed { .. } if !is_json(bytes) => unreadable(),
                NoticeError::Malformed { .. } => rejected("Malformed", "-"),
                NoticeError::BadValue { path, .. } => rejected("BadValue", path),
                NoticeError::TooMany { .. } => rejected("TooMany", "-"),
            })
        }
    }
}

/// Every instance is ours, and has this status.
struct AllOurs(ClaimStatus);

impl KnownInstances for AllOurs {
    fn claim_status(&self, _: &str) -> Option<ClaimStatus> {
        Some(self.0)
    }

    fn in_reservation(&self, _: &str) -> Vec<String> {
        vec!["i-1234567890abcdef0".to_owned()]
    }
}

fn of_notice(notice: &InterruptionNotice) -> Result<(), Broken> {
    let is_id = |id: &String| id.starts_with("i-") && id.len() <= 42 && id.is_ascii();
    if !notice.instances.iter().all(is_id) || notice.id.chars().count() > 64 {
        return Err(format!("{:?} are instances of the event {:?}", notice.instances, notice.id));
    }
    for status in [ClaimStatus::Booting, ClaimStatus::Ready, ClaimStatus::Warned, ClaimStatus::Ending] {
        let outcome = notice_events(notice, ClockReading::same(RECEIVED), &AllOurs(status));
        if outcome.foreign > 0 || outcome.events.len() + outcome.later.len() > notice.instances.len().max(1) {
            return Err(format!("more follows than was announced: {outcome:?}"));
        }
    }
    Ok(())
}

/// How long the run of a report has been running: it cannot have been idle for longer.
const RUNS_FOR: Span = Span::mins(10);

/// A report of activity, and what follows where all of its workers are of one run and of one service.
pub fn agents(bytes: &[u8], _: &Path) -> Result<DecodeOutcome, Broken> {
    let report: ActivityReport = match decoding(|| serde_json::from_slice(bytes)) {
        Ok(report) => report,
        Err(why) => {
            holds::of_message(&why.to_string(), bytes)?;
            return Ok(if is_json(bytes) { rejected("BadValue", "-") } else { unreadable() });
        }
    };
    if report.workers.len() > MOST_WORKERS_REPORTED {
        return Ok(rejected("TooMany", "-"));
    }
    let written = serde_json::to_vec(&report).map_err(|e| format!("a report that was read cannot be written: {e}"))?;
    if !serde_json::from_slice::<ActivityReport>(&written).is_ok_and(|again| again == report) {
        return Err("a report that is written again is another one".to_owned());
    }
    let (book, view) = (ActivityBook::default(), all_current(&report));
    let taken = decoding(|| book.take(&report, &view));
    let too_long = taken.events.iter().any(|event| matches!(event, Event::RunIdle { idle, .. } if *idle > RUNS_FOR));
    if !taken.new || taken.ignored > 0 || too_long {
        return Err(format!("a first report of current workers became {taken:?}"));
    }
    if book.take(&report, &view).new {
        return Err("a report that came twice was taken twice".to_owned());
    }
    Ok(DecodeOutcome::Accepted)
}

/// As the engine would know a report's workers: all of them current, in a queue.
fn all_current(report: &ActivityReport) -> ReportView {
    let instance: Arc<str> = Arc::from(report.instance.as_str());
    let names: Vec<WorkerName> = report.workers.iter().map(|worker| worker.worker).collect();
    let workers = names.iter().map(|name| (*name, Arc::clone(&instance))).collect();
    let run = ObservedRun { job: JobId(12), attempt: Attempt(3), runs_for: RUNS_FOR, workers };
    let service = ObservedService {
        service: JobId(9),
        tenant: "default".to_owned(),
        subject: "chat".to_owned(),
        demand: u32::from(report.sequence.is_multiple_of(2)),
        target: 4,
        replicas: vec![run.clone()],
    };
    ReportView {
        rules: Lifecycle::default(),
        has_gpus: true,
        standings: vec![WorkerStanding::Current; names.len()],
        queues: names.into_iter().map(|name| (name, "vision".to_owned())).collect(),
        runs: vec![run],
        services: vec![service],
    }
}
