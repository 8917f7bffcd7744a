//! What was seen so far, as running statistics: how long work lasts, how long nodes boot, how often they are taken back, how often
//! a node is needed. Counted by `apply` as things happen; read by `demand`.
//!
//! ```text
//! work done    (queue, GPUs) -> histogram of durations, four buckets an octave
//!              (queue, GPUs, family) -> the same, of the families of which work was done last
//! node ready   offering      -> the last 16 boots
//! node gone    offering      -> time on spot, and how often that ended by the cloud's hand
//! node taken   pool          -> the gap to the one taken before it
//! ```
//!
//! Never: grows with the number of jobs. Never keeps what a try counted that was taken back.

use crate::ids::{OfferingId, PoolId, QueueId};
use crate::job::{Gang, JobSpec};
use crate::units::{Span, Timestamp};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Boots that are remembered of an offering.
const BOOTS: usize = 16;
/// Fewer than this, and the catalogue is believed.
const ENOUGH_BOOTS: usize = 4;
/// A histogram with so many in it counts each half from then on, so that what is new weighs more.
const FULL: u32 = 1024;
/// 64-bit milliseconds are fewer than 2^55 seconds: four buckets for each of 55 octaves.
const BUCKETS: u8 = 220;
/// Families of work whose durations are remembered by themselves. Beyond them the one gives way of which no work was done for longest.
const MOST_FAMILIES: usize = 512;
/// A new gap counts one eighth, what was seen before seven: about the last eight matter.
const WEIGHT: u64 = 8;

/// All that was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObservedStats {
    durations: BTreeMap<(QueueId, u8), Durations>,
    boots: BTreeMap<OfferingId, VecDeque<Span>>,
    lives: BTreeMap<OfferingId, Lives>,
    needs: BTreeMap<PoolId, NeedStats>,
    /// A term of the state beside its bytes.
    #[serde(skip)]
    families: Families,
}

/// Work of a queue and size of gang, of one family: see [`crate::job::JobSpec::family`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct FamilyOfWork {
    /// Of which queue.
    pub queue: QueueId,
    /// Of gangs of this size.
    pub size: u8,
    /// Digest of what its work has in common.
    pub family: u64,
}

impl FamilyOfWork {
    /// That of a job's work.
    #[must_use]
    pub fn of(queue: QueueId, spec: &JobSpec) -> FamilyOfWork {
        FamilyOfWork { queue, size: size(&spec.gang), family: spec.family() }
    }
}

/// Durations by family, of the last so many of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Families {
    rows: BTreeMap<FamilyOfWork, Durations>,
    /// Which completion was the last of each: the least gives way first.
    last: BTreeMap<FamilyOfWork, u64>,
    by_last: BTreeMap<u64, FamilyOfWork>,
}

/// Durations of completed work: counts by bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Durations {
    counts: BTreeMap<u8, u32>,
    total: u32,
}

/// Time on spot nodes of an offering that are gone, and how many of them the cloud took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lives {
    /// From the decision to buy until gone, over all of them.
    pub time: Span,
    /// Taken back.
    pub reclaims: u64,
}

/// How often work takes a node with nothing on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NeedStats {
    /// So often so far.
    pub count: u64,
    /// The last time.
    pub last: Timestamp,
    /// The usual gap between two of them.
    pub gap: Span,
}

impl ObservedStats {
    /// Forgets the durations of queues that are gone.
    pub(crate) fn retain_queues(&mut self, keep: impl Fn(QueueId) -> bool) {
        self.durations.retain(|(queue, _), _| keep(*queue));
        self.families.retain(|of| keep(of.queue));
    }

    /// Work was done: it took so long from its beginning, restarts included.
    pub(crate) fn completed(&mut self, queue: QueueId, spec: &JobSpec, lasted: Span) {
        let of = FamilyOfWork::of(queue, spec);
        self.durations.entry((queue, of.size)).or_default().add(lasted);
        self.families.completed(of, lasted);
    }

    /// A node became ready so long after it was decided on.
    pub(crate) fn booted(&mut self, offering: OfferingId, took: Span) {
        let boots = self.boots.entry(offering).or_default();
        boots.push_back(took);
        if boots.len() > BOOTS {
            boots.pop_front();
        }
    }

    /// A spot node is gone.
    pub(crate) fn lived(&mut self, offering: OfferingId, time: Span, reclaimed: bool) {
        let lives = self.lives.entry(offering).or_default();
        lives.time += time;
        lives.reclaims += u64::from(reclaimed);
    }

    /// Work took so many nodes with nothing on them.
    pub(crate) fn needed(&mut self, pool: PoolId, nodes: u32, now: Timestamp) {
        let needs = self.needs.entry(pool).or_default();
        for _ in 0..nodes {
            let gap = now.since(needs.last);
            let both = needs.gap.0.saturating_mul(WEIGHT - 1).saturating_add(gap.0);
            // The first has no gap before it, and the second's is all there is.
            needs.gap = match needs.count {
                0 => Span::ZERO,
                1 => gap,
                _ => Span(both / WEIGHT),
            };
            needs.count += 1;
            needs.last = now;
        }
    }

    /// What is counted of a pool's needs. `None`: nothing yet.
    pub(crate) fn needs_row(&self, pool: PoolId) -> Option<NeedStats> {
        self.needs.get(&pool).copied()
    }

    /// What was counted of a pool's needs before a try.
    pub(crate) fn put_needs_back(&mut self, pool: PoolId, was: Option<NeedStats>) {
        self.needs.remove(&pool);
        self.needs.extend(was.map(|was| (pool, was)));
    }

    /// Nobody watched: a gap that was not seen is not counted.
    pub(crate) fn resumed(&mut self, now: Timestamp) {
        self.needs.values_mut().for_each(|needs| needs.last = now);
    }

    /// Pools follow their names through a change of policy.
    pub(crate) fn carry_pools(&mut self, map: impl Fn(PoolId) -> Option<PoolId>) {
        let old = core::mem::take(&mut self.needs);
        self.needs = old.into_iter().filter_map(|(pool, needs)| Some((map(pool)?, needs))).collect();
    }

    /// Durations by queue and size of gang, with how many there were by bucket.
    pub fn all_durations(&self) -> impl Iterator<Item = (QueueId, u8, impl Iterator<Item = (u8, u32)> + '_)> + '_ {
        self.durations.iter().map(|((queue, size), row)| (*queue, *size, row.counts.iter().map(|(at, n)| (*at, *n))))
    }

    /// The same by family, with the number of the completion that was the last of each.
    pub fn all_families(&self) -> impl Iterator<Item = (FamilyOfWork, u64, impl Iterator<Item = (u8, u32)> + '_)> + '_ {
        let rows =
            self.families.by_last.iter().filter_map(|(last, of)| Some((*of, *last, self.families.rows.get(of)?)));
        rows.map(|(of, last, row)| (of, last, row.counts.iter().map(|(at, n)| (*at, *n))))
    }

    /// The last boots of each offering, oldest first.
    pub fn all_boots(&self) -> impl Iterator<Item = (OfferingId, impl Iterator<Item = Span> + '_)> + '_ {
        self.boots.iter().map(|(offering, boots)| (*offering, boots.iter().copied()))
    }

    /// What became of the spot nodes of each offering.
    pub fn all_lives(&self) -> impl Iterator<Item = (OfferingId, Lives)> + '_ {
        self.lives.iter().map(|(offering, lives)| (*offering, *lives))
    }

    /// How often nodes of each pool are needed.
    pub fn all_needs(&self) -> impl Iterator<Item = (PoolId, NeedStats)> + '_ {
        self.needs.iter().map(|(pool, needs)| (*pool, *needs))
    }

    /// Sets the durations of work of a queue and size, by bucket.
    pub fn recall_durations(&mut self, queue: QueueId, size: u8, counts: impl IntoIterator<Item = (u8, u32)>) {
        self.durations.insert((queue, size), Durations::of(counts));
    }

    /// Sets the durations of a family, and which completion was the last of it. Of two that name the same one the later is right.
    pub fn recall_family(&mut self, of: FamilyOfWork, last: u64, counts: impl IntoIterator<Item = (u8, u32)>) {
        self.families.rows.insert(of, Durations::of(counts));
        self.families.note(of, last);
    }

    /// Sets the last boots of an offering, oldest first.
    pub fn recall_boots(&mut self, offering: OfferingId, boots: impl IntoIterator<Item = Span>) {
        boots.into_iter().for_each(|took| self.booted(offering, took));
    }

    /// Sets what became of an offering's spot nodes.
    pub fn recall_lives(&mut self, offering: OfferingId, lives: Lives) {
        self.lives.insert(offering, lives);
    }

    /// Sets how often nodes of a pool are needed.
    pub fn recall_needs(&mut self, pool: PoolId, needs: NeedStats) {
        self.needs.insert(pool, needs);
    }

    /// How much longer work like a job's goes on that has lasted `age`, in so many cases of a thousand: by what was seen of its family, or where that is
    /// fewer than `enough` or nothing that lasted so long, of gangs of its queue about as large. `None`: too little was seen, or nothing that lasted so long.
    pub fn residual(&self, of: FamilyOfWork, age: Span, enough: u32, permille: u64) -> Option<Span> {
        let of = self.families.rows.get(&of).into_iter().chain(self.durations.get(&(of.queue, of.size)));
        of.filter(|seen| seen.total >= enough).find_map(|seen| seen.residual(age, permille))
    }

    /// The same on average. Where of its size too little was seen as well it goes by all gangs of the queue.
    pub fn mean_residual(&self, queue: QueueId, spec: &JobSpec, age: Span, enough: u32) -> Option<Span> {
        let family = self.family(queue, spec).filter(|seen| seen.total >= enough);
        if let Some(left) = family.and_then(|seen| mean(core::iter::once(seen), age)) {
            return Some(left);
        }
        if let Some(seen) = self.durations.get(&(queue, size(&spec.gang))).filter(|seen| seen.total >= enough) {
            return mean(core::iter::once(seen), age);
        }
        let of_queue = || self.durations.range((queue, 0)..=(queue, u8::MAX)).map(|(_, seen)| seen);
        (of_queue().map(|seen| u64::from(seen.total)).sum::<u64>() >= u64::from(enough))
            .then(|| mean(of_queue(), age))
            .flatten()
    }

    fn family(&self, queue: QueueId, spec: &JobSpec) -> Option<&Durations> {
        self.families.rows.get(&FamilyOfWork::of(queue, spec))
    }

    /// How long an offering was seen to boot, in so many cases of a thousand. `None`: too seldom so far to say.
    pub fn boot(&self, offering: OfferingId, permille: usize) -> Option<Span> {
        let boots = self.boots.get(&offering).filter(|boots| boots.len() >= ENOUGH_BOOTS)?;
        let mut boots: Vec<Span> = boots.iter().copied().collect();
        boots.sort_unstable();
        boots.get((boots.len() * permille).div_ceil(1000).saturating_sub(1)).copied()
    }

    /// What became of an offering's spot nodes.
    pub fn lives(&self, offering: OfferingId) -> Lives {
        self.lives.get(&offering).copied().unwrap_or_default()
    }

    /// How often nodes of a pool are needed.
    pub fn needs(&self, pool: PoolId) -> NeedStats {
        self.needs.get(&pool).copied().unwrap_or_default()
    }
}

impl Families {
    fn completed(&mut self, of: FamilyOfWork, lasted: Span) {
        self.rows.entry(of).or_default().add(lasted);
        let last = self.by_last.last_key_value().map_or(0, |(last, _)| last + 1);
        self.note(of, last);
    }

    fn note(&mut self, of: FamilyOfWork, last: u64) {
        if let Some(before) = self.last.insert(of, last) {
            self.by_last.remove(&before);
        }
        if let Some(other) = self.by_last.insert(last, of).filter(|other| *other != of) {
            self.last.remove(&other);
            self.rows.remove(&other);
        }
        while self.rows.len() > MOST_FAMILIES
            && let Some((_, oldest)) = self.by_last.pop_first()
        {
            self.last.remove(&oldest);
            self.rows.remove(&oldest);
        }
    }

    fn retain(&mut self, keep: impl Fn(&FamilyOfWork) -> bool) {
        self.rows.retain(|of, _| keep(of));
        self.last.retain(|of, _| keep(of));
        self.by_last.retain(|_, of| keep(of));
    }
}

impl Durations {
    fn of(counts: impl IntoIterator<Item = (u8, u32)>) -> Durations {
        let counts: BTreeMap<u8, u32> = counts.into_iter().filter(|(at, n)| *at < BUCKETS && *n > 0).collect();
        let total = counts.values().fold(0u32, |sum, n| sum.saturating_add(*n));
        Durations { counts, total }
    }

    fn add(&mut self, lasted: Span) {
        *self.counts.entry(bucket(lasted)).or_default() += 1;
        self.total += 1;
        if self.total >= FULL {
            self.counts.values_mut().for_each(|n| *n /= 2);
            self.counts.retain(|_, n| *n > 0);
            self.total = self.counts.values().sum();
        }
    }

    /// How much longer work goes on that has lasted `age`, in so many cases of a thousand: the upper end of a bucket. `None`: nothing
    /// that was seen lasted so long.
    pub fn residual(&self, age: Span, permille: u64) -> Option<Span> {
        let left = || self.counts.range(bucket(age)..);
        let survivors: u64 = left().map(|(_, n)| u64::from(*n)).sum();
        let wanted = (survivors * permille).div_ceil(1000);
        let mut so_far = 0;
        left().find_map(|(at, n)| {
            so_far += u64::from(*n);
            (so_far >= wanted).then(|| upper(*at) - age)
        })
    }
}

/// How much longer work goes on on average that has lasted `age`: each counts as the upper end of its bucket.
fn mean<'a>(seen: impl Iterator<Item = &'a Durations>, age: Span) -> Option<Span> {
    let (mut count, mut sum) = (0u128, 0u128);
    for (at, n) in seen.flat_map(|seen| seen.counts.range(bucket(age)..)) {
        count += u128::from(*n);
        sum += u128::from((upper(*at) - age).0) * u128::from(*n);
    }
    (count > 0).then(|| Span(u64::try_from(sum / count).unwrap_or(u64::MAX)))
}

/// How large a gang is, coarsely: 0 without GPUs, then a step for each doubling.
fn size(gang: &Gang) -> u8 {
    let gpus = gang.gpu_share().0.div_ceil(1000);
    gpus.checked_ilog2().map_or(0, |n| n as u8 + 1)
}

/// Four buckets for each doubling of the seconds, so that a bucket's ends are within a quarter of each other.
fn bucket(span: Span) -> u8 {
    let secs = (span.0 / 1000).max(1);
    let octave = secs.ilog2();
    // 64-bit milliseconds are fewer than 2^55 seconds: 4 x 55 fits.
    let quarter = (u128::from(secs) * 4) >> octave;
    (octave * 4) as u8 + (quarter & 3) as u8
}

/// The least age of which the same is said as of this one, but for what has passed since: work of both is expected to end at the same age.
#[must_use]
pub fn same_bucket_from(age: Span) -> Span {
    // The first second counts with nothing.
    let bucket = bucket(age);
    if bucket == 0 { Span::ZERO } else { lower(bucket) }
}

/// The first moment of a bucket, which is the first past the one before.
fn lower(bucket: u8) -> Span {
    let (octave, quarter) = (bucket / 4, u128::from(bucket % 4));
    let secs = ((4 + quarter) << octave).div_ceil(4);
    Span::secs(u64::try_from(secs).unwrap_or(u64::MAX))
}

/// The first moment past a bucket.
fn upper(bucket: u8) -> Span {
    lower(bucket + 1)
}

#[cfg(test)]
mod tests {
    use super::{
        Durations, FamilyOfWork, Gang, JobSpec, MOST_FAMILIES, ObservedStats, PoolId, QueueId, Span, Timestamp, bucket,
        same_bucket_from, upper,
    };
    use crate::job::WorkerAsk;

    #[test]
    fn a_duration_lies_in_its_bucket() {
        for ms in (0..400_000).step_by(250).chain([86_400_000, 31_536_000_000, u64::MAX]) {
            let at = bucket(Span(ms));
            assert!(upper(at) > Span(ms) || ms == u64::MAX, "{ms}");
            assert!(ms < 4000 || upper(at).0 - ms <= ms / 4 + 1000 || ms == u64::MAX, "{ms}");
            let least = same_bucket_from(Span(ms));
            assert!(least.0 <= ms && bucket(least) == at, "{ms}");
            assert!(least.0 == 0 || bucket(Span(least.0 - 1)) < at, "{ms}");
        }
    }

    /// Against the definition, by counting.
    #[test]
    fn what_is_left_shrinks_and_grows_as_it_should() {
        let mut seen = Durations::default();
        for n in 1..=100u64 {
            seen.add(Span::secs(n * 60));
        }
        let p90 = seen.residual(Span::ZERO, 900).map_or(0, |s| s.0 / 60_000);
        assert!((90..=113).contains(&p90), "{p90}");
        let p90 = seen.residual(Span::mins(50), 900).map_or(0, |s| s.0 / 60_000);
        assert!((45..=63).contains(&p90), "{p90}");
        assert_eq!(seen.residual(Span::mins(200), 900), None);
    }

    /// Against the definition, by counting. Gangs of a size of which little was seen are taken for the usual ones of their queue.
    #[test]
    fn what_is_left_on_average_is_the_mean_of_those_that_last_so_long() {
        let mut seen = ObservedStats::default();
        let gang =
            |gpus| JobSpec { gang: Gang::Spanning { gpus, per_gpu: WorkerAsk::default() }, ..JobSpec::default() };
        let mean = |seen: &ObservedStats, gpus, mins| {
            seen.mean_residual(QueueId(1), &gang(gpus), Span::mins(mins), 8).map(|left| left.0 / 60_000)
        };
        (0..7).for_each(|_| seen.completed(QueueId(1), &gang(1), Span::mins(10)));
        assert_eq!(mean(&seen, 1, 0), None, "seven are too few");
        seen.completed(QueueId(1), &gang(1), Span::mins(90));
        let of_all = mean(&seen, 1, 0).unwrap_or(0);
        assert!((20..=25).contains(&of_all), "7 x 10 and 90 minutes are 20 on average: {of_all}");
        let of_long = mean(&seen, 1, 60).unwrap_or(0);
        assert!((30..=53).contains(&of_long), "one is left, and has 30 minutes to go: {of_long}");
        assert_eq!(mean(&seen, 1, 200), None, "nothing lasted so long");
        assert_eq!(mean(&seen, 8, 0), mean(&seen, 1, 0), "nothing is known of gangs of eight");
        (0..8).for_each(|_| seen.completed(QueueId(1), &gang(8), Span::mins(600)));
        assert!(mean(&seen, 8, 0) > Some(599) && mean(&seen, 1, 0) == Some(of_all), "they are counted by themselves");
        assert_eq!(seen.mean_residual(QueueId(2), &gang(1), Span::ZERO, 8), None, "another queue");
    }

    #[test]
    fn work_of_a_family_is_taken_for_what_that_lasted() {
        let by = |who: &str, models: &[&str]| JobSpec {
            principal: who.into(),
            models: models.iter().map(|model| (*model).into()).collect(),
            ..JobSpec::default()
        };
        let (quick, slow, other) = (by("ci", &[]), by("ci", &["h100"]), by("ada", &[]));
        let mut seen = ObservedStats::default();
        for _ in 0..8 {
            seen.completed(QueueId(1), &quick, Span::mins(10));
            seen.completed(QueueId(1), &slow, Span::mins(600));
        }
        let mean =
            |spec, age| seen.mean_residual(QueueId(1), spec, Span::mins(age), 8).map_or(0, |left| left.0 / 60_000);
        let p90 = |spec, age| {
            seen.residual(FamilyOfWork::of(QueueId(1), spec), Span::mins(age), 8, 900).map_or(0, |left| left.0 / 60_000)
        };
        assert!((10..=13).contains(&mean(&quick, 0)) && (10..=13).contains(&p90(&quick, 0)));
        assert!((600..=750).contains(&mean(&slow, 0)));
        assert!((305..=381).contains(&mean(&other, 0)), "nothing is known of it: both together");
        assert!((500..=650).contains(&mean(&quick, 100)), "none of its family lasted so long: others did");
        assert!((500..=650).contains(&p90(&quick, 100)));
    }

    #[test]
    fn the_family_gives_way_of_which_nothing_was_done_for_longest() {
        let by = |who: usize| JobSpec { principal: alloc::format!("p{who}"), ..JobSpec::default() };
        let mut seen = ObservedStats::default();
        for who in (0..MOST_FAMILIES).chain([0]).chain([MOST_FAMILIES]) {
            seen.completed(QueueId(1), &by(who), Span::mins(1));
        }
        let has = |who| seen.family(QueueId(1), &by(who)).is_some();
        assert!(has(0) && !has(1) && has(2) && has(MOST_FAMILIES));
        assert_eq!(seen.all_families().count(), MOST_FAMILIES);
        let mut again = ObservedStats::default();
        let rows: alloc::vec::Vec<_> =
            seen.all_families().map(|(of, last, counts)| (of, last, counts.collect::<alloc::vec::Vec<_>>())).collect();
        rows.into_iter().rev().for_each(|(of, last, counts)| again.recall_family(of, last, counts));
        assert_eq!(again.families, seen.families);
        seen.retain_queues(|queue| queue != QueueId(1));
        assert_eq!(seen.families, ObservedStats::default().families);
        let of = |family| FamilyOfWork { queue: QueueId(1), size: 1, family };
        again.recall_family(of(7), 3, [(9, 1)]);
        again.recall_family(of(8), 3, [(9, 1)]);
        assert!(again.all_families().all(|(row, ..)| row != of(7)), "one completion is of one family");
    }

    #[test]
    fn a_full_histogram_counts_each_half() {
        let mut seen = Durations::default();
        (0..5000).for_each(|_| seen.add(Span::mins(60)));
        assert!(seen.total < 1024);
        (0..1024).for_each(|_| seen.add(Span::mins(1)));
        let p50 = seen.residual(Span::ZERO, 500).map_or(0, |s| s.0);
        assert!(p50 < 120_000, "what is new weighs more: {p50}");
    }

    #[test]
    fn gaps_are_averaged() {
        let mut seen = ObservedStats::default();
        (0..20).for_each(|n| seen.needed(PoolId(0), 1, Timestamp(n * 1000)));
        assert_eq!(seen.needs(PoolId(0)).gap, Span(1000));
        seen.needed(PoolId(0), 1, Timestamp(19_000 + 9000));
        assert_eq!(seen.needs(PoolId(0)).gap, Span(2000));
    }
}
