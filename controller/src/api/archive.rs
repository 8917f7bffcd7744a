//! Finished jobs that have left the state: read from the journal's archive on another thread than the driver's.
//!
//! ```text
//! name -> state (driver's thread) -> not there -> archive (blocking thread) -> may this caller see it? (driver's thread) -> view
//! ```
//!
//! Never: a job that the caller may not see; a read of the disk on the driver's thread.

use super::Api;
use super::error::ApiError;
use super::visible;
use crate::config::tokens::Who;
use crate::document::write;
use crate::journal::{ArchiveReader, ArchivedJob, JournalError};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::views::JobView;
use std::sync::Arc;

/// A finished job that was found in the archive.
pub(super) struct FoundInArchive {
    /// The engine's time.
    pub now: Timestamp,
    /// The job.
    pub id: JobId,
    /// Status messages that it had.
    pub statuses: u64,
    /// As it is shown.
    pub view: JobView,
}

/// Reads the archive where that may block, in the turn of whoever asks.
pub(super) async fn read<T, F>(api: &Api, who: &Who, read: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce(&ArchiveReader) -> Result<T, JournalError> + Send + 'static,
{
    let archive = Arc::clone(&api.archive);
    let done = api.room.read(who).await?.spend(move || read(&archive)).await;
    done.map_err(unread)?.map_err(unread)
}

/// The journal cannot be read.
pub(super) fn unread(why: impl std::error::Error) -> ApiError {
    ApiError::new(500, "Archive", why.to_string(), "see the controller's log, then `forebay journal verify`")
}

/// The last job of a subject in the caller's tenant. `None`: the archive has none that this caller may see.
pub(super) async fn of_subject(api: &Api, who: &Arc<Who>, name: &str) -> Result<Option<FoundInArchive>, ApiError> {
    let (asked, tenant) = (name.to_owned(), who.caller.tenant.clone());
    let found = read(api, who, move |archive| archive.finished_by_subject(&tenant, &asked)).await?;
    seen(api, who, found).await
}

/// The job of a number. `None`: the archive has none that this caller may see.
pub(super) async fn of_number(api: &Api, who: &Arc<Who>, id: JobId) -> Result<Option<FoundInArchive>, ApiError> {
    let found = read(api, who, move |archive| archive.finished(id)).await?;
    seen(api, who, found).await
}

async fn seen(api: &Api, who: &Arc<Who>, found: Option<ArchivedJob>) -> Result<Option<FoundInArchive>, ApiError> {
    let Some(ArchivedJob { finished, .. }) = found else { return Ok(None) };
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        visible::sees_finished(state, &judge, &finished.spec).then(|| FoundInArchive {
            now: state.now(),
            id: finished.job.id,
            statuses: u64::from(finished.job.status_seq),
            view: write::finished_view(engine, &finished),
        })
    };
    api.ask(who, ask).await
}
