//! The bound on the series of one answer: beyond it the largest families share [`OTHER`], each down to the same size, so that all fit.
//!
//! ```text
//! families -> how many series each has -> the most that each may have -> widest labels folded into `other` -> families, and how many
//! ```
//!
//! Never: loses a count: what is folded is added up, or the worst of it is kept. Never another choice for the same points.

use super::catalogue;
use super::family::{Family, Labels, Number, OTHER};
use super::metric::Folding;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Series of one answer at most: one controller stays an ordinary target, however many queues, labels and pools there are. Each of some 70
/// metrics may have 70 at the least.
pub(super) const MOST_SERIES: usize = 5_000;

/// Those that say how many there are.
const OWN_SERIES: usize = 2;

/// The same families with no more than `most` series in all, and how many these are. `most`: enough for one of each family, at least.
pub(super) fn bounded_to(most: usize, mut families: Vec<Family>) -> Vec<Family> {
    let sizes: Vec<usize> = families.iter().map(Family::series).collect();
    let each = most_of_each(sizes.clone(), most.saturating_sub(OWN_SERIES));
    families.iter_mut().for_each(|family| family.fold_to(each));
    let (before, after) = (sizes.iter().sum::<usize>(), families.iter().map(Family::series).sum::<usize>());
    families.push(Family::of(&catalogue::METRICS_SERIES).with(&[], (after + OWN_SERIES) as u64));
    families.push(Family::of(&catalogue::METRICS_SERIES_FOLDED).with(&[], before.saturating_sub(after) as u64));
    families
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

    /// Folds its widest label, and the next one where that is not enough, until it has `most` series at most or nothing is left to fold.
    fn fold_to(&mut self, most: usize) {
        while self.series() > most
            && let Some(label) = self.widest_label()
        {
            self.fold(label, most);
        }
    }

    /// The position of the label with the most values, the first of these. `None`: each has one value.
    fn widest_label(&self) -> Option<usize> {
        let values = |at: usize| self.points.keys().map(|labels| value(labels, at)).collect::<BTreeSet<_>>().len();
        let wide = (0..self.metric.labels.len()).map(|at| (at, values(at))).filter(|(_, values)| *values > 1);
        wide.rev().max_by_key(|(_, values)| *values).map(|(at, _)| at)
    }

    /// The last values of this label, in their order, share [`OTHER`]: as many as it takes.
    fn fold(&mut self, at: usize, most: usize) {
        let mut own: BTreeMap<&str, Vec<Labels>> = BTreeMap::new();
        for labels in self.points.keys() {
            own.entry(value(labels, at)).or_default().push(shared(labels, at));
        }
        let mut folded: BTreeSet<Labels> = own.remove(OTHER).into_iter().flatten().collect();
        let (mut kept, each) = (own.values().map(Vec::len).sum::<usize>(), self.series_of_a_point());
        while (kept + folded.len()) * each > most
            && let Some((_, points)) = own.pop_last()
        {
            kept -= points.len();
            folded.extend(points);
        }
        let own: BTreeSet<String> = own.into_keys().map(str::to_owned).collect();
        let folding = self.metric.folding;
        for (labels, number) in std::mem::take(&mut self.points) {
            let labels = if own.contains(value(&labels, at)) { labels } else { shared(&labels, at) };
            match self.points.entry(labels) {
                Entry::Vacant(free) => {
                    free.insert(number);
                }
                Entry::Occupied(mut there) => there.get_mut().fold(number, folding),
            }
        }
    }
}

/// The value of the label at this position.
fn value<'l>(labels: &'l [(&'static str, String)], at: usize) -> &'l str {
    labels.get(at).map_or("", |(_, value)| value)
}

/// The labels of a point whose value at this position is folded.
fn shared(labels: &[(&'static str, String)], at: usize) -> Labels {
    let mut labels = labels.to_vec();
    if let Some((_, value)) = labels.get_mut(at) {
        OTHER.clone_into(value);
    }
    labels
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

    #[test]
    fn a_thousand_queues_and_their_labels_never_give_more_than_5000_series_and_sums_are_kept() {
        let all = MetricsText::OpenMetrics.unbounded(thousands()).unwrap();
        assert!(series(&all) > 2 * MOST_SERIES, "{}", series(&all));
        for exposition in [MetricsText::OpenMetrics, MetricsText::Prometheus] {
            let text = exposition.text(thousands()).unwrap();
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
            assert_eq!(text, exposition.text(thousands()).unwrap(), "the same points are folded in the same way");
        }
    }

    #[test]
    fn any_bound_holds_as_long_as_each_family_has_a_series() {
        for most in [60, 100, 1_000, 2_500, 4_999, 50_000] {
            let bounded = bounded_to(most, thousands());
            let text = MetricsText::OpenMetrics.unbounded(bounded).unwrap();
            assert!(series(&text) <= most, "{} of {most}", series(&text));
            assert_eq!(sum(&text, "forebay_queue_jobs{"), (QUEUES * (QUEUES - 1)) as f64);
        }
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let families = || vec![Family::of(&catalogue::QUEUE_HEAD_WAIT).with(&[("queue", "a")], 1.5)];
        let text = MetricsText::Prometheus.text(families()).unwrap();
        assert!(text.starts_with(&MetricsText::Prometheus.unbounded(families()).unwrap()), "{text}");
        assert_eq!(values(&text, "forebay_metrics_series "), [3.0]);
        assert_eq!(values(&text, "forebay_metrics_series_folded "), [0.0]);
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
