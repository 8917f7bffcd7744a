//! Reviews tokens for the API: Kubernetes says whose they are and on which node, the node says which instance it is.
//!
//! Never: waits with the machine; more than [`AT_ONCE`] questions at a time.

use crate::cluster::agent_tokens::{AUDIENCE, ReviewRequest, Reviewed, ReviewedAgent};
use crate::cluster::questions;
use forebay_cluster_kube::KubeError;
use forebay_cluster_kube::client::KubeClient;
use tokio::sync::mpsc::Receiver;

/// Tokens that are reviewed at a time.
const AT_ONCE: usize = 8;

/// Serves requests until nobody asks any more.
pub(super) async fn serve(client: KubeClient, requests: Receiver<ReviewRequest>) {
    let answer_to = |token: String| {
        let client = client.clone();
        async move { review(&client, &token).await.map_err(|error| error.to_string()) }
    };
    questions::serve(requests, AT_ONCE, answer_to).await;
}

async fn review(client: &KubeClient, token: &str) -> Result<Reviewed, KubeError> {
    let Some(reviewed) = client.review(token, AUDIENCE).await? else {
        let why = format!("Kubernetes does not accept it for the audience `{AUDIENCE}`");
        return Ok(Err(why));
    };
    let Some(account) = reviewed.account else { return Ok(Err("it is no service account's".to_owned())) };
    let Some(node) = reviewed.node else {
        return Ok(Err("it was made for no pod, so it says no node".to_owned()));
    };
    let instance = client.instance_of(&node).await?;
    Ok(Ok(ReviewedAgent { account, node, instance }))
}
