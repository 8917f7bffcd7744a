//! What the policy in force sets for a tier, a pool or a class.
//!
//! Never: a default that `policy` does not state. Without a policy there is nothing to read.

use crate::ids::{ClassId, PoolId, TierId};
use crate::policy::{Buys, Pool, Tier};
use crate::state::{Shape, State};
use crate::units::Rate;

/// The rules of a tier. `None`: no policy, or one without this tier.
pub(crate) fn tier(state: &State, id: TierId) -> Option<&Tier> {
    state.policy.as_deref()?.tiers.get(id.index())
}

/// The rules of a pool. `None`: no policy, or one without this pool.
pub(crate) fn pool(state: &State, id: PoolId) -> Option<&Pool> {
    state.policy.as_deref()?.pools.get(id.index())
}

/// The priority of a tier, 0 where the policy does not know it. More goes first.
pub(crate) fn priority(state: &State, id: TierId) -> i32 {
    tier(state, id).map_or(0, |t| t.priority)
}

/// Whether any tier has a `minShare`.
pub(crate) fn has_min_shares(state: &State) -> bool {
    state.policy.as_deref().is_some_and(|policy| policy.tiers.iter().any(|tier| tier.min_share > 0))
}

/// What the tier of a shape buys.
pub(crate) fn buys(state: &State, shape: &Shape) -> Buys {
    tier(state, shape.tier).map_or(Buys::Nothing, |t| t.buys)
}

/// What each node counts beside its price where purchases are compared. It is never billed.
pub(crate) fn node_overhead(state: &State) -> Rate {
    state.policy.as_deref().map_or(Rate(0), |p| p.node_overhead)
}

/// The pools of a class's queue that offer anything it fits, in the queue's order. Where none does, all of them: what each lacks is told.
pub(crate) fn pools(state: &State, class: ClassId) -> impl Iterator<Item = PoolId> + '_ {
    let all = &state.classes[class].fits;
    let none = all.iter().all(|(_, fits)| fits.is_empty());
    all.iter().filter(move |(_, fits)| none || !fits.is_empty()).map(|(pool, _)| *pool)
}
