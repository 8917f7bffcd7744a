//! Where the credentials come from, and the connection that they open.
//!
//! Never: a token, a key or a command's output in an error.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::time::Duration;

/// A connection within a cluster takes milliseconds, across regions a second.
const CONNECT_BUDGET: Duration = Duration::from_secs(5);

/// Where the credentials for a cluster come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The service account of the pod that this program runs in.
    InCluster,
    /// A kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// One of its contexts; the current one where none is given.
        context: Option<String>,
    },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The program does not run in a pod, or its service account is not mounted.
    #[error(
        "no credentials of a pod: {0}; run it in a pod with automountServiceAccountToken: true, or name a kubeconfig file"
    )]
    NotInCluster(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}; check it: kubectl --kubeconfig {path} version")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Certificates or the proxy cannot be used.
    #[error("connection to {url}: {why}; check the certificates and the proxy of the cluster's entry")]
    Client {
        /// The API server.
        url: String,
        /// What is wrong.
        why: String,
    },
}

/// A client with our time limits, which retries nothing.
pub(super) async fn client(source: &CredentialSource) -> Result<Client, ConnectError> {
    let mut config = config(source).await?;
    config.connect_timeout = Some(CONNECT_BUDGET);
    // Each call has a budget of its own, and a watch is silent for a while.
    config.read_timeout = None;
    config.write_timeout = None;
    // Whether a call is made again is the machine's decision.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|e| ConnectError::Client { url, why: without_output(&e) })
}

async fn config(source: &CredentialSource) -> Result<Config, ConnectError> {
    match source {
        CredentialSource::InCluster => Config::incluster().map_err(|e| ConnectError::NotInCluster(e.to_string())),
        CredentialSource::Kubeconfig { path, context } => {
            let shown = path.display().to_string();
            let wrong = |why: String| ConnectError::Kubeconfig { path: shown.clone(), why };
            let file = Kubeconfig::read_from(path).map_err(|e| wrong(e.to_string()))?;
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            Config::from_custom_kubeconfig(file, &options).await.map_err(|e| wrong(e.to_string()))
        }
    }
}

/// An error of the client in words. A command that should have printed a token may have printed it: its output is left out.
pub(super) fn without_output(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(_) => "the command or file of the credentials gave none".to_owned(),
        other => with_causes(other),
    }
}

/// An error and what caused it, as one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named_without_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let source = |context: Option<&str>| CredentialSource::Kubeconfig {
            path: path.clone(),
            context: context.map(str::to_owned),
        };
        let missing = client(&source(None)).await.err().unwrap().to_string();
        assert!(missing.contains(&path.display().to_string()) && missing.contains("No such file"), "{missing}");
        let text = "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user: {token: hush}}], \
                    contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}";
        std::fs::write(&path, text).unwrap();
        let wrong = client(&source(Some("other"))).await.err().unwrap().to_string();
        assert!(
            wrong.contains("other") && wrong.contains("kubectl --kubeconfig") && !wrong.contains("hush"),
            "{wrong}"
        );
        assert!(client(&source(None)).await.is_ok());
    }
}
