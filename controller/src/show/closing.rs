//! The closing table of a replay or a simulation, and the one plain line under it.
//!
//! Never: a wall time. The same input gives the same table, to the byte.

use super::colour::Paint;
use super::figures::{count, number, percent, seconds, short, usd};
use super::table::{self, TextTable, wrapped};
use forebay_sim::score::figures::Distribution;
use forebay_sim::score::{RejectedJobs, Scorecard};

/// Queues that the table has at most: two screens.
const QUEUES: usize = 40;

/// What the table says: a scorecard, and what a scorecard does not have.
#[derive(Clone, Copy, Debug)]
pub struct Closing<'a> {
    /// The figures of the run.
    pub card: &'a Scorecard,
    /// Not over.
    pub open: u64,
    /// What was broken that must always hold.
    pub violations: u64,
}

impl Closing<'_> {
    /// Whether something that must always hold was broken, or a job was lost.
    #[must_use]
    pub fn bad(&self) -> bool {
        self.violations > 0 || self.card.lost > 0
    }

    /// The table.
    #[must_use]
    pub fn table(&self, paint: Paint) -> String {
        let alarm = |n: u64| if n > 0 { paint.bad(&count(n)) } else { count(n) };
        let caution = |n: u64| if n > 0 { paint.warn(&count(n)) } else { count(n) };
        let played = vec![
            ("policy", self.card.policy.clone()),
            ("trace", self.card.trace.clone()),
            ("seed", self.card.seed.to_string()),
        ];
        let mut jobs = vec![
            ("jobs", count(self.card.jobs)),
            ("completed", count(self.card.completed)),
            ("failed", caution(self.card.failed)),
            ("rejected", caution(self.card.rejected)),
        ];
        if self.card.cancelled > 0 {
            jobs.push(("cancelled", count(self.card.cancelled)));
        }
        if self.open > 0 {
            jobs.push(("not over", count(self.open)));
        }
        jobs.push(("lost", alarm(self.card.lost)));
        let disturbed = vec![
            ("preemptions", count(self.card.preemptions)),
            ("reclaims", count(self.card.reclaims)),
            ("work lost", hours(self.card.work_lost_gpu_hours)),
        ];
        let times = vec![
            ("wait mean", seconds(self.card.wait_s.mean)),
            ("wait p50", seconds(self.card.wait_s.p50)),
            ("wait p95", seconds(self.card.wait_s.p95)),
            ("makespan", seconds(self.card.makespan_s)),
            ("deadlines missed", caution(self.card.deadline_misses)),
        ];
        let mut nodes = vec![
            ("times at zero", count(self.card.times_at_zero)),
            ("nodes peak", count(self.card.nodes_peak)),
            ("nodes at end", count(self.card.nodes_at_end)),
            ("violations", alarm(self.violations)),
        ];
        if self.card.nodes_kept_ready > 0 {
            nodes.insert(3, ("  kept ready", count(self.card.nodes_kept_ready)));
        }
        if let (Some(wakeups), Some(short)) = (self.card.wakeups_per_day, self.card.node_ticks_short) {
            nodes.insert(1, ("wake-ups a day", number(wakeups, 2)));
            nodes.insert(2, ("node-ticks short", count(short)));
        }
        let figures = table::figures(&[played, jobs, disturbed, self.capacity(), self.money(), times, nodes]);
        let more = [self.queues(paint), self.rejected(paint)];
        std::iter::once(figures).chain(more.into_iter().flatten()).collect::<Vec<_>>().join("\n\n")
    }

    /// What became of the jobs of each queue. `None`: there are none.
    fn queues(&self, paint: Paint) -> Option<String> {
        let queues = &self.card.jobs_by_queue;
        let rows: Vec<_> = queues.iter().take(QUEUES).collect();
        let wait = |queue: &str| self.card.wait_s_by_queue.get(queue);
        let waited = |queue: &str, of: fn(&Distribution) -> f64| wait(queue).map_or("-".to_owned(), |w| seconds(of(w)));
        let table = TextTable::of(&rows, paint)
            .left("QUEUE", |(queue, _)| short(queue, 28))
            .right("JOBS", |(_, score)| count(score.jobs))
            .right("COMPLETED", |(_, score)| count(score.completed))
            .right("WAIT P50", |(queue, _)| waited(queue, |w| w.p50))
            .right("WAIT P95", |(queue, _)| waited(queue, |w| w.p95))
            .right("MISSED", |(_, score)| count(score.deadline_misses));
        let more = queues.len().saturating_sub(QUEUES);
        let more =
            if more > 0 { format!("\nand {} queues more: --json has all", count(more as u64)) } else { String::new() };
        (!rows.is_empty()).then(|| format!("{}{more}", table.text()))
    }

    /// Why jobs were rejected, and what would help. `None`: none was.
    fn rejected(&self, paint: Paint) -> Option<String> {
        let by_code = self.card.rejected_by_code.iter();
        let lines = by_code.flat_map(|(code, RejectedJobs { jobs, first, message })| {
            let of = if first.is_empty() { String::new() } else { format!(", first {}", short(first, 40)) };
            let head = format!("rejected: {} {}{of}", count(*jobs), paint.warn(code));
            let message = wrapped(message, Some(76)).into_iter().map(|line| format!("  {line}"));
            std::iter::once(head).chain(message).collect::<Vec<_>>()
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn bought_on_spot(&self) -> f64 {
        (self.card.gpu_hours_bought - self.card.gpu_hours_owned) * self.card.spot_ratio.unwrap_or(0.0)
    }

    /// How much of all that was there these hours are.
    fn share(&self, hours: f64) -> String {
        let bought = self.card.gpu_hours_bought;
        if bought > 0.0 { percent(hours / bought) } else { "-".to_owned() }
    }

    fn capacity(&self) -> Vec<(&'static str, String)> {
        let of = |part: f64| format!("{:>16}  {:>7}", hours(part), self.share(part));
        let (bought, owned) = (self.card.gpu_hours_bought, self.card.gpu_hours_owned);
        let all = if owned > 0.0 { "bought and owned" } else { "bought" };
        let mut lines = vec![
            (all, format!("{:>16}", hours(bought))),
            ("  spot", of(self.bought_on_spot())),
            ("  other", of(bought - owned - self.bought_on_spot())),
            ("allocated", of(self.card.gpu_hours_allocated)),
        ];
        if owned > 0.0 {
            lines.insert(3, ("  owned", of(owned)));
        }
        if let Some(busy) = self.card.gpu_hours_busy {
            lines.push(("busy", of(busy)));
        }
        let wasted = &self.card.gpu_hours_wasted;
        let waste = [
            ("wasted: boot", "boot", wasted.boot),
            ("  idle", "idle", wasted.idle),
            ("  fragmentation", "fragmentation", wasted.fragmentation),
            ("  booked", "booked", wasted.booked),
            ("  lingering", "lingering", wasted.lingering),
            ("  lost", "lost", wasted.lost),
        ];
        let cost = |kind| {
            let cost = self.card.cost_usd_by_kind.as_ref().map(|kinds| kinds.get(kind).copied().unwrap_or(0.0));
            cost.map(|cost| format!("  {:>14}", usd(cost))).unwrap_or_default()
        };
        lines.extend(waste.into_iter().map(|(name, kind, hours)| (name, format!("{}{}", of(hours), cost(kind)))));
        lines
    }

    fn money(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("spot ratio", self.card.spot_ratio.map_or_else(|| "-".to_owned(), percent)),
            ("cost", usd(self.card.cost_usd)),
            // What the policy saves is more or less than that: under another one other nodes are bought.
            ("same nodes on demand", usd(self.card.cost_on_demand_only_usd)),
        ];
        if let Some(worked) = self.card.cost_usd_by_kind.as_ref().and_then(|kinds| kinds.get("worked")) {
            lines.insert(2, ("  of it for work", usd(*worked)));
        }
        lines
    }

    /// The nodes at the end, and those of them that stay.
    fn nodes(&self) -> String {
        let (all, kept) = (self.card.nodes_at_end, self.card.nodes_kept_ready.min(self.card.nodes_at_end));
        let nodes = if all == 1 { "1 node".to_owned() } else { format!("{} nodes", count(all)) };
        match kept {
            0 => nodes,
            _ if kept == all => format!("{nodes} kept ready"),
            _ => format!("{nodes}, {} of them kept ready", count(kept)),
        }
    }

    /// The line that says it all: `drained: 0 nodes, 0 lost`.
    #[must_use]
    pub fn line(&self, paint: Paint) -> String {
        let word = if self.open == 0 && self.card.nodes_left() == 0 { "drained" } else { "stopped" };
        let open = if self.open > 0 { format!(", {} not over", count(self.open)) } else { String::new() };
        let bad = if self.violations > 0 { format!(", {} violations", count(self.violations)) } else { String::new() };
        let line = format!("{word}: {}{open}, {} lost{bad}", self.nodes(), count(self.card.lost));
        if self.bad() { paint.bad(&line) } else { paint.good(&line) }
    }
}

fn hours(gpu_hours: f64) -> String {
    format!("{} GPU-h", number(gpu_hours, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sim::score::{QueueScore, Wasted};

    #[test]
    fn the_table_reads_as_it_should() {
        let wasted =
            Wasted { lost: 103.25, boot: 4_000.0, idle: 12_000.0, fragmentation: 5_000.0, ..Wasted::default() };
        let message =
            "no pool of its queue has nodes that it fits on: ask for fewer GPUs a worker, or add a pool".to_owned();
        let rejected = RejectedJobs { jobs: 2, first: "bert-9".to_owned(), message };
        let card = Scorecard {
            jobs: 38_322,
            completed: 38_322,
            reclaims: 12,
            work_lost_gpu_hours: 103.25,
            gpu_hours_bought: 300_000.0,
            spot_ratio: Some(0.9),
            gpu_hours_allocated: 279_000.0,
            gpu_hours_wasted: wasted,
            cost_usd: 100_000.0,
            cost_on_demand_only_usd: 250_000.0,
            wait_s: Distribution { mean: 66.0, p95: 240.5, ..Distribution::default() },
            makespan_s: 1_900_000.0,
            times_at_zero: 3,
            nodes_peak: 140,
            policy: "teams".to_owned(),
            trace: "day".to_owned(),
            seed: 7,
            deadline_misses: 2,
            jobs_by_queue: [("vision/batch".to_owned(), QueueScore { jobs: 40, completed: 38, deadline_misses: 2 })]
                .into(),
            wait_s_by_queue: [("vision/batch".to_owned(), Distribution { p95: 90.0, ..Distribution::default() })]
                .into(),
            rejected_by_code: [("NoMatchingPool".to_owned(), rejected)].into(),
            ..Scorecard::default()
        };
        let closing = Closing { card: &card, open: 0, violations: 0 };
        insta::assert_snapshot!(closing.table(Paint::PLAIN));
        assert_eq!(closing.line(Paint::PLAIN), "drained: 0 nodes, 0 lost");
    }

    #[test]
    fn nodes_that_are_kept_ready_are_named_and_those_beyond_them_are_no_end() {
        for (nodes_at_end, nodes_kept_ready, line) in [
            (0, 0, "drained: 0 nodes, 0 lost"),
            (1, 1, "drained: 1 node kept ready, 0 lost"),
            (4, 4, "drained: 4 nodes kept ready, 0 lost"),
            (3, 1, "stopped: 3 nodes, 1 of them kept ready, 0 lost"),
            (2, 0, "stopped: 2 nodes, 0 lost"),
        ] {
            let card = Scorecard { nodes_at_end, nodes_kept_ready, ..Scorecard::default() };
            let closing = Closing { card: &card, open: 0, violations: 0 };
            assert_eq!(closing.line(Paint::PLAIN), line);
            assert_eq!(closing.table(Paint::PLAIN).contains("kept ready"), nodes_kept_ready > 0, "{line}");
        }
    }
}
