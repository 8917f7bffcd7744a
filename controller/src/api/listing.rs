//! `GET /v1/jobs`: jobs in order of acceptance, by phase, queue and openness, a page at a time.
//!
//! ```text
//! rows (beside the loop), archive -> which jobs, within a budget of rows and time -> views, 64 at a time on the driver's thread
//!                                       '-- where it is asked for: what they cost (ledger, some weeks of it)
//! ```
//!
//! Never: the whole list at once; an end in silence: an answer that a budget ended says so, and where to go on.

use super::Api;
use super::answers::HeldAnswer;
use super::archive;
use super::auth::Reader;
use super::cost::{ChargedJob, of_jobs};
use super::error::ApiError;
use super::jobs::query;
use super::rows::{JobRows, ReadBudget, ReadCut, beside_as};
use super::visible;
use crate::config::tokens::Who;
use crate::document::write;
use crate::journal::{ArchiveSlice, ArchiveSliceQuery, FinishedJob, MOST_LISTED};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobPhase, JobView};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Jobs a page unless asked for another number.
const PAGE: usize = 1_000;
/// Jobs a page at most.
pub const MOST_PAGE: usize = 10_000;
/// Bytes of a page at most.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of a job, for which room is taken: most have a quarter of it. A page whose jobs are larger ends sooner, and says so.
const JOB_BYTES: usize = 4 << 10;
/// Jobs that are shown between two batches.
const AT_ONCE: usize = 64;

/// A page of jobs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Jobs {
    /// The engine's time.
    pub now_s: Seconds,
    /// In order of acceptance.
    pub jobs: ListedJobs,
    /// Where the next page begins: `?after=`. Null: this was the last.
    pub next: Option<String>,
    /// Why the page ends before it is full, where there is more. Absent: it is full, or the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<ReadCut>,
}

/// A job of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ListedJob {
    /// The job.
    #[serde(flatten)]
    pub view: JobView,
    /// What it has cost, in US dollars with at most six decimals. Absent: it was not asked for, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Deref for ListedJob {
    type Target = JobView;

    fn deref(&self) -> &JobView {
        &self.view
    }
}

/// Jobs of a list: of views, where nobody asks what they cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListedJobs(Vec<ListedJob>);

impl Deref for ListedJobs {
    type Target = Vec<ListedJob>;

    fn deref(&self) -> &Vec<ListedJob> {
        &self.0
    }
}

impl DerefMut for ListedJobs {
    fn deref_mut(&mut self) -> &mut Vec<ListedJob> {
        &mut self.0
    }
}

impl FromIterator<JobView> for ListedJobs {
    fn from_iter<I: IntoIterator<Item = JobView>>(views: I) -> ListedJobs {
        ListedJobs(views.into_iter().map(|view| ListedJob { view, cost_usd: None }).collect())
    }
}

impl IntoIterator for ListedJobs {
    type Item = ListedJob;
    type IntoIter = std::vec::IntoIter<ListedJob>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The same, with its jobs as they are written.
#[derive(Serialize)]
pub(super) struct WrittenJobs {
    now_s: Seconds,
    jobs: Vec<Box<RawValue>>,
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<ReadCut>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    phase: Option<JobPhase>,
    queue: Option<String>,
    open: Option<bool>,
    limit: Option<usize>,
    after: Option<String>,
    /// Whether what each has cost is asked for.
    #[serde(default)]
    cost: bool,
}

/// A job that is to be shown.
enum Pick {
    Live(JobId),
    Over(Box<FinishedJob>),
}

/// What was found within the budget.
struct Found {
    picks: Vec<Pick>,
    next: Option<JobId>,
    cut: Option<ReadCut>,
}

impl Found {
    /// The jobs that may have been charged. What a replica holds is charged to its service.
    fn charged(&self, rows: &JobRows) -> Vec<ChargedJob> {
        let jobs = self.picks.iter().filter_map(|pick| match pick {
            Pick::Live(id) => rows.seen(*id).map(|(job, _)| job),
            Pick::Over(job) => Some(&job.job),
        });
        let own = jobs.filter(|job| job.service.is_none());
        own.map(|job| ChargedJob { id: job.id, accepted: job.arrival, ended: job.ended }).collect()
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(who): Reader,
    asked: Result<Query<ListQuery>, QueryRejection>,
) -> Result<(Extension<HeldAnswer>, Json<WrittenJobs>), ApiError> {
    let asked = query(asked)?;
    let limit = asked.limit.unwrap_or(PAGE).clamp(1, MOST_PAGE);
    let most = (limit * JOB_BYTES).min(MOST_BYTES);
    let held = api.room.answer(&who.name, most)?;
    let after = asked.after.as_deref().map(number).transpose()?;
    let rows = JobRows::now(&api, &who).await?;
    let past = asked.open != Some(true) && asked.phase.is_none_or(JobPhase::terminal);
    let finished = if past {
        let slice = ArchiveSliceQuery { after, queue: asked.queue.clone(), outcome: outcome(asked.phase), limit };
        archive::read(&api, &who, move |archive| archive.in_order(&slice)).await?
    } else {
        ArchiveSlice::default()
    };
    let (phase, wanted) = (asked.phase, asked);
    let look = move || {
        let found = find(&rows, &wanted, after, limit, finished);
        let charged = if wanted.cost { found.charged(&rows) } else { Vec::new() };
        (found, charged)
    };
    let (found, charged) = beside_as(&api, &who, look).await?;
    let costs = of_jobs(&api, &who, charged).await?;
    shown(&api, &who, found, &costs, phase, most).await.map(|page| (Extension(held), Json(page)))
}

fn outcome(phase: Option<JobPhase>) -> Option<Outcome> {
    match phase? {
        JobPhase::Completed => Some(Outcome::Completed),
        JobPhase::Failed => Some(Outcome::Failed),
        JobPhase::Cancelled => Some(Outcome::Cancelled),
        JobPhase::Rejected => Some(Outcome::Rejected),
        _ => None,
    }
}

/// Jobs of the state and finished ones that have left it, by id. Where the archive has more, the page ends with the last that it gave.
fn find(rows: &JobRows, asked: &ListQuery, after: Option<JobId>, limit: usize, archived: ArchiveSlice) -> Found {
    let is_over = asked.phase.is_some_and(JobPhase::terminal);
    let over = rows.finished.iter().copied().filter(|id| is_over && after.is_none_or(|after| *id > after));
    let all = (!is_over).then(|| rows.after(after)).into_iter().flatten();
    let mut here = over.chain(all).peekable();
    let gone = archived.jobs.into_iter().map(|job| job.finished).filter(|job| !rows.has(job.job.id));
    let mut gone = gone.peekable();
    let fits = |id: JobId| {
        rows.seen(id).is_some_and(|(job, spec)| {
            asked.phase.is_none_or(|phase| phase == JobPhase::from(&job.phase))
                && asked.queue.as_ref().is_none_or(|queue| *queue == spec.queue)
                && asked.open.is_none_or(|open| open != job.done())
        })
    };
    let (mut budget, mut found) = (ReadBudget::default(), Found { picks: Vec::new(), next: None, cut: None });
    let mut looked = after;
    loop {
        let (first, second) = (here.peek().copied(), gone.peek().map(|job| job.job.id));
        let Some(id) = [first, second].into_iter().flatten().min() else { break };
        if archived.upto.is_some_and(|upto| id > upto) {
            break;
        }
        found.cut = budget.spend();
        if found.cut.is_some() {
            found.next = looked;
            return found;
        }
        let pick = if first == Some(id) {
            here.next();
            fits(id).then_some(Pick::Live(id))
        } else {
            gone.next().map(|job| Pick::Over(Box::new(job)))
        };
        if let Some(pick) = pick {
            if found.picks.len() == limit {
                found.next = looked;
                return found;
            }
            found.picks.push(pick);
        }
        looked = Some(id);
    }
    if archived.upto.is_some() && found.picks.len() < limit.min(MOST_LISTED) {
        found.cut = Some(ReadCut::Rows);
    }
    found.next = archived.upto;
    found
}

/// The views of what was found and what they cost, as far as they fit so many bytes.
async fn shown(
    api: &Api,
    who: &Arc<Who>,
    found: Found,
    costs: &BTreeMap<JobId, f64>,
    phase: Option<JobPhase>,
    most: usize,
) -> Result<WrittenJobs, ApiError> {
    let Found { picks, next, cut } = found;
    let mut page =
        WrittenJobs { now_s: Timestamp(0).into(), jobs: Vec::new(), next: next.map(|id| id.to_string()), cut };
    let (mut picks, mut bytes, mut last) = (picks.into_iter().peekable(), 0, None);
    loop {
        let some: Vec<Pick> = picks.by_ref().take(AT_ONCE).collect();
        let (now, views) = views(api, who, some).await?;
        page.now_s = now.into();
        for (id, view) in views {
            // It may have moved on since it was found.
            if let Some(view) = view.filter(|view| phase.is_none_or(|phase| phase == view.phase)) {
                let listed = ListedJob { view, cost_usd: costs.get(&id).copied() };
                let written = to_raw_value(&listed)
                    .map_err(|e| ApiError::new(500, "Unwritable", e.to_string(), "report this with the journal"))?;
                bytes += written.get().len();
                if bytes > most && !page.jobs.is_empty() {
                    (page.next, page.cut) = (last.map(|id: JobId| id.to_string()), Some(ReadCut::Memory));
                    return Ok(page);
                }
                page.jobs.push(written);
            }
            last = Some(id);
        }
        if picks.peek().is_none() {
            return Ok(page);
        }
    }
}

/// Some jobs as they are now. One that has left the state since it was found is in the archive.
async fn views(
    api: &Api,
    who: &Arc<Who>,
    picks: Vec<Pick>,
) -> Result<(Timestamp, Vec<(JobId, Option<JobView>)>), ApiError> {
    let judge = Arc::clone(who);
    let (now, mut views) = api
        .ask(who, move |engine, _| {
            let state = engine.state();
            let view = |pick: Pick| match pick {
                Pick::Live(id) => (id, write::job(engine, id)),
                Pick::Over(job) => {
                    let sees = visible::sees_finished(state, &judge, &job.spec);
                    (job.job.id, sees.then(|| write::finished_view(engine, &job)))
                }
            };
            (state.now(), picks.into_iter().map(|pick| (matches!(pick, Pick::Live(_)), view(pick))).collect::<Vec<_>>())
        })
        .await?;
    for (live, (id, view)) in &mut views {
        if *live && view.is_none() {
            *view = archive::of_number(api, who, *id).await?.map(|found| found.view);
        }
    }
    Ok((now, views.into_iter().map(|(_, shown)| shown).collect()))
}

/// The jobs that the page for people shows: those that are not over first, then the latest; and why not all rows were looked at.
pub(super) async fn first_jobs(
    api: &Api,
    who: &Arc<Who>,
    most: usize,
) -> Result<(Vec<JobView>, Option<ReadCut>), ApiError> {
    let rows = JobRows::now(api, who).await?;
    let picks = beside_as(api, who, move || {
        let open = ListQuery { open: Some(true), ..ListQuery::default() };
        let Found { mut picks, cut, .. } = find(&rows, &open, None, most, ArchiveSlice::default());
        let over = rows.finished.iter().rev().filter(|id| rows.seen(**id).is_some()).copied().map(Pick::Live);
        picks.extend(over.take(most - picks.len()));
        (picks, cut)
    });
    let mut jobs = Vec::new();
    let (picks, cut) = picks.await?;
    let mut picks = picks.into_iter().peekable();
    while picks.peek().is_some() {
        let (_, views) = views(api, who, picks.by_ref().take(AT_ONCE).collect()).await?;
        jobs.extend(views.into_iter().filter_map(|(_, view)| view));
    }
    Ok((jobs, cut))
}

fn number(name: &str) -> Result<JobId, ApiError> {
    write::job_number(name).or_else(|| write::hash_number(name)).ok_or_else(|| {
        ApiError::bad("BadQuery", "`after` is not a job's number", "write it as in `next`, such as job-17")
    })
}
