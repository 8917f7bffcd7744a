//! Where a waiting job stands in its queue.
//!
//! Never: says who starts first. Fair share among queues, and what each lacks, may let others go before.

use forebay_kernel::ids::{JobId, TierId};
use forebay_kernel::policy::QueueOrder;
use forebay_kernel::state::State;
use forebay_kernel::state::index::OrderKey;
use forebay_kernel::state::jobs::Phase;

/// Classes that are looked at for one job at most.
const MOST_CLASSES: usize = 20_000;

/// Where a job stands among those of its queue that wait, by tier, deadline, priority and arrival: 1 is the next. `None`: it does not wait in its
/// queue, its queue goes by how short its jobs are expected to be, or more kinds of jobs wait than are looked at.
#[must_use]
pub fn position(state: &State, id: JobId) -> Option<u64> {
    let (row, _) = state.job(id).filter(|(row, _)| row.phase == Phase::Queued)?;
    let rule = state.queues().get(row.queue)?.rule.as_ref();
    let by_arrival = rule.is_none_or(|rule| rule.order == QueueOrder::Arrival);
    let index = state.index();
    if !by_arrival || index.queued.len() > MOST_CLASSES {
        return None;
    }
    let priority = |tier: TierId| state.policy().and_then(|p| p.tiers.get(tier.index())).map_or(0, |t| t.priority);
    let (key, own) = (OrderKey::of(row, index.ageing), priority(row.tier));
    let before = index.queued.iter().filter_map(|(class, jobs)| {
        let shape = &state.classes().get(*class)?.shape;
        let tier = priority(shape.tier);
        match shape.queue == row.queue {
            true if tier > own => Some(jobs.len()),
            true if tier == own => Some(index.position(*class, &key)),
            _ => None,
        }
    });
    Some(before.sum::<usize>() as u64 + 1)
}
