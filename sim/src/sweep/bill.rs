//! Money and node time, counted apart from the engine: from the rows of nodes between batches, and from every charge of the ledger by whom.
//!
//! ```text
//! rows after a batch -> the time until the next one -> node time, money, what it was   == State::ledger_now, after every batch
//!                                                      what pods of others held        == what is charged as `Foreign`, at the end
//! charges of a batch -> money by capacity type, GPU time by kind                       == what State::ledger grew by, after every batch
//! all charges and those still open                                                     == the ledger and the rows, at the end
//! ```
//!
//! What it holds: DESIGN.md section 7, "each kind of waste computed from its own intervals, never as a remainder, and ledger time adding up to
//! node time to the millisecond and money to the micro-dollar". For nodes without GPUs the engine's audit has no kinds to add up; here they
//! have.
//!
//! Never: a kind that the engine counted, where rows tell it.

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::OfferingId;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{CPU_NODE_SHARES, Charge, ChargeKey, ChargeKind, all_shares};
use forebay_kernel::state::ledger::{Account, Ledger};
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::units::{Rate, Timestamp};

use super::checks::open_jobs;
use super::lost::share_of;

/// What the time of a node was, as its row tells it: of all of it but what pods of others held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum NodeUse {
    Boot,
    Idle,
    Held,
    Foreign,
}

/// Nodes that are counted together: how they are paid for, and whether they have GPUs.
type Group = (CapacityType, bool);

/// A node as it is until the next batch.
#[derive(Clone, Copy, Debug)]
struct Passing {
    group: Group,
    is: NodeUse,
    gpus: u64,
    /// All of it: thousandths of a GPU, or millionths of a node without any.
    shares: u64,
    /// Of this, what pods of others hold.
    foreign: u64,
    price: Rate,
}

/// What the rows say of one capacity type.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Counted {
    node_ms: u128,
    idle_ms: u128,
    /// Thousandths of a GPU x ms on booting nodes.
    boot: u128,
    /// Micro-dollars an hour x ms.
    cost: u128,
}

/// The bill.
#[derive(Debug, Default)]
pub(super) struct Bill {
    passing: Vec<Passing>,
    since: Timestamp,
    rows: BTreeMap<CapacityType, Counted>,
    /// Shares x ms.
    uses: BTreeMap<(Group, NodeUse), u128>,
    /// The ledger as the last batch left it. `None`: no batch yet, or nothing was billed by then.
    ledger: Option<Ledger>,
    /// Every charge so far, added up.
    charges: BTreeMap<ChargeKey, i128>,
    pub found: Vec<String>,
}

/// What an account says of a kind of GPU time.
type PartOfAccount = fn(&Account) -> u128;

impl Bill {
    /// A batch is durable and applied, and charges this.
    pub fn batch(&mut self, charges: &[Charge], state: &State) {
        self.pass(state.now());
        self.rows_hold(&state.ledger_now(), state.now());
        self.passing = state.nodes().filter_map(|node| Passing::of(node, state)).collect();
        self.charged(charges, state);
    }

    /// At the end every charge has been made, or is open: nothing is charged less than nothing, and all of it is the bill.
    pub fn end(&mut self, state: &State) {
        if state.billing().is_none_or(|billing| billing.began().at > Timestamp(0)) {
            return;
        }
        let mut all = std::mem::take(&mut self.charges);
        add(&mut all, &state.open_charges());
        for (key, amount) in all.iter().filter(|(_, amount)| **amount < 0) {
            self.found.push(format!("the ledger by whom has {amount} of {key:?}"));
        }
        let charges: Vec<Charge> = all.into_iter().map(|(key, amount)| Charge { key, amount }).collect();
        let ledger = state.ledger_now();
        for capacity in CapacityType::ALL {
            let (money, cost) = (money_of(&charges, capacity, state), ledger.account(capacity).cost.0);
            if money != Some(cost) {
                self.found.push(format!("{capacity}: all charges are {money:?}, the ledger has {cost}"));
            }
        }
        self.kinds_hold(&charges, state);
    }

    /// Time passes in which nothing changes.
    fn pass(&mut self, now: Timestamp) {
        let ms = u128::from(now.since(self.since).0);
        self.since = self.since.max(now);
        for node in &self.passing {
            let counted = self.rows.entry(node.group.0).or_default();
            counted.node_ms += ms;
            counted.idle_ms += if node.is == NodeUse::Idle { ms } else { 0 };
            counted.boot += if node.is == NodeUse::Boot { ms * u128::from(node.gpus) * 1000 } else { 0 };
            counted.cost += ms * u128::from(node.price.0);
            for (is, shares) in [(node.is, node.shares - node.foreign), (NodeUse::Foreign, node.foreign)] {
                *self.uses.entry((node.group, is)).or_default() += ms * u128::from(shares);
            }
        }
    }

    /// Node time, empty node time, boots and money are what the rows make of them.
    fn rows_hold(&mut self, ledger: &Ledger, now: Timestamp) {
        for capacity in CapacityType::ALL {
            let rows = self.rows.get(&capacity).copied().unwrap_or_default();
            let Account { node_time, idle_nodes, boot, cost, .. } = ledger.account(capacity);
            let says = Counted {
                node_ms: u128::from(node_time.0),
                idle_ms: u128::from(idle_nodes.0),
                boot: boot.0,
                cost: cost.0,
            };
            if says != rows {
                self.found.push(format!("at {}: {capacity}: the ledger has {says:?}, the rows make {rows:?}", now.0));
            }
        }
    }

    /// What a batch charges is what the ledger grew by: money of each capacity type, and each kind of GPU time.
    fn charged(&mut self, charges: &[Charge], state: &State) {
        add(&mut self.charges, charges);
        let known = state.billing().map(|_| *state.ledger());
        let Some((before, after)) = self.ledger.zip(known) else {
            self.ledger = known;
            return;
        };
        self.ledger = Some(after);
        for capacity in CapacityType::ALL {
            let (was, is) = (before.account(capacity), after.account(capacity));
            let (money, grew) = (money_of(charges, capacity, state), is.cost.0 - was.cost.0);
            if money != Some(grew) {
                let at = state.now().0;
                self.found.push(format!("at {at}: {capacity}: charged {money:?}, the ledger grew by {grew}"));
            }
        }
        let of = |ledger: &Ledger, part: PartOfAccount| ledger.accounts().map(part).sum::<u128>();
        let kinds: [(&[ChargeKind], PartOfAccount); 5] = [
            (&[ChargeKind::Worked, ChargeKind::Lost, ChargeKind::Lingering], |a| a.allocated.0),
            (&[ChargeKind::Booked], |a| a.booked.0),
            (&[ChargeKind::Boot], |a| a.boot.0),
            (&[ChargeKind::Idle], |a| a.idle.0),
            (&[ChargeKind::Fragmentation], |a| a.fragmentation.0),
        ];
        for (kinds, part) in kinds {
            let with_gpus = |charge: &&Charge| gpus_of(charge.key.offering, state) > 0;
            let own = charges.iter().filter(with_gpus).filter(|charge| kinds.contains(&charge.key.kind));
            let charged: i128 = own.map(|charge| charge.amount).sum();
            let grew = of(&after, part) - of(&before, part);
            if u128::try_from(charged) != Ok(grew) {
                let at = state.now().0;
                self.found.push(format!("at {at}: {kinds:?}: charged {charged}, the ledger grew by {grew}"));
            }
        }
    }

    /// Node time by what it was, on nodes with and without GPUs. Of an owned node pods of others may hold a part, whatever the rest is.
    fn kinds_hold(&mut self, charges: &[Charge], state: &State) {
        let mut by_offering: BTreeMap<(OfferingId, NodeUse), i128> = BTreeMap::new();
        for Charge { key, amount } in charges {
            let is = match key.kind {
                ChargeKind::Boot => NodeUse::Boot,
                ChargeKind::Idle => NodeUse::Idle,
                ChargeKind::Foreign => NodeUse::Foreign,
                _ => NodeUse::Held,
            };
            *by_offering.entry((key.offering, is)).or_default() += amount;
        }
        let mut made: BTreeMap<(Group, NodeUse), u128> = BTreeMap::new();
        for ((offering, is), amount) in by_offering {
            let Some(row) = state.offerings().get(offering.index()) else { continue };
            let (shares, amount) = (u128::from(all_shares(&row.offer)), u128::try_from(amount).unwrap_or(0));
            let group = (row.offer.capacity, row.offer.gpus > 0);
            if amount % shares != 0 && group.0 != CapacityType::Owned {
                self.found.push(format!("{offering} was charged {amount} as {is:?}, no whole node time"));
            }
            *made.entry((group, is)).or_default() += amount;
        }
        for groups in [&mut made, &mut self.uses] {
            groups.retain(|_, amount| *amount > 0);
        }
        if made != self.uses {
            self.found.push(format!("charges make node time of {made:?}, the rows {:?}", self.uses));
        }
    }
}

impl Passing {
    /// `None`: it was only asked for, and costs nothing.
    fn of(node: &Node, state: &State) -> Option<Passing> {
        let gpus = gpus_of(node.offering, state);
        let shares = state.offerings().get(node.offering.index()).map_or(0, |row| all_shares(&row.offer));
        let foreign = share_of_others(node, state).min(shares);
        let is = match node.phase {
            NodePhase::Requested => return None,
            NodePhase::Booting => NodeUse::Boot,
            _ if node.holds.is_empty() => NodeUse::Idle,
            _ => NodeUse::Held,
        };
        Some(Passing { group: (state.capacity_of(node), gpus > 0), is, gpus, shares, foreign, price: node.price })
    }
}

/// What pods of others hold of an owned node, where our workers do not: whole GPUs, or where it has none the larger of their parts of CPU and memory.
fn share_of_others(node: &Node, state: &State) -> u64 {
    let (Some(owned), Some(row)) = (&node.owned, state.offerings().get(node.offering.index())) else { return 0 };
    let others = &owned.foreign;
    if row.offer.gpus > 0 {
        let free = node.slots.iter().filter(|slot| slot.workers == 0).count();
        return 1000 * u64::from(others.gpus).min(u64::try_from(free).unwrap_or(0));
    }
    let part = |of: u64, all: u64| of.saturating_mul(CPU_NODE_SHARES) / all.max(1);
    let share = part(others.cpu.0, row.offer.cpu.0).max(part(others.mem.0, row.offer.mem.0));
    if share == 0 {
        return 0;
    }
    let mut held = 0;
    for job in open_jobs(state) {
        let here = job.places.iter().filter(|place| place.node == node.id);
        held += here.filter_map(|place| share_of(place, job, state)).sum::<u64>();
    }
    share.min(CPU_NODE_SHARES.saturating_sub(held))
}

fn gpus_of(offering: OfferingId, state: &State) -> u64 {
    state.offerings().get(offering.index()).map_or(0, |row| u64::from(row.offer.gpus))
}

fn add(sums: &mut BTreeMap<ChargeKey, i128>, charges: &[Charge]) {
    for Charge { key, amount } in charges {
        *sums.entry(*key).or_default() += amount;
    }
}

/// What charges come to on nodes of a capacity type, in micro-dollars an hour x ms. `None`: they make no whole nodes, or less than nothing.
fn money_of(charges: &[Charge], capacity: CapacityType, state: &State) -> Option<u128> {
    let mut by_shares: BTreeMap<u64, i128> = BTreeMap::new();
    for Charge { key, amount } in charges {
        let offer = &state.offerings().get(key.offering.index())?.offer;
        if offer.capacity == capacity {
            *by_shares.entry(all_shares(offer)).or_default() += amount * i128::from(key.price.0);
        }
    }
    let money = |(shares, sum): (&u64, &i128)| {
        let (sum, shares) = (u128::try_from(*sum).ok()?, u128::from(*shares));
        (sum % shares == 0).then_some(sum / shares)
    };
    by_shares.iter().map(money).sum()
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;
    use forebay_kernel::event::{Event, EventOutcome, Tick};
    use forebay_kernel::journal::APPLY_VERSION;
    use forebay_kernel::machine::StateMachine;
    use forebay_kernel::policy::Pool;
    use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
    use forebay_kernel::units::{Mib, MilliCpu};

    fn followed(life: &Life) -> Bill {
        let mut bill = Bill::default();
        for step in &life.steps {
            bill.batch(&step.charges, &step.state);
        }
        assert_eq!(bill.found, [""; 0]);
        bill
    }

    #[test]
    fn what_is_right_adds_up() {
        let life = Life::running(policy(), vec![job("a"), job("b")]);
        let mut bill = followed(&life);
        bill.end(&life.state());
        assert_eq!(bill.found, [""; 0]);
        assert!(life.steps.iter().any(|step| !step.charges.is_empty()));
    }

    #[test]
    fn a_ledger_with_money_or_time_of_its_own_is_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let breaks: [fn(&mut Account); 4] = [
            |account| account.cost.0 += 1,
            |account| account.node_time.0 += 1,
            |account| account.idle_nodes.0 += 1,
            |account| account.boot.0 += 1,
        ];
        for break_it in breaks {
            let (mut bill, mut state) = (followed(&life), life.state());
            break_it(&mut state.ledger.by_capacity[CapacityType::OnDemand as usize]);
            bill.batch(&[], &state);
            assert!(bill.found.iter().any(|found| found.contains("the rows make")), "{:?}", bill.found);
        }
    }

    #[test]
    fn charges_that_are_made_twice_or_never_are_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let charges = life.steps.iter().map(|step| &step.charges).find(|charges| !charges.is_empty()).unwrap();
        let mut twice = followed(&life);
        twice.batch(charges, &life.state());
        assert!(twice.found.iter().any(|found| found.contains("the ledger grew by 0")), "{:?}", twice.found);
        let mut never = followed(&life);
        never.charges.clear();
        never.end(&life.state());
        assert!(never.found.iter().any(|found| found.contains("the ledger has")), "{:?}", never.found);
    }

    #[test]
    fn less_than_nothing_is_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let mut bill = followed(&life);
        let (key, amount) = bill.charges.iter().next().map(|(key, amount)| (*key, *amount)).unwrap();
        let lost = ChargeKey { kind: ChargeKind::Lost, ..key };
        bill.charges.insert(lost, -1);
        bill.charges.insert(key, amount + 1);
        bill.end(&life.state());
        assert!(bill.found.iter().any(|found| found.contains("the ledger by whom has -1")), "{:?}", bill.found);
    }

    /// What is found of an owned node without GPUs of which pods of others hold all CPU, then a quarter, then some memory, where it is charged as
    /// `charged` makes of its kinds.
    fn beside_others(charged: impl Fn(ChargeKind) -> ChargeKind) -> Vec<String> {
        let mut policy = policy();
        let owned = Some(OwnedPool { price: Rate(300_000), ..OwnedPool::default() });
        policy.pools.push(Pool { name: "lab".to_owned(), owned, ..Pool::default() });
        let seen = |cpu: u64| {
            let (cpu, mem, by) = (MilliCpu(cpu), Mib(1_000), "other/pod".to_owned());
            let foreign = ForeignUse { cpu, mem, by, ..ForeignUse::default() };
            let (name, pool, instance_type) = ("own".to_owned(), "lab".to_owned(), "cpu".to_owned());
            let shape = OwnedShape { instance_type, cpu: MilliCpu(8_000), mem: Mib(16_000), ..OwnedShape::default() };
            Event::OwnedNodeSeen(Box::new(OwnedNode { name, pool, shape, open: true, foreign }))
        };
        let (mut machine, mut bill) = (StateMachine::default(), Bill::default());
        let events = [Event::Configured(Box::new(policy)), seen(8_000), seen(2_000), seen(0), seen(8_000)];
        for (minute, event) in (0..).zip(events) {
            let now = Timestamp(minute * 60_000);
            machine.apply_tick(Tick { now, resumed: false, delivered: 0 }, APPLY_VERSION);
            assert_eq!(machine.apply_event(&event), EventOutcome::Applied);
            let mut charges = machine.charged().charges;
            charges.iter_mut().for_each(|charge| charge.key.kind = charged(charge.key.kind));
            bill.batch(&charges, &machine);
        }
        bill.end(&machine);
        bill.found
    }

    #[test]
    fn what_pods_of_others_hold_of_an_owned_node_without_gpus_is_to_be_charged_as_theirs() {
        assert_eq!(beside_others(|kind| kind), [""; 0]);
        let idle = |kind: ChargeKind| if kind == ChargeKind::Foreign { ChargeKind::Idle } else { kind };
        let found = beside_others(idle);
        assert!(found.iter().any(|found| found.contains("charges make node time of")), "{found:?}");
    }
}
