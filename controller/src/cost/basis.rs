//! What a bill needs from the state beside the charges of closed batches: what is still open, and the names of things.
//!
//! Never: the journal.

use super::Unbalanced;
use super::range::Slots;
use forebay_journal::SpendTotals;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{JobId, OfferingId, Seq};
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{
    BilledJob, BilledPool, BillingBegan, Charge, EarlierSpend, LedgerSlot, QUARTER_MS, all_shares,
};
use forebay_kernel::units::{Rate, Spend, Timestamp};
use forebay_sim::score::money::Exact;
use std::collections::BTreeMap;

/// An offering on a bill.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BilledOffering {
    /// Its instance type.
    pub instance_type: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// Whether it has GPUs.
    pub gpus: bool,
    /// All shares of one node.
    pub shares: u64,
    /// The on-demand price of the whole node, as it is now.
    pub on_demand: Rate,
}

/// Whether a bill is compared with what all nodes cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BalanceCheck {
    /// It is, before anything is left out of it.
    Checked,
    /// It cannot be: charges were left out when they were read.
    NotRead,
}

/// The state's side of a bill, at one position.
#[derive(Clone, Debug)]
pub struct CostBasis {
    /// The position: charges of batches before it are closed.
    pub upto: Seq,
    /// The engine's time.
    pub now: Timestamp,
    /// What is used and not charged yet.
    pub(super) open: Vec<Charge>,
    /// Who the jobs are that are still here.
    pub(super) jobs: BTreeMap<JobId, BilledJob>,
    offerings: Vec<BilledOffering>,
    pools: Vec<String>,
    /// What was spent before the ledger knew by whom.
    pub(super) began: BillingBegan,
    /// Labels of jobs that it can be asked by.
    pub(super) labels: Vec<String>,
    /// Of the zone whose days it has: local time less UTC in seconds, each from its instant on.
    pub(super) offsets: Vec<(Timestamp, i32)>,
    /// What all nodes cost, exactly.
    nodes_cost: Spend,
}

impl CostBasis {
    /// Of a state between two batches.
    #[must_use]
    pub fn of(state: &State) -> CostBasis {
        let rule = state.policy().and_then(|policy| policy.billing.clone()).unwrap_or_default();
        let open = state.open_charges();
        let ids = open.iter().filter_map(|charge| charge.key.job);
        let billed = |row: &forebay_kernel::state::nodes::OfferingRow| BilledOffering {
            instance_type: row.offer.instance_type.clone(),
            capacity: row.offer.capacity,
            gpus: row.offer.gpus > 0,
            shares: all_shares(&row.offer),
            on_demand: row.offer.on_demand,
        };
        CostBasis {
            upto: Seq(state.counters().next_seq),
            now: state.now(),
            jobs: ids.filter_map(|id| Some((id, state.billed_job(id)?))).collect(),
            open,
            offerings: state.offerings().iter().map(billed).collect(),
            pools: state.billing().map(|billing| billing.pools().to_vec()).unwrap_or_default(),
            began: state.billing().map_or_else(|| all_before(state), |billing| *billing.began()),
            labels: rule.labels,
            offsets: rule.offsets,
            nodes_cost: state.ledger_now().total().cost,
        }
    }

    /// All charges of a range: those of closed batches and the open ones. Jobs that are in the journal are as they were frozen there.
    ///
    /// # Errors
    /// They do not add up to what the nodes cost.
    pub fn complete(
        &self,
        mut charges: SpendTotals,
        mut jobs: BTreeMap<JobId, BilledJob>,
        slots: &Slots,
        whole: BalanceCheck,
    ) -> Result<(SpendTotals, BTreeMap<JobId, BilledJob>), Unbalanced> {
        for Charge { key, amount } in &self.open {
            *charges.entry(*key).or_default() += amount;
        }
        if whole == BalanceCheck::Checked {
            self.balanced(&charges)?;
        }
        charges.retain(|key, _| slots.take(key.slot));
        for (id, job) in &self.jobs {
            jobs.entry(*id).or_insert_with(|| job.clone());
        }
        Ok((charges, jobs))
    }

    fn balanced(&self, charges: &SpendTotals) -> Result<(), Unbalanced> {
        let mut rows = Exact::default();
        self.began.earlier.iter().for_each(|earlier| rows.add_spend(earlier.cost));
        for (key, amount) in charges {
            rows.add(i128::from(key.price.0), *amount, self.offering(key.offering).map_or(1, |offer| offer.shares));
        }
        let mut nodes = Exact::default();
        nodes.add_spend(self.nodes_cost);
        if rows.same_as(&nodes) {
            return Ok(());
        }
        Err(Unbalanced { rows_micro: rows.rounded(), nodes_micro: nodes.rounded() })
    }

    /// The same for a range: what was spent before the ledger knew by whom is in the slot in which the ledger began. So it is in one month alone.
    #[must_use]
    pub fn within(self, slots: &Slots) -> CostBasis {
        let began = LedgerSlot(u32::try_from(self.began.at.0 / QUARTER_MS).unwrap_or(0));
        if slots.take(began) { self } else { self.without_earlier() }
    }

    /// The same for who may not see what everybody spent before.
    #[must_use]
    pub fn without_earlier(self) -> CostBasis {
        CostBasis { began: BillingBegan { at: self.began.at, ..BillingBegan::default() }, ..self }
    }

    /// What was spent before the ledger knew by whom, by how it was paid for, where it is anything.
    pub(super) fn earlier(&self) -> impl Iterator<Item = (CapacityType, &EarlierSpend)> + '_ {
        let all = CapacityType::ALL.into_iter().zip(&self.began.earlier);
        all.filter(|(_, spent)| spent.cost.0 > 0 || spent.gpu_time.0 > 0)
    }

    /// Labels of jobs that a bill can have its rows by.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// An offering.
    #[must_use]
    pub fn offering(&self, id: OfferingId) -> Option<&BilledOffering> {
        self.offerings.get(id.index())
    }

    /// The name of a pool.
    #[must_use]
    pub fn pool(&self, pool: BilledPool) -> &str {
        self.pools.get(usize::from(pool.0)).map_or("", String::as_str)
    }

    /// Nothing was billed yet, in a zone with these offsets (since when in seconds since 1970, and seconds).
    #[cfg(test)]
    pub(super) fn with_offsets(offsets: &[(u64, i32)]) -> CostBasis {
        let offsets = offsets.iter().map(|(at, seconds)| (Timestamp(*at * 1000), *seconds)).collect();
        CostBasis { offsets, ..CostBasis::of(&State::default()) }
    }

    /// So many pools, `pool-0` and on, and one offering: an on-demand node with a GPU.
    #[cfg(test)]
    pub(super) fn with_pools(pools: u16) -> CostBasis {
        let (instance_type, capacity) = ("a".to_owned(), CapacityType::OnDemand);
        let offering = BilledOffering { instance_type, capacity, gpus: true, shares: 1000, on_demand: Rate(0) };
        let pools = (0..pools).map(|pool| format!("pool-{pool}")).collect();
        CostBasis { pools, offerings: vec![offering], ..CostBasis::of(&State::default()) }
    }

    /// Local time less UTC in seconds.
    pub(super) fn offset(&self, at: Timestamp) -> i32 {
        self.offsets.iter().take_while(|(from, _)| *from <= at).last().map_or(0, |(_, seconds)| *seconds)
    }
}

/// No policy has said yet how to bill: all that was spent is before.
fn all_before(state: &State) -> BillingBegan {
    let ledger = state.ledger_now();
    let of = |capacity| {
        let account = ledger.account(capacity);
        EarlierSpend { cost: account.cost, gpu_time: account.bought }
    };
    BillingBegan { at: state.now(), earlier: CapacityType::ALL.map(of) }
}
