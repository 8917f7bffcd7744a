//! The pods that are bound to the node: listed, watched, and a task for each.
//!
//! Never: a pod of another node, two tasks for one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::{Context, MOST_PODS, REQUEST_LIMIT, pod};

/// Before it is listed again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is known of a pod.
#[derive(Clone, Debug)]
pub(crate) struct KnownPod {
    /// As it was seen last.
    pub(crate) pod: Arc<Pod>,
    /// Whether it exists no longer.
    pub(crate) gone: bool,
}

/// Follows the pods until it is dropped, and their processes end with it.
pub(crate) async fn follow(context: &Arc<Context>) {
    let api: Api<Pod> = Api::all(context.client.clone());
    let selector = format!("spec.nodeName={}", context.options.node);
    let mut pods = Pods { context, known: BTreeMap::new(), tasks: JoinSet::new() };
    loop {
        if let Err(why) = pods.list_and_watch(&api, &selector).await {
            eprintln!("the kubelet of {}: its pods: {why}; they are listed again", context.options.node);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Pods<'c> {
    context: &'c Arc<Context>,
    /// By uid.
    known: BTreeMap<String, watch::Sender<KnownPod>>,
    tasks: JoinSet<()>,
}

impl Pods<'_> {
    async fn list_and_watch(&mut self, api: &Api<Pod>, selector: &str) -> Result<(), String> {
        let listing = ListParams::default().fields(selector);
        let listed = timeout(REQUEST_LIMIT, api.list(&listing)).await.map_err(|_| "no answer".to_owned())?;
        let listed = listed.map_err(|e| e.to_string())?;
        let version = listed.metadata.resource_version.clone().unwrap_or_default();
        let there: BTreeSet<String> = listed.items.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        for pod in listed.items {
            self.see(pod, false);
        }
        for (_, known) in self.known.iter().filter(|(uid, _)| !there.contains(*uid)) {
            known.send_modify(|known| known.gone = true);
        }
        let watching = WatchParams::default().fields(selector);
        let events = timeout(REQUEST_LIMIT, api.watch(&watching, &version)).await.map_err(|_| "no watch".to_owned())?;
        let mut events = std::pin::pin!(events.map_err(|e| e.to_string())?);
        while let Some(event) = events.next().await {
            match event.map_err(|e| e.to_string())? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.see(pod, false),
                WatchEvent::Deleted(pod) => self.see(pod, true),
                WatchEvent::Bookmark(_) => {}
                // Too old, most likely.
                WatchEvent::Error(_) => break,
            }
        }
        Ok(())
    }

    fn see(&mut self, pod: Pod, gone: bool) {
        // Tasks that have ended are taken note of, so that they do not pile up.
        while self.tasks.try_join_next().is_some() {}
        self.known.retain(|_, known| !known.is_closed());
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let seen = KnownPod { pod: Arc::new(pod), gone };
        if let Some(known) = self.known.get(&uid) {
            known.send_replace(seen);
        } else if !gone {
            let full = self.known.len() >= MOST_PODS;
            let (sender, receiver) = watch::channel(seen);
            self.known.insert(uid, sender);
            self.tasks.spawn(pod::run(Arc::clone(self.context), receiver, full));
        }
    }
}
