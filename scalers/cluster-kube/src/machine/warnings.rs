//! What is in the way of a pod that its own status does not say: warnings of its kubelet, such as `FailedMount`, and requests that a LimitRange or
//! a webhook has made others than were asked for.
//!
//! ```text
//! bound, and its work has not started for a while -> the warnings about that very pod, again and again until it starts
//! ```
//!
//! Never: more than a few pods of a gang asked about; a decision by what an event says.

use super::gang::Gang;
use super::life::{has_started, words};
use super::{KubeMachine, KubeReport, Task};
use crate::adoption::pod_requests;
use crate::api_call::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use crate::names::{RunId, WorkerId};
use crate::objects::{KubeEvent, KubePod};
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeSet;

/// A pod that has not started for so long is asked about: most start within this time.
const ASK_AFTER: Span = Span::secs(20);
/// Between two questions about one pod.
const ASK_AGAIN: Span = Span::secs(60);
/// Pods of a gang that are asked about: its workers mostly wait for the same.
const MOST_ASKED: usize = 4;

impl KubeMachine {
    /// Asks about workers that are bound and whose work has not started.
    pub(super) fn look_for_warnings(&mut self, run: RunId, gang: &Gang, now: Timestamp) {
        if gang.reported.started {
            return;
        }
        for worker in gang.census.first_bound(MOST_ASKED) {
            self.agenda.plan(Task::Warnings(WorkerId { run, worker }), now + ASK_AFTER);
        }
    }

    /// `None`: it has started, or is gone.
    pub(super) fn warnings_call(&self, id: WorkerId) -> Option<KubeCall> {
        let pod = self.waiting_pod(id)?;
        Some(KubeCall::List {
            resource: Resource::PodEvents,
            namespace: pod.metadata.namespace.clone(),
            selector: ObjectSelector::WarningsOf(pod.metadata.uid.clone()),
            continue_token: None,
        })
    }

    fn waiting_pod(&self, id: WorkerId) -> Option<&KubePod> {
        let gang = self.gangs.get(&id.run).filter(|gang| gang.verdict.is_none() && !gang.reported.started)?;
        let pod = self.pods.get(gang.workers.get(&id.worker)?.pod.as_ref()?)?;
        (!has_started(pod) && !pod.metadata.is_deleting() && !pod.is_terminal()).then_some(pod)
    }

    /// The first page is enough: one pod has few kinds of warnings.
    pub(super) fn warned(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        if self.waiting_pod(id).is_none() {
            return;
        }
        let objects = match response {
            KubeResponse::Page { objects, .. } => objects,
            KubeResponse::Refused(error) => {
                self.report_failure(&Task::Warnings(id), 0, &error);
                return self.agenda.plan(Task::Warnings(id), now + self.settings.list_every);
            }
            _ => return,
        };
        self.agenda.plan(Task::Warnings(id), now + ASK_AGAIN);
        let event = |object| if let KubeObject::Event(event) = object { Some(event) } else { None };
        let last = objects.into_iter().filter_map(event).max_by(|a: &KubeEvent, b| a.at().cmp(b.at()));
        let Some(last) = last else { return };
        let text = words(&last.reason, last.message.as_deref());
        let Some(worker) = self.worker(id) else { return };
        worker.warning = Some(text.clone());
        // What its status says is nearer to what it waits for.
        if worker.waits_for.is_none() {
            worker.waits_for = Some(text.clone());
            self.reports.push(KubeReport::Waiting { worker: id, words: Some(text) });
        }
    }

    /// Reports requests of a created pod that are others than were asked for, once a gang: nodes were chosen for those.
    pub(super) fn compare_requests(&mut self, id: WorkerId, pod: &KubePod) {
        let Some(gang) = self.gangs.get_mut(&id.run).filter(|gang| !gang.reported.requests) else { return };
        let Some(body) = gang.request.as_ref().and_then(|request| request.pod_body(id.worker)) else { return };
        let asked = pod_requests(&body["spec"], "spec").unwrap_or_default();
        let names: BTreeSet<&str> = asked.keys().map(String::as_str).chain(["cpu", "memory"]).collect();
        let differs = |name: &&str| {
            let (of, has) = (asked.get(*name).copied().unwrap_or(0), u128::from(pod.requested(name)));
            (of != has).then(|| format!("{name} {} where {} was asked", amount(name, has), amount(name, of)))
        };
        let changed: Vec<String> = names.iter().filter_map(differs).collect();
        if changed.is_empty() {
            return;
        }
        gang.reported.requests = true;
        let namespace = &gang.namespace;
        let words = format!(
            "a LimitRange or a webhook of namespace {namespace} makes its pods request {}: ask for that in the job, so that nodes are chosen by it",
            changed.join(", ")
        );
        self.reports.push(KubeReport::ChangedRequests { run: id.run, words });
    }
}

/// Thousandths as people write them.
fn amount(name: &str, thousandths: u128) -> String {
    match name {
        "cpu" => format!("{thousandths}m"),
        "memory" => format!("{}Mi", thousandths.div_ceil(1000 << 20)),
        _ => thousandths.div_ceil(1000).to_string(),
    }
}
