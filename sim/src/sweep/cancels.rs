//! Each acknowledged cancel, followed until its job is over.
//!
//! settle.md, "A job's life": a job that is cancelled is "stopped at once, without a checkpoint"; "Hung clean-up": a run that does not end ends with
//! its nodes; API.md, "Order per job": a cancel that comes before its job is kept for 10 min, "the job is then taken and cancelled at once". What is
//! lost on the way is asked again. So some time after a cancel, and after the last fault, its job is over: a cancel without effect would be hidden
//! by the cancel of everything that is still open at the end.
//!
//! ```text
//! cancel of an open job, sent after it                     -> over in time
//! cancel of nobody -> within 10 min: the first submission  -> over in time
//! ```
//!
//! Never: `Job::cancel_asked`.

use std::collections::BTreeMap;

use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::state::pending_cancels::PENDING_CANCEL_HORIZON;
use forebay_kernel::units::{Span, Timestamp};

/// A stop takes two minutes of grace at most, has hung ten and a half after that at most, then others on its nodes get their grace and the nodes
/// are terminated. Each may be asked twice, and a listing finds out within five minutes what was not said.
pub(super) const OVER_WITHIN: Span = Span::mins(45);

/// Whom a cancel or a submission is about: tenant, subject.
type Identity = (String, String);

/// What an event means for cancels, judged before it is applied.
#[derive(Clone, Debug)]
pub(super) enum CancelNote {
    /// It is about this open job.
    Open(JobId),
    /// It came before its job.
    Early { who: Identity, sent: Option<Timestamp> },
    /// The first submission of an identity.
    Submitted { who: Identity, sent: Option<Timestamp> },
}

/// A cancel that came before its job.
#[derive(Clone, Copy, Debug)]
struct Early {
    sent: Option<Timestamp>,
    seen: Timestamp,
}

/// Cancels whose jobs are not over.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    asked: BTreeMap<JobId, Timestamp>,
    early: BTreeMap<Identity, Vec<Early>>,
    pub found: Vec<String>,
}

impl CancelNote {
    /// What an event means, as the state is before it.
    pub fn of(event: &Event, state: &State) -> Option<CancelNote> {
        match event {
            Event::JobCancelled { tenant, subject, by: None, sent } => {
                let Some(id) = state.job_of(tenant, subject) else {
                    return Some(CancelNote::Early { who: (tenant.clone(), subject.clone()), sent: *sent });
                };
                let (job, spec) = state.job(id)?;
                // One that was sent before the job was asked for is about an earlier one.
                let about = sent.zip(spec.sent).is_none_or(|(cancel, asked)| cancel >= asked);
                (about && !job.done()).then_some(CancelNote::Open(id))
            }
            Event::JobSubmitted(spec) if state.job_of(&spec.tenant, &spec.subject).is_none() => {
                Some(CancelNote::Submitted { who: (spec.tenant.clone(), spec.subject.clone()), sent: spec.sent })
            }
            _ => None,
        }
    }
}

impl Cancels {
    /// A batch is durable and applied, and these of its events were about cancels. Nothing goes wrong any more from `calm` on.
    pub fn batch(&mut self, notes: Vec<CancelNote>, calm: Timestamp, state: &State) {
        let now = state.now();
        for note in notes {
            match note {
                CancelNote::Open(job) => _ = self.asked.entry(job).or_insert(now),
                CancelNote::Early { who, sent } => self.early.entry(who).or_default().push(Early { sent, seen: now }),
                CancelNote::Submitted { who, sent } => {
                    let early = self.early.remove(&who).unwrap_or_default();
                    let counts = early.iter().any(|cancel| cancel.counts(sent, now));
                    if let Some(job) = state.job_of(&who.0, &who.1).filter(|_| counts) {
                        self.asked.entry(job).or_insert(now);
                    }
                }
            }
        }
        for (job, asked) in &self.asked {
            let due = calm.max(*asked) + OVER_WITHIN;
            if now > due {
                let phase = state.job(*job).map(|(row, _)| row.phase);
                self.found.push(format!("{job} was cancelled at {} and is {phase:?} at {}", asked.0, now.0));
            }
        }
    }

    /// A job had its last message.
    pub fn over(&mut self, job: JobId) {
        self.asked.remove(&job);
    }
}

impl Early {
    /// Whether it is about a submission that was sent then. Time in which nobody watched does not count, so that it is kept for longer at times.
    fn counts(self, asked: Option<Timestamp>, now: Timestamp) -> bool {
        let in_time = now.since(self.seen) <= PENDING_CANCEL_HORIZON;
        in_time && self.sent.zip(asked).is_none_or(|(cancel, asked)| cancel >= asked)
    }
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;

    #[test]
    fn a_cancel_without_effect_is_found_and_one_that_is_over_is_not() {
        let life = Life::running(policy(), vec![job("a")]);
        let mut state = life.state();
        let asked = Event::JobCancelled { tenant: "t".into(), subject: "a".into(), by: None, sent: None };
        let note = CancelNote::of(&asked, &state).expect("it is about an open job");
        let mut cancels = Cancels::default();
        cancels.batch(vec![note], Timestamp(0), &state);
        let mut over = Cancels { asked: cancels.asked.clone(), ..Cancels::default() };
        over.over(JobId(0));
        state.now = state.now + OVER_WITHIN;
        cancels.batch(Vec::new(), Timestamp(0), &state);
        assert_eq!(cancels.found, [""; 0]);
        state.now = state.now + Span(1);
        cancels.batch(Vec::new(), Timestamp(0), &state);
        over.batch(Vec::new(), Timestamp(0), &state);
        assert!(cancels.found[0].contains("was cancelled at"), "{:?}", cancels.found);
        assert_eq!(over.found, [""; 0]);
    }

    #[test]
    fn a_cancel_that_came_first_is_followed_once_its_job_comes() {
        let life = Life::running(policy(), vec![job("a")]);
        let state = life.state();
        let who = ("t".to_owned(), "a".to_owned());
        for (sent, asked, followed) in [(None, None, true), (Some(5), Some(5), true), (Some(4), Some(5), false)] {
            let (sent, asked) = (sent.map(Timestamp), asked.map(Timestamp));
            let mut cancels = Cancels::default();
            cancels.batch(vec![CancelNote::Early { who: who.clone(), sent }], Timestamp(0), &state);
            cancels.batch(vec![CancelNote::Submitted { who: who.clone(), sent: asked }], Timestamp(0), &state);
            assert_eq!(cancels.asked.contains_key(&JobId(0)), followed, "{sent:?} {asked:?}");
        }
    }
}
