//! The quota tree against a brute-force oracle: what may still be taken is found by trying 1, 2, 3 ... GPUs against the meaning of
//! the limits, on a tree of plain numbers.
//!
//! Never: the engine's recurrence. The oracle knows only "may this use stand?".

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{PoolId, QuotaId};
use forebay_kernel::policy::{Policy, QuotaLimit, QuotaNode};
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::MilliGpu;
use proptest::prelude::*;

/// A node of the tree: its parent (an earlier one, or none) and its limits in GPUs, if it names any.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) parent: Option<usize>,
    pub(super) limit: Option<(u64, Option<u64>, Option<u64>)>,
}

impl Plain {
    /// Its limits as a policy has them.
    pub(super) fn limits(&self) -> Option<QuotaLimit> {
        self.limit.map(|(nominal, borrow, lend)| QuotaLimit {
            nominal: MilliGpu::whole(nominal),
            borrow: borrow.map(MilliGpu::whole),
            lend: lend.map(MilliGpu::whole),
        })
    }
}

pub(super) fn trees() -> impl Strategy<Value = Vec<Plain>> {
    let bound = || prop::option::of(0u64..5);
    let limit = prop::option::weighted(0.8, (0u64..7, bound(), bound()));
    let node = (any::<prop::sample::Index>(), any::<bool>(), limit);
    prop::collection::vec(node, 1..8).prop_map(|nodes| {
        let plain = |(at, (parent, root, limit)): (usize, (prop::sample::Index, bool, _))| Plain {
            parent: (at > 0 && (!root || at > 1)).then(|| parent.index(at)),
            limit,
        };
        nodes.into_iter().enumerate().map(plain).collect()
    })
}

/// What a subtree owns: its nominal quota and what its children own and do not keep. `None`: a root without any bound.
pub(super) fn owns(tree: &[Plain], at: usize) -> Option<u64> {
    let children: Vec<usize> = (0..tree.len()).filter(|c| tree[*c].parent == Some(at)).collect();
    if tree[at].limit.is_none() && tree[at].parent.is_none() && children.is_empty() {
        return None;
    }
    let lent: u64 = children.iter().map(|c| owns(tree, *c).unwrap_or(0) - keeps(tree, *c)).sum();
    Some(tree[at].limit.map_or(0, |l| l.0) + lent)
}

/// What a subtree keeps to itself: all but what it lends.
fn keeps(tree: &[Plain], at: usize) -> u64 {
    let lends = tree[at].limit.and_then(|l| l.2);
    lends.map_or(0, |lends| owns(tree, at).unwrap_or(0).saturating_sub(lends))
}

/// What is used at a node: by its own jobs, and by its children beyond what they keep.
pub(super) fn uses(tree: &[Plain], jobs: &[u64], at: usize) -> u64 {
    let children = (0..tree.len()).filter(|c| tree[*c].parent == Some(at));
    let risen = children.map(|c| uses(tree, jobs, c).saturating_sub(keeps(tree, c)));
    jobs[at] + risen.sum::<u64>()
}

/// Whether these uses may stand together.
pub(super) fn stands(tree: &[Plain], jobs: &[u64]) -> bool {
    (0..tree.len()).all(|at| stands_at(tree, jobs, at))
}

/// Whether they may as far as one node goes.
pub(super) fn stands_at(tree: &[Plain], jobs: &[u64], at: usize) -> bool {
    let (own, used) = (owns(tree, at), uses(tree, jobs, at));
    match (own, tree[at].parent, tree[at].limit) {
        (None, _, _) | (_, Some(_), None | Some((_, None, _))) => true,
        (Some(own), Some(_), Some((_, Some(borrow), _))) => used <= own + borrow,
        (Some(own), None, _) => used <= own,
    }
}

/// The most that a node may still take, by trying.
pub(super) fn may_take(tree: &[Plain], jobs: &[u64], at: usize, most: u64) -> u64 {
    let fits = |more: &u64| {
        let mut with = jobs.to_vec();
        with[at] += more;
        stands(tree, &with)
    };
    (0..=most).take_while(fits).last().unwrap_or(0)
}

pub(super) fn policy(tree: &[Plain]) -> Policy {
    let offering = making::offering("spot", CapacityType::Spot, 1, 1);
    let mut policy = making::policy(vec![offering]);
    policy.quotas.clear();
    for (at, node) in tree.iter().enumerate() {
        policy.quotas.push(QuotaNode {
            name: format!("q{at}"),
            parent: node.parent.map(|p| QuotaId(p as u16)),
            limits: node.limits().map(|l| (PoolId(0), l)).into_iter().collect(),
            ..QuotaNode::default()
        });
        let mut rule = making::rule(1);
        rule.quota = QuotaId(at as u16);
        policy.queues.insert(format!("q{at}"), rule);
    }
    policy
}

/// More than any bounded tree here can give.
pub(super) const MOST: u64 = 100;

fn compare(world: &Cluster, tree: &[Plain], held: &[u64]) -> Result<(), TestCaseError> {
    prop_assert!(stands(tree, held), "{held:?} must not stand together");
    let quota = world.state().quota();
    let own_in_use = quota.own_in_use();
    for at in 0..tree.len() {
        let id = QuotaId(at as u16);
        prop_assert_eq!(quota.usage(id, PoolId(0)), MilliGpu::whole(uses(tree, held, at)));
        let names = tree[at].limit.map_or(0, |limit| limit.0);
        prop_assert_eq!(quota.named(id, PoolId(0)), MilliGpu::whole(names));
        prop_assert_eq!(quota.own_usage(id, PoolId(0)), MilliGpu::whole(held[at]));
        let own = if tree.iter().any(|node| node.parent == Some(at)) { held[at] } else { 0 };
        prop_assert_eq!(own_in_use.get(&(id, PoolId(0))).copied().unwrap_or_default(), MilliGpu::whole(own));
        let may = may_take(tree, held, at, MOST);
        let says = quota.available(id, PoolId(0));
        let same = says == MilliGpu::whole(may) || (may == MOST && says > MilliGpu::whole(MOST));
        prop_assert!(same, "node {at}: says {says}, may take {may}, held {held:?}");
        let ever = may_take(tree, &vec![0; tree.len()], at, MOST);
        let says = quota.potential(id, PoolId(0));
        let same = says == MilliGpu::whole(ever) || (ever == MOST && says > MilliGpu::whole(MOST));
        prop_assert!(same, "node {at}: could have {says}, may ever take {ever}");
    }
    Ok(())
}

#[test]
fn quota_is_what_the_limits_mean() {
    let ops = prop::collection::vec((any::<prop::sample::Index>(), 1u32..5, any::<bool>()), 1..25);
    holds("quota_is_what", 1000, &(trees(), ops), |(tree, ops)| {
        let mut world = Cluster::new(policy(&tree));
        world.mode = Mode::Quick;
        world.deaf.launch = true;
        compare(&world, &tree, &vec![0; tree.len()])?;
        for (n, (at, gpus, submits)) in ops.into_iter().enumerate() {
            if submits || n == 0 {
                let mut spec = making::job(&format!("j{n}"), workers(gpus, ask(1)));
                spec.queue = format!("q{}", at.index(tree.len()));
                world.submit(spec);
            } else {
                let subject = format!("j{}", at.index(n));
                let tenant = "t".into();
                world.step(vec![Event::JobCancelled { tenant, subject, by: None, sent: None }], false);
            }
            let mut held = vec![0; tree.len()];
            let mut waiting: Vec<(usize, u64)> = Vec::new();
            for (job, spec) in world.state().jobs() {
                let at: usize = spec.queue[1..].parse().expect("a queue of this test");
                let asks = spec.gang.gpu_share().0 / 1000;
                match job.phase {
                    Phase::Booked => held[at] += asks,
                    Phase::Queued => waiting.push((at, asks)),
                    _ => {}
                }
            }
            compare(&world, &tree, &held)?;
            // What is free is kept for a gang that lacks more.
            let lacks = |(at, asks): &(usize, u64)| *asks > may_take(&tree, &held, *at, MOST);
            let kept = waiting.iter().any(|one| one.1 > 1 && lacks(one));
            for one in waiting.iter().filter(|one| !kept && !lacks(one)) {
                prop_assert!(false, "{} GPUs wait at {}, though they may be taken", one.1, one.0);
            }
        }
        for n in 0..25 {
            let (tenant, subject) = ("t".into(), format!("j{n}"));
            world.step(vec![Event::JobCancelled { tenant, subject, by: None, sent: None }], false);
        }
        prop_assert_eq!(world.state().quota().in_use().count(), 0, "all is given back");
        Ok(())
    });
}
