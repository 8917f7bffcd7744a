//! What a job asks of ceilings and budgets at the least, where nothing is free for it: what people are told that it lacks.
//!
//! Never: decides.

use super::{budget, capacity, launch, supply};
use crate::ids::{JobId, PoolId};
use crate::state::{Held, State};
use crate::units::Rate;

/// What the smallest gang of a job adds at the least to what is held in a pool, by an `amount` of it: of what its tier may have there, the option that adds
/// the least but not nothing. `None`: none adds any. The job is one of the state.
pub fn least_added(state: &State, job: JobId, pool: PoolId, amount: impl Fn(Held) -> u64) -> Option<u64> {
    let class = state.jobs[job].class;
    let mut fits = supply::fits(state, class, pool).to_vec();
    fits.retain(|id| capacity::wanted(state, class, state.offerings[id.index()].offer.capacity));
    let options = launch::options(state, class, pool, &fits, &[]);
    options.iter().map(|option| amount(state.held_by(&option.counts))).filter(|added| *added > 0).min()
}

/// What an hour of the smallest gang of a job costs at the least, as budgets count it. `None`: nothing holds one of its workers. The job is one of the state.
pub fn least_rate(state: &State, job: JobId) -> Option<Rate> {
    let class = state.jobs[job].class;
    let pools = state.classes[class].fits.iter().filter(|(_, fits)| !fits.is_empty());
    pools.map(|(pool, _)| budget::least(state, class, *pool)).min()
}
