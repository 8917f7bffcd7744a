//! Order per job: what is asked of a job comes shuffled and doubled, and ends as it would have in the order in which it was sent.
//!
//! The oracle knows one flag a job and goes through what was sent in order of time: the first submission and every rerun of a job that
//! is not there make it wanted, a cancel by who may makes it unwanted.
//! Never: words of different content (those are conflicts and are told as such), nor a rerun while the run before it is being stopped.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::event::Event;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;

const SUBJECTS: usize = 3;

/// Between two words: a run is stopped in 10 s, and 25 words come within the horizon of ten minutes.
const PAUSE: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Say {
    Submit,
    Rerun,
    /// By an operator, by two who may and by one who may not.
    Cancel(Option<&'static str>),
}

const SAYS: [Say; 7] = [
    Say::Submit,
    Say::Rerun,
    Say::Rerun,
    Say::Cancel(None),
    Say::Cancel(Some("p")),
    Say::Cancel(Some("friend")),
    Say::Cancel(Some("mallory")),
];

/// One word: about which job, what, sent when.
type Word = (usize, Say, u64);

fn event((subject, say, sent): Word) -> Event {
    let (subject, sent) = (format!("j{subject}"), Some(Timestamp(sent)));
    if let Say::Cancel(by) = say {
        return Event::JobCancelled { tenant: "t".into(), subject, by: by.map(String::from), sent };
    }
    let mut spec = making::job(&subject, workers(1, ask(1)));
    (spec.rerun, spec.sent) = (say == Say::Rerun, sent);
    Event::JobSubmitted(Box::new(spec))
}

/// What becomes of a job by what was said of it in order: `None` where it never was.
fn oracle(words: &[Word], subject: usize) -> Option<bool> {
    let mut wanted = None;
    for (_, say, _) in words.iter().filter(|word| word.0 == subject) {
        wanted = match (say, wanted) {
            (Say::Submit, None) | (Say::Rerun, _) => Some(true),
            (Say::Cancel(by), Some(true)) => Some(*by == Some("mallory")),
            _ => wanted,
        };
    }
    wanted
}

/// What became of it.
fn outcome(world: &Cluster, subject: usize) -> Option<bool> {
    let id = world.state().job_of("t", &format!("j{subject}"))?;
    let (job, _) = world.state().job(id)?;
    match job.phase {
        Phase::Done { outcome: Outcome::Cancelled } => Some(false),
        Phase::Queued | Phase::Booked | Phase::Starting | Phase::Running => Some(true),
        other => panic!("j{subject} is {other:?}"),
    }
}

fn world() -> Cluster {
    let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 4, 1)]);
    policy.queues.get_mut("normal").expect("a queue of making's").submitters = vec!["p".into(), "friend".into()];
    let mut world = Cluster::new(policy);
    world.mode = Mode::Crashes(2);
    world
}

/// `doubled`: which words come twice, and where.
fn ends_as_sent(sent: &[Word], arrives: &[usize], doubled: &[(Index, Index)]) -> TestCaseResult {
    let mut order: Vec<Word> = arrives.iter().map(|at| sent[*at]).collect();
    for (which, at) in doubled {
        order.insert(at.index(order.len() + 1), order[which.index(order.len())]);
    }
    let mut world = world();
    for word in &order {
        world.step(vec![event(*word)], false);
        world.run_until(world.now + PAUSE);
    }
    for subject in 0..SUBJECTS {
        let (got, wanted) = (outcome(&world, subject), oracle(sent, subject));
        prop_assert_eq!(got, wanted, "j{} after {:?}", subject, order);
    }
    let ends = |id| world.log.statuses.iter().filter(|s| s.job == Some(id) && s.kind.terminal()).count();
    for (job, _) in world.state().jobs() {
        prop_assert_eq!(ends(job.id), usize::from(job.done()), "{} ends once", job.id);
    }
    Ok(())
}

#[test]
fn what_is_asked_ends_as_it_was_sent() {
    let word = (0..SUBJECTS, prop::sample::select(&SAYS[..]));
    let said = prop::collection::vec(word, 1..18).prop_flat_map(|said| {
        let sent: Vec<Word> = (1..).zip(said).map(|(at, (subject, say))| (subject, say, at * 1000)).collect();
        let arrives = Just((0..sent.len()).collect::<Vec<_>>()).prop_shuffle();
        (Just(sent), arrives, prop::collection::vec(any::<(Index, Index)>(), 0..9))
    });
    holds("what_is_asked_ends_as_it_was_sent", 500, &said, |(sent, arrives, doubled)| {
        ends_as_sent(&sent, &arrives, &doubled)
    });
}
