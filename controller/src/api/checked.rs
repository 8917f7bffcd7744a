//! Reports of checkpoints that come by HTTP: looked at before they are taken, so that the sender's answer says what became of them.
//!
//! Never: takes some of a request whose checkpoints nobody could look at. Sending all of it again is safe.

use super::Api;
use super::error::ApiError;
use super::events::{Asked, RefusedEvent, Taken, Unanswered};
use crate::checkpoints::{CheckpointReport, CheckpointVerdict};
use forebay_kernel::event::Event;
use forebay_kernel::units::Span;
use forebay_wire::intake::Rejected;

/// Reports of checkpoints in one request: each is a look at the store.
const MOST: usize = 64;

/// The time after which the store is asked again.
const RETRY_S: u64 = 10;

/// Leaves out what does not count, and answers it; what does count has the progress of its manifest.
pub(super) async fn checked(api: &Api, asked: Vec<Asked>, taken: &mut Taken) -> Result<Vec<Asked>, ApiError> {
    let report = |one: &Asked| match one.event {
        Event::RunCheckpointed { job, attempt, .. } => {
            Some(CheckpointReport { job, attempt, manifest: one.manifest.clone() })
        }
        _ => None,
    };
    let reports: Vec<CheckpointReport> = asked.iter().filter_map(report).collect();
    if reports.is_empty() || !api.checkpoints.verifies() {
        return Ok(asked);
    }
    if reports.len() > MOST {
        let message = format!("{} reports of checkpoints at once are too many", reports.len());
        return Err(ApiError::new(413, "TooMany", message, format!("send at most {MOST} of them at once")));
    }
    let mut verdicts = api.checkpoints.verify_all(reports).await?.into_iter();
    let mut kept = Vec::new();
    for mut one in asked {
        if let Event::RunCheckpointed { progress, .. } = &mut one.event
            && let Some(verdict) = verdicts.next()
        {
            *progress = match verdict {
                CheckpointVerdict::Accepted(counts) => counts,
                // The engine ignores it: what nobody has seen does not count even by a mistake of ours.
                CheckpointVerdict::NotRunning => Span::ZERO,
                CheckpointVerdict::Unavailable(why) => return Err(unknown(&why)),
                CheckpointVerdict::Refused(why) => {
                    taken.rejected.push(answer(one.sender, why));
                    continue;
                }
            };
        }
        kept.push(one);
    }
    Ok(kept)
}

fn answer(asked: Unanswered, why: Rejected) -> RefusedEvent {
    let Rejected { code, path, message } = why;
    let code = code.as_str().to_owned();
    RefusedEvent {
        index: asked.index,
        subject: asked.subject,
        job: None,
        code,
        path,
        message,
        figures: serde_json::Map::new(),
    }
}

fn unknown(why: &str) -> ApiError {
    let message = format!("the checkpoint could not be looked at: {}", crate::show::figures::short(why, 800));
    let remedy = "send it again after the time in Retry-After; `forebay doctor` says whether the store can be reached";
    ApiError::new(503, "CheckpointUnknown", message, remedy).retry_after(RETRY_S)
}
