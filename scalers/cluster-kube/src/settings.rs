//! The configuration of the adapter: in which namespaces gangs run, under which names, and how patient it is. It has no credentials.

use forebay_kernel::units::Span;
use std::collections::{BTreeMap, BTreeSet};

/// How gangs run in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeSettings {
    /// The namespace of queues without one of their own.
    pub namespace: String,
    /// The namespace by queue; a queue without one has its parent's.
    pub namespaces: BTreeMap<String, String>,
    /// The `schedulerName` of our pods. No scheduler has that name, so nobody else binds them or marks them unschedulable.
    pub scheduler_name: String,
    /// The image with the program `forebay`, for the container that waits at the start barrier.
    pub gate_image: String,
    /// The URL under which pods reach the controller, for their reports. `None`: they do not report.
    pub report_url: Option<String>,
    /// The resource of whole GPUs.
    pub gpu_resource: String,
    /// The resource of time slices of a GPU, as the device plugin names it.
    pub shared_gpu_resource: String,
    /// What the resources of MIG slices begin with; the profile follows.
    pub mig_resource_prefix: String,
    /// The key of the `NoSchedule` taint that keeps other pods from our nodes.
    pub node_taint: String,
    /// The key of the taint that our nodes register with. It is removed when a node is ready for work.
    pub startup_taint: String,
    /// Taints that begin with one of these keys say that a node's network or storage is not there yet.
    pub not_ready_taints: Vec<String>,
    /// The port of worker 0 at which a gang meets.
    pub master_port: u16,
    /// Between the cordon of a node and the list that shows whether it is empty: longer than a scheduler needs from its decision to its Binding.
    pub settle: Span,
    /// A drained node goes after this time, though disruption budgets keep pods of others on it. `None`: never.
    pub evict_deadline: Option<Span>,
    /// A gang whose images are there and whose workers do not all run within this time is given up, while no policy is in force: else within its
    /// `lifecycle.startTimeout`.
    pub start_timeout: Span,
    /// Pods of attempts that are over stay this long, for their logs.
    pub keep_terminal: Span,
    /// A deleted pod of an attempt that is over keeps our finalizer until its log was taken, for this long at most. Zero: nobody takes logs.
    pub log_wait: Span,
    /// Services and ConfigMaps of gangs are listed so often, to find those that nobody needs.
    pub list_every: Span,
    /// The containers of a pod have so long to end when no deadline says otherwise, or as long as its specification says, if that is more.
    pub default_grace: Span,
    /// The namespaces whose suspended Jobs and JobSets are adopted where their label names a queue.
    pub adopt: BTreeSet<String>,
    /// How many calls are made.
    pub rates: KubeRateSettings,
}

/// How many calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeRateSettings {
    /// Changes a second.
    pub writes_per_second: u32,
    /// Changes at once, after a pause.
    pub write_burst: u32,
    /// Lists, watches and reads a second.
    pub reads_per_second: u32,
    /// Lists, watches and reads at once, after a pause.
    pub read_burst: u32,
    /// Calls that run concurrently.
    pub in_flight: usize,
}

impl Default for KubeRateSettings {
    /// As much as the API server's default priority level takes from one client without a queue: kube-scheduler's default is 50 and 100.
    fn default() -> KubeRateSettings {
        KubeRateSettings {
            writes_per_second: 100,
            write_burst: 200,
            reads_per_second: 50,
            read_burst: 100,
            in_flight: 64,
        }
    }
}

impl KubeSettings {
    /// The defaults, with a namespace and the image of the start barrier.
    #[must_use]
    pub fn new(namespace: &str, gate_image: &str) -> KubeSettings {
        KubeSettings {
            namespace: namespace.to_owned(),
            namespaces: BTreeMap::new(),
            scheduler_name: "forebay".to_owned(),
            gate_image: gate_image.to_owned(),
            report_url: None,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            shared_gpu_resource: "nvidia.com/gpu.shared".to_owned(),
            mig_resource_prefix: "nvidia.com/mig-".to_owned(),
            node_taint: "forebay.dev/node".to_owned(),
            startup_taint: "forebay.dev/starting".to_owned(),
            not_ready_taints: ["node.kubernetes.io/", "node.cilium.io/", "ebs.csi.aws.com/", "efs.csi.aws.com/"]
                .map(str::to_owned)
                .into(),
            master_port: 29_500,
            settle: Span::secs(10),
            evict_deadline: None,
            start_timeout: Span::mins(10),
            keep_terminal: Span::mins(60),
            log_wait: Span(0),
            list_every: Span::mins(5),
            default_grace: Span::secs(30),
            adopt: BTreeSet::new(),
            rates: KubeRateSettings::default(),
        }
    }

    /// The namespace of a queue: its own, or its nearest parent's.
    #[must_use]
    pub fn namespace_of(&self, queue: &str) -> &str {
        let mut path = queue;
        loop {
            if let Some(namespace) = self.namespaces.get(path) {
                return namespace;
            }
            match path.rsplit_once('/') {
                Some((parent, _)) => path = parent,
                None => return &self.namespace,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_its_parents_namespace() {
        let mut settings = KubeSettings::new("jobs", "forebay:1");
        settings.namespaces.insert("research".to_owned(), "research".to_owned());
        settings.namespaces.insert("research/vision".to_owned(), "vision".to_owned());
        for (queue, namespace) in
            [("research/vision/a", "vision"), ("research/text", "research"), ("ops", "jobs"), ("researchers", "jobs")]
        {
            assert_eq!(settings.namespace_of(queue), namespace, "{queue}");
        }
    }
}
