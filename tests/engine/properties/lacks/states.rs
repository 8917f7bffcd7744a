//! Random states: a policy with a tree of quotas, tiers, ceilings, money and start targets; jobs that fill it, then up to three heads.
//!
//! Never: more than the oracle can try. What it could not is counted.

use super::super::quota::Plain;
use super::model::BOOT;
use super::world::Dice;
use crate::making::{self, DOLLAR, ask};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Budget, Buys, Drain, Period, Policy, QuotaNode, StartTarget, WhenLate, WhenSpent};
use forebay_kernel::units::{Rate, Span};

/// One of these.
fn one<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.roll(of.len() as u64) as usize]
}

/// What a state is most about, so that each rule decides often enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Any,
    /// Queues that own nothing and borrow from one cohort.
    Shares,
    /// Queues that may borrow little.
    Bounds,
    /// Start targets shorter than a boot, and room to buy.
    Targets,
    /// Tiers alone.
    Tiers,
    /// Budgets.
    Money,
}

impl Flavour {
    pub(super) fn of(dice: &mut Dice) -> Flavour {
        use Flavour::{Any, Bounds, Money, Shares, Targets, Tiers};
        one(dice, &[Any, Any, Any, Shares, Bounds, Bounds, Targets, Tiers, Money])
    }
}

fn plain_tree(dice: &mut Dice, flavour: Flavour) -> Vec<Plain> {
    let of = |limit| Plain { parent: Some(0), limit };
    let root = Plain { parent: None, limit: None };
    match flavour {
        Flavour::Shares => {
            let root = Plain { limit: Some((4 + dice.roll(4), None, None)), ..root };
            let own = |dice: &mut Dice| {
                one(dice, &[None, Some((0, None, None)), Some((0, None, None)), Some((1, None, None))])
            };
            vec![root, of(own(dice)), of(own(dice)), of(own(dice))]
        }
        Flavour::Bounds => {
            let own = |dice: &mut Dice| {
                let lend = one(dice, &[None, None, Some(0), Some(1)]);
                Some((1 + dice.roll(4), one(dice, &[None, Some(0), Some(1), Some(2)]), lend))
            };
            vec![root, of(own(dice)), of(own(dice)), of(own(dice))]
        }
        _ => vec![root; 1 + dice.roll(2) as usize],
    }
}

fn tree(dice: &mut Dice, flavour: Flavour) -> Vec<Plain> {
    if flavour == Flavour::Shares || flavour == Flavour::Bounds || dice.roll(2) == 0 && flavour != Flavour::Any {
        return plain_tree(dice, flavour);
    }
    let mut tree: Vec<Plain> = Vec::new();
    for at in 0..2 + dice.roll(4) as usize {
        let root = at == 0 || dice.roll(6) == 0;
        let parent = if root { None } else { Some(dice.roll(at as u64) as usize) };
        let named = dice.roll(10) < if at == 0 { 3 } else { 8 };
        let bound = |dice: &mut Dice| (dice.roll(5) < 2).then(|| dice.roll(5));
        let limit = (dice.roll(6), bound(dice), bound(dice));
        tree.push(Plain { parent, limit: named.then_some(limit) });
    }
    tree
}

/// A policy, and its tree of quotas.
pub(super) fn policy(dice: &mut Dice, flavour: Flavour) -> (Policy, Vec<Plain>) {
    let mut small = making::offering("small", CapacityType::Spot, 2, one(dice, &[1, 2, 3]));
    let mut large = making::offering("large", CapacityType::Spot, 4, one(dice, &[3, 4, 8]));
    for offering in [&mut small, &mut large] {
        offering.boot = Span(BOOT);
    }
    let mut policy = making::policy(vec![small, large]);
    let tree = tree(dice, flavour);
    policy.quotas.clear();
    for (at, node) in tree.iter().enumerate() {
        let amount = (3 + dice.roll(10)) * DOLLAR;
        let (often, held_to) =
            (if flavour == Flavour::Money { 2 } else { 8 }, if flavour == Flavour::Targets { 1 } else { 6 });
        let held = Budget { amount, per: one(dice, &[Period::Hour, Period::Day]), when_spent: WhenSpent::Hold };
        policy.quotas.push(QuotaNode {
            name: format!("q{at}"),
            parent: node.parent.map(|parent| QuotaId(parent as u16)),
            limits: node.limits().map(|limit| (PoolId(0), limit)).into_iter().collect(),
            weight: one(dice, &[500, 1000, 1000, 2000]),
            budget: (dice.roll(often) == 0).then_some(held),
        });
        let mut rule = making::rule(1);
        rule.quota = QuotaId(at as u16);
        let within = Span::secs(one(dice, &[30, 30, 600]));
        rule.start = (dice.roll(held_to) == 0).then_some(StartTarget { within, when_late: WhenLate::Wait });
        policy.queues.insert(format!("q{at}"), rule);
    }
    policy.limits.nodes = Some(if flavour == Flavour::Targets { 4 } else { 1 + dice.roll(3) as u32 });
    policy.limits.gpus = (dice.roll(3) == 0).then(|| 3 + dice.roll(7) as u32);
    policy.limits.spend = (dice.roll(5) == 0).then(|| Rate((4 + dice.roll(12)) * DOLLAR));
    policy.pools[0].ceiling.gpus = (dice.roll(6) == 0).then(|| 4 + dice.roll(5) as u32);
    policy.pools[0].drain = Drain::After(Span::mins(one(dice, &[5, 60 * 24 * 365])));
    if flavour == Flavour::Shares || flavour == Flavour::Bounds {
        policy.limits = forebay_kernel::policy::Ceiling { nodes: Some(3), ..policy.limits };
    }
    let (normal, scavenger) = (1, 2);
    policy.tiers[normal].stoppable_by = one(dice, &[&[TierId(0)][..], &[TierId(0)], &[TierId(0)], &[]]).to_vec();
    policy.tiers[scavenger].stoppable_by =
        one(dice, &[&[TierId(0), TierId(1)][..], &[TierId(0), TierId(1)], &[TierId(1)], &[]]).to_vec();
    policy.tiers[scavenger].buys = one(dice, &[Buys::SpotThenOnDemand, Buys::SpotThenOnDemand, Buys::Nothing]);
    for at in [normal, scavenger] {
        policy.tiers[at].min_run = Span::mins(one(dice, &[0, 0, 10, 30]));
        policy.tiers[at].max_run_while_others_wait =
            one(dice, &[None, None, Some(Span::mins(20)), Some(Span::mins(40))]);
        policy.tiers[at].min_share = one(dice, &[0, 0, 0, 300, 600]);
        if flavour == Flavour::Tiers && dice.roll(4) > 0 {
            policy.tiers[at].stoppable_by.clear();
            policy.tiers[at].max_run_while_others_wait = Some(Span::mins(15));
            policy.tiers[at].min_share = 0;
        }
    }
    (policy, tree)
}

/// A job in a queue of the tree.
pub(super) fn job(dice: &mut Dice, flavour: Flavour, tree: &[Plain], n: u64) -> JobSpec {
    let simple = flavour == Flavour::Shares || flavour == Flavour::Bounds || flavour == Flavour::Tiers;
    let count = if simple { one(dice, &[1, 1, 1, 2]) } else { one(dice, &[1, 1, 1, 2, 2, 3]) };
    let min = if dice.roll(4) == 0 { 1 } else { count };
    let each = ask(if simple { one(dice, &[1, 1, 1, 2]) } else { one(dice, &[1, 1, 1, 1, 1, 2, 2, 4]) });
    let mut spec = making::job(&format!("j{n}"), Gang::Workers { min, max: count, each });
    // Those that fill a cohort are of one queue mostly, so that another one is poorer.
    let fills = flavour == Flavour::Shares && n < 4 && dice.roll(4) > 0;
    spec.queue = if fills { "q1".into() } else { format!("q{}", dice.roll(tree.len() as u64)) };
    spec.tier = match flavour {
        Flavour::Shares => None,
        _ => one(dice, &[None, None, Some("critical"), Some("scavenger")]).map(String::from),
    };
    spec.priority = dice.roll(3) as i32;
    spec.checkpoint = (dice.roll(2) == 0).then(|| making::saves(Span::secs(60), Span::secs(5))).flatten();
    spec.restart = Span::secs(one(dice, &[0, 0, 60, 900]));
    spec
}
