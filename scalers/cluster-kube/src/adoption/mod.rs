//! Jobs and JobSets of others that Forebay runs: what they ask for, as a submission, and which of them cannot be carried.
//!
//! ```text
//! Job, JobSet -> Workload -> demand (what kube-scheduler would count) -> submission, a job.submitted event
//! ```
//!
//! The identity is the object's: its uid is in the subject, so an object that is deleted and made again is another job.
//! Never: a change to an object; `machine::adopt` decides these.

mod demand;
mod quantity;
mod submission;
mod workload;

pub use demand::Demand;
pub(crate) use demand::pod_requests;
pub use submission::submission;
pub use workload::{Workload, WorkloadEnd};

use crate::api_call::Resource;
use std::fmt;

/// What the principals of adopted objects begin with; the namespace follows.
pub const PRINCIPAL_PREFIX: &str = "kube:";
/// The label of an object that asks to be adopted: the queue's path with `.` for each `/`.
pub const LABEL_QUEUE: &str = "forebay.dev/queue";
/// The label with its tier. Without it: its queue's.
pub const LABEL_TIER: &str = "forebay.dev/tier";
/// The label of pods of adopted objects, beside those of the journal, the job and the attempt.
pub const LABEL_ADOPTED: &str = "forebay.dev/adopted";
/// The annotation of an object with the attempt for which it was unsuspended, such as `job-12/3`.
pub const ANNOTATION_ADMITTED: &str = "forebay.dev/admitted";
/// The annotation of an object with the attempt for which it was suspended.
pub const ANNOTATION_STOPPED: &str = "forebay.dev/stopped";
/// What the labels of nodes begin with by which pods of adopted objects find them: the job follows, and the attempt is the value.
pub const NODE_LABEL_PREFIX: &str = "gang.forebay.dev/";

/// A kind of object that is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// `batch/v1` `Job`.
    Job,
    /// `jobset.x-k8s.io/v1alpha2` `JobSet`.
    JobSet,
}

impl WorkloadKind {
    /// As it is in a subject.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            WorkloadKind::Job => "job",
            WorkloadKind::JobSet => "jobset",
        }
    }

    /// As Kubernetes calls it.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            WorkloadKind::Job => "Job",
            WorkloadKind::JobSet => "JobSet",
        }
    }

    /// Its group and version.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            WorkloadKind::Job => "batch/v1",
            WorkloadKind::JobSet => "jobset.x-k8s.io/v1alpha2",
        }
    }

    /// Under which it is read and changed.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            WorkloadKind::Job => Resource::Jobs,
            WorkloadKind::JobSet => Resource::JobSets,
        }
    }
}

/// An object that is adopted. As text, the subject of its job: `NAMESPACE/jobset/NAME/UID`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadId {
    /// Its namespace.
    pub namespace: String,
    /// What it is.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
    /// The API server's id of this very object.
    pub uid: String,
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.namespace, self.kind.word(), self.name, self.uid)
    }
}

impl WorkloadId {
    /// Who submits it: queues list it in their `submitters`.
    #[must_use]
    pub fn principal(&self) -> String {
        format!("{PRINCIPAL_PREFIX}{}", self.namespace)
    }

    /// The object of a job, by its principal and its subject. `None`: the job is none of an adopted object.
    #[must_use]
    pub fn of_job(principal: &str, subject: &str) -> Option<WorkloadId> {
        let namespace = principal.strip_prefix(PRINCIPAL_PREFIX)?;
        let mut parts = subject.split('/');
        let same = parts.next()? == namespace;
        let kind = match parts.next()? {
            "job" => WorkloadKind::Job,
            "jobset" => WorkloadKind::JobSet,
            _ => return None,
        };
        let (name, uid) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let whole = same && parts.next().is_none() && !name.is_empty() && !uid.is_empty();
        whole.then(|| WorkloadId { namespace: namespace.to_owned(), kind, name, uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_read_as_it_is_written_and_only_for_its_own_namespace() {
        let subject = "team-a/jobset/train/0a-1";
        let id = WorkloadId::of_job("kube:team-a", subject).unwrap();
        assert_eq!((id.to_string().as_str(), id.principal().as_str()), (subject, "kube:team-a"));
        for (principal, subject) in [
            ("kube:team-b", subject),
            ("team-a", subject),
            ("kube:team-a", "team-a/pod/train/0a-1"),
            ("kube:team-a", "team-a/job/train"),
            ("kube:team-a", "team-a/job/train/u/x"),
            ("kube:team-a", "team-a/job//u"),
        ] {
            assert_eq!(WorkloadId::of_job(principal, subject), None, "{principal} {subject}");
        }
    }
}
