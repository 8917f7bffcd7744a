//! Jobs out of a data folder, without a server: what a server on it would say. One may be running on it.
//!
//! ```text
//! folder -> state as of its last batch -> jobs that it has
//!        -> archive, where asked       -> those that have left it
//! ```
//!
//! Never: changes the folder.

use super::outcome::Failure;
use crate::api::history::{History, Past};
use crate::api::jobs::OneJob;
use crate::api::listing::Jobs;
use crate::cost::folder_job_cost;
use crate::document::write;
use crate::journal::{JournalError, PastPart, read_folder_past};
use crate::show::figures::short;
use crate::show::job::{JobRecord, attempts};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::JobView;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Where jobs are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Among {
    /// Those of the state: open, or over of late.
    State,
    /// Those that have left it as well.
    All,
}

/// The jobs of a folder that are wanted, in order of acceptance.
pub(super) fn jobs(folder: &Path, among: Among, wanted: impl Fn(&JobView) -> bool) -> Result<Jobs, Failure> {
    let (now_s, jobs) = read(folder, among, |_, view| wanted(view))?;
    Ok(Jobs { now_s, jobs: jobs.into_values().collect(), next: None, cut: None })
}

/// One job whole, by its subject or its number.
pub(super) fn job(folder: &Path, name: &str) -> Result<JobRecord, Failure> {
    let number = write::hash_number(name).or_else(|| write::job_number(name));
    let may_be_it = |id: JobId, view: &JobView| number == Some(id) || view.subject.as_deref() == Some(name);
    let (now_s, mut jobs) = read(folder, Among::All, may_be_it)?;
    let id = named(&jobs, name)?;
    let view = jobs.remove(&id).ok_or_else(|| none(name))?;
    let mut statuses: Vec<Value> = Vec::new();
    let mut take = |past: Past<'_>| {
        statuses.extend(serde_json::from_str::<Value>(past.event).ok());
        !past.terminal
    };
    let accepted = view.submit_s.map(Timestamp::from).unwrap_or_default();
    let history = History::of_job(folder, id, accepted);
    history.and_then(|mut history| history.read(u64::MAX, &mut take)).map_err(|e| Failure::storage(&e))?;
    // A replica is charged to its service.
    let charged = view.of.as_deref().and_then(write::job_number).unwrap_or(id);
    let cost = folder_job_cost(folder, charged).map_err(super::cost::failure)?;
    let job = OneJob { now_s, terminal: view.phase.terminal(), kubernetes: Vec::new(), job: view };
    Ok(JobRecord { attempts: attempts(&statuses, &cost), job, cost, statuses })
}

type Views = BTreeMap<JobId, JobView>;

/// The views of the jobs that are wanted. Others are not kept.
fn read(folder: &Path, among: Among, wanted: impl Fn(JobId, &JobView) -> bool) -> Result<(Seconds, Views), Failure> {
    let (mut found, mut views) = (None, Views::new());
    let mut fault = None;
    let mut take = |state: &State, part: PastPart<'_>| match part {
        PastPart::Policies(_) => match copied(state) {
            Ok(engine) => {
                let all = engine.state().jobs().map(|(row, spec)| (row.id, write::job_view(&engine, row, spec)));
                views.extend(all.filter(|(id, view)| wanted(*id, view)));
                found = Some((state.now(), engine));
                if among == Among::All { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            }
            Err(e) => {
                fault = Some(e);
                ControlFlow::Break(())
            }
        },
        PastPart::Finished(job) => {
            let id = job.job.id;
            if let Some((_, engine)) = &found
                && engine.state().job(id).is_none()
            {
                let view = write::finished_view(engine, &job);
                views.extend(wanted(id, &view).then_some((id, view)));
            }
            ControlFlow::Continue(())
        }
        PastPart::Cloud(..) | PastPart::End => ControlFlow::Break(()),
    };
    read_folder_past(folder, &mut take).map_err(failure)?;
    match (fault, found) {
        (None, Some((now, _))) => Ok((now.into(), views)),
        (fault, _) => Err(Failure::outside(format_args!(
            "the state cannot be read again: {fault:?}; report this with the journal"
        ))),
    }
}

fn copied(state: &State) -> Result<Engine, postcard::Error> {
    Engine::restore(&state.encode()?)
}

/// The number in the form that no subject has, then a subject, then a number as it is written elsewhere.
fn named(jobs: &Views, name: &str) -> Result<JobId, Failure> {
    if let Some(id) = write::hash_number(name) {
        return Ok(id);
    }
    let mut latest: BTreeMap<&str, JobId> = BTreeMap::new();
    for (id, view) in jobs.iter().filter(|(_, view)| view.subject.as_deref() == Some(name)) {
        latest.insert(view.tenant.as_deref().unwrap_or_default(), *id);
    }
    match latest.len() {
        0 => write::job_number(name).ok_or_else(|| none(name)),
        1 => Ok(latest.into_values().next().unwrap_or_default()),
        _ => {
            let jobs: Vec<(JobId, &str)> = latest.into_iter().map(|(tenant, id)| (id, tenant)).collect();
            Err(Failure::input(format_args!("{}: say which by its number", write::several_jobs(name, &jobs))))
        }
    }
}

fn none(name: &str) -> Failure {
    let shown = short(name, 80);
    Failure::input(format_args!("there is no job `{shown}`: use its subject or its number, as in `forebay jobs --all`"))
}

/// A journal that cannot be read. Its own remedies are those of `forebay run`.
pub(super) fn failure(fault: JournalError) -> Failure {
    match fault {
        JournalError::Missing { path } => Failure::input(format_args!(
            "{}: there is no journal: name the folder that a Forebay wrote to, or leave --data out to ask a server",
            path.display()
        )),
        other => Failure::storage(&other),
    }
}
