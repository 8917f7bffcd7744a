//! A gang as the machine knows it: what was requested, what was observed of its workers, and what is to become of it.

use super::agenda::PodKey;
use super::census::Census;
use crate::api_call::Resource;
use crate::request::{GangRequest, RunToken};
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A gang, or what is left of one.
#[derive(Debug, Default)]
pub(super) struct Gang {
    /// What was requested. `None`: it was started by an earlier process, and runs.
    pub request: Option<Box<GangRequest>>,
    /// The token of its attempt, where there is a request.
    pub token: Option<RunToken>,
    /// Where it runs.
    pub namespace: String,
    /// The job's name, by which its pods are named. `None`: it was over before this process started.
    pub subject: Option<String>,
    /// The name of its Service and ConfigMap. `None`: not known, because none of its pods was seen.
    pub service: Option<String>,
    pub objects: BTreeMap<Resource, GangObject>,
    /// When its Service was found to be deleted by somebody else: the Secret goes with it. `None`: that was not found, or another Secret was created since.
    pub secret_lost_at: Option<Timestamp>,
    pub workers: BTreeMap<u32, Worker>,
    /// How far they are.
    pub census: Census,
    /// The barrier is open on its Service: every worker was bound.
    pub released: bool,
    /// Workers that are to leave, and until when.
    pub leaving: BTreeMap<u32, Timestamp>,
    /// Why it ends. `None`: it does not.
    pub verdict: Option<Verdict>,
    /// Its stop was asked for, with this deadline.
    pub stop_by: Option<Timestamp>,
    /// What became of its namespace, once that was asked.
    pub namespace_state: NamespaceState,
    pub reported: Reported,
    /// A lost pod is in the way of its start.
    pub waits_for_lost: bool,
    /// Since when all images are there while workers have not started.
    pub prepared_at: Option<Timestamp>,
}

/// A Service, ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GangObject {
    /// Its creation had no usable response.
    Unknown,
    /// It exists, with this uid.
    Exists { uid: String },
    /// It does not exist any more.
    Gone,
}

/// What has been reported of a gang.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub started: bool,
    pub completed: BTreeSet<u32>,
    pub left: BTreeSet<u32>,
    pub outcome: Option<Vec<Event>>,
    pub unproven: BTreeSet<u32>,
    /// That its pods request something else than was asked for.
    pub requests: bool,
}

/// What is known of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NamespaceState {
    #[default]
    NotAsked,
    Asked,
    Active,
    Ending,
}

/// Why a gang ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The engine asked for it.
    Asked,
    /// The cluster would not start or keep it, in Kubernetes' words. No attempt is used.
    Refused,
    /// A quota of its namespace was full before it could start: it may start later.
    NoQuota,
    /// A worker failed by its own doing.
    Failed { exit_code: i32 },
    /// A node failed under it.
    NodeFault { node: Option<NodeId> },
    /// Somebody else deleted a pod of it: the end of its namespace, or a failure with this exit code.
    Deleted { exit_code: i32 },
}

/// A worker of a gang.
#[derive(Debug, Default)]
pub(super) struct Worker {
    /// The cloud's id of its instance.
    pub instance: Option<String>,
    /// Its pod, if there is one.
    pub pod: Option<PodKey>,
    /// The uid of its pod, also when that is gone: another pod of the same name was made by somebody else.
    pub uid: Option<String>,
    /// Its pod is gone, and was like this.
    pub vanished: Option<Vanished>,
    /// A Binding was sent: the pod may be bound.
    pub bind_sent: bool,
    /// The API server has accepted the Binding.
    pub bind_accepted: bool,
    /// A Binding was refused with these words, and the pod has to be read.
    pub bind_conflict: Option<String>,
    /// A Binding was refused with these words, and the pod is not bound.
    pub bind_refused: Option<String>,
    /// Whether a creation was sent without a usable response.
    pub create_unknown: bool,
    /// We delete it, and its containers end by then.
    pub delete_by: Option<Timestamp>,
    /// The deletion was accepted with this time.
    pub deleted_by: Option<Timestamp>,
    /// An operator has confirmed its death.
    pub confirmed: bool,
    /// The boot of its node, read when nothing could start its pod any more and nothing proved its end: another boot proves it.
    pub last_boot: Option<String>,
    /// What it waits for, as reported.
    pub waits_for: Option<String>,
    /// The last warning about its pod.
    pub warning: Option<String>,
    /// Whether its log was taken, or nobody will.
    pub log_taken: bool,
    /// Its log is waited for until then, since its pod was to be let go.
    pub log_wait_until: Option<Timestamp>,
}

/// What was last known of a pod that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vanished {
    /// Whether nothing of it runs, by what was known.
    pub proven: Option<super::life::Death>,
}

impl Gang {
    /// Whether one of its objects exists.
    pub fn has(&self, resource: Resource) -> bool {
        matches!(self.objects.get(&resource), Some(GangObject::Exists { .. }))
    }

    /// Ends it, unless it ends already.
    pub fn end(&mut self, verdict: Verdict) {
        self.verdict.get_or_insert(verdict);
    }
}
