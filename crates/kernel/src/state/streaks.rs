//! Runs in a row that brought no verified progress: how many starts failed, which nodes were blamed, what the cloud took back.
//!
//! ```text
//! run ends without progress -> streak grows       progress is verified, the job is over -> streak is gone
//! ```
//!
//! A job without a streak has no row here, so the table is as small as the trouble. Never: decides what follows. That is settle's.

use super::State;
use crate::decision::StopCause;
use crate::ids::{JobId, NodeId, OfferingId};
use crate::state::jobs::{Ending, Phase};
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A run that has lasted so long has started: the starts that failed before it count no more. As with a kubelet.
pub(crate) const RECOVERED: Span = Span::mins(10);
/// Blamed nodes that are remembered of one job: more than a job may blame before it ends, and a bound.
const MOST_BLAMED: usize = 16;
/// Blamed on so many nodes, one after the other, a fault is the job's, though nothing else runs there that would show it.
const SEVERAL: usize = 3;

/// What a job has come to since its last verified progress.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Streak {
    /// Starts that failed, whatever the cause that was told.
    pub start_failures: u32,
    /// Nodes that its runs blamed, the last one last, and how often each.
    pub blamed: Vec<(NodeId, u32)>,
    /// Runs that ended because the cloud took a node back.
    pub reclaims: u32,
    /// The offering of the last of these, and how many in a row were of it.
    pub reclaimed_from: Option<(OfferingId, u32)>,
    /// A node of this offering was just taken from its run.
    pub taken: Option<OfferingId>,
}

impl State {
    /// What a job has come to since its last verified progress. `None`: nothing.
    #[must_use]
    pub fn streak(&self, job: JobId) -> Option<&Streak> {
        self.streaks.get(&job)
    }

    /// When the controller last came back after down time. Zero: never.
    #[must_use]
    pub fn resumed_at(&self) -> Timestamp {
        self.resumed_at
    }

    fn streak_mut(&mut self, job: JobId) -> &mut Streak {
        self.streaks.entry(job).or_default()
    }

    /// Progress was verified, or the job is over.
    pub(crate) fn end_streak(&mut self, job: JobId) {
        self.streaks.remove(&job);
    }

    /// The cloud took a node from a run.
    pub(crate) fn note_taken(&mut self, job: JobId, offering: OfferingId) {
        self.streak_mut(job).taken = Some(offering);
    }

    /// A run is about to end: its places are still in its row.
    pub(crate) fn note_ending(&mut self, id: JobId, how: Ending) {
        let job = &self.jobs[id];
        if job.progress > job.resume_from || how.is_done() {
            return self.end_streak(id);
        }
        let lasted = job.running_since.map_or(Span::ZERO, |since| self.now.since(since));
        let started = lasted >= RECOVERED;
        match how {
            Ending::NodeFault if started && self.apply_version >= 4 => {
                // Which nodes it blames counts on: a fault may follow it from one to the next.
                self.streaks.entry(id).and_modify(|streak| streak.start_failures = 0);
            }
            Ending::Dropped if started && self.apply_version >= 4 => self.note_started(id),
            Ending::NodeFault | Ending::Dropped | Ending::Stopped { cause: StopCause::StartTimeout } => {
                self.streak_mut(id).start_failures += 1;
            }
            Ending::Stopped { cause: StopCause::Reclaimed } => self.note_reclaim(id),
            Ending::Stopped { .. } if started => self.note_started(id),
            Ending::Completed | Ending::Failed { .. } | Ending::Stopped { .. } | Ending::Denied => {}
        }
    }

    /// Its run has lasted: what failed before it counts no more.
    fn note_started(&mut self, id: JobId) {
        if let Some(streak) = self.streaks.get_mut(&id) {
            streak.start_failures = 0;
            streak.blamed.clear();
        }
    }

    fn note_reclaim(&mut self, id: JobId) {
        let announced = |place: &crate::effect::WorkerPlace| {
            let node = self.nodes.get(&place.node)?;
            node.reclaim_at.map(|_| node.offering)
        };
        let announced = self.jobs[id].places.iter().find_map(announced);
        let streak = self.streak_mut(id);
        streak.reclaims += 1;
        let taken = streak.taken.take();
        if let Some(offering) = announced.or(taken) {
            let before = streak.reclaimed_from.filter(|(last, _)| *last == offering).map_or(0, |(_, n)| n);
            streak.reclaimed_from = Some((offering, before + 1));
        }
    }

    /// A run blames a node. Whether the fault is the job's own: it has followed it over several nodes that nobody else blames.
    ///
    /// So many faults quarantine a node. One that has followed the job from elsewhere does not count, and those before it count no more.
    pub(crate) fn note_blame(&mut self, id: JobId, node: NodeId) -> bool {
        // A run cannot know of a node that it is not on.
        if !self.jobs[id].places.iter().any(|place| place.node == node) {
            return false;
        }
        let streak = self.streak_mut(id);
        let known = streak.blamed.iter().position(|(blamed, _)| *blamed == node);
        let times = known.map_or(0, |at| streak.blamed.remove(at).1);
        streak.blamed.push((node, times + 1));
        if streak.blamed.len() > MOST_BLAMED {
            streak.blamed.remove(0);
        }
        let blamed = streak.blamed.clone();
        let row = self.nodes.get(&node);
        let by_others = row.is_some_and(|row| row.faults > times);
        if blamed.len() < 2 || by_others {
            self.fault_of(node);
            return false;
        }
        for (earlier, times) in &blamed {
            self.let_off(*earlier, *times);
        }
        let own = self.works_for_others(id, node) || blamed.len() >= SEVERAL;
        // It ends as a failure of the job's, and the start came to nothing all the same.
        self.streak_mut(id).start_failures += u32::from(own);
        own
    }

    /// A job is given up: what it blamed on nodes where others run well was not their fault.
    pub(crate) fn let_off_where_others_run(&mut self, id: JobId) {
        let Some(streak) = self.streaks.get(&id) else { return };
        for (node, times) in streak.blamed.clone() {
            if self.works_for_others(id, node) {
                self.let_off(node, times);
            }
        }
    }

    fn works_for_others(&self, id: JobId, node: NodeId) -> bool {
        let runs = |other: &JobId| *other != id && self.jobs[*other].phase == Phase::Running;
        row_holds(self, node).iter().any(runs)
    }

    /// A fault of a node. So many quarantine it.
    pub(crate) fn fault_of(&mut self, node: NodeId) {
        let limit = self.lifecycle().quarantine_after;
        self.edit_node(node, |row| {
            row.faults += 1;
            row.condemned |= row.faults >= limit;
        });
    }

    /// What a job blamed on a node is not the node's fault: where only that quarantined it, it takes work again.
    fn let_off(&mut self, node: NodeId, times: u32) {
        let limit = self.lifecycle().quarantine_after;
        let hung = row_holds(self, node).iter().any(|job| self.jobs[*job].hung);
        let Some(row) = self.nodes.get(&node) else { return };
        let left = row.faults.saturating_sub(times);
        if left == row.faults {
            return;
        }
        let quarantined = row.condemned && row.faults >= limit && left < limit && !hung && !row.phase.is_coming();
        self.edit_node(node, |row| {
            row.faults = left;
            row.condemned &= !quarantined;
        });
        self.capacity_epoch += u64::from(quarantined);
    }
}

fn row_holds(state: &State, node: NodeId) -> &[JobId] {
    state.nodes.get(&node).map_or(&[], |row| &row.holds)
}
