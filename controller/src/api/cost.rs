//! `GET /v1/cost` and `GET /v1/cost/focus`: the bill, of everything for operators, else of the jobs that a caller may see. What single jobs cost, for
//! lists of jobs.
//!
//! ```text
//! a bill's turn -> engine (driver's thread): position, open charges -> journal (blocking thread): charges before it, within a budget
//!   -> what may this caller see? (driver's thread) -> rows (blocking thread) -> the turn is given back
//! ```
//!
//! Never: another's jobs or nobody's time to who is no operator; a read of the disk on the driver's thread; the sums of a bill on a thread that
//! serves connections, or before another caller has its turn; a part of a bill as if it were all of it.

use super::Api;
use super::archive;
use super::auth::Reader;
use super::error::ApiError;
use super::find::{Name, Place, find_anywhere};
use super::jobs::query;
use super::ledger::{LedgerLimits, MOST_DATASET, no_dataset};
use super::room::HeldTurn;
use super::rows::not_read;
use crate::config::tokens::Who;
use crate::cost::{
    BalanceCheck, BillScope, CostBasis, CostBy, CostRange, CostSubset, Slots, Unbalanced, focus_csv_within, job_cost,
    scoped_bill,
};
use crate::document::write;
use crate::journal::{ArchiveReader, JobSlots, SpendOfJobs, SpendQuery, SpendRead, SpendTotals};
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
    let (turn, VisibleCharges { basis, charges, jobs, .. }) = charges_of(&api, &who, |_| range.clone()).await?;
    let write = move || scoped_bill(&by, &scope, basis, charges, &jobs).map(|bill| Json(bill).into_response());
    turn.spend(write).await.map_err(not_read)?.map_err(bad)
}

/// The bill as a FOCUS dataset in CSV.
pub(super) async fn focus(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<CostRange>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let range: CostRange = query(asked)?;
    let (turn, VisibleCharges { range, basis, charges, jobs }) = charges_of(&api, &who, |_| range.clone()).await?;
    let write = move || {
        focus_csv_within(&basis, &charges, &jobs, MOST_DATASET).map_err(|reached| {
            let from = range.slots(&basis).map_or(Slots::ALL.from, |slots| slots.from);
            no_dataset(CostRange::latest_end(&basis, from, reached).as_deref())
        })
    };
    let text = turn.spend(write).await.map_err(not_read)??;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text))
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

/// What a caller may see, of a range that may depend on what day it is, and the turn in which it was read: what is made of it is made in that.
pub(super) async fn charges_of(
    api: &Api,
    who: &Arc<Who>,
    range: impl Fn(&CostBasis) -> CostRange + Send + Sync,
) -> Result<(HeldTurn, VisibleCharges), ApiError> {
    let mut turn = api.room.bill(who).await?;
    for _ in 0..TRIES {
        let basis = api.ask(who, |engine, _| CostBasis::of(engine.state())).await?;
        let range = range(&basis);
        let slots = range.slots(&basis).map_err(bad)?;
        let whole = if range.is_all() { BalanceCheck::Checked } else { BalanceCheck::NotRead };
        let (archive, limits) = (Arc::clone(&api.archive), api.ledger);
        let read = move || read_complete(&archive, limits, basis, &slots, whole);
        let (later, read) = turn.step(read).await.map_err(not_read)?;
        turn = later;
        let Some(complete) = read? else { continue };
        let (turn, complete) = visible(api, who, turn, complete).await?;
        let CompleteCharges { basis, charges, jobs } = complete;
        return Ok((turn, VisibleCharges { range, basis, charges, jobs }));
    }
    Err(passed())
}

/// All charges of a range. `None`: the journal went on meanwhile.
fn read_complete(
    archive: &ArchiveReader,
    limits: LedgerLimits,
    basis: CostBasis,
    slots: &Slots,
    whole: BalanceCheck,
) -> Result<Option<CompleteCharges>, ApiError> {
    let asked = SpendQuery { from: slots.from, to: slots.to, upto: basis.upto };
    let mut budget = limits.budget();
    let read = archive.spend_within(&asked, &mut |held| budget.go_on(held)).map_err(archive::unread)?;
    let (charges, jobs) = match read {
        SpendRead::Found { charges, jobs } => (charges, jobs),
        SpendRead::Passed => return Ok(None),
        SpendRead::Cut { before } => {
            return Err(budget.no_bill(CostRange::latest_end(&basis, slots.from, before).as_deref()));
        }
    };
    let (charges, jobs) = basis.complete(charges, jobs, slots, whole).map_err(|e| {
        ApiError::new(500, "Unbalanced", e.to_string(), "run `forebay journal verify` on a copy of the folder")
    })?;
    Ok(Some(CompleteCharges { basis: basis.within(slots), charges, jobs }))
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
    let asked = JobSlots { job: id, from, to: Slots::ALL.to };
    let mut turn = api.room.bill(&who).await?;
    for _ in 0..TRIES {
        let basis = api.ask(&who, |engine, _| CostBasis::of(engine.state())).await?;
        let (archive, limits) = (Arc::clone(&api.archive), api.ledger);
        let read = move || cost_of_job(&archive, limits, &basis, asked);
        let (later, cost) = turn.step(read).await.map_err(not_read)?;
        turn = later;
        if let Some(cost) = cost? {
            return Ok(Json(cost));
        }
    }
    Err(passed())
}

/// What one job cost. `None`: the journal went on meanwhile.
fn cost_of_job(
    archive: &ArchiveReader,
    limits: LedgerLimits,
    basis: &CostBasis,
    asked: JobSlots,
) -> Result<Option<JobCost>, ApiError> {
    let mut budget = limits.budget();
    let read = archive.spend_of_jobs(basis.upto, &[asked], &mut |held| budget.go_on(held));
    let Some(SpendOfJobs { charges, whole }) = read.map_err(archive::unread)? else { return Ok(None) };
    if whole == 0 {
        return Err(budget.no_cost());
    }
    let complete = basis.complete(charges, BTreeMap::new(), &Slots::ALL, BalanceCheck::NotRead);
    let (charges, _) = complete.map_err(unbalanced)?;
    Ok(Some(job_cost(basis, asked.job, &charges)))
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
    fn slots(&self, now: Timestamp) -> JobSlots {
        let slot = |at: u64| u32::try_from(at / QUARTER_MS).unwrap_or(u32::MAX);
        let last = slot(self.ended.unwrap_or(now).0);
        JobSlots {
            job: self.id,
            from: LedgerSlot(slot(self.accepted.0.saturating_sub(HOUR_MS))),
            to: LedgerSlot(last.saturating_add(1)),
        }
    }
}

/// What jobs have cost so far, in US dollars, each as `GET /v1/jobs/{id}/cost` says it. Their own charges are read, those of the first job first.
///
/// Jobs for which the budget of a read is not enough are left out, and those that were accepted before the ledger knew by whom: never less than
/// they cost.
pub(super) async fn of_jobs(
    api: &Api,
    who: &Arc<Who>,
    jobs: Vec<ChargedJob>,
) -> Result<BTreeMap<JobId, f64>, ApiError> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut turn = api.room.bill(who).await?;
    for _ in 0..TRIES {
        let ask = |engine: &Engine, _: &_| (CostBasis::of(engine.state()), known_since(engine.state()));
        let (basis, Some(since)) = api.ask(who, ask).await? else { return Ok(BTreeMap::new()) };
        let known = jobs.iter().filter(|job| job.accepted >= since);
        let known: Vec<JobSlots> = known.map(|job| job.slots(basis.now)).collect();
        let (archive, limits) = (Arc::clone(&api.archive), api.ledger);
        let read = move || costs_of_jobs(&archive, limits, &basis, &known);
        let (later, costs) = turn.step(read).await.map_err(not_read)?;
        turn = later;
        if let Some(costs) = costs? {
            return Ok(costs);
        }
    }
    Err(passed())
}

/// What the first of these jobs have cost, as many as a read may take. `None`: the journal went on meanwhile.
fn costs_of_jobs(
    archive: &ArchiveReader,
    limits: LedgerLimits,
    basis: &CostBasis,
    jobs: &[JobSlots],
) -> Result<Option<BTreeMap<JobId, f64>>, ApiError> {
    let mut budget = limits.budget();
    let read = archive.spend_of_jobs(basis.upto, jobs, &mut |held| budget.go_on(held));
    let Some(SpendOfJobs { charges, whole }) = read.map_err(archive::unread)? else { return Ok(None) };
    let told: BTreeSet<JobId> = jobs.iter().take(whole).map(|asked| asked.job).collect();
    costs(basis, charges, &told).map(Some).map_err(unbalanced)
}

/// From when on the ledger tells what each job cost. `None`: no policy has said yet how to bill.
fn known_since(state: &EngineState) -> Option<Timestamp> {
    let began = state.billing()?.began();
    let spent_before = began.earlier.iter().any(|spent| *spent != EarlierSpend::default());
    Some(if spent_before { began.at } else { Timestamp::default() })
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

/// A fault of this program: open charges of a state were not what its nodes cost.
fn unbalanced(fault: Unbalanced) -> ApiError {
    ApiError::new(500, "Unbalanced", fault.to_string(), "report this")
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
async fn visible(
    api: &Api,
    who: &Arc<Who>,
    turn: HeldTurn,
    complete: CompleteCharges,
) -> Result<(HeldTurn, CompleteCharges), ApiError> {
    if who.operates() {
        return Ok((turn, complete));
    }
    let caller = Arc::clone(who);
    let submitted = move || (complete.submitted(&caller), complete);
    let (turn, (submitted, complete)) = turn.step(submitted).await.map_err(not_read)?;
    let caller = Arc::clone(who);
    let may = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let sees = |(submitter, queue): &Submitted| state.may_act_for(&caller.caller.principal, submitter, queue);
        submitted.into_iter().filter(sees).collect::<BTreeSet<_>>()
    };
    let may = api.ask(who, may).await?;
    let caller = Arc::clone(who);
    turn.step(move || complete.seen(&caller, &may)).await.map_err(not_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_looked_for_from_an_hour_before_it_was_accepted_to_its_end() {
        let hour = |hour: u64| Timestamp(hour * HOUR_MS);
        let slots = |accepted: u64, ended: Option<u64>| {
            let job = ChargedJob { id: JobId(7), accepted: hour(accepted), ended: ended.map(hour) };
            let JobSlots { job, from, to } = job.slots(hour(100));
            assert_eq!(job, JobId(7));
            (from.0, to.0)
        };
        assert_eq!(slots(24, Some(48)), (23 * 4, 48 * 4 + 1));
        assert_eq!(slots(0, None), (0, 100 * 4 + 1), "one that is open has its charges of now");
    }
}
