//! What a data folder tells of demand: a server may be writing it meanwhile.
//!
//! ```text
//! a finished job with one run, of one size     held from its first start to its end, exactly
//! all other work, and services                 held as the ledger has it, evenly within each hour
//! ```
//!
//! Never: changes the folder. What the archive does not keep any more is counted.

use super::{DemandFault, DemandGathered, DemandOrigin, boot_of};
use crate::cost::{CostBasis, CostRange, ranged};
use crate::journal::{CloudNote, PastPart, SpendTotals, read_folder_past, read_folder_spend};
use crate::past::{Lasted, lasted};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::Undeclared;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{ChargeKind, LedgerSlot, QUARTER_MS};
use forebay_kernel::state::jobs::Job;
use forebay_kernel::units::{GpuTime, MilliGpu, Span, Timestamp};
use forebay_sim::demand::{
    DemandJob, DemandRecords, HeldSpell, ResidencyRow, ResidencySource, Tolerance, ToleranceSource, WaitSeen, WorkClass,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

/// Reads a folder.
///
/// # Errors
/// There is no sound journal, or its ledger does not add up.
pub fn of_folder(folder: &Path) -> Result<DemandGathered, DemandFault> {
    let spend = read_folder_spend(folder)?;
    let basis = CostBasis::of(&spend.machine);
    let (charges, _) = ranged(&basis, spend.charges, spend.jobs, &CostRange::default())?;
    let mut gathering = Gathering::default();
    read_folder_past(folder, &mut |state, part| {
        gathering.take(state, part);
        ControlFlow::Continue(())
    })?;
    Ok(gathering.finish(&basis, &charges, folder))
}

/// A reading under way.
#[derive(Default)]
struct Gathering {
    records: DemandRecords,
    queues: BTreeMap<String, u32>,
    /// Jobs whose own times tell what they held.
    exact: BTreeSet<JobId>,
    held: Vec<HeldSpell>,
    launched: BTreeMap<String, Timestamp>,
    boots: Vec<Span>,
    now: Timestamp,
    archived: u64,
    gone: u64,
    refused: u64,
}

impl Gathering {
    fn take(&mut self, state: &State, part: PastPart<'_>) {
        self.now = state.now();
        match part {
            PastPart::Policies(_) => {}
            PastPart::Finished(finished) => {
                self.archived += 1;
                self.job(state, &finished.job, &finished.spec);
            }
            PastPart::Cloud(at, notes) => notes.into_iter().for_each(|note| self.cloud(at, note)),
            PastPart::End => self.end(state),
        }
    }

    fn cloud(&mut self, at: Timestamp, note: CloudNote) {
        match note {
            CloudNote::Answered { instances, .. } => {
                self.launched.extend(instances.into_iter().map(|instance| (instance, at)));
            }
            CloudNote::Ready { instance } => {
                self.boots.extend(self.launched.remove(&instance).map(|launched| at.since(launched)));
            }
            CloudNote::Gone { instance, .. } => drop(self.launched.remove(&instance)),
            CloudNote::Asked { .. } | CloudNote::Reclaiming { .. } | CloudNote::Priced { .. } => {}
        }
    }

    fn end(&mut self, state: &State) {
        let open: Vec<JobId> = state.open_job_ids().collect();
        for (job, spec) in open.into_iter().filter_map(|id| state.job(id)).filter(|(job, _)| job.service.is_none()) {
            self.job(state, job, spec);
        }
        self.records.residency.extend(services(state));
        self.gone = state.counters().outcomes.iter().sum::<u64>().saturating_sub(self.archived);
        self.refused = state.counters().refused;
    }

    fn job(&mut self, state: &State, job: &Job, spec: &JobSpec) {
        if spec.service.is_some() {
            return;
        }
        let lasted = lasted(job, spec);
        let asks_for = match lasted {
            Lasted::Done(span) | Lasted::CutShort(span) => Some(span),
            Lasted::Expected(span) => Some(job.running_since.map_or(span, |since| span.max(state.now().since(since)))),
            Lasted::Unknown if job.done() => None,
            Lasted::Unknown => Some(state.now().since(job.arrival)),
        };
        let share = spec.gang.gpu_share();
        if let (Some(from), Some(to), true) = (job.first_start, job.ended, ran_once(job, spec)) {
            self.exact.insert(job.id);
            self.held.push(HeldSpell { from, to, gpus: share });
        }
        let queue = self.records.queue(&mut self.queues, &spec.queue);
        self.records.jobs.push(DemandJob {
            queue: Some(queue),
            submitted: job.arrival,
            share,
            asks_for,
            lasted: match lasted {
                Lasted::Done(span) => Some(span),
                _ => None,
            },
            wait: match (job.first_start, job.ended) {
                (Some(at), _) => WaitSeen::Started(at),
                (None, Some(at)) => WaitSeen::GaveUp(at),
                (None, None) => WaitSeen::Waiting,
            },
            tolerance: tolerance(state, job, spec, asks_for),
            class: Some(WorkClass::Batch),
            busy_permille: None,
        });
    }

    fn finish(mut self, basis: &CostBasis, charges: &SpendTotals, folder: &Path) -> DemandGathered {
        let slot = slot_length(charges);
        let (mut of_services, mut of_jobs) = (BTreeMap::new(), BTreeMap::new());
        let mut idle: BTreeMap<JobId, (i128, i128)> = BTreeMap::new();
        let mut by_hour = BTreeSet::new();
        for (key, amount) in charges {
            let of_run = matches!(key.kind, ChargeKind::Worked | ChargeKind::Lost | ChargeKind::Lingering);
            let Some(job) = key.job.filter(|_| of_run && basis.offering(key.offering).is_some_and(|o| o.gpus)) else {
                continue;
            };
            let serves = key.attempt == Attempt(0);
            if serves {
                *of_services.entry(key.slot).or_default() += amount;
            } else if !self.exact.contains(&job) {
                by_hour.insert(job);
                *of_jobs.entry(key.slot).or_default() += amount;
            }
            if !serves {
                let (held, idle) = idle.entry(job).or_default();
                *held += amount;
                *idle += if key.kind == ChargeKind::Lingering { *amount } else { 0 };
            }
        }
        let begins = self.records.jobs.iter().filter(|job| job.share.0 > 0).map(|job| job.submitted).min();
        let spells = |sums: BTreeMap<LedgerSlot, i128>, now| spells(sums, slot, begins.unwrap_or(Timestamp(0)), now);
        self.records.services = spells(of_services, self.now);
        self.held.extend(spells(of_jobs, self.now));
        self.records.residency.extend(reported_idle(idle.into_values()));
        self.records.ends = Some(self.now);
        self.records.held = Some(self.held);
        let (boot, boot_from) = boot_of(self.boots, "in the journal");
        self.records.boot = boot;
        let counted = [
            (
                self.gone,
                "jobs are in no figure but GPUs held: they were over before what the archive keeps (journal: {keepFinished})",
            ),
            (self.refused, "submissions are not in it: they were refused before they became jobs"),
            (
                by_hour.len() as u64,
                "jobs ran more than once, changed their size or are not over: what they held is known by the hour",
            ),
        ];
        let notes = counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let name = folder.display().to_string();
        DemandGathered { name, origin: DemandOrigin::Folder, records: self.records, boot_from, notes }
    }
}

/// Whether a job held the same from its first start to its end.
fn ran_once(job: &Job, spec: &JobSpec) -> bool {
    let elastic = matches!(spec.gang, Gang::Workers { min, max, .. } if max > min);
    job.attempt == Attempt(1) && job.failures == 0 && job.interruptions == 0 && job.left.is_empty() && !elastic
}

/// The least of what its deadline and its queue's start target leave.
fn tolerance(state: &State, job: &Job, spec: &JobSpec, asks_for: Option<Span>) -> Option<Tolerance> {
    let until = |at: Timestamp| Some(Tolerance::until_deadline(at.since(job.arrival), asks_for?));
    let rule = state.policy().and_then(|policy| {
        policy.queues.get(&spec.queue).or(match &policy.undeclared {
            Undeclared::Under { rule, .. } => Some(rule),
            Undeclared::Reject => None,
        })
    });
    let target = rule.and_then(|rule| rule.start.as_ref());
    let target = target.map(|target| Tolerance { wait: target.within, source: ToleranceSource::StartTarget });
    [spec.deadline.and_then(until), target].into_iter().flatten().min_by_key(|tolerance| tolerance.wait)
}

/// How long a slot of the ledger is: an hour, or a part of it where the billing zone asks for one.
fn slot_length(charges: &SpendTotals) -> Span {
    let quarters = charges.keys().map(|key| key.slot.0 % 4).filter(|quarter| *quarter > 0);
    let parts = quarters.map(|quarter| if quarter == 2 { 2 } else { 1 }).min().unwrap_or(4);
    Span(parts * QUARTER_MS)
}

/// What was held in each slot, evenly over the part of it that lies between two instants.
fn spells(sums: BTreeMap<LedgerSlot, i128>, length: Span, begins: Timestamp, now: Timestamp) -> Vec<HeldSpell> {
    let spell = |(slot, amount): (LedgerSlot, i128)| {
        let from = slot.begins().max(begins);
        let to = (slot.begins() + length).min(now);
        let over = u128::from(to.since(from).0).max(1);
        let gpus = u128::try_from(amount).ok()? / over;
        Some(HeldSpell { from, to, gpus: MilliGpu(u64::try_from(gpus).ok()?) })
    };
    sums.into_iter().filter_map(spell).filter(|spell| spell.from < spell.to).collect()
}

/// The services that are not over: since their first replica was loaded last, up to now. `None`: there is none that was.
fn services(state: &State) -> Option<ResidencyRow> {
    let mut row = ResidencyRow {
        source: ResidencySource::Services,
        count: 0,
        resident: GpuTime::default(),
        busy: GpuTime::default(),
    };
    for (id, service) in state.services() {
        let Some((_, spec)) = state.job(id) else { continue };
        let target = u128::from(service.rule.target.max(1));
        let since = u128::from(state.now().since(service.counted_to).0);
        let loaded = u128::from(service.loaded) * target;
        let busy = loaded.min(u128::from(service.demand));
        let (resident, busy) = (service.resident + loaded * since, service.busy + busy * since);
        let share = u128::from(spec.gang.gpu_share().0);
        row.count += u64::from(resident > 0 && share > 0);
        row.resident += GpuTime(resident * share / target);
        row.busy += GpuTime(busy * share / target);
    }
    (row.count > 0).then_some(row)
}

/// Runs of which somebody watched the GPUs and found them idle.
fn reported_idle(jobs: impl Iterator<Item = (i128, i128)>) -> Option<ResidencyRow> {
    let mut row = ResidencyRow {
        source: ResidencySource::ReportedIdle,
        count: 0,
        resident: GpuTime::default(),
        busy: GpuTime::default(),
    };
    for (held, idle) in jobs.filter(|(_, idle)| *idle > 0) {
        let time = |amount: i128| GpuTime(u128::try_from(amount).unwrap_or(0));
        row.count += 1;
        row.resident += time(held);
        row.busy += time(held - idle);
    }
    (row.count > 0).then_some(row)
}
