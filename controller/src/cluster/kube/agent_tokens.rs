//! Reviews tokens for the API: Kubernetes says whose they are and on which node, the node says which instance it is.
//!
//! Never: waits with the machine; more than [`AT_ONCE`] questions at a time.

use crate::cluster::agent_tokens::{AUDIENCE, ReviewRequest, ReviewedAgent};
use forebay_cluster_kube::KubeError;
use forebay_cluster_kube::client::KubeClient;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

/// Tokens that are reviewed at a time.
const AT_ONCE: usize = 8;

/// Serves requests until nobody asks any more.
pub(super) async fn serve(client: KubeClient, mut requests: Receiver<ReviewRequest>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    while let Some(ReviewRequest { token, answer }) = requests.recv().await {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        while tasks.try_join_next().is_some() {}
        let client = client.clone();
        tasks.spawn(async move {
            let said = review(&client, &token).await.map_err(|error| error.to_string());
            // Whoever asked may have gone.
            let _ = answer.send(said);
            drop(place);
        });
    }
}

async fn review(client: &KubeClient, token: &str) -> Result<Result<ReviewedAgent, String>, KubeError> {
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
