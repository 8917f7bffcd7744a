//! What people are told on their objects: Events of Kubernetes, one for each change of what becomes of an object.
//!
//! Never: the same again while this process lives; more than [`MOST_WAITING`] that wait. An Event that is lost changes nothing but what is read.

use crate::adoption::WorkloadId;
use crate::api_call::{KubeCall, KubeResponse, Resource};
use crate::machine::KubeMachine;
use crate::machine::agenda::Task;
use forebay_kernel::units::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Events that wait to be written. Past them the oldest go.
const MOST_WAITING: usize = 1000;
/// The most characters of a note, as the API server has it.
const MOST_NOTE: usize = 1000;

/// What happened, as one word, and whether it is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    /// It waits, for a reason in words.
    Queued,
    /// It was unsuspended.
    Admitted,
    /// It was suspended for its end.
    Stopped,
    /// Somebody unsuspended it before its turn.
    SuspendedAgain,
    /// It is not adopted.
    NotAdopted,
    /// It runs on, and the journal has lost its start.
    Lost,
    /// Its pods differ, and each counts with the largest of each resource.
    LargestCounts,
}

impl News {
    fn reason(self) -> &'static str {
        match self {
            News::Queued => "Queued",
            News::Admitted => "Admitted",
            News::Stopped => "Stopped",
            News::SuspendedAgain => "SuspendedAgain",
            News::NotAdopted => "NotAdopted",
            News::Lost => "Lost",
            News::LargestCounts => "LargestCounts",
        }
    }

    fn is_warning(self) -> bool {
        matches!(self, News::SuspendedAgain | News::NotAdopted | News::Lost)
    }
}

/// Events that are to be written, and what was said.
#[derive(Debug, Default)]
pub(super) struct NewsBook {
    waiting: BTreeMap<u64, (WorkloadId, Value)>,
    next: u64,
    said: BTreeMap<String, BTreeSet<String>>,
}

impl NewsBook {
    /// Forgets what was said of an object that is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.said.remove(uid);
    }
}

impl KubeMachine {
    /// Tells something of an object, unless it was told. `key`: what it is about, such as an attempt. Returns whether it was new.
    pub(super) fn tell(&mut self, object: &WorkloadId, news: News, key: &str, note: &str, now: Timestamp) -> bool {
        let known = format!("{} {key}", news.reason());
        if !self.adoptions.news.said.entry(object.uid.clone()).or_default().insert(known) {
            return false;
        }
        let number = self.adoptions.news.next;
        self.adoptions.news.next += 1;
        let WorkloadId { namespace, kind, name, uid } = object;
        let hash: String =
            blake3::hash(format!("{uid} {key} {now}", now = now.0).as_bytes()).to_hex().chars().take(16).collect();
        let name_of_event: String = name.chars().take(200).collect();
        let note: String = note.chars().take(MOST_NOTE).collect();
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": format!("{name_of_event}.{hash}{number:x}"), "namespace": namespace},
            "eventTime": micro_time(now),
            "reportingController": "forebay.dev/forebay",
            "reportingInstance": self.journal,
            "action": news.reason(),
            "reason": news.reason(),
            "type": if news.is_warning() { "Warning" } else { "Normal" },
            "note": note,
            "regarding": {"apiVersion": kind.api_version(), "kind": kind.kind(), "namespace": namespace, "name": name, "uid": uid},
        });
        let waiting = &mut self.adoptions.news.waiting;
        waiting.insert(number, (object.clone(), body));
        if waiting.len() > MOST_WAITING {
            waiting.pop_first();
        }
        self.agenda.plan(Task::Tell(number), now);
        true
    }

    pub(in crate::machine) fn event_call(&self, number: u64) -> Option<KubeCall> {
        let (object, body) = self.adoptions.news.waiting.get(&number)?;
        let (resource, namespace) = (Resource::Events, object.namespace.clone());
        Some(KubeCall::Create { resource, namespace, body: Box::new(body.clone()) })
    }

    /// An Event was written, or is refused: nothing depends on it.
    pub(in crate::machine) fn told(&mut self, number: u64, response: &KubeResponse) {
        self.adoptions.news.waiting.remove(&number);
        if let KubeResponse::Refused(error) = response {
            self.report_failure(&Task::Tell(number), 0, error);
        }
    }
}

/// A time as Kubernetes' `MicroTime`.
fn micro_time(at: Timestamp) -> String {
    let (days, ms) = (at.0 / 86_400_000, at.0 % 86_400_000);
    // Days to a date, by Howard Hinnant's algorithm, for days from 1970 on.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}000Z", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adoption::WorkloadKind;
    use crate::settings::KubeSettings;
    use crate::view::{AdoptedView, EngineView};
    use forebay_kernel::ids::{Attempt, JobId};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// A machine that has listed all, and finds nothing.
    fn listed(view: EngineView) -> KubeMachine {
        let mut settings = KubeSettings::new("jobs", "forebay:1");
        settings.adopt.insert("team-a".to_owned());
        let mut kube = KubeMachine::new(settings, "j");
        kube.begin(view);
        for _ in 0..3 {
            for (id, call) in kube.poll(NOW) {
                if let KubeCall::List { .. } = call {
                    let resource_version = "10".to_owned();
                    let page = KubeResponse::Page { objects: Vec::new(), continue_token: None, resource_version };
                    kube.handle_response(id, page, NOW);
                }
            }
        }
        kube
    }

    #[test]
    fn what_is_kept_of_an_object_that_is_gone_goes_with_its_job() {
        let (namespace, name, uid) = ("team-a".to_owned(), "a".to_owned(), "u".to_owned());
        let object = WorkloadId { namespace, kind: WorkloadKind::Job, name, uid };
        let view = |open| {
            let adopted = AdoptedView {
                object: object.clone(),
                job: JobId(1),
                tenant: "me".to_owned(),
                open,
                attempt: Attempt(1),
                waits: None,
                run: None,
            };
            EngineView { adopted: BTreeMap::from([(object.uid.clone(), adopted)]), ..EngineView::default() }
        };
        let mut kube = listed(view(true));
        // Its suspension is answered after it was deleted.
        assert!(kube.tell(&object, News::Stopped, "1", "stopped", NOW));
        kube.handle_state(view(true));
        kube.poll(NOW);
        let kept = |kube: &KubeMachine| (kube.adoptions.cancelled.len(), kube.adoptions.news.said.len());
        assert_eq!(kept(&kube), (1, 1), "it is cancelled and said once while its job is open");
        kube.handle_state(view(false));
        kube.poll(NOW);
        assert_eq!(kept(&kube), (0, 0));
    }

    #[test]
    fn times_are_written_as_kubernetes_reads_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000000Z"),
            (1_798_761_599_123, "2026-12-31T23:59:59.123000Z"),
        ] {
            assert_eq!(micro_time(Timestamp(ms)), text);
        }
    }
}
