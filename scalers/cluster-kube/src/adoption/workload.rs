//! A Job or JobSet as the API server shows it: whether it is suspended, how it ended, and its pod templates.

use super::{ANNOTATION_ADMITTED, ANNOTATION_STOPPED, WorkloadId, WorkloadKind};
use crate::names::RunId;
use crate::objects::ObjectMeta;
use serde_json::Value;

/// A Job or JobSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is.
    pub kind: WorkloadKind,
    /// What every object has.
    pub metadata: ObjectMeta,
    /// What was asked for, as the API server has it.
    pub spec: Value,
    /// What became of it, as the API server has it.
    pub status: Value,
}

/// How an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadEnd {
    /// All of it completed.
    Completed,
    /// It failed for good, by its own rules.
    Failed,
}

/// Pods of an object that are alike.
pub(super) struct PodGroup<'a> {
    /// The Job's `spec`.
    pub job: &'a Value,
    /// How many Jobs of it there are.
    pub replicas: u64,
    /// Where it is, for messages.
    pub place: String,
}

impl Workload {
    /// Reads an object from the API server's JSON.
    ///
    /// # Errors
    /// The JSON is no object.
    pub fn of_json(kind: WorkloadKind, mut json: Value) -> Result<Workload, serde_json::Error> {
        let metadata = serde_json::from_value(json["metadata"].take())?;
        Ok(Workload { kind, metadata, spec: json["spec"].take(), status: json["status"].take() })
    }

    /// Which object it is.
    #[must_use]
    pub fn id(&self) -> WorkloadId {
        let ObjectMeta { namespace, name, uid, .. } = &self.metadata;
        let namespace = namespace.clone().unwrap_or_default();
        WorkloadId { namespace, kind: self.kind, name: name.clone(), uid: uid.clone() }
    }

    /// Whether it is to have no pods.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.spec["suspend"] == true
    }

    /// A condition of its status, if it is there: whether it is true.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<bool> {
        let all = self.status["conditions"].as_array()?;
        let found = all.iter().find(|condition| condition["type"] == kind)?;
        Some(found["status"] == "True")
    }

    /// How it ended. `None`: it has not.
    #[must_use]
    pub fn end(&self) -> Option<WorkloadEnd> {
        let complete = match self.kind {
            WorkloadKind::Job => "Complete",
            WorkloadKind::JobSet => "Completed",
        };
        match (self.condition(complete), self.condition("Failed")) {
            (Some(true), _) => Some(WorkloadEnd::Completed),
            (_, Some(true)) => Some(WorkloadEnd::Failed),
            _ => None,
        }
    }

    /// Whether it was unsuspended for this attempt.
    #[must_use]
    pub fn was_admitted(&self, run: RunId) -> bool {
        self.metadata.annotation(ANNOTATION_ADMITTED) == Some(run.to_string().as_str())
    }

    /// Whether it was suspended for this attempt.
    #[must_use]
    pub fn was_stopped(&self, run: RunId) -> bool {
        self.metadata.annotation(ANNOTATION_STOPPED) == Some(run.to_string().as_str())
    }

    /// Whether it is suspended and its controller has acted on that: no pod of it is active, by the controller's word.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let never_ran = !self.has_start_time() && self.metadata.annotation(ANNOTATION_ADMITTED).is_none();
        self.is_suspended() && (never_ran || (self.condition("Suspended") == Some(true) && self.active() == 0))
    }

    /// Whether the times of an earlier start stand in the way of a change of its template.
    #[must_use]
    pub fn has_start_time(&self) -> bool {
        self.kind == WorkloadKind::Job && self.status["startTime"].is_string()
    }

    fn active(&self) -> u64 {
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        match self.kind {
            WorkloadKind::Job => count(&self.status["active"]) + count(&self.status["terminating"]),
            WorkloadKind::JobSet => {
                let of = self.status["replicatedJobsStatus"].as_array();
                of.into_iter().flatten().map(|status| count(&status["active"])).sum()
            }
        }
    }

    /// Its pods that have completed, by its controller's word. A JobSet does not say.
    #[must_use]
    pub fn succeeded(&self) -> Option<u64> {
        (self.kind == WorkloadKind::Job).then(|| self.status["succeeded"].as_u64().unwrap_or(0))
    }

    pub(super) fn groups(&self) -> Vec<PodGroup<'_>> {
        match self.kind {
            WorkloadKind::Job => vec![PodGroup { job: &self.spec, replicas: 1, place: "spec".to_owned() }],
            WorkloadKind::JobSet => {
                let jobs = self.spec["replicatedJobs"].as_array();
                let group = |job: &'_ Value| {
                    let name = job["name"].as_str().unwrap_or_default();
                    format!("spec.replicatedJobs[{name}].template.spec")
                };
                let jobs = jobs.into_iter().flatten();
                jobs.map(|job| PodGroup {
                    job: &job["template"]["spec"],
                    replicas: job["replicas"].as_u64().unwrap_or(1),
                    place: group(job),
                })
                .collect()
            }
        }
    }
}
