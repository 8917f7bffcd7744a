//! A cluster without faults of its own: starts what it is told to, stops it when it is told to, and keeps what a crash of the
//! controller cannot take.

use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Cluster {
    runs: BTreeMap<(JobId, Attempt), Run>,
    said: BTreeMap<(Timestamp, u64), Event>,
    number: u64,
    /// How long every job works. `None`: some minutes, by its number.
    pub works: Option<Span>,
}

struct Run {
    nodes: Vec<NodeId>,
    ended: bool,
}

impl Cluster {
    fn say(&mut self, at: Timestamp, event: Event) {
        self.number += 1;
        self.said.insert((at, self.number), event);
    }

    /// How long a job works: the same after a crash.
    fn works(&self, job: JobId) -> Span {
        self.works.unwrap_or(Span::secs(60 + (job.0 * 7919) % 900))
    }

    pub fn act(&mut self, now: Timestamp, effect: &Effect) {
        match &effect.action {
            Action::Start { job, attempt, workers, resume_from } => {
                let key = (*job, *attempt);
                self.say(now + Span::secs(1), Event::RunStarted { job: *job, attempt: *attempt });
                if self.runs.contains_key(&key) {
                    return;
                }
                let nodes = workers.iter().map(|w| w.node).collect();
                self.runs.insert(key, Run { nodes, ended: false });
                let left = Span(self.works(*job).0.saturating_sub(resume_from.0));
                self.say(
                    now + Span::secs(1) + left,
                    Event::RunCompleted { job: *job, attempt: *attempt, worker: None },
                );
            }
            Action::Stop { job, attempt, .. } => {
                if let Some(run) = self.runs.get_mut(&(*job, *attempt)) {
                    run.ended = true;
                }
                let stopped = Event::RunStopped { job: *job, attempt: *attempt, progress: None };
                self.say(now + Span::secs(3), stopped);
            }
            _ => {}
        }
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.said.first_key_value().map(|((at, _), _)| *at)
    }

    /// What has happened. What a run says that has been stopped, or whose node is gone, is not said.
    pub fn take(&mut self, now: Timestamp, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(entry) = self.said.first_entry().filter(|e| e.key().0 <= now) {
            let event = entry.remove();
            if let Event::RunCompleted { job, attempt, .. } = &event {
                let dead = self
                    .runs
                    .get(&(*job, *attempt))
                    .is_none_or(|run| run.ended || run.nodes.iter().any(|n| state.node(*n).is_none()));
                if dead {
                    continue;
                }
            }
            events.push(event);
        }
        events
    }
}
