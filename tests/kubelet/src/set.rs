//! A stand-in for each node with a label: of nodes that come while the test runs, as those of instances that boot do.
//!
//! Never: a node without the label; a node that is gone keeps its processes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_parts::RepeatingThread;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::{Kubelet, KubeletError, KubeletOptions, REQUEST_LIMIT, connect};

/// Between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the nodes until it is dropped; then all its processes end.
#[derive(Debug)]
pub struct KubeletSet {
    trouble: Arc<Mutex<Option<String>>>,
    _thread: RepeatingThread,
}

impl KubeletSet {
    /// A stand-in for each node with this label, such as `node.kubernetes.io/instance-type`. `options` are those of all; their node is not used.
    #[must_use]
    pub fn follow(label: &str, options: KubeletOptions) -> Self {
        let trouble = Arc::new(Mutex::new(None));
        let (say, label) = (Arc::clone(&trouble), label.to_owned());
        let (mut looker, mut running) = (None, BTreeMap::new());
        let thread = RepeatingThread::start(PAUSE, move || {
            let error = step(&mut looker, &label, &options, &mut running).err().map(|error| error.to_string());
            let mut said = say.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = &error
                && said.as_ref() != Some(error)
            {
                eprintln!("the kubelets of {label}: {error}");
            }
            *said = error;
        });
        Self { trouble, _thread: thread }
    }

    /// Why its last look changed nothing, where it failed. It looks again all the same.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whoever looks at the nodes.
struct Looker {
    runtime: Runtime,
    client: Client,
}

impl Looker {
    fn new(options: &KubeletOptions) -> Result<Self, KubeletError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(KubeletError::system("a runtime"))?;
        let client = runtime.block_on(connect(&options.kubeconfig))?;
        Ok(Self { runtime, client })
    }

    fn nodes(&self, label: &str) -> Result<Vec<String>, KubeletError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let params = ListParams::default().labels(label);
        let failed = |why: String| KubeletError::Node { node: format!("those with {label}"), why };
        let listed = self.runtime.block_on(async { timeout(REQUEST_LIMIT, api.list(&params)).await });
        let listed = listed.map_err(|_| failed(format!("no answer within {REQUEST_LIMIT:?}")))?;
        Ok(listed.map_err(|e| failed(e.to_string()))?.items.iter().map(ResourceExt::name_any).collect())
    }
}

fn step(
    looker: &mut Option<Looker>,
    label: &str,
    options: &KubeletOptions,
    running: &mut BTreeMap<String, Kubelet>,
) -> Result<(), KubeletError> {
    let looker = match looker {
        Some(looker) => looker,
        None => looker.insert(Looker::new(options)?),
    };
    let nodes = looker.nodes(label)?;
    running.retain(|node, _| nodes.contains(node));
    for node in nodes {
        if let Entry::Vacant(vacant) = running.entry(node) {
            let options = KubeletOptions { node: vacant.key().clone(), ..options.clone() };
            vacant.insert(Kubelet::start(options)?);
        }
    }
    Ok(())
}
