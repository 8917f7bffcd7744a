//! How far off estimates of starts were, and the interval that follows for the next one.
//!
//! ```text
//! a start that was estimated and came   (what it waited for, estimated, actual): the latest 1,024 are kept
//! one that is late already              counts as if it came now: else only the lucky would be counted while a backlog grows
//! one whose start will not tell         cancelled, held, asked under another policy: if it was late, it counts as late as it was last seen
//! the next estimate                     those of the same kind of wait whose estimates were nearest to it: (actual + 15 s) / (estimated + 15 s)
//! its interval                          the shortest that holds so many of these ratios, times it: some 92 % at first; after each start that came
//!                                       outside its interval, or is late already, more, after each that came inside fewer, so that eight of ten
//!                                       come inside
//! ```
//!
//! Sources: conformal prediction with nearest neighbours (Papadopoulos, Vovk and Gammerman 2011), its level adapted to what comes (Gibbs and Candes
//! 2021); in integers.
//!
//! Never: an interval from fewer than [`ENOUGH`] starts.

use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Added on both sides of a ratio, so that seconds do not count where little is waited for.
const SECONDS_DO_NOT_COUNT: Span = Span(15_000);

/// So many starts are remembered.
const KEPT: usize = 1_024;

/// So many estimates at most wait for their starts.
const MOST_OPEN: usize = 256;

/// Fewer starts say nothing.
pub const ENOUGH: usize = 20;

/// So many are looked at for one estimate: a quarter of those there are, within these.
const NEAREST: (usize, usize) = (ENOUGH, 64);

/// So many of a thousand of them are inside the interval at first. Of those to come fewer are, for the shortest interval is chosen.
const COVERED: usize = 920;

/// By how much this changes with a start that came inside its interval, and with one that came outside. With these 82 of a hundred come inside in the
/// long run.
const STEPS: (usize, usize) = (4, 19);

/// It stays within these.
const LEVELS: (usize, usize) = (800, 980);

/// Starts that were estimated: those that came, and those that are waited for.
#[derive(Clone, Debug, Default)]
pub struct StartErrors {
    seen: VecDeque<Seen>,
    open: BTreeMap<JobId, Asked>,
    /// How many of a thousand are to be inside the interval, by what is waited for.
    levels: BTreeMap<&'static str, usize>,
    /// As many are open as may be, and none of them is late.
    full: bool,
    /// When it was last looked which of them have started.
    looked: Timestamp,
    /// What estimates were made under then.
    under: EstimateTerms,
}

/// What estimates are made under: with another policy, or where other nodes may be bought, jobs start at other times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct EstimateTerms {
    /// How many policies were put in force.
    policies: u64,
    /// What operators keep from being bought.
    not_bought: Vec<Brake>,
}

/// What became of a job whose start is waited for.
#[derive(Clone, Copy, Debug)]
enum AwaitedStart {
    /// It came.
    Came(Timestamp),
    /// It will not tell how good the estimate was.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Timestamp,
    code: &'static str,
    estimated: Span,
    interval: Option<StartInterval>,
    /// It still waits after its interval, and that is counted.
    late: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    code: &'static str,
    estimated: Span,
    actual: Span,
    /// Whether its start came inside the interval that was stated. `None`: none was.
    inside: Option<bool>,
}

/// What ratios of actual to estimated times were like, in thousandths: 2000 is twice as late as estimated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorSpread {
    /// Starts that it is made of.
    pub starts: usize,
    /// Hardly one was below this.
    pub low: u64,
    /// As many below as above.
    pub median: u64,
    /// Hardly one was above this.
    pub high: u64,
}

/// How far off estimates were on the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorSummary {
    /// Of the ratios as many were below as above, in thousandths.
    pub median: u64,
    /// So many of a thousand came inside the interval that was stated; those that have not come by its end came outside. `None`: none was.
    pub inside: Option<u64>,
}

impl StartErrors {
    /// Whether the start of this job can be waited for as well: at most 256 are, and the oldest that is late makes room for another.
    #[must_use]
    pub fn takes(&self, job: JobId) -> bool {
        !self.full && !self.open.contains_key(&job)
    }

    /// The first start of a job is estimated, which waits for what its reason's `code` says. The state is the one that was last settled.
    pub fn ask(&mut self, job: JobId, code: &'static str, at: Timestamp, estimated: Span) {
        if !self.takes(job) {
            return;
        }
        if self.open.len() >= MOST_OPEN {
            self.give_up_oldest();
        }
        let interval = self.spread(code, estimated, at).map(|spread| spread.interval(estimated));
        self.open.insert(job, Asked { at, code, estimated, interval, late: false });
        self.full = self.is_full();
    }

    /// Looks which of them have started. A job that ended or left without a start, that an operator or the policy holds, or that was asked about
    /// under other terms says nothing, unless it was late when it was last looked at.
    pub fn settle(&mut self, state: &State) {
        let under = EstimateTerms::of(state);
        let same = under == self.under;
        let settled = self.open.keys().filter_map(|id| Some((*id, awaited(state, *id, same)?)));
        let settled: Vec<(JobId, AwaitedStart)> = settled.collect();
        for (id, start) in settled {
            match (self.open.remove(&id), start) {
                (Some(asked), AwaitedStart::Came(at)) => self.came(asked, at),
                (Some(asked), AwaitedStart::Lost) => self.lost(asked),
                (None, _) => {}
            }
        }
        self.under = under;
        self.count_late(state.now());
        self.full = self.is_full();
    }

    /// Those whose interval is over have come outside it, whenever they will start: who waits for that start learns of it too late.
    fn count_late(&mut self, now: Timestamp) {
        self.looked = now;
        for asked in self.open.values_mut() {
            if !asked.late && asked.interval.is_some_and(|interval| asked.at + interval.latest < now) {
                asked.late = true;
                adapt(&mut self.levels, asked.code, false);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.open.len() >= MOST_OPEN && !self.open.values().any(|asked| asked.not_yet(self.looked).is_some())
    }

    /// Of one that is late so much is known already. One that is not would be lost for nothing: starts are waited for long where all wait long.
    fn give_up_oldest(&mut self) {
        let late = self.open.iter().filter(|(_, asked)| asked.not_yet(self.looked).is_some());
        let oldest = late.min_by_key(|(_, asked)| asked.at).map(|(id, _)| *id);
        if let Some(asked) = oldest.and_then(|id| self.open.remove(&id)) {
            self.lost(asked);
        }
    }

    /// No start will tell how late it was. What was seen of it counts: it was at least so late.
    fn lost(&mut self, asked: Asked) {
        if let Some(seen) = asked.not_yet(self.looked) {
            self.keep(seen);
        }
    }

    fn came(&mut self, asked: Asked, started: Timestamp) {
        let seen = asked.seen(started);
        if let Some(inside) = seen.inside.filter(|_| !asked.late) {
            adapt(&mut self.levels, asked.code, inside);
        }
        self.keep(seen);
    }

    fn keep(&mut self, seen: Seen) {
        if self.seen.len() == KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// How far off estimates like this one were: of jobs that waited for the same, or of all where too few of those have started. `None`: too few
    /// have.
    #[must_use]
    pub fn spread(&self, code: &str, estimated: Span, now: Timestamp) -> Option<ErrorSpread> {
        let late = self.open.values().filter(|asked| asked.at + asked.estimated < now).map(|asked| asked.seen(now));
        let all: Vec<Seen> = self.seen.iter().copied().chain(late).collect();
        let same: Vec<Seen> = all.iter().filter(|seen| seen.code == code).copied().collect();
        let mut like = if same.len() >= ENOUGH { same } else { all };
        if like.len() < ENOUGH {
            return None;
        }
        let nearest = (like.len() / 4).clamp(NEAREST.0, NEAREST.1);
        like.sort_by_key(|seen| ratio(seen.estimated.max(estimated), seen.estimated.min(estimated)));
        let mut ratios: Vec<u64> = like.iter().take(nearest).map(|seen| ratio(seen.actual, seen.estimated)).collect();
        ratios.sort_unstable();
        let level = self.levels.get(code).copied().unwrap_or(COVERED);
        let covered = ((ratios.len() + 1) * level).div_ceil(1000).min(ratios.len());
        let intervals = (0..=ratios.len() - covered).map(|from| (ratios[from], ratios[from + covered - 1]));
        let (low, high) = intervals.min_by_key(|(low, high)| high - low)?;
        Some(ErrorSpread { starts: ratios.len(), low, median: ratios[ratios.len() / 2], high })
    }

    /// How far off estimates were on the whole. One that was late when it was last looked at counts as if it had come then. `None`: too few are
    /// known.
    #[must_use]
    pub fn summary(&self) -> Option<ErrorSummary> {
        let late = self.open.values().filter_map(|asked| asked.not_yet(self.looked));
        let all: Vec<Seen> = self.seen.iter().copied().chain(late).collect();
        let mut ratios: Vec<u64> = all.iter().map(|seen| ratio(seen.actual, seen.estimated)).collect();
        ratios.sort_unstable();
        let median = *ratios.get(ratios.len() / 2).filter(|_| ratios.len() >= ENOUGH)?;
        let judged = all.iter().filter_map(|seen| seen.inside);
        let inside = judged.clone().filter(|inside| *inside).count() as u64 * 1000;
        Some(ErrorSummary { median, inside: inside.checked_div(judged.count() as u64) })
    }
}

/// A start came inside its interval, or outside.
fn adapt(levels: &mut BTreeMap<&'static str, usize>, code: &'static str, inside: bool) {
    let level = levels.entry(code).or_insert(COVERED);
    *level = if inside { *level - STEPS.0 } else { *level + STEPS.1 }.clamp(LEVELS.0, LEVELS.1);
}

impl Asked {
    fn seen(self, started: Timestamp) -> Seen {
        let actual = started.since(self.at);
        let inside = self.interval.map(|interval| interval.holds(actual));
        Seen { code: self.code, estimated: self.estimated, actual, inside }
    }

    /// What is known of a start that has not come by then: it is at least so late. `None`: it is not late.
    fn not_yet(self, now: Timestamp) -> Option<Seen> {
        let late = self.late || self.at + self.estimated < now;
        late.then(|| Seen { inside: self.late.then_some(false), ..self.seen(now) })
    }
}

impl EstimateTerms {
    fn of(state: &State) -> EstimateTerms {
        let brakes = state.brakes().map(|(brake, _)| brake);
        let not_bought = brakes.filter(|brake| matches!(brake, Brake::Buying | Brake::Pool(_))).cloned().collect();
        EstimateTerms { policies: state.counters().configured, not_bought }
    }
}

/// What became of a job whose start is waited for. `None`: it waits on. `same`: under the terms that its start was estimated under.
fn awaited(state: &State, id: JobId, same: bool) -> Option<AwaitedStart> {
    let row = state.job(id).map(|(row, _)| row);
    if let Some(at) = row.and_then(|row| row.first_start) {
        return Some(AwaitedStart::Came(at));
    }
    let waits = row.is_some_and(|row| row.ended.is_none() && row.phase != Phase::Held && !state.is_held_back(id));
    (!waits || !same).then_some(AwaitedStart::Lost)
}

/// When a job is expected to start, from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartInterval {
    /// Hardly before.
    pub earliest: Span,
    /// As likely before as after.
    pub expected: Span,
    /// Hardly after.
    pub latest: Span,
}

impl StartInterval {
    /// Whether a start after so long is inside.
    #[must_use]
    pub fn holds(&self, after: Span) -> bool {
        self.earliest <= after && after <= self.latest
    }
}

impl ErrorSpread {
    /// When a job starts of which so long a wait is estimated.
    #[must_use]
    pub fn interval(&self, estimated: Span) -> StartInterval {
        let base = u128::from((estimated + SECONDS_DO_NOT_COUNT).0);
        let of = |ratio: u64| {
            let at = u64::try_from(base * u128::from(ratio) / 1000).unwrap_or(u64::MAX);
            Span(at) - SECONDS_DO_NOT_COUNT
        };
        StartInterval { earliest: of(self.low), expected: of(self.median), latest: of(self.high) }
    }
}

/// In thousandths.
fn ratio(actual: Span, estimated: Span) -> u64 {
    (actual + SECONDS_DO_NOT_COUNT).0.saturating_mul(1000) / (estimated + SECONDS_DO_NOT_COUNT).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_driver::step::{BatchStep, configure};
    use forebay_engine::engine::Engine;
    use forebay_kernel::catalog::{CapacityType, Offering};
    use forebay_kernel::event::{Event, Tick};
    use forebay_kernel::ids::PoolId;
    use forebay_kernel::job::JobSpec;
    use forebay_kernel::policy::{Policy, Pool, QueueRule, QuotaNode, Tier};
    use forebay_kernel::units::{Mib, MilliCpu, Rate};

    /// One queue and one kind of node.
    fn policy(name: &str) -> Policy {
        let offering = Offering {
            instance_type: "g5.xlarge".into(),
            zone: "a".into(),
            capacity: CapacityType::OnDemand,
            gpus: 1,
            gpu_mem: Mib(24_576),
            models: vec!["a10g".into()],
            cpu: MilliCpu(4_000),
            mem: Mib(16_384),
            price: Rate(1_000),
            max_price: Rate(1_000),
            on_demand: Rate(1_000),
            boot: Span::ZERO,
            nvlink: 0,
            numa: 0,
        };
        let rule = QueueRule { pools: vec![PoolId(0)], ..QueueRule::default() };
        Policy {
            name: name.into(),
            tiers: vec![Tier { name: "normal".into(), ..Tier::default() }],
            quotas: vec![QuotaNode { name: "all".into(), ..QuotaNode::default() }],
            queues: BTreeMap::from([("q".to_owned(), rule)]),
            pools: vec![Pool { name: "main".into(), offerings: vec![0], ..Pool::default() }],
            offerings: vec![offering],
            ..Policy::default()
        }
    }

    fn tick(seconds: u64) -> Tick {
        Tick { now: Timestamp(seconds * 1000), resumed: false, delivered: 0 }
    }

    fn pass(engine: &mut Engine, seconds: u64, events: Vec<Event>) {
        let mut step = BatchStep::open(engine, tick(seconds));
        for event in events {
            step.handle_event(event);
        }
        let _ = step.plan();
    }

    fn stop(brake: Brake) -> Event {
        Event::BrakeSet { brake, by: "operator".into(), why: String::new(), until: None }
    }

    fn id(engine: &Engine, nth: u64) -> JobId {
        engine.state().job_of("t", &nth.to_string()).expect("it is there")
    }

    /// So many jobs that wait from second 1 on, for nothing is bought, and estimates of their starts within 100 s.
    fn waiting(jobs: u64) -> (Engine, StartErrors) {
        let mut engine = Engine::new();
        let _ = configure(&mut engine, tick(0), policy("first"));
        let submitted = |nth: u64| {
            let (tenant, subject, queue) = ("t".into(), nth.to_string(), "q".into());
            Event::JobSubmitted(Box::new(JobSpec { tenant, subject, queue, ..JobSpec::default() }))
        };
        let first = std::iter::once(stop(Brake::Buying));
        pass(&mut engine, 1, first.chain((0..jobs).map(submitted)).collect());
        let mut errors = StartErrors::default();
        errors.settle(engine.state());
        for nth in 0..jobs {
            let job = id(&engine, nth);
            assert_eq!(engine.state().job(job).map(|(row, _)| row.phase), Some(Phase::Queued));
            errors.ask(job, "Ceiling", engine.state().now(), Span::secs(100));
        }
        (engine, errors)
    }

    /// The middle of what was seen, as it counts at that second.
    fn median(errors: &StartErrors, seconds: u64) -> Option<u64> {
        errors.spread("Ceiling", Span::secs(100), Timestamp(seconds * 1000)).map(|spread| spread.median)
    }

    #[test]
    fn what_an_operator_holds_is_not_late_and_makes_room_for_others() {
        let (mut engine, mut errors) = waiting(MOST_OPEN as u64);
        assert!(!errors.takes(JobId(u64::MAX)), "as many are waited for as may be");
        pass(&mut engine, 30, vec![stop(Brake::Queue("q".into()))]);
        assert!(engine.state().is_held_back(id(&engine, 0)));
        errors.settle(engine.state());
        pass(&mut engine, 86_400, Vec::new());
        errors.settle(engine.state());
        assert_eq!((median(&errors, 86_400), errors.summary()), (None, None), "nobody was late");
        assert!(errors.takes(JobId(u64::MAX)));
    }

    #[test]
    fn what_was_asked_under_other_terms_says_nothing() {
        let others: [fn(&mut Engine); 2] = [
            |engine| drop(configure(engine, tick(30), policy("second"))),
            |engine| pass(engine, 30, vec![Event::BrakeReleased { brake: Brake::Buying, by: "operator".into() }]),
        ];
        for other in others {
            let (mut engine, mut errors) = waiting(40);
            other(&mut engine);
            errors.settle(engine.state());
            assert!(errors.open.is_empty() && errors.seen.is_empty(), "{errors:?}");
            assert_eq!(median(&errors, 86_400), None);
        }
    }

    #[test]
    fn who_was_late_and_was_cancelled_stays_as_late_as_it_was() {
        let (mut engine, mut errors) = waiting(40);
        pass(&mut engine, 1_001, Vec::new());
        errors.settle(engine.state());
        let cancelled = |nth: u64| {
            let (tenant, subject) = ("t".into(), nth.to_string());
            Event::JobCancelled { tenant, subject, by: None, sent: None }
        };
        pass(&mut engine, 1_002, (0..40).map(cancelled).collect());
        errors.settle(engine.state());
        assert!(errors.open.is_empty());
        assert!(median(&errors, 86_400).is_some_and(|median| (8_000..9_000).contains(&median)), "{errors:?}");
    }

    #[test]
    fn the_oldest_that_is_late_makes_room_and_none_that_is_not() {
        let mut errors = StartErrors::default();
        for nth in 0..MOST_OPEN as u64 {
            errors.ask(JobId(nth), "Ceiling", Timestamp(nth * 1000), Span::secs(1_000));
        }
        let settled = |errors: &mut StartErrors, now: u64| {
            errors.count_late(Timestamp(now));
            errors.full = errors.is_full();
        };
        settled(&mut errors, 1_000_000);
        assert!(!errors.takes(JobId(999)), "none is late");
        settled(&mut errors, 1_001_500);
        assert!(errors.takes(JobId(999)));
        errors.ask(JobId(999), "Ceiling", Timestamp(1_001_500), Span::secs(1_000));
        assert!(!errors.open.contains_key(&JobId(0)) && errors.open.contains_key(&JobId(999)));
        assert_eq!((errors.open.len(), errors.seen.len()), (MOST_OPEN, 1));
    }

    #[test]
    fn those_that_are_late_already_are_outside_their_intervals() {
        let mut errors = StartErrors::default();
        (0..64).for_each(|_| came(&mut errors, 100, 100));
        let inside = |errors: &StartErrors| errors.summary().and_then(|summary| summary.inside);
        assert_eq!(inside(&errors), Some(1_000));
        let stated = errors.seen.iter().filter(|seen| seen.inside.is_some()).count() as u64;
        for nth in 0..stated {
            errors.ask(JobId(100 + nth), "Ceiling", Timestamp(0), Span::secs(100));
        }
        assert_eq!(inside(&errors), Some(1_000), "they may still come inside");
        errors.count_late(Timestamp(500_000));
        assert_eq!(inside(&errors), Some(500));
    }

    fn came(errors: &mut StartErrors, estimated: u64, actual: u64) {
        let (at, job) = (Timestamp(1_000_000), JobId(7));
        errors.ask(job, "Ceiling", at, Span::secs(estimated));
        let asked = errors.open.remove(&job).expect("it takes one");
        errors.came(asked, at + Span::secs(actual));
    }

    #[test]
    fn too_few_starts_say_nothing_and_enough_correct_what_is_estimated() {
        let mut errors = StartErrors::default();
        let spread = |errors: &StartErrors| errors.spread("Ceiling", Span::secs(100), Timestamp(0));
        for nth in 0..ENOUGH as u64 {
            assert_eq!((spread(&errors), errors.summary()), (None, None));
            came(&mut errors, 85, 180 + nth);
        }
        let spread = spread(&errors).expect("enough");
        let interval = spread.interval(Span::secs(100));
        assert!((1_950..2_150).contains(&spread.median), "{spread:?}");
        assert!(interval.earliest < interval.expected && interval.expected < interval.latest, "{interval:?}");
        assert!(interval.holds(Span::secs(220)) && !interval.holds(Span::secs(100)), "{interval:?}");
    }

    #[test]
    fn estimates_like_this_one_count_and_others_do_not() {
        let mut errors = StartErrors::default();
        for _ in 0..100 {
            came(&mut errors, 60, 60);
            came(&mut errors, 6_000, 12_000);
        }
        let median =
            |estimated| errors.spread("Ceiling", Span::secs(estimated), Timestamp(0)).map(|spread| spread.median);
        assert_eq!((median(60), median(6_000)), (Some(1_000), Some(1_997)));
    }

    #[test]
    fn who_is_late_and_has_not_started_counts_as_late() {
        let mut errors = StartErrors::default();
        for nth in 0..40 {
            errors.ask(JobId(nth), "Ceiling", Timestamp(0), Span::secs(100));
        }
        let at = |seconds: u64| errors.spread("Ceiling", Span::secs(100), Timestamp(seconds * 1000));
        assert_eq!(at(50), None);
        assert!(at(1_000).is_some_and(|spread| spread.median > 8_000), "{:?}", at(1_000));
    }

    #[test]
    fn starts_outside_widen_the_interval_and_starts_inside_narrow_it() {
        let mut errors = StartErrors::default();
        (0..64).for_each(|_| came(&mut errors, 100, 100));
        let level = |errors: &StartErrors| errors.levels.get("Ceiling").copied().unwrap_or(COVERED);
        let calm = level(&errors);
        assert!(calm < COVERED, "{calm}");
        came(&mut errors, 100, 1_000);
        assert_eq!(level(&errors), calm + STEPS.1);
    }

    #[test]
    fn who_is_late_widens_the_interval_at_once_and_once() {
        let mut errors = StartErrors::default();
        (0..64).for_each(|_| came(&mut errors, 100, 100));
        let level = |errors: &StartErrors| errors.levels.get("Ceiling").copied();
        let calm = level(&errors);
        errors.ask(JobId(7), "Ceiling", Timestamp(0), Span::secs(100));
        errors.count_late(Timestamp(100_000));
        assert_eq!(level(&errors), calm);
        (0..3).for_each(|_| errors.count_late(Timestamp(500_000)));
        assert_eq!(level(&errors), calm.map(|calm| calm + STEPS.1));
        let asked = errors.open.remove(&JobId(7)).expect("it waits");
        errors.came(asked, Timestamp(900_000));
        assert_eq!(level(&errors), calm.map(|calm| calm + STEPS.1));
    }
}
