//! Adopted objects that were unsuspended after the backup, or the older copy of its folder, that this journal goes on from: nobody knows any more for which start. Each runs on, is told
//! once, and is waited for before its job starts again.
//!
//! Never: such an object suspended. Whoever suspends it by hand frees its job, and so does whoever deletes it.

use super::news::News;
use crate::adoption::{ANNOTATION_ADMITTED, Workload};
use crate::machine::{KubeMachine, KubeReport};
use crate::names::{RunId, WorkerId};
use forebay_kernel::storage::ForeignId;
use forebay_kernel::units::Timestamp;

impl KubeMachine {
    /// Whether the last start of an object is one that the journal has lost.
    pub(super) fn start_is_lost(&self, workload: &Workload) -> bool {
        self.effect_on(&workload.metadata) == Some(ForeignId::Lost)
    }

    /// Whether an object was unsuspended for this attempt, and not for one of that number which the journal has lost.
    pub(super) fn was_admitted(&self, workload: &Workload, run: RunId) -> bool {
        workload.was_admitted(run) && !self.start_is_lost(workload)
    }

    /// Whether an object runs on whose start the journal has lost.
    pub(super) fn runs_lost(&self, uid: &str) -> bool {
        self.adoptions.workloads.get(uid).is_some_and(|workload| self.is_lost_run(workload))
    }

    /// The same of an object as it is.
    pub(super) fn is_lost_run(&self, workload: &Workload) -> bool {
        let over = workload.metadata.is_deleting() || workload.end().is_some();
        !over && !workload.is_suspended() && self.start_is_lost(workload)
    }

    /// Says once of an object that it runs on.
    pub(super) fn tell_lost(&mut self, uid: &str, now: Timestamp) {
        let Some(workload) = self.adoptions.workloads.get(uid) else { return };
        let object = workload.id();
        let started =
            workload.metadata.annotation(ANNOTATION_ADMITTED).unwrap_or("an attempt that is not known").to_owned();
        let words = format!(
            "it was unsuspended for {started} {AFTER_BACKUP}: it runs on, its nodes are kept and its job does not start until it has ended; {REMEDY}"
        );
        if self.tell(&object, News::Lost, &started, &words, now) {
            self.reports.push(KubeReport::LostObject { object, words });
        }
    }

    /// Says of an attempt that it waits for an object of its job that runs on, or does so no longer.
    pub(super) fn say_whether_it_waits_for_lost(&mut self, run: RunId, waits: bool) {
        let Some(known) = self.adoptions.runs.get_mut(&run).filter(|known| known.waits_for_lost != waits) else {
            return;
        };
        known.waits_for_lost = waits;
        let words = format!(
            "{} was unsuspended {AFTER_BACKUP}, and runs on: this starts when it has ended; {REMEDY}",
            known.object
        );
        let worker = WorkerId { run, worker: 0 };
        self.reports.push(KubeReport::Waiting { worker, words: waits.then_some(words) });
    }
}

const AFTER_BACKUP: &str = "after the backup that the journal goes on from";
const REMEDY: &str =
    "wait for it, suspend it to have it start anew when it is its turn, or delete it to cancel its job";
