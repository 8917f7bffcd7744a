//! Submissions of adopted objects: through the same intake as every event, in the name of their namespace.
//!
//! Never: a queue by the policy's routes; the object's label names it.

use crate::driver::{ItemContent, ItemOutcome, SubmittedItem};
use forebay_cluster_kube::adoption::WorkloadId;
use forebay_kernel::event::Event;
use forebay_wire::document::state::DEFAULT_TENANT;
use forebay_wire::intake::{Caller, Decoded, EventId, Intake, NoRoutes};
use serde_json::Value;

/// The submission of an object.
pub(super) struct SubmittedObject {
    object: WorkloadId,
    event: Event,
    id: Option<EventId>,
}

/// Reads the event of an object.
///
/// # Errors
/// It is not taken: which object, and why.
pub(super) fn submitted(object: WorkloadId, event: &Value) -> Result<SubmittedObject, (WorkloadId, String)> {
    let caller = Caller::named(DEFAULT_TENANT, &object.principal());
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    match intake.decode_value(event) {
        Ok(Decoded { event, id, .. }) => Ok(SubmittedObject { object, event, id }),
        Err(why) => Err((object, why.to_string())),
    }
}

impl SubmittedObject {
    pub(super) fn item(&self) -> SubmittedItem {
        SubmittedItem { content: ItemContent::Event(self.event.clone()), id: self.id, ..SubmittedItem::default() }
    }

    #[cfg(test)]
    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    pub(super) fn object(&self) -> &WorkloadId {
        &self.object
    }

    /// What is in the way of it, by what became of its submission.
    pub(super) fn refused(&self, outcome: ItemOutcome) -> Option<String> {
        let (ItemOutcome::Refused(reason) | ItemOutcome::Rejected(_, reason)) = outcome else { return None };
        let principal = self.object.principal();
        Some(format!("{}: {reason}; it was submitted by `{principal}`", reason.code()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cluster_kube::KubeSettings;
    use forebay_cluster_kube::adoption::{Workload, WorkloadKind, submission};
    use serde_json::json;

    #[test]
    fn an_object_is_submitted_by_its_namespace_with_what_its_pods_ask_for() {
        let pod = json!({"containers": [{"resources": {"requests": {"cpu": "4350m", "memory": "1Gi", "nvidia.com/gpu": "8"}}}]});
        let job =
            json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed", "template": {"spec": pod}});
        let labels = json!({"forebay.dev/queue": "research.vision", "forebay.dev/tier": "batch"});
        let metadata = json!({"name": "train", "namespace": "team-a", "uid": "u-1", "labels": labels});
        let workload = Workload::of_json(WorkloadKind::Job, json!({"metadata": metadata, "spec": job})).unwrap();
        let demand = workload.demand(&KubeSettings::new("jobs", "forebay:1")).unwrap();
        let submitted = submitted(workload.id(), &submission(&workload, &demand)).map_err(|_| "taken").unwrap();
        let Event::JobSubmitted(spec) = &submitted.event else { panic!("a submission") };
        assert_eq!((spec.principal.as_str(), spec.queue.as_str()), ("kube:team-a", "research/vision"));
        assert_eq!((spec.subject.as_str(), spec.tier.as_deref()), ("team-a/job/train/u-1", Some("batch")));
        assert_eq!(spec.retry.attempts, 1, "an object that has failed cannot run again");
        let forebay_kernel::job::Gang::Workers { min, max, each } = spec.gang else { panic!("workers") };
        assert_eq!((min, max, each.gpus, each.cpu.0, each.mem.0), (2, 2, 8, 4350, 1024));
        assert!(submitted.id.is_some(), "it is known when it comes again");
    }
}
