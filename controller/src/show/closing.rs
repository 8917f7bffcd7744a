//! The closing table of a replay or a simulation, and the one plain line under it.
//!
//! Never: a wall time. The same input gives the same table, to the byte.

use super::colour::Paint;
use super::figures::{count, number, percent, seconds, usd};
use super::table;
use forebay_sim::score::Scorecard;

/// What the table says. GPU-hours are of whole GPUs; `None` is "not known from this input".
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Closing {
    /// Accepted or refused, all of them.
    pub jobs: u64,
    /// Done.
    pub completed: u64,
    /// Given up.
    pub failed: u64,
    /// Stopped for good on request.
    pub cancelled: u64,
    /// Never to be run.
    pub rejected: u64,
    /// Not over.
    pub open: u64,
    /// Accepted, not over, and not known any more.
    pub lost: u64,
    /// Runs stopped for others.
    pub preemptions: u64,
    /// Nodes that the cloud took back.
    pub reclaims: u64,
    /// Work done again because it was not saved.
    pub work_lost_gpu_hours: f64,
    /// GPU time held by runs since their last checkpoint when they ended: what was lost, restarts included.
    pub lost_time: f64,
    /// From launch to gone.
    pub bought: f64,
    /// Of it, on spot.
    pub bought_spot: f64,
    /// Held by jobs.
    pub allocated: f64,
    /// Truly active.
    pub busy: Option<f64>,
    /// On nodes that were not ready yet.
    pub boot: f64,
    /// On nodes with nothing on them.
    pub idle: f64,
    /// Held by runs whose GPUs were idle.
    pub lingering: f64,
    /// Free GPUs on nodes with something on them.
    pub fragmentation: f64,
    /// Kept for gangs whose other nodes were not there yet.
    pub booked: f64,
    /// What it cost.
    pub cost_usd: f64,
    /// The same node-hours at the on-demand price.
    pub cost_on_demand_only_usd: f64,
    /// Submission to first start: mean, p50, p95.
    pub wait_s: [f64; 3],
    /// First submission to last completion.
    pub makespan_s: f64,
    /// Times that the nodes came back to zero.
    pub times_at_zero: u64,
    /// Most nodes at once.
    pub nodes_peak: u64,
    /// Nodes at the end.
    pub nodes_at_end: u64,
    /// What was broken that must always hold.
    pub violations: u64,
}

impl Closing {
    /// The table of a scorecard.
    #[must_use]
    pub fn of(card: &Scorecard, violations: u64) -> Closing {
        Closing {
            jobs: card.jobs,
            completed: card.completed,
            failed: card.failed,
            rejected: card.rejected,
            lost: card.lost,
            preemptions: card.preemptions,
            reclaims: card.reclaims,
            work_lost_gpu_hours: card.work_lost_gpu_hours,
            lost_time: card.gpu_hours_wasted.lost,
            bought: card.gpu_hours_bought,
            bought_spot: card.gpu_hours_bought * card.spot_ratio,
            allocated: card.gpu_hours_allocated,
            busy: card.gpu_hours_busy,
            boot: card.gpu_hours_wasted.boot,
            idle: card.gpu_hours_wasted.idle,
            lingering: card.gpu_hours_wasted.lingering,
            fragmentation: card.gpu_hours_wasted.fragmentation,
            booked: card.gpu_hours_wasted.booked,
            cost_usd: card.cost_usd,
            cost_on_demand_only_usd: card.cost_on_demand_only_usd,
            wait_s: [card.wait_s.mean, card.wait_s.p50, card.wait_s.p95],
            makespan_s: card.makespan_s,
            times_at_zero: card.times_at_zero,
            nodes_peak: card.nodes_peak,
            nodes_at_end: card.nodes_at_end,
            violations,
            ..Closing::default()
        }
    }

    /// Whether something that must always hold was broken, or a job was lost.
    #[must_use]
    pub fn bad(&self) -> bool {
        self.violations > 0 || self.lost > 0
    }

    /// The table.
    #[must_use]
    pub fn table(&self, paint: Paint) -> String {
        let alarm = |n: u64| if n > 0 { paint.bad(&count(n)) } else { count(n) };
        let mut jobs = vec![
            ("jobs", count(self.jobs)),
            ("completed", count(self.completed)),
            ("failed", if self.failed > 0 { paint.warn(&count(self.failed)) } else { count(self.failed) }),
            ("rejected", if self.rejected > 0 { paint.warn(&count(self.rejected)) } else { count(self.rejected) }),
        ];
        if self.cancelled > 0 {
            jobs.push(("cancelled", count(self.cancelled)));
        }
        if self.open > 0 {
            jobs.push(("not over", count(self.open)));
        }
        jobs.push(("lost", alarm(self.lost)));
        let disturbed = vec![
            ("preemptions", count(self.preemptions)),
            ("reclaims", count(self.reclaims)),
            ("work lost", hours(self.work_lost_gpu_hours)),
        ];
        let times = vec![
            ("wait mean", seconds(self.wait_s[0])),
            ("wait p50", seconds(self.wait_s[1])),
            ("wait p95", seconds(self.wait_s[2])),
            ("makespan", seconds(self.makespan_s)),
        ];
        let nodes = vec![
            ("times at zero", count(self.times_at_zero)),
            ("nodes peak", count(self.nodes_peak)),
            ("nodes at end", count(self.nodes_at_end)),
            ("violations", alarm(self.violations)),
        ];
        table::figures(&[jobs, disturbed, self.capacity(), self.money(), times, nodes])
    }

    fn capacity(&self) -> Vec<(&'static str, String)> {
        let of = |part: f64| {
            let share = if self.bought > 0.0 { percent(part / self.bought) } else { "-".to_owned() };
            format!("{:>16}  {share:>7}", hours(part))
        };
        let mut lines = vec![
            ("bought", format!("{:>16}", hours(self.bought))),
            ("  spot", of(self.bought_spot)),
            ("  other", of(self.bought - self.bought_spot)),
        ];
        lines.push(("allocated", of(self.allocated)));
        if let Some(busy) = self.busy {
            lines.push(("busy", of(busy)));
        }
        let waste = [
            ("wasted: boot", self.boot),
            ("  idle", self.idle),
            ("  fragmentation", self.fragmentation),
            ("  booked", self.booked),
            ("  lingering", self.lingering),
            ("  lost", self.lost_time),
        ];
        lines.extend(waste.into_iter().map(|(name, h)| (name, of(h))));
        lines
    }

    fn money(&self) -> Vec<(&'static str, String)> {
        let spot = if self.bought > 0.0 { percent(self.bought_spot / self.bought) } else { "-".to_owned() };
        let saved = 1.0 - self.cost_usd / self.cost_on_demand_only_usd;
        let less =
            if self.cost_on_demand_only_usd > 0.0 { format!("  ({} less)", percent(saved)) } else { String::new() };
        vec![
            ("spot ratio", spot),
            ("cost", format!("{}{less}", usd(self.cost_usd))),
            ("cost, on-demand only", usd(self.cost_on_demand_only_usd)),
        ]
    }

    /// The line that says it all: `drained: 0 nodes, 0 lost`.
    #[must_use]
    pub fn line(&self, paint: Paint) -> String {
        let word = if self.open == 0 && self.nodes_at_end == 0 { "drained" } else { "stopped" };
        let open = if self.open > 0 { format!(", {} not over", count(self.open)) } else { String::new() };
        let bad = if self.violations > 0 { format!(", {} violations", count(self.violations)) } else { String::new() };
        let line = format!("{word}: {} nodes{open}, {} lost{bad}", count(self.nodes_at_end), count(self.lost));
        if self.bad() { paint.bad(&line) } else { paint.good(&line) }
    }
}

fn hours(gpu_hours: f64) -> String {
    format!("{} GPU-h", number(gpu_hours, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_as_it_should() {
        let closing = Closing {
            jobs: 38_322,
            completed: 38_322,
            reclaims: 12,
            work_lost_gpu_hours: 103.25,
            lost_time: 103.25,
            bought: 300_000.0,
            bought_spot: 270_000.0,
            allocated: 279_000.0,
            boot: 4_000.0,
            idle: 12_000.0,
            fragmentation: 5_000.0,
            cost_usd: 100_000.0,
            cost_on_demand_only_usd: 250_000.0,
            wait_s: [66.0, 0.0, 240.5],
            makespan_s: 1_900_000.0,
            times_at_zero: 3,
            nodes_peak: 140,
            ..Closing::default()
        };
        insta::assert_snapshot!(closing.table(Paint::PLAIN));
        assert_eq!(closing.line(Paint::PLAIN), "drained: 0 nodes, 0 lost");
    }
}
