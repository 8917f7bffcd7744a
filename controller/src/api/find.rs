//! A job by the name that somebody gives: its number, or its subject in the caller's tenant.
//!
//! ```text
//! #17      the number, and nothing else: no subject begins with `#`
//! job-17   the caller's own subject of that name, open or over; else the number
//! other    the caller's own subject; for operators, that of any tenant, if only one has it
//! ```
//!
//! Never: another's job where the caller's own subject has the name; a difference between a job that may not be seen and none.

use super::Api;
use super::archive::{self, FoundInArchive};
use super::error::ApiError;
use super::visible;
use crate::config::tokens::Who;
use crate::document::write;
use crate::show::figures::short;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use std::sync::Arc;

/// The name in a request's path.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, ApiError> {
        let refused =
            |e: PathRejection| ApiError::bad("Unreadable", e.body_text(), "write names as UTF-8 text, `%` as `%25`");
        Path::from_request_parts(parts, state).await.map(|Path(name)| Name(name)).map_err(refused)
    }
}

/// Where a job is.
pub(super) enum Place {
    /// In the state: open, or over of late.
    State(JobId),
    /// In the archive.
    Archive(Box<FoundInArchive>),
}

/// A job, open or over, where this caller may see it.
pub(super) async fn find_anywhere(api: &Api, who: &Arc<Who>, name: &str) -> Result<Place, ApiError> {
    let place = match write::hash_number(name) {
        Some(id) => numbered(api, who, id).await?,
        None => named(api, who, name).await?,
    };
    place.ok_or_else(|| {
        let shown = short(name, 80);
        let remedy = "use its subject or its number, as in `forebay jobs`; `#17` is a number and never a subject";
        ApiError::not_found("NoSuchJob", format!("there is no job `{shown}`"), remedy)
    })
}

async fn named(api: &Api, who: &Arc<Who>, name: &str) -> Result<Option<Place>, ApiError> {
    let own = |state: &State, who: &Who, name: &str| visible::own_subject(state, who, name);
    if let Some(id) = in_state(api, who, name, own).await? {
        return Ok(Some(Place::State(id)));
    }
    if let Some(found) = archive::of_subject(api, who, name).await? {
        return Ok(Some(Place::Archive(Box::new(found))));
    }
    if let Some(id) = write::job_number(name)
        && let Some(place) = numbered(api, who, id).await?
    {
        return Ok(Some(place));
    }
    if !who.operates() {
        return Ok(None);
    }
    match of_any_tenant(api, who, name).await?.as_slice() {
        [] => Ok(None),
        [(id, _)] => Ok(Some(Place::State(*id))),
        several => Err(ambiguous(name, several)),
    }
}

/// The jobs of a subject with their tenants.
async fn of_any_tenant(api: &Api, who: &Arc<Who>, name: &str) -> Result<Vec<(JobId, String)>, ApiError> {
    let name = name.to_owned();
    let found = move |state: &State| {
        let found = write::find_by_subject(state, &name).into_iter().filter(|(id, _)| state.job(*id).is_some());
        found.map(|(id, tenant)| (id, tenant.to_owned())).collect()
    };
    api.ask(who, move |engine, _| found(engine.state())).await
}

/// What an operator does to one of them must not happen to another's.
fn ambiguous(name: &str, several: &[(JobId, String)]) -> ApiError {
    let jobs: Vec<(JobId, &str)> = several.iter().map(|(id, tenant)| (*id, tenant.as_str())).collect();
    let remedy = format!("say which by its number, such as `#{}`", several[0].0.0);
    ApiError::new(409, "SeveralJobs", write::several_jobs(name, &jobs), remedy)
}

async fn numbered(api: &Api, who: &Arc<Who>, id: JobId) -> Result<Option<Place>, ApiError> {
    let sees = move |state: &State, who: &Who, _: &str| visible::sees(state, who, id).then_some(id);
    if let Some(id) = in_state(api, who, "", sees).await? {
        return Ok(Some(Place::State(id)));
    }
    Ok(archive::of_number(api, who, id).await?.map(|found| Place::Archive(Box::new(found))))
}

async fn in_state(
    api: &Api,
    who: &Arc<Who>,
    name: &str,
    find: impl FnOnce(&State, &Who, &str) -> Option<JobId> + Send + 'static,
) -> Result<Option<JobId>, ApiError> {
    let (judge, name) = (Arc::clone(who), name.to_owned());
    let found = move |state: &State| find(state, &judge, &name).filter(|id| state.job(*id).is_some());
    api.ask(who, move |engine, _| found(engine.state())).await
}
