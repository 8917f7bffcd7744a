//! The calls and watches that run at a time: each in a task of its own, what comes of them in one place.
//!
//! ```text
//! start(id, call) -> a task a call    '-> next() -> RunnerEvent::Response
//!                 -> a task a watch   '-> next() -> RunnerEvent::Watch       at most one watch a kind of object
//! ```
//!
//! How many calls run at a time is the machine's decision; a watch is no call. Dropped, it ends all of them.
//! Never: a call that is made twice, a response that is lost while the runner lives.

use super::KubeClient;
use crate::api_call::{KubeCall, KubeCallId, KubeResponse, Resource, WatchChange, WatchEvent};
use crate::kube_error::KubeError;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Events of watches that wait to be handled. Past them, the API server waits: a kubelet's pods change a few times each.
const WAITING_EVENTS: usize = 256;

/// What became of a call or a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerEvent {
    /// The response to a call.
    Response(KubeCallId, KubeResponse),
    /// A watch delivered something, or ended.
    Watch(WatchEvent),
    /// A task ended by a bug of this program, and its response is lost. All calls that ran have been ended with it; the ends of the watches
    /// follow.
    Lost,
}

/// The calls and watches that run.
#[derive(Debug)]
pub struct CallRunner {
    client: KubeClient,
    /// `None`: a watch, which says its end by an event.
    tasks: JoinSet<Option<(KubeCallId, KubeResponse)>>,
    watches: BTreeMap<Resource, (KubeCallId, AbortHandle)>,
    /// The ends of watches that could not say them.
    lost: VecDeque<WatchEvent>,
    sender: Sender<WatchEvent>,
    events: Receiver<WatchEvent>,
}

impl CallRunner {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(client: KubeClient) -> CallRunner {
        let (sender, events) = channel(WAITING_EVENTS);
        CallRunner { client, tasks: JoinSet::new(), watches: BTreeMap::new(), lost: VecDeque::new(), sender, events }
    }

    /// Starts a call. A watch takes the place of the one of the same kind, whose events may still come for a moment, with its own number.
    /// It wants tokio's runtime.
    pub fn start(&mut self, id: KubeCallId, call: KubeCall) {
        let client = self.client.clone();
        if let KubeCall::Watch { resource, .. } = &call {
            let (resource, sender) = (*resource, self.sender.clone());
            let watch = self.tasks.spawn(async move {
                client.watch(id, &call, &sender).await;
                None
            });
            if let Some((_, before)) = self.watches.insert(resource, (id, watch)) {
                before.abort();
            }
        } else {
            self.tasks.spawn(async move { Some((id, client.execute(&call).await)) });
        }
    }

    /// What happens next. It waits for ever where nothing runs; a future that is dropped loses nothing.
    pub async fn next(&mut self) -> RunnerEvent {
        loop {
            if let Some(event) = self.lost.pop_front() {
                return RunnerEvent::Watch(event);
            }
            tokio::select! {
                Some(event) = self.events.recv() => return RunnerEvent::Watch(event),
                Some(done) = self.tasks.join_next() => {
                    if let Some(event) = self.ended(done) {
                        return event;
                    }
                }
            }
        }
    }

    /// What has happened already. `None`: nothing that was not said.
    pub fn next_ready(&mut self) -> Option<RunnerEvent> {
        if let Some(event) = self.lost.pop_front() {
            return Some(RunnerEvent::Watch(event));
        }
        while let Some(done) = self.tasks.try_join_next() {
            if let Some(event) = self.ended(done) {
                return Some(event);
            }
        }
        self.events.try_recv().ok().map(RunnerEvent::Watch)
    }

    /// What a task that has ended says.
    fn ended(&mut self, done: Result<Option<(KubeCallId, KubeResponse)>, JoinError>) -> Option<RunnerEvent> {
        match done {
            Ok(Some((id, response))) => Some(RunnerEvent::Response(id, response)),
            // A watch that ended, and said so, or one that was ended for the next.
            Ok(None) => None,
            Err(error) if error.is_cancelled() => None,
            Err(error) => {
                tracing::error!("kubernetes: a call ended by a bug of this program: {error}");
                self.abort();
                Some(RunnerEvent::Lost)
            }
        }
    }

    /// Ends all that runs. Of each watch it is said that it broke.
    fn abort(&mut self) {
        self.tasks.abort_all();
        let broken = KubeError::no_response("its task ended without a word");
        let ends = std::mem::take(&mut self.watches).into_values();
        self.lost.extend(ends.map(|(watch, _)| WatchEvent { watch, change: WatchChange::Failed(broken.clone()) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_call::ObjectSelector;

    /// A client of a cluster that is not there.
    async fn nowhere() -> KubeClient {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}], \
                    contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}";
        std::fs::write(&path, text).unwrap();
        KubeClient::connect(&super::super::CredentialSource::Kubeconfig { path, context: None }).await.unwrap()
    }

    fn watch(resource: Resource) -> KubeCall {
        KubeCall::Watch { resource, selector: ObjectSelector::All, resource_version: "1".to_owned() }
    }

    #[tokio::test]
    async fn each_call_has_its_response_and_each_watch_its_end() {
        let mut runner = CallRunner::new(nowhere().await);
        let get = KubeCall::Get { resource: Resource::Nodes, namespace: None, name: "n".to_owned() };
        runner.start(KubeCallId(1), get);
        runner.start(KubeCallId(2), watch(Resource::Pods));
        let mut seen = [runner.next().await, runner.next().await].map(|event| match event {
            RunnerEvent::Response(id, KubeResponse::Refused(error)) => (id, error.code),
            RunnerEvent::Watch(WatchEvent { watch, change: WatchChange::Failed(error) }) => (watch, error.code),
            other => panic!("{other:?}"),
        });
        seen.sort();
        assert_eq!(seen, [(KubeCallId(1), 0), (KubeCallId(2), 0)]);
    }

    #[tokio::test]
    async fn a_bug_loses_all_calls_and_ends_all_watches() {
        let mut runner = CallRunner::new(nowhere().await);
        runner.tasks.spawn(async { panic!("a bug") });
        let ended = runner.tasks.spawn(std::future::pending());
        runner.watches.insert(Resource::Nodes, (KubeCallId(3), ended));
        assert_eq!(runner.next().await, RunnerEvent::Lost);
        let RunnerEvent::Watch(WatchEvent { watch, change }) = runner.next().await else { panic!("the watch's end") };
        assert!(watch == KubeCallId(3) && matches!(change, WatchChange::Failed(_)));
    }
}
