//! A stand-in for each node with a label: of nodes that come while the test runs, as those of instances that boot do.
//!
//! Never: a node without the label; a node that is gone keeps its processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_parts::Kubernetes;

use crate::{Kubelet, KubeletOptions};

/// Between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the nodes until it is dropped; then all its processes end.
#[derive(Debug)]
pub struct KubeletSet {
    ended: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl KubeletSet {
    /// A stand-in for each node with this label, such as `node.kubernetes.io/instance-type`. `options` are those of all; their node is not used.
    #[must_use]
    pub fn follow(kubernetes: Arc<Kubernetes>, label: &str, options: KubeletOptions) -> Self {
        let (ended, trouble) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (end, say, label) = (Arc::clone(&ended), Arc::clone(&trouble), label.to_owned());
        let thread = std::thread::spawn(move || {
            let mut running = BTreeMap::new();
            while !end.load(Ordering::Relaxed) {
                let error = step(&kubernetes, &label, &options, &mut running).err();
                *say.lock().unwrap_or_else(PoisonError::into_inner) = error;
                std::thread::park_timeout(PAUSE);
            }
        });
        Self { ended, trouble, thread: Some(thread) }
    }

    /// Why its last look changed nothing, where it failed. It looks again all the same.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for KubeletSet {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

fn step(
    kubernetes: &Kubernetes,
    label: &str,
    options: &KubeletOptions,
    running: &mut BTreeMap<String, Kubelet>,
) -> Result<(), String> {
    let listed = kubernetes.kubectl(&["get", "nodes", "-l", label, "-o", "jsonpath={.items[*].metadata.name}"], "");
    let listed = listed.map_err(|e| e.to_string())?;
    let nodes: Vec<&str> = listed.split_whitespace().collect();
    running.retain(|node, _| nodes.contains(&node.as_str()));
    for node in nodes {
        if !running.contains_key(node) {
            let options = KubeletOptions { node: node.to_owned(), ..options.clone() };
            running.insert(node.to_owned(), Kubelet::start(options).map_err(|e| e.to_string())?);
        }
    }
    Ok(())
}
