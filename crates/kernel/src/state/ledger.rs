//! The ledger: who held which GPU when, busy or idle, at what price. Each kind of time is counted from its own intervals;
//! none is a remainder, so that the audit can check that they add up to node time to the millisecond.
//!
//! Never: rounds. Time is thousandths of a GPU x milliseconds, money is price x milliseconds.

use super::nodes::{Node, NodePhase};
use crate::catalog::CapacityType;
use crate::units::{GpuTime, Rate, Span, Spend, Timestamp};
use serde::{Deserialize, Serialize};

/// Totals by capacity type, and what was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Reserved, spot, on-demand.
    pub by_capacity: [Account; 3],
    /// GPU time of runs since their last verified checkpoint, lost when they ended: part of allocated time.
    pub lost: GpuTime,
    /// GPU time held by runs whose GPUs were reported idle: part of allocated time.
    pub lingering: GpuTime,
    /// Owned nodes, while they are there: of their GPUs those that others leave to us.
    #[serde(skip)]
    pub owned: Account,
    /// GPU time on owned nodes that pods held which are not ours: part of no account.
    #[serde(skip)]
    pub foreign: GpuTime,
}

/// Time and money of nodes of one capacity type, from launch to gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// Node time.
    pub node_time: Span,
    /// GPU time of all GPUs.
    pub bought: GpuTime,
    /// GPU time held by started runs.
    pub allocated: GpuTime,
    /// GPU time on nodes that were not ready yet.
    pub boot: GpuTime,
    /// GPU time kept for a booked gang whose other nodes were not ready yet, or for a job whose workers are being placed.
    pub booked: GpuTime,
    /// GPU time on ready nodes with nothing on them.
    pub idle: GpuTime,
    /// Node time on ready nodes with nothing on them.
    pub idle_nodes: Span,
    /// Free GPU time on nodes with something on them.
    pub fragmentation: GpuTime,
    /// What it cost.
    pub cost: Spend,
    /// What it would have cost at the on-demand price.
    pub cost_on_demand: Spend,
}

impl Ledger {
    /// The account of a capacity type.
    #[must_use]
    pub fn account(&self, capacity: CapacityType) -> &Account {
        self.by_capacity.get(capacity as usize).unwrap_or(&self.owned)
    }

    /// The accounts of all capacity types.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> + '_ {
        self.by_capacity.iter().chain([&self.owned])
    }

    /// What was bought, all capacity types together: owned nodes are not.
    #[must_use]
    pub fn bought(&self) -> Account {
        Account::sum(self.by_capacity.iter())
    }

    /// All capacity types together.
    #[must_use]
    pub fn total(&self) -> Account {
        Account::sum(self.accounts())
    }

    /// Counts `node`'s time from `node.accrued_to` to `now`, during which nothing on it changed.
    pub fn accrue(&mut self, node: &Node, capacity: CapacityType, on_demand: Rate, now: Timestamp) {
        if node.phase == NodePhase::Requested {
            return;
        }
        let span = now.since(node.accrued_to);
        let over = |milli: u64| GpuTime(u128::from(milli) * u128::from(span.0));
        let foreign = u64::from(node.foreign_gpus()) * 1000;
        self.foreign += over(foreign);
        let account = self.by_capacity.get_mut(capacity as usize).unwrap_or(&mut self.owned);
        account.node_time += span;
        account.bought += over(node.slots.len() as u64 * 1000 - foreign);
        account.cost += node.price.over(span);
        account.cost_on_demand += on_demand.over(span);
        let free = node.free_share() - foreign;
        if node.phase == NodePhase::Booting {
            // Booked or not, a booting GPU does nothing yet.
            account.boot += over(free + node.booked.0);
        } else if node.holds.is_empty() {
            account.idle += over(free);
            account.idle_nodes += span;
        } else {
            account.fragmentation += over(free);
            account.booked += over(node.booked.0);
        }
        account.allocated += over(node.allocated.0);
    }
}

impl Account {
    fn sum<'a>(accounts: impl Iterator<Item = &'a Account>) -> Account {
        let mut all = Account::default();
        for account in accounts {
            all.node_time += account.node_time;
            all.bought += account.bought;
            all.allocated += account.allocated;
            all.boot += account.boot;
            all.booked += account.booked;
            all.idle += account.idle;
            all.idle_nodes += account.idle_nodes;
            all.fragmentation += account.fragmentation;
            all.cost += account.cost;
            all.cost_on_demand += account.cost_on_demand;
        }
        all
    }

    /// All kinds together: equal to `bought`, always.
    #[must_use]
    pub fn sum_of_kinds(&self) -> GpuTime {
        GpuTime(self.allocated.0 + self.boot.0 + self.booked.0 + self.idle.0 + self.fragmentation.0)
    }
}
