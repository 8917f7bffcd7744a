//! The golden records, replayed under policies that bill: what the ledger charges is what a program of its own makes of the rows, to the last
//! share and millisecond, and the same after a restart in the middle.
#![expect(clippy::std_instead_of_alloc, reason = "a program beside the kernel, which has std")]

mod owned;
mod recomputed;

use forebay_kernel::audit;
use forebay_kernel::event::Event;
use forebay_kernel::journal::Batch;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::policy::BillingRule;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{BilledJob, Charge, ChargeKey, all_shares};
use forebay_kernel::units::Timestamp;
use recomputed::{HOUR, Recomputed, Stretch, Use};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The batches of a file of golden records. Each policy says how to bill.
fn batches(version: u32, name: &str, rule: &BillingRule) -> Vec<Batch> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/records").join(name);
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut batches) = (&bytes[..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (batch, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        let read = if version == 1 { Batch::decode_v1(batch) } else { Batch::decode(batch) };
        let mut batch = read.unwrap();
        for event in &mut batch.events {
            if let Event::Configured(policy) = event {
                policy.billing = Some(rule.clone());
            }
        }
        batches.push(batch);
        rest = after;
    }
    batches
}

/// What was charged, by what the other program tells apart.
fn used(state: &State, charges: &BTreeMap<ChargeKey, i128>) -> BTreeMap<Use, u128> {
    let mut all = charges.clone();
    for Charge { key, amount } in state.open_charges() {
        *all.entry(key).or_default() += amount;
    }
    let mut used = BTreeMap::new();
    for (key, amount) in all {
        let pool = state.billing().unwrap().pools().get(usize::from(key.pool.0)).cloned().unwrap_or_default();
        let stretch = Stretch { slot: key.slot.begins().0, offering: key.offering.index(), price: key.price.0, pool };
        let amount = u128::try_from(amount).unwrap_or_else(|_| panic!("{key:?} has {amount}"));
        *used.entry(Use { stretch, kind: key.kind.as_str(), job: key.job }).or_default() += amount;
    }
    used.retain(|_, amount| *amount > 0);
    used
}

/// All charges together are price x time of all nodes, with nothing left over.
fn adds_up(state: &State, used: &BTreeMap<Use, u128>) {
    let mut nodes: BTreeMap<(usize, u64), u128> = BTreeMap::new();
    for (used, amount) in used {
        *nodes.entry((used.stretch.offering, used.stretch.price)).or_default() += amount;
    }
    let mut cost = 0;
    for ((offering, price), amount) in nodes {
        let shares = u128::from(all_shares(&state.offerings()[offering].offer));
        assert_eq!(amount % shares, 0);
        cost += u128::from(price) * amount / shares;
    }
    assert_eq!(cost, state.ledger_now().total().cost.0);
}

fn is_made_again(version: u32, name: &str, rule: &BillingRule, slot_ms: u64) -> BTreeMap<Use, u128> {
    let all = batches(version, name, rule);
    let (mut machine, mut other) = (StateMachine::default(), Recomputed::in_slots_of(slot_ms));
    let (mut charges, mut jobs) = (BTreeMap::<ChargeKey, i128>::new(), BTreeMap::<_, BilledJob>::new());
    let mut restarted: Option<StateMachine> = None;
    for (at, batch) in all.iter().enumerate() {
        if at > 0 {
            other.pass_time(&machine, batch.tick.now);
        }
        machine.apply_tick(batch.tick, batch.version);
        other.look(&machine);
        for event in &batch.events {
            let _ = machine.apply_event(event);
            other.look(&machine);
        }
        for decision in &batch.decisions {
            let _ = machine.apply_decision(decision);
            other.look(&machine);
        }
        let charged = machine.charged();
        if let Some(restarted) = &mut restarted {
            restarted.replay(batch);
            assert_eq!(restarted.charged(), charged, "{name}: batch {at} after a restart");
        } else if at == all.len() / 3 {
            restarted = Some(StateMachine::restore(&machine.encode().unwrap()).unwrap());
        }
        for Charge { key, amount } in charged.charges {
            *charges.entry(key).or_default() += amount;
        }
        jobs.extend(charged.jobs.into_iter().map(|job| (job.job, job)));
        // Each time in full takes as long as the whole replay.
        if at % 7 != 0 && at + 1 != all.len() {
            continue;
        }
        let used = used(&machine, &charges);
        let made = other.used.iter().filter(|(_, amount)| **amount > 0).map(|(used, amount)| (used.clone(), *amount));
        assert_eq!(used, made.collect(), "{name}: batch {at}");
        adds_up(&machine, &used);
        assert_eq!(audit::full(&machine), [""; 0], "{name}: batch {at}");
    }
    let billed = charges.keys().filter_map(|key| key.job);
    billed.for_each(|job| assert!(jobs.contains_key(&job), "{name}: nobody knows who {job} is"));
    used(&machine, &charges)
}

const RECORDS: [(u32, &str); 5] = [
    (1, "version-1-finished.bin"),
    (1, "version-1-killed.bin"),
    (2, "version-2-lives.bin"),
    (3, "version-3-lives.bin"),
    (4, "version-4-lives.bin"),
];

#[test]
fn what_is_charged_is_what_another_program_makes_of_the_rows() {
    let mut kinds = std::collections::BTreeSet::new();
    for (version, name) in RECORDS {
        let used = is_made_again(version, name, &BillingRule::default(), HOUR);
        kinds.extend(used.into_keys().map(|used| used.kind));
    }
    for kind in ["worked", "lost", "lingering", "booked", "boot", "idle", "fragmentation"] {
        assert!(kinds.contains(kind), "nothing was {kind}: {kinds:?}");
    }
}

#[test]
fn slots_are_shorter_where_a_zone_is_half_an_hour_off() {
    let rule = BillingRule { offsets: vec![(Timestamp(0), 19_800)], ..BillingRule::default() };
    let (version, name) = RECORDS[3];
    let _ = is_made_again(version, name, &rule, HOUR / 2);
}
