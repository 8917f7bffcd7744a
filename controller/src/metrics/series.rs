//! The bound on the series of one answer: beyond it the largest families share [`OTHER`], each down to the same size, so that all fit.
//!
//! ```text
//! families -> values that were folded before share `other` -> how many series each has -> the most that each may have
//!          -> widest labels folded into `other`: first values that the last answer did not show -> families, and how many series
//! ```
//!
//! What was folded is remembered for each audience, so that its answers fit together. Within one process
//!
//! - a value that shares `other` shares it until the end;
//! - a label of which a value was folded has no series for values that come later;
//! - a value that has series of its own keeps them while they fit.
//!
//! So a series of a counter, `other` too, adds up the same points in the next answer, and maybe more, in the same order: neither folding nor its
//! rounding lowers it, and a series that ended because it was folded never comes back. Points that end, as those of a queue that a reader may no
//! longer see, leave `other` too. The next process chooses anew.
//!
//! Never: loses a count: what is folded is added up, or the worst of it is kept. Never another choice for the same answers in the same order.
//! Never remembers more values of a label than two answers have series.

use super::catalogue;
use super::family::{Family, Labels, Number, OTHER};
use super::metric::Folding;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Series of one answer at most: one controller stays an ordinary target, however many queues, labels and pools there are. Each of some 70
/// metrics may have 70 at the least.
const MOST_SERIES: usize = 5_000;

/// Those that say how many there are.
const OWN_SERIES: usize = 2;

/// Whose answers are to fit together: what one of them is shown is no reason to fold what another is shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Audience {
    /// The roles that see all.
    All,
    /// A reader, under the name by which it takes its turns.
    Reader(Arc<str>),
}

/// What answers have shown since this process started. There are at most as many audiences as tokens in the configuration, and one more.
#[derive(Debug, Default)]
pub struct ShownSeries {
    audiences: Mutex<BTreeMap<Audience, ShownMetrics>>,
}

/// The metrics that one audience was shown, by name.
#[derive(Debug, Default)]
struct ShownMetrics {
    metrics: BTreeMap<&'static str, ShownLabels>,
}

/// The labels of a metric, in their order.
#[derive(Debug)]
struct ShownLabels(Vec<LabelValues>);

/// The values of a label that have series of their own.
#[derive(Clone, Debug, Default)]
struct LabelValues {
    /// While the label is open, those of the last answer. Of a closed one those that may have series; they only become fewer.
    own: BTreeSet<String>,
    /// A value was folded: all that are not in `own` share [`OTHER`].
    closed: bool,
}

/// The values of a point's labels, in their order.
type Row<'f> = Vec<&'f str>;

impl ShownSeries {
    /// The same families with no more series than one answer may have, and how many these are.
    pub(super) fn bounded(&self, audience: &Audience, families: Vec<Family>) -> Vec<Family> {
        let mut audiences = self.audiences.lock().unwrap_or_else(PoisonError::into_inner);
        audiences.entry(audience.clone()).or_default().bounded_to(MOST_SERIES, families)
    }
}

impl ShownMetrics {
    /// The same families with no more than `most` series in all, and how many these are. `most`: enough for one of each family, at least.
    fn bounded_to(&mut self, most: usize, mut families: Vec<Family>) -> Vec<Family> {
        let before = families.iter().map(Family::series).sum::<usize>();
        let sizes: Vec<usize> = families.iter().map(|family| self.of(family).series(family)).collect();
        let each = most_of_each(sizes, most.saturating_sub(OWN_SERIES));
        for family in &mut families {
            let shown = self.of(family);
            shown.narrow(family, each);
            shown.remember(family);
            shown.fold(family);
        }
        let after = families.iter().map(Family::series).sum::<usize>();
        families.push(Family::of(&catalogue::METRICS_SERIES).with(&[], (after + OWN_SERIES) as u64));
        families.push(Family::of(&catalogue::METRICS_SERIES_FOLDED).with(&[], before.saturating_sub(after) as u64));
        families
    }

    fn of(&mut self, family: &Family) -> &mut ShownLabels {
        let labels = || ShownLabels(vec![LabelValues::default(); family.metric.labels.len()]);
        self.metrics.entry(family.metric.name).or_insert_with(labels)
    }
}

/// How many series each family may have, so that families of these sizes have `most` in all: the small ones keep theirs, the large ones
/// get the same.
fn most_of_each(mut sizes: Vec<usize>, most: usize) -> usize {
    sizes.sort_unstable();
    let (mut room, mut families) = (most, sizes.len());
    for size in sizes {
        if size.saturating_mul(families) > room {
            return room / families;
        }
        room -= size;
        families -= 1;
    }
    usize::MAX
}

impl Family {
    /// How many series it has: a histogram has one for each bucket, its sum and its count.
    fn series(&self) -> usize {
        self.points.len() * self.series_of_a_point()
    }

    fn series_of_a_point(&self) -> usize {
        match self.points.values().next() {
            Some(Number::Spread(times)) => times.series(),
            _ => 1,
        }
    }
}

impl ShownLabels {
    /// How many series a family has with what is folded so far.
    fn series(&self, family: &Family) -> usize {
        self.rows(family).len() * family.series_of_a_point()
    }

    /// The points of a family with what is folded so far.
    fn rows<'f>(&self, family: &'f Family) -> BTreeSet<Row<'f>> {
        let row = |labels: &'f Labels| {
            labels.iter().zip(&self.0).map(|((_, value), values)| values.label(value)).collect::<Row<'f>>()
        };
        family.points.keys().map(row).collect()
    }

    /// Folds the widest label, and the next one where that is not enough, until the family has `most` series at most or nothing is left to
    /// fold.
    fn narrow(&mut self, family: &Family, most: usize) {
        let room = most / family.series_of_a_point();
        let mut rows = self.rows(family);
        while rows.len() > room
            && let Some(at) = widest_label(&rows, self.0.len())
            && let Some(values) = self.0.get_mut(at)
        {
            values.narrow(at, &rows, room);
            rows = self.rows(family);
        }
    }

    /// What this answer shows of open labels, for the next one. A family without points changes nothing: it may have been left out.
    fn remember(&mut self, family: &Family) {
        if family.points.is_empty() {
            return;
        }
        for (at, values) in self.0.iter_mut().enumerate().filter(|(_, values)| !values.closed) {
            let of_points = family.points.keys().filter_map(|labels| labels.get(at));
            let shown: BTreeSet<&str> = of_points.map(|(_, value)| value.as_str()).collect();
            values.own = shown.into_iter().map(str::to_owned).collect();
        }
    }

    /// Makes one point of those that share their labels. They come in the order of their own labels, which is the same in each answer.
    fn fold(&self, family: &mut Family) {
        if self.0.iter().all(|values| !values.closed) {
            return;
        }
        let folding = family.metric.folding;
        for (mut labels, number) in std::mem::take(&mut family.points) {
            for ((_, value), values) in labels.iter_mut().zip(&self.0) {
                if !values.shows(value) {
                    OTHER.clone_into(value);
                }
            }
            match family.points.entry(labels) {
                Entry::Vacant(free) => {
                    free.insert(number);
                }
                Entry::Occupied(mut there) => there.get_mut().fold(number, folding),
            }
        }
    }
}

impl LabelValues {
    fn shows(&self, value: &str) -> bool {
        !self.closed || self.own.contains(value)
    }

    /// The value under which the points of this one are shown.
    fn label<'v>(&self, value: &'v str) -> &'v str {
        if self.shows(value) { value } else { OTHER }
    }

    /// Values share [`OTHER`] from now on: as many as it takes until there are `room` points, first those that the last answer did not show, each
    /// time the last ones in their order. `at`: the position of this label in `rows`, which are the points so far.
    fn narrow(&mut self, at: usize, rows: &BTreeSet<Row<'_>>, room: usize) {
        let mut own: BTreeMap<(bool, &str), Vec<Row<'_>>> = BTreeMap::new();
        let mut folded: BTreeSet<Row<'_>> = BTreeSet::new();
        for row in rows {
            let (mut shared, mut value) = (row.clone(), OTHER);
            if let Some(own) = shared.get_mut(at) {
                value = std::mem::replace(own, OTHER);
            }
            if value == OTHER {
                folded.insert(shared);
            } else {
                own.entry((!self.own.contains(value), value)).or_default().push(shared);
            }
        }
        let mut kept = own.values().map(Vec::len).sum::<usize>();
        while kept + folded.len() > room
            && let Some(((_, value), points)) = own.pop_last()
        {
            kept -= points.len();
            folded.extend(points);
            self.own.remove(value);
        }
        self.own.extend(own.into_keys().map(|(_, value)| value.to_owned()));
        self.closed = true;
    }
}

/// The position of the label with the most values, the first of these. `None`: each of so many labels has one value.
fn widest_label(rows: &BTreeSet<Row<'_>>, labels: usize) -> Option<usize> {
    let values = |at: usize| rows.iter().map(|row| row.get(at)).collect::<BTreeSet<_>>().len();
    let wide = (0..labels).map(|at| (at, values(at))).filter(|(_, values)| *values > 1);
    wide.rev().max_by_key(|(_, values)| *values).map(|(at, _)| at)
}

impl Number {
    /// One number for two points.
    fn fold(&mut self, other: Number, folding: Folding) {
        *self = match (std::mem::replace(self, Number::Whole(0)), other, folding) {
            (Number::Spread(mut times), Number::Spread(more), _) => {
                times.merge(&more);
                Number::Spread(times)
            }
            (one, other, Folding::Most) => {
                if other.value() > one.value() {
                    other
                } else {
                    one
                }
            }
            (one, other, Folding::Least) => {
                if other.value() < one.value() {
                    other
                } else {
                    one
                }
            }
            (Number::Whole(n), Number::Whole(more), Folding::Sum) => Number::Whole(n.saturating_add(more)),
            (Number::Shown(n, _), Number::Shown(more, last), Folding::Sum)
            | (Number::Shown(n, last), Number::Whole(more), Folding::Sum)
            | (Number::Whole(n), Number::Shown(more, last), Folding::Sum) => {
                Number::Shown(n.saturating_add(more), last)
            }
            (one, other, Folding::Sum) => Number::Part(one.value() + other.value()),
        };
    }

    fn value(&self) -> f64 {
        match self {
            Number::Whole(n) | Number::Shown(n, _) => *n as f64,
            Number::Part(n) => *n,
            // It is folded as a whole.
            Number::Spread(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Exemplar;
    use super::super::histogram::Histogram;
    use super::super::text::MetricsText;
    use super::*;
    use std::time::Duration;

    const QUEUES: u64 = 1_000;

    fn numbered(kind: &str, n: u64) -> String {
        format!("{kind}-{n:04}")
    }

    /// What a thousand queues, tiers and values of a label may bring, and a few small families.
    fn thousands() -> Vec<Family> {
        let mut spend = Family::of(&catalogue::QUEUE_SPEND);
        let mut labels = Family::of(&catalogue::LABEL_SPEND);
        let mut jobs = Family::of(&catalogue::QUEUE_JOBS);
        let mut preemptions = Family::of(&catalogue::PREEMPTIONS);
        let mut first = Family::of(&catalogue::QUEUE_HEAD_WAIT);
        let mut targets = Family::of(&catalogue::QUEUE_START_TARGET);
        let mut waits = Family::of(&catalogue::START_WAIT);
        for n in 0..QUEUES {
            let (queue, tier) = (numbered("queue", n), numbered("tier", n));
            for capacity in ["spot", "on-demand"] {
                spend.set(&[("queue", &queue), ("capacity_type", capacity)], n as f64 / 4.0);
                for label in ["team", "project"] {
                    let value = numbered(label, n);
                    labels.set(&[("label", label), ("value", &value), ("capacity_type", capacity)], 0.25);
                }
            }
            for state in ["waiting", "running"] {
                jobs.set(&[("queue", &queue), ("state", state)], n);
            }
            let exemplar = Exemplar { labels: vec![("job", format!("job-{n}"))], at: None };
            for cause in ["preempted", "moved", "reclaimed"] {
                let counted = Number::Shown(2, exemplar.clone());
                preemptions.set(&[("queue", &queue), ("cause", cause)], counted);
            }
            first.set(&[("queue", &queue)], n as f64);
            targets.set(&[("queue", &queue)], (QUEUES - n) as f64);
            let mut histogram = Histogram::new(&[100, 1_000]);
            histogram.observe(Duration::from_millis(n));
            waits.set(&[("tier", &tier)], Number::Spread(histogram));
        }
        let reclaims = Family::of(&catalogue::NODE_RECLAIMS).with(&[], 3u64);
        vec![reclaims, spend, labels, jobs, preemptions, first, targets, waits]
    }

    /// The values of a family's points, by what its lines begin with.
    fn values(text: &str, begin: &str) -> Vec<f64> {
        let points = text.lines().filter(|line| line.starts_with(begin));
        points.filter_map(|line| line.split(" # ").next()?.rsplit(' ').next()?.parse().ok()).collect()
    }

    fn sum(text: &str, begin: &str) -> f64 {
        values(text, begin).iter().sum()
    }

    fn series(text: &str) -> usize {
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    /// What a process that has answered nothing yet answers to who sees all.
    fn first_answer(exposition: MetricsText, families: Vec<Family>) -> String {
        exposition.text(families, &ShownSeries::default(), &Audience::All).unwrap()
    }

    /// The next answer of at most so many series, and the value of each.
    fn answer(shown: &mut ShownMetrics, most: usize, families: Vec<Family>) -> BTreeMap<String, f64> {
        let text = MetricsText::Prometheus.unbounded(shown.bounded_to(most, families)).unwrap();
        let points = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        points.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
    }

    /// Queues with as many preempted runs.
    fn preemptions(counts: &[(&str, u64)]) -> Vec<Family> {
        let family = Family::of(&catalogue::PREEMPTIONS);
        let with =
            |family: Family, (queue, count): &(&str, u64)| family.with(&[("queue", queue), ("cause", "moved")], *count);
        vec![counts.iter().fold(family, with)]
    }

    #[test]
    fn a_thousand_queues_and_their_labels_never_give_more_than_5000_series_and_sums_are_kept() {
        let all = MetricsText::OpenMetrics.unbounded(thousands()).unwrap();
        assert!(series(&all) > 2 * MOST_SERIES, "{}", series(&all));
        for exposition in [MetricsText::OpenMetrics, MetricsText::Prometheus] {
            let text = first_answer(exposition, thousands());
            assert!((MOST_SERIES / 2..=MOST_SERIES).contains(&series(&text)), "{}", series(&text));
            assert_eq!(values(&text, "forebay_metrics_series "), [series(&text) as f64]);
            let fewer = (series(&all) + OWN_SERIES - series(&text)) as f64;
            assert_eq!(values(&text, "forebay_metrics_series_folded "), [fewer]);
            for begin in [
                "forebay_node_reclaims_total",
                "forebay_queue_spend_usd_total{",
                "forebay_label_spend_usd_total{",
                "forebay_queue_jobs{",
                "forebay_preemptions_total{",
                "forebay_start_wait_seconds_count{",
                "forebay_start_wait_seconds_sum{",
                "forebay_start_wait_seconds_bucket{le=\"0.1\"",
            ] {
                let (kept, was) = (sum(&text, begin), sum(&all, begin));
                assert!((kept - was).abs() < 1e-6 && was > 0.0, "{begin}: {kept} of {was}");
            }
            // The first queues keep their own; of the others times are no sum.
            for line in [
                "forebay_queue_jobs{queue=\"queue-0003\",state=\"waiting\"} 3",
                "forebay_queue_head_wait_seconds{queue=\"other\"} 999.0",
                "forebay_queue_start_target_seconds{queue=\"other\"} 1.0",
            ] {
                assert!(text.lines().any(|l| l == line), "{line} in {text}");
            }
            assert_eq!(text, first_answer(exposition, thousands()), "the same points are folded in the same way");
        }
    }

    #[test]
    fn any_bound_holds_as_long_as_each_family_has_a_series() {
        for most in [60, 100, 1_000, 2_500, 4_999, 50_000] {
            let bounded = ShownMetrics::default().bounded_to(most, thousands());
            let text = MetricsText::OpenMetrics.unbounded(bounded).unwrap();
            assert!(series(&text) <= most, "{} of {most}", series(&text));
            assert_eq!(sum(&text, "forebay_queue_jobs{"), (QUEUES * (QUEUES - 1)) as f64);
        }
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let families = || vec![Family::of(&catalogue::QUEUE_HEAD_WAIT).with(&[("queue", "a")], 1.5)];
        let text = first_answer(MetricsText::Prometheus, families());
        assert!(text.starts_with(&MetricsText::Prometheus.unbounded(families()).unwrap()), "{text}");
        assert_eq!(values(&text, "forebay_metrics_series "), [3.0]);
        assert_eq!(values(&text, "forebay_metrics_series_folded "), [0.0]);
    }

    #[test]
    fn a_value_that_was_shown_stays_while_it_fits_and_one_that_was_folded_stays_folded() {
        let mut shown = ShownMetrics::default();
        let answers = [
            // Four series fit.
            (&[("b", 1), ("c", 1), ("d", 1), ("e", 1)][..], &[("b", 1.0), ("c", 1.0), ("d", 1.0), ("e", 1.0)][..]),
            // The new one gives way first, and then the last one, for the others need a series too.
            (
                &[("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 2)],
                &[("b", 2.0), ("c", 2.0), ("d", 2.0), ("other", 4.0)],
            ),
            // All of these would fit.
            (&[("a", 3), ("b", 3), ("e", 3)], &[("b", 3.0), ("other", 6.0)]),
            // Those that were shown have their series again, and one that comes late has none.
            (
                &[("a", 4), ("aa", 1), ("b", 4), ("c", 4), ("d", 4), ("e", 4)],
                &[("b", 4.0), ("c", 4.0), ("d", 4.0), ("other", 9.0)],
            ),
            // A queue that is called as the others are is one of them.
            (&[("a", 5), ("b", 5), ("other", 5)], &[("b", 5.0), ("other", 10.0)]),
        ];
        for (counts, expected) in answers {
            let mut answer = answer(&mut shown, 4 + OWN_SERIES, preemptions(counts));
            answer.retain(|series, _| series.starts_with("forebay_preemptions_total{"));
            let series = |queue: &str| format!("forebay_preemptions_total{{queue=\"{queue}\",cause=\"moved\"}}");
            let expected: BTreeMap<String, f64> = expected.iter().map(|(queue, n)| (series(queue), *n)).collect();
            assert_eq!(answer, expected, "{counts:?}");
        }
    }

    /// Numbers that look drawn, the same for one seed.
    fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    #[test]
    fn no_counter_goes_down_or_comes_back_however_series_come_and_go() {
        for seed in 0..40 {
            let (mut shown, mut draw) = (ShownMetrics::default(), draws(seed));
            let mut spent: BTreeMap<(String, &str), f64> = BTreeMap::new();
            let mut waited: BTreeMap<String, Histogram> = BTreeMap::new();
            let mut last: BTreeMap<String, f64> = BTreeMap::new();
            let mut gone: BTreeSet<String> = BTreeSet::new();
            for scrape in 0..12 {
                for _ in 0..20 {
                    let capacity = if draw(2) == 0 { "spot" } else { "on-demand" };
                    *spent.entry((numbered("queue", draw(60)), capacity)).or_default() += draw(1_000) as f64 / 7.0;
                    let waits = waited.entry(numbered("tier", draw(20)));
                    let waits = waits.or_insert_with(|| Histogram::new(&[100, 1_000]));
                    waits.observe(Duration::from_millis(draw(3_000)));
                }
                let mut jobs = Family::of(&catalogue::QUEUE_JOBS);
                for n in 0..draw(80) {
                    jobs.set(&[("queue", &numbered("queue", n)), ("state", "waiting")], 1);
                }
                let mut spend = Family::of(&catalogue::QUEUE_SPEND);
                for ((queue, capacity), dollars) in &spent {
                    spend.set(&[("queue", queue), ("capacity_type", capacity)], *dollars);
                }
                let mut waits = Family::of(&catalogue::START_WAIT);
                for (tier, times) in &waited {
                    waits.set(&[("tier", tier)], Number::Spread(times.clone()));
                }
                // Now and then the journal cannot be read.
                let is_whole = draw(4) > 0;
                let families = if is_whole { vec![jobs, spend, waits] } else { vec![jobs, waits] };
                let mut next = answer(&mut shown, 70, families);
                assert!(next.len() <= 70, "seed {seed}, scrape {scrape}: {} series", next.len());
                let gauges = ["forebay_queue_jobs", "forebay_metrics"];
                next.retain(|series, _| !gauges.iter().any(|gauge| series.starts_with(gauge)));
                for (series, value) in &next {
                    let before = last.get(series).copied().unwrap_or(0.0);
                    assert!(before <= *value, "seed {seed}, scrape {scrape}: {series} was {before} and is {value}");
                    assert!(!gone.contains(series), "seed {seed}, scrape {scrape}: {series} was gone");
                }
                if is_whole {
                    gone.extend(last.keys().filter(|series| !next.contains_key(*series)).cloned());
                }
                last.extend(next);
            }
            assert!(!gone.is_empty(), "seed {seed} folds");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_however_many_values_there_were() {
        let mut shown = ShownMetrics::default();
        for first in 0..QUEUES {
            let queues: Vec<String> = (first..first + 20).map(|n| numbered("queue", n)).collect();
            let counts: Vec<(&str, u64)> = queues.iter().map(|queue| (queue.as_str(), 1)).collect();
            assert!(answer(&mut shown, 10 + OWN_SERIES, preemptions(&counts)).len() <= 10 + OWN_SERIES);
        }
        let remembered: usize =
            shown.metrics.values().flat_map(|labels| &labels.0).map(|values| values.own.len()).sum();
        assert!(remembered <= 20, "{remembered}");
    }

    #[test]
    fn what_one_audience_was_answered_folds_nothing_for_another() {
        let shown = ShownSeries::default();
        let reader = Audience::Reader(Arc::from("default/team-a"));
        let few = || vec![Family::of(&catalogue::QUEUE_HEAD_WAIT).with(&[("queue", "queue-0999")], 1.5)];
        MetricsText::Prometheus.text(thousands(), &shown, &Audience::All).unwrap();
        for (audience, queue) in [(&reader, "queue-0999"), (&Audience::All, "other")] {
            let text = MetricsText::Prometheus.text(few(), &shown, audience).unwrap();
            let line = format!("forebay_queue_head_wait_seconds{{queue=\"{queue}\"}} 1.5");
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn small_families_keep_their_series_and_large_ones_share_what_is_left() {
        for (sizes, most, each) in [
            (vec![], 10, usize::MAX),
            (vec![5, 5], 10, usize::MAX),
            (vec![1, 2, 50, 60], 43, 20),
            (vec![100, 1], 10, 9),
            (vec![0, 0, 7], 6, 6),
        ] {
            assert_eq!(most_of_each(sizes.clone(), most), each, "{sizes:?} {most}");
        }
    }
}
