//! The end of a gang: every pod of it is deleted, and the outcome is reported when nothing of it runs any more.
//!
//! Never: an outcome while a worker may be alive. That is held until its kubelet, its node or an operator proves it.

use super::agenda::Task;
use super::gang::{Gang, NamespaceState, Verdict};
use super::life::{Death, Life};
use super::{KubeMachine, KubeReport};
use crate::names::{RunId, WorkerId};
use crate::objects::KubePod;
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;

/// A deletion that is due this much earlier than the one that was accepted is sent again.
const SOONER: Span = Span::secs(1);

impl KubeMachine {
    /// Ends the workers of a gang with a verdict that are looked at, and reports the outcome when all are dead: then it has all their lives.
    pub(super) fn advance_end(&mut self, run: RunId, gang: &mut Gang, lives: &BTreeMap<u32, Life>, now: Timestamp) {
        if gang.reported.outcome.is_some() {
            return;
        }
        for (number, life) in lives {
            let id = WorkerId { run, worker: *number };
            match life {
                Life::Dead(_) => {}
                Life::Absent => {
                    if gang.workers.get(number).is_some_and(|worker| worker.create_unknown) {
                        self.agenda.plan(Task::Read(id), now);
                    }
                }
                Life::Unproven => self.report_unproven(run, gang, *number, now),
                life => {
                    let grace = self.grace_of(gang, *number);
                    let deadline = gang.stop_by.unwrap_or(now + grace);
                    self.delete_worker(run, gang, *number, life, deadline, now);
                }
            }
        }
        if gang.census.any_open() || gang.namespace_state == NamespaceState::Asked {
            return;
        }
        let events = self.outcome(run, gang, lives);
        self.reports.extend(events.iter().cloned().map(KubeReport::Event));
        gang.reported.outcome = Some(events);
    }

    /// How long a worker has to end where the engine has set no deadline: the time to save that its job asked for. Where another worker has failed by its
    /// own doing, the rest has nothing to save together, and its GPUs are not held for that.
    fn grace_of(&self, gang: &Gang, number: u32) -> Span {
        let least = self.settings.default_grace;
        if let Some(Verdict::Failed { .. }) = gang.verdict {
            return least;
        }
        let key = gang.workers.get(&number).and_then(|worker| worker.pod.as_ref());
        let own = key.and_then(|key| self.pods.get(key)).and_then(KubePod::grace);
        own.map_or(least, |own| own.max(least))
    }

    fn outcome(&self, run: RunId, gang: &Gang, lives: &BTreeMap<u32, Life>) -> Vec<Event> {
        let (job, attempt) = (run.job, run.attempt);
        let stopped = Event::RunStopped { job, attempt, progress: None };
        let denied = Event::RunDenied { job, attempt };
        let failed = |exit_code, node_fault| vec![Event::RunFailed { job, attempt, exit_code, node_fault }];
        match gang.verdict.as_ref() {
            Some(Verdict::Failed { exit_code }) => failed(*exit_code, None),
            Some(Verdict::NodeFault { node: Some(node) }) => failed(KILLED, Some(*node)),
            Some(Verdict::Deleted { .. }) if gang.namespace_state == NamespaceState::Ending => {
                let view = self.run_view(run);
                let names = view.map(|view| (view.tenant.clone(), view.subject.clone())).unwrap_or_default();
                let (tenant, subject) = names;
                vec![Event::JobCancelled { tenant, subject, by: None, sent: None }, stopped]
            }
            Some(Verdict::Deleted { exit_code }) => {
                // What the deleted container says itself is more than what SIGTERM does by default.
                let own = lives
                    .values()
                    .find_map(|life| if let Life::Dead(Death::Exit(code)) = life { Some(*code) } else { None });
                failed(own.unwrap_or(*exit_code), None)
            }
            Some(Verdict::NoQuota) => vec![denied],
            Some(Verdict::Asked | Verdict::Refused | Verdict::NodeFault { node: None }) | None => vec![stopped],
        }
    }

    /// Plans the deletion of a worker's pod, so that its containers end by the deadline.
    pub(super) fn delete_worker(
        &mut self,
        run: RunId,
        gang: &mut Gang,
        number: u32,
        life: &Life,
        deadline: Timestamp,
        now: Timestamp,
    ) {
        let Some(worker) = gang.workers.get_mut(&number) else { return };
        if *life == Life::Unproven {
            return self.report_unproven(run, gang, number, now);
        }
        let Some(key) = worker.pod.clone() else { return };
        let sooner = |by: Timestamp| by > deadline + SOONER;
        let wanted = worker.delete_by.is_none_or(sooner);
        if wanted {
            worker.delete_by = Some(deadline);
        }
        let accepted = worker.deleted_by.is_some_and(|by| !sooner(by));
        if !accepted && worker.delete_by.is_some() {
            self.agenda.plan(Task::DeletePod(key), now);
        }
    }

    fn report_unproven(&mut self, run: RunId, gang: &mut Gang, number: u32, now: Timestamp) {
        if gang.workers.get(&number).is_some_and(|worker| worker.last_boot.is_none()) {
            self.agenda.plan(Task::ReadNode(WorkerId { run, worker: number }), now);
        }
        if gang.reported.unproven.insert(number) {
            let instance = gang.workers.get(&number).and_then(|worker| worker.instance.clone());
            self.reports.push(KubeReport::Unproven { worker: WorkerId { run, worker: number }, instance });
        }
    }

    /// The engine's node of an instance.
    pub(super) fn claim_node(&self, instance: Option<&str>) -> Option<NodeId> {
        self.view.as_ref()?.claims.get(instance?).map(|claim| claim.node)
    }
}

/// What a container that was killed exits with.
const KILLED: i32 = 137;
