//! `GET /v1/cost` and `GET /v1/cost/focus`: the bill, of everything for operators, else of the jobs that a caller may see. What single jobs cost, for
//! lists of jobs.
//!
//! ```text
//! engine (driver's thread): position, open charges -> journal (blocking thread): charges before it -> all charges (blocking thread)
//!   -> what may this caller see? (driver's thread) -> rows (blocking thread)
//! ```
//!
//! Never: another's jobs or nobody's time to who is no operator; a read of the disk on the driver's thread; the sums of a bill on a thread that
//! serves connections, or before another caller has its turn.

use super::Api;
use super::archive;
use super::auth::Reader;
use super::error::ApiError;
use super::find::{Name, Place, find_anywhere};
use super::jobs::query;
use super::rows::not_read;
use crate::config::tokens::Who;
use crate::cost::{
    BalanceCheck, BillScope, CostBasis, CostBy, CostRange, CostSubset, Slots, Unbalanced, focus_csv, job_cost,
    scoped_bill,
};
use crate::document::write;
use crate::journal::{ArchiveReader, JournalError, SpendQuery, SpendRead, SpendTotals};
use crate::show::figures::short;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::state::billing::{BilledJob, EarlierSpend, LedgerSlot, QUARTER_MS};
use forebay_kernel::units::{HOUR_MS, Timestamp};
use forebay_wire::document::cost::JobCost;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Times that the journal is asked: what a bill is read at passes only while two snapshots are written, and for metrics while another scrape is
/// answered.
pub(super) const TRIES: u32 = 3;

/// Slots of a week of the ledger: quarters of an hour.
const WEEK: u32 = 7 * 24 * 4;

/// Weeks of the ledger that are read for a list of jobs at most: each read has all charges of its slots in memory, as a bill of them has.
const MOST_WEEKS: usize = 8;

/// What is asked for.
#[derive(Default)]
pub(super) struct CostQuery {
    /// By what, as it was written.
    pub by: Option<String>,
    /// From when to when.
    pub range: CostRange,
    /// Whether what was nobody's is spread.
    pub spread: bool,
    /// Only what is in each of these rows.
    pub of: Vec<CostSubset>,
}

impl CostQuery {
    /// Of the pairs of an address, of which `of` may stand there several times. What `more` takes is the caller's own.
    pub fn read(pairs: Vec<(String, String)>, mut more: impl FnMut(&str, &str) -> bool) -> Result<CostQuery, ApiError> {
        let mut asked = CostQuery::default();
        for (name, value) in pairs {
            match name.as_str() {
                "by" => asked.by = Some(value),
                "from" => asked.range.from = Some(value),
                "to" => asked.range.to = Some(value),
                "spread" => asked.spread = value.parse().map_err(|_| not_understood("`spread` is true or false"))?,
                "of" => asked.of.push(value.parse().map_err(bad)?),
                _ if more(&name, &value) => {}
                _ => return Err(not_understood(&format!("`{}` is not known here", short(&name, 60)))),
            }
        }
        Ok(asked)
    }
}

fn not_understood(what: &str) -> ApiError {
    ApiError::bad("BadQuery", what, "write by, from, to, of or spread, as in docs/BILLING.md")
}

/// The bill.
pub(super) async fn cost(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ApiError> {
    let CostQuery { by, range, spread, of } = CostQuery::read(query(asked)?, |_, _| false)?;
    let by: CostBy = by.as_deref().unwrap_or("queue").parse().map_err(bad)?;
    if spread && !of.is_empty() {
        let remedy = "ask for one of them: `of` has only the part that is its own";
        return Err(ApiError::bad("BadQuery", "`of` and `spread` do not go together", remedy));
    }
    let scope = BillScope::of_or(of, if spread { BillScope::Spread } else { BillScope::All });
    if scope == BillScope::Spread && !who.operates() {
        let remedy = "leave `spread` out, or ask with a token that has the role `operate`";
        return Err(ApiError::new(403, "RoleMissing", "what was nobody's is for operators to see", remedy));
    }
    let VisibleCharges { basis, charges, jobs, .. } = charges_of(&api, &who, |_| range.clone()).await?;
    let write = move || scoped_bill(&by, &scope, basis, charges, &jobs).map(|bill| Json(bill).into_response());
    computed(&api, &who, write).await?.map_err(bad)
}

/// The bill as a FOCUS dataset in CSV.
pub(super) async fn focus(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<CostRange>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let range: CostRange = query(asked)?;
    let VisibleCharges { basis, charges, jobs, .. } = charges_of(&api, &who, |_| range.clone()).await?;
    let text = computed(&api, &who, move || focus_csv(&basis, &charges, &jobs)).await?;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text))
}

/// Computes something of a bill on a thread that may take its time, in the turn of whoever asks.
async fn computed<R: Send + 'static>(
    api: &Api,
    who: &Who,
    compute: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ApiError> {
    api.room.bill(who).await?.spend(compute).await.map_err(not_read)
}

/// What a caller may see of a bill, at one position.
pub(super) struct VisibleCharges {
    /// Of what range.
    pub range: CostRange,
    /// The state's side of it.
    pub basis: CostBasis,
    /// The charges.
    pub charges: SpendTotals,
    /// Who the jobs are.
    pub jobs: BTreeMap<JobId, BilledJob>,
}

/// What a caller may see, of a range that may depend on what day it is.
pub(super) async fn charges_of(
    api: &Api,
    who: &Arc<Who>,
    range: impl Fn(&CostBasis) -> CostRange + Send + Sync,
) -> Result<VisibleCharges, ApiError> {
    for _ in 0..TRIES {
        let basis = api.ask(who, |engine, _| CostBasis::of(engine.state())).await?;
        let range = range(&basis);
        let slots = range.slots(&basis).map_err(bad)?;
        let asked = SpendQuery { from: slots.from, to: slots.to, upto: basis.upto, job: None };
        let SpendRead::Found { charges, jobs } = archive::read(api, who, move |archive| archive.spend(&asked)).await?
        else {
            continue;
        };
        let whole = if range.is_all() { BalanceCheck::Checked } else { BalanceCheck::NotRead };
        let complete = move || -> Result<CompleteCharges, Unbalanced> {
            let (charges, jobs) = basis.complete(charges, jobs, &slots, whole)?;
            Ok(CompleteCharges { basis: basis.within(&slots), charges, jobs })
        };
        let unbalanced = |e: Unbalanced| {
            ApiError::new(500, "Unbalanced", e.to_string(), "run `forebay journal verify` on a copy of the folder")
        };
        let complete = computed(api, who, complete).await?.map_err(unbalanced)?;
        let CompleteCharges { basis, charges, jobs } = visible(api, who, complete).await?;
        return Ok(VisibleCharges { range, basis, charges, jobs });
    }
    Err(passed())
}

/// What one job cost, open or over. For a replica it is what its service cost, under the service's name: that is what replicas are charged to.
pub(super) async fn of_job(
    State(api): State<Api>,
    Reader(who): Reader,
    Name(name): Name,
) -> Result<Json<JobCost>, ApiError> {
    let (id, arrival) = match find_anywhere(&api, &who, &name).await? {
        Place::State(id) => {
            let charged = move |engine: &Engine, _: &_| {
                let charged = engine.state().job(id).and_then(|(row, _)| row.service).unwrap_or(id);
                (charged, engine.state().job(charged).map(|(row, _)| row.arrival).unwrap_or_default())
            };
            api.ask(&who, charged).await?
        }
        // When a replica's service came is not known here: it is read from the beginning.
        Place::Archive(found) => match found.view.of.as_deref().and_then(write::job_number) {
            Some(service) => (service, Timestamp::default()),
            None => (found.id, found.view.submit_s.map(Timestamp::from).unwrap_or_default()),
        },
    };
    // Slots are quarters, halves or hours: the hour before it was submitted has whatever it was charged first.
    let from = LedgerSlot(u32::try_from(arrival.0.saturating_sub(HOUR_MS) / QUARTER_MS).unwrap_or(0));
    for _ in 0..TRIES {
        let basis = api.ask(&who, |engine, _| CostBasis::of(engine.state())).await?;
        let asked = SpendQuery { from, job: Some(id), ..SpendQuery::all(basis.upto) };
        let SpendRead::Found { charges, jobs } =
            archive::read(&api, &who, move |archive| archive.spend(&asked)).await?
        else {
            continue;
        };
        let cost = move || -> Result<JobCost, Unbalanced> {
            let (charges, _) = basis.complete(charges, jobs, &Slots::ALL, BalanceCheck::NotRead)?;
            Ok(job_cost(&basis, id, &charges))
        };
        let unbalanced = |e: Unbalanced| ApiError::new(500, "Unbalanced", e.to_string(), "report this");
        return computed(&api, &who, cost).await?.map(Json).map_err(unbalanced);
    }
    Err(passed())
}

/// A job that may have been charged, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChargedJob {
    /// Which.
    pub id: JobId,
    /// When it was accepted: it cost nothing before.
    pub accepted: Timestamp,
    /// When it was over: it cost nothing after. `None`: it is not.
    pub ended: Option<Timestamp>,
}

impl ChargedJob {
    /// The slots in which it was charged, if it was. They are quarters, halves or hours: the hour before it was accepted has whatever it was
    /// charged first.
    fn slots(&self, now: Timestamp) -> Slots {
        let slot = |at: u64| u32::try_from(at / QUARTER_MS).unwrap_or(u32::MAX);
        let last = slot(self.ended.unwrap_or(now).0);
        Slots {
            from: LedgerSlot(slot(self.accepted.0.saturating_sub(HOUR_MS))),
            to: LedgerSlot(last.saturating_add(1)),
        }
    }
}

/// What jobs of a list have cost so far, in US dollars, each as `GET /v1/jobs/{id}/cost` says it. Of one job its own charges are read, for several
/// at most [`MOST_WEEKS`] weeks of the ledger.
///
/// Jobs that these weeks do not tell all of are left out, and those that were accepted before the ledger knew by whom: never less than they cost.
pub(super) async fn of_jobs(
    api: &Api,
    who: &Arc<Who>,
    jobs: Vec<ChargedJob>,
) -> Result<BTreeMap<JobId, f64>, ApiError> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    'again: for _ in 0..TRIES {
        let ask = |engine: &Engine, _: &_| (CostBasis::of(engine.state()), known_since(engine.state()));
        let (basis, Some(since)) = api.ask(who, ask).await? else { return Ok(BTreeMap::new()) };
        let known: Vec<ChargedJob> = jobs.iter().copied().filter(|job| job.accepted >= since).collect();
        let (queries, told) = queries(&known, &basis);
        let told = Arc::new(told);
        let mut charges = SpendTotals::new();
        for asked in queries {
            let Some(found) = charges_of_some(api, who, asked, &told).await? else { continue 'again };
            charges.extend(found);
        }
        let costs = move || costs(&basis, charges, &told);
        let unbalanced = |e: Unbalanced| ApiError::new(500, "Unbalanced", e.to_string(), "report this");
        return computed(api, who, costs).await?.map_err(unbalanced);
    }
    Err(passed())
}

/// From when on the ledger tells what each job cost. `None`: no policy has said yet how to bill.
fn known_since(state: &EngineState) -> Option<Timestamp> {
    let began = state.billing()?.began();
    let spent_before = began.earlier.iter().any(|spent| *spent != EarlierSpend::default());
    Some(if spent_before { began.at } else { Timestamp::default() })
}

/// What is read of the ledger for some jobs, and the jobs that this tells all of. No slot is read twice.
fn queries(jobs: &[ChargedJob], basis: &CostBasis) -> (Vec<SpendQuery>, BTreeSet<JobId>) {
    let query = |slots: Slots, job| SpendQuery { from: slots.from, to: slots.to, upto: basis.upto, job };
    if let [job] = jobs {
        return (vec![query(job.slots(basis.now), Some(job.id))], BTreeSet::from([job.id]));
    }
    let (weeks, told) = weeks_of(jobs, basis.now);
    (weeks.into_values().map(|slots| query(slots, None)).collect(), told)
}

/// Of at most [`MOST_WEEKS`] weeks the slots that are to be read, and the jobs that they tell all of: the first of these jobs first. A job of more
/// weeks does not keep the others from being told.
fn weeks_of(jobs: &[ChargedJob], now: Timestamp) -> (BTreeMap<u32, Slots>, BTreeSet<JobId>) {
    let (mut weeks, mut told) = (BTreeMap::<u32, Slots>::new(), BTreeSet::new());
    for job in jobs {
        let slots = job.slots(now);
        let own = slots.from.0 / WEEK..slots.to.0.div_ceil(WEEK);
        // One too many is enough: no more of them are looked at.
        let more = own.clone().filter(|week| !weeks.contains_key(week)).take(MOST_WEEKS + 1).count();
        if weeks.len() + more > MOST_WEEKS {
            continue;
        }
        for week in own {
            let (begins, ends) = (week.saturating_mul(WEEK), (week + 1).saturating_mul(WEEK));
            let part = Slots { from: slots.from.max(LedgerSlot(begins)), to: slots.to.min(LedgerSlot(ends)) };
            let read = weeks.entry(week).or_insert(part);
            *read = Slots { from: read.from.min(part.from), to: read.to.max(part.to) };
        }
        told.insert(job.id);
    }
    (weeks, told)
}

/// What some jobs were charged in these slots. `None`: the journal went on meanwhile.
async fn charges_of_some(
    api: &Api,
    who: &Who,
    asked: SpendQuery,
    jobs: &Arc<BTreeSet<JobId>>,
) -> Result<Option<SpendTotals>, ApiError> {
    let jobs = Arc::clone(jobs);
    let read = move |archive: &ArchiveReader| -> Result<Option<SpendTotals>, JournalError> {
        let SpendRead::Found { mut charges, .. } = archive.spend(&asked)? else { return Ok(None) };
        charges.retain(|key, _| key.job.is_some_and(|id| jobs.contains(&id)));
        Ok(Some(charges))
    };
    archive::read(api, who, read).await
}

/// What each of these jobs has cost: all its charges, closed and open, rounded once.
fn costs(basis: &CostBasis, charges: SpendTotals, jobs: &BTreeSet<JobId>) -> Result<BTreeMap<JobId, f64>, Unbalanced> {
    let (charges, _) = basis.complete(charges, BTreeMap::new(), &Slots::ALL, BalanceCheck::NotRead)?;
    let mut own: BTreeMap<JobId, SpendTotals> = jobs.iter().map(|id| (*id, SpendTotals::new())).collect();
    for (key, amount) in charges {
        if let Some(charges) = key.job.and_then(|id| own.get_mut(&id)) {
            charges.insert(key, amount);
        }
    }
    Ok(own.iter().map(|(id, charges)| (*id, job_cost(basis, *id, charges).cost_usd)).collect())
}

fn passed() -> ApiError {
    ApiError::new(503, "Passed", "the journal went on while the bill was read", "ask again").retry_after(1)
}

pub(super) fn bad(fault: impl std::error::Error) -> ApiError {
    ApiError::bad("BadQuery", fault.to_string(), "see docs/BILLING.md")
}

/// All charges of a range, whoever may see them.
struct CompleteCharges {
    basis: CostBasis,
    charges: SpendTotals,
    jobs: BTreeMap<JobId, BilledJob>,
}

/// Who submitted a job, and to which queue: by these a caller may see it or not.
type Submitted = (String, String);

impl CompleteCharges {
    /// Who submitted the jobs of a caller's tenant, and to which queues.
    fn submitted(&self, who: &Who) -> BTreeSet<Submitted> {
        let own = self.jobs.values().filter(|job| job.tenant == who.caller.tenant);
        own.map(|job| (job.principal.clone(), job.queue.clone())).collect()
    }

    /// What is of the jobs of a caller's tenant that were submitted like this, and nothing of nobody's.
    fn seen(self, who: &Who, may: &BTreeSet<Submitted>) -> CompleteCharges {
        let CompleteCharges { basis, mut charges, jobs } = self;
        let sees = |id: JobId| {
            let job = jobs.get(&id).filter(|job| job.tenant == who.caller.tenant);
            job.is_some_and(|job| may.contains(&(job.principal.clone(), job.queue.clone())))
        };
        charges.retain(|key, _| key.job.is_some_and(sees));
        CompleteCharges { basis: basis.without_earlier(), charges, jobs }
    }
}

/// What a caller may see of a bill: operators all of it, others the jobs that they may see.
async fn visible(api: &Api, who: &Arc<Who>, complete: CompleteCharges) -> Result<CompleteCharges, ApiError> {
    if who.operates() {
        return Ok(complete);
    }
    let caller = Arc::clone(who);
    let submitted = move || (complete.submitted(&caller), complete);
    let (submitted, complete) = computed(api, who, submitted).await?;
    let caller = Arc::clone(who);
    let may = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let sees = |(submitter, queue): &Submitted| state.may_act_for(&caller.caller.principal, submitter, queue);
        submitted.into_iter().filter(sees).collect::<BTreeSet<_>>()
    };
    let may = api.ask(who, may).await?;
    let caller = Arc::clone(who);
    computed(api, who, move || complete.seen(&caller, &may)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots of a day.
    const DAY: u32 = 24 * 4;

    /// A job that was accepted and over on these days.
    fn job(id: u64, accepted: u64, ended: Option<u64>) -> ChargedJob {
        let at = |day: u64| Timestamp(day * 24 * HOUR_MS);
        ChargedJob { id: JobId(id), accepted: at(accepted), ended: ended.map(at) }
    }

    #[test]
    fn a_list_reads_the_slots_that_its_jobs_need_and_of_no_more_than_so_many_weeks() {
        let now = Timestamp(1_000 * 24 * HOUR_MS);
        let (weeks, told) = weeks_of(&[job(1, 1, Some(2)), job(2, 0, None), job(3, 3, Some(4))], now);
        assert_eq!(told, BTreeSet::from([JobId(1), JobId(3)]), "1,000 days are too many, and keep nobody else out");
        let read = Slots { from: LedgerSlot(DAY - 4), to: LedgerSlot(4 * DAY + 1) };
        assert_eq!(weeks, BTreeMap::from([(0, read)]), "from an hour before the first to the end of the last");
        let (weeks, told) = weeks_of(&[job(1, 5, Some(9))], now);
        assert_eq!(told.len(), 1);
        let [first, second] = [(5 * DAY - 4, WEEK), (WEEK, 9 * DAY + 1)]
            .map(|(from, to)| Slots { from: LedgerSlot(from), to: LedgerSlot(to) });
        assert_eq!(weeks, BTreeMap::from([(0, first), (1, second)]), "no slot is read twice");
        let many: Vec<ChargedJob> = (0..9).map(|n| job(n, 7 * n + 1, Some(7 * n + 2))).collect();
        let (weeks, told) = weeks_of(&many, now);
        assert_eq!((weeks.len(), told), (MOST_WEEKS, (0..8).map(JobId).collect::<BTreeSet<_>>()));
    }
}
