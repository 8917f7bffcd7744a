//! `GET /v1/policy`, `GET /v1/policy/history`, `POST /v1/policy/set`: the policy in force, those before it, and another one. For operators: a
//! policy names principals, prices and limits.
//!
//! Never: a policy that is not durable; one over the head of the file that owns it.

use super::Api;
use super::archive;
use super::audit::Act;
use super::auth::Operator;
use super::body::{gather, writable};
use super::error::ApiError;
use crate::config::tokens::Who;
use crate::driver::QueryContext;
use crate::policy::history::{self, PolicyEntry};
use crate::policy::{self, PolicyControl, PolicyNotTaken};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use forebay_engine::engine::Engine;
use forebay_kernel::units::Timestamp;
use forebay_wire::document::seconds::Seconds;
use serde::{Deserialize, Serialize};

/// The policy in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyView {
    /// The engine's time.
    pub now_s: Seconds,
    /// Its name.
    pub name: String,
    /// The BLAKE3 hash of its text.
    pub hash: Option<String>,
    /// As it was written. `None`: its text is not journaled.
    pub text: Option<String>,
    /// The file that owns it, watched for changes. `None`: operators change it (`POST /v1/policy/set`), or it is a replay's.
    pub file: Option<String>,
    /// Policies that were put in force since the process started.
    pub taken: u64,
    /// Policies that were refused since then.
    pub refused: u64,
    /// The last one that was offered, if that was refused.
    pub standing: Option<RefusedView>,
}

/// A policy that was refused.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RefusedView {
    /// When, in seconds since 1970.
    pub at_s: Seconds,
    /// What `forebay check` says of it.
    pub message: String,
}

/// Policies that are and were in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyHistory {
    /// Who owns the policy: the file that is watched, or `api`.
    pub owner: String,
    /// Newest first, 100 at most, as far back as the journal keeps their texts.
    pub policies: Vec<PolicyEntry>,
}

/// What a policy comes from that an operator sends, and who owns it where no file does.
pub const API: &str = "api";

pub(super) async fn policy(State(api): State<Api>, Operator(who): Operator) -> Result<Json<PolicyView>, ApiError> {
    Ok(Json(view(&api, &who).await?))
}

/// Puts the policy of the body in force, whatever its content type is called.
pub(super) async fn set(
    State(api): State<Api>,
    Operator(who): Operator,
    body: Body,
) -> Result<(Option<Act>, Json<PolicyView>), ApiError> {
    let control = control(&api)?;
    if let Some(file) = control.file() {
        let message = format!("the file {} owns the policy", file.display());
        let remedy =
            "write the policy there, and it is taken; or start the controller without `policy`, and the API owns it";
        return Err(ApiError::new(409, "FileOwned", message, remedy));
    }
    writable(&api)?;
    let bytes = gather(body).await?;
    let taken = control.take("the policy that was sent", &bytes).await.map_err(|error| match error {
        PolicyNotTaken::Refused(message) => {
            ApiError::bad("InvalidPolicy", message, "mend it: `forebay check FILE` says the same")
        }
        PolicyNotTaken::Driver(busy) => busy.into(),
    })?;
    let act = taken.act(API.to_owned()).map(|what| Act { name: "policy", what });
    Ok((act, Json(view(&api, &who).await?)))
}

/// The policies that are and were in force.
pub(super) async fn past(State(api): State<Api>, Operator(who): Operator) -> Result<Json<PolicyHistory>, ApiError> {
    let control = control(&api)?.clone();
    let owner = control.file().map_or_else(|| API.to_owned(), |file| file.display().to_string());
    let folder = api.handle.folder().to_owned();
    // Each of them is compiled there too.
    let read = archive::read(&api, &who, move |archive| {
        Ok(history::entries(&archive.policies()?, &history::acts(&folder), control.catalogue()))
    });
    Ok(Json(PolicyHistory { owner, policies: read.await? }))
}

fn control(api: &Api) -> Result<&PolicyControl, ApiError> {
    api.policy.as_ref().ok_or_else(|| {
        let remedy = "start `forebay run` without --replay, or replay again with another --policy";
        ApiError::new(409, "Replay", "a replay has the policy that it was started with", remedy)
    })
}

async fn view(api: &Api, who: &Who) -> Result<PolicyView, ApiError> {
    let ask = |engine: &Engine, context: &QueryContext| {
        let state = engine.state();
        let name = state.policy().map(|policy| policy.name.clone()).unwrap_or_default();
        (state.now(), name, context.policy_source.clone())
    };
    let (now, name, text) = api.ask(who, ask).await?;
    let control = api.policy.as_ref();
    let changes = control.map(PolicyControl::changes).unwrap_or_default();
    let standing = changes.standing;
    Ok(PolicyView {
        now_s: now.into(),
        name,
        hash: text.as_deref().map(policy::hash),
        text: text.as_deref().map(str::to_owned),
        file: control.and_then(|control| control.file()).map(|path| path.display().to_string()),
        taken: changes.taken,
        refused: changes.refused,
        standing: standing
            .map(|refused| RefusedView { at_s: Timestamp(refused.at_ms).into(), message: refused.message }),
    })
}
