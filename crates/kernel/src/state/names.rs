//! Names, interned: queues, models, offerings and classes get a small id the first time they are met, and keep it.
//!
//! Never: forgets. An id in a row stays good through every change of policy.

use super::{Class, Queue, Shape, State};
use crate::catalog::{CapacityType, Offering};
use crate::ids::{BatchId, ClassId, JobId, ModelId, OfferingId, PoolId, QueueId, RackId};
use crate::job::{Gang, WorkerAsk};
use crate::policy::{Policy, QueueRule, Undeclared, WhenLate};
use crate::state::jobs::{Job, JobStartTarget, Phase};
use crate::state::nodes::{OfferingRow, WIDE_OPEN};
use crate::state::owned::OwnedShape;
use crate::state::pools::PoolMoves;
use crate::units::Rate;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The lookups by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    queues: BTreeMap<String, QueueId>,
    models: BTreeMap<String, ModelId>,
    batches: BTreeMap<(QueueId, String), BatchId>,
    racks: BTreeMap<String, RackId>,
    offerings: BTreeMap<(String, String, CapacityType), OfferingId>,
    owned: BTreeMap<(OwnedShape, Rate), OfferingId>,
    classes: BTreeMap<Shape, ClassId>,
}

impl Names {
    pub(super) fn rebuilt(state: &State) -> Names {
        let mut names = Names::default();
        for (id, queue) in state.queues.iter() {
            names.queues.insert(queue.path.clone(), id);
        }
        for (id, model) in state.models.iter() {
            names.models.insert(model.clone(), id);
        }
        for (id, batch) in state.batches.iter() {
            names.batches.insert(batch.clone(), id);
        }
        for (id, rack) in state.racks.iter() {
            names.racks.insert(rack.clone(), id);
        }
        for (at, row) in state.offerings.iter().enumerate() {
            names.offering_in(&row.offer, OfferingId(at as u32));
        }
        for (id, class) in state.classes.iter() {
            names.classes.insert(class.shape.clone(), id);
        }
        names
    }

    /// Shapes of owned nodes differ where type and zone do not.
    fn offering_in(&mut self, offer: &Offering, id: OfferingId) {
        if offer.capacity == CapacityType::Owned {
            self.owned.insert((OwnedShape::of(offer), offer.price), id);
        } else {
            self.offerings.insert(key(offer), id);
        }
    }
}

fn key(offer: &Offering) -> (String, String, CapacityType) {
    (offer.instance_type.clone(), offer.zone.clone(), offer.capacity)
}

impl State {
    /// The rule of a job's queue. `None`: the policy does not know the queue.
    #[must_use]
    pub fn rule_for(&self, job: JobId) -> Option<&QueueRule> {
        self.queues[self.jobs[job].queue].rule.as_ref()
    }

    pub(crate) fn queue_id(&mut self, path: &str) -> QueueId {
        if let Some(id) = self.names.queues.get(path).copied() {
            if self.queues[id].rule.is_none() && self.apply_version >= 3 {
                self.rule_anew(id);
            }
            return id;
        }
        let rule = self.policy.as_deref().and_then(|policy| rule_of(policy, path, self.undeclared_known()));
        let id = self.queues.push(Queue { path: path.into(), rule });
        self.names.queues.insert(path.into(), id);
        self.note_queue_brake(id);
        id
    }

    /// Queues that were ever known and run by the rule for undeclared ones, as far as records count them. From version 3 on they do not:
    /// what a policy allows is in use at once (`undeclaredQueues.atMost`) is judged when a job is accepted.
    fn undeclared_known(&self) -> Option<usize> {
        let policy = self.policy.as_deref().filter(|_| self.apply_version < 3)?;
        let undeclared = |q: &&Queue| q.rule.is_some() && !policy.queues.contains_key(&q.path);
        Some(self.queues.rows().filter(undeclared).count())
    }

    /// A queue was one too many when names were counted for ever.
    fn rule_anew(&mut self, id: QueueId) {
        let rule = self.policy.as_deref().and_then(|policy| rule_of(policy, &self.queues[id].path, None));
        if rule.is_none() {
            return;
        }
        self.queues[id].rule = rule;
        let classes: Vec<ClassId> =
            self.classes.iter().filter(|(_, c)| c.shape.queue == id).map(|(id, _)| id).collect();
        for class in classes {
            self.classes[class].fits = self.fits(&self.classes[class].shape);
        }
    }

    /// What the policy says of each queue, where a snapshot holds less of it than the policy.
    pub(super) fn renew_rules(&mut self) {
        let Some(policy) = self.policy.as_deref() else { return };
        let ids: Vec<QueueId> = self.queues.ids().collect();
        for id in ids {
            let queue = &mut self.queues[id];
            if queue.rule.is_some() {
                queue.rule = rule_of(policy, &queue.path, None);
            }
        }
    }

    /// Undeclared queues with jobs that are accepted and not over, besides one.
    pub fn undeclared_in_use(&self, besides: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        let declared = move |id: &QueueId| {
            self.policy.as_deref().is_some_and(|policy| policy.queues.contains_key(&self.queues[*id].path))
        };
        self.index.in_use_by_queue.keys().copied().filter(move |id| *id != besides && !declared(id))
    }

    pub(crate) fn model_id(&mut self, name: &str) -> ModelId {
        if let Some(id) = self.names.models.get(name) {
            return *id;
        }
        let id = self.models.push(name.into());
        self.names.models.insert(name.into(), id);
        id
    }

    pub(crate) fn batch_id(&mut self, queue: QueueId, key: &str) -> BatchId {
        let batch = (queue, String::from(key));
        if let Some(id) = self.names.batches.get(&batch) {
            return *id;
        }
        let id = self.batches.push(batch.clone());
        self.names.batches.insert(batch, id);
        id
    }

    pub(crate) fn rack_id(&mut self, name: &str) -> RackId {
        if let Some(id) = self.names.racks.get(name) {
            return *id;
        }
        let id = self.racks.push(name.into());
        self.names.racks.insert(name.into(), id);
        id
    }

    pub(crate) fn class_id(&mut self, shape: Shape) -> ClassId {
        if let Some(id) = self.names.classes.get(&shape) {
            return *id;
        }
        let fits = self.fits(&shape);
        let id = self.classes.push(Class { shape: shape.clone(), fits, impossible: None });
        self.index.lines.class_in(id, &shape);
        self.names.classes.insert(shape, id);
        id
    }

    /// Puts a policy in force: offerings, queues, classes and quota follow it; rows keep their ids.
    pub(crate) fn configure(&mut self, policy: &Policy) {
        self.counters.configured += 1;
        let mut with_kept = if self.apply_version >= 2 {
            let (with_kept, map) = self.with_kept_tiers(policy);
            self.kept_tiers = (with_kept.tiers.len() - policy.tiers.len()) as u16;
            self.move_tiers(&map);
            with_kept
        } else {
            policy.clone()
        };
        let moves = self.keep_pools(&mut with_kept);
        let policy = &with_kept;
        let owned = self.pools_of_owned();
        self.carry_pools(policy, &moves);
        for row in &mut self.offerings {
            row.listed = false;
        }
        self.listed = policy.offerings.iter().map(|offer| self.offering_id(offer)).collect();
        let holders: Vec<_> = self.jobs.rows().filter_map(|j| Some((j.queue, j.pool?, j.share))).collect();
        self.fair = self.carried_use(policy);
        self.budgets = self.carried_budgets(policy);
        self.quota = super::QuotaTree::new(policy);
        let ids: Vec<QueueId> = self.queues.ids().collect();
        let mut undeclared = 0;
        for id in ids {
            let path = &self.queues[id].path;
            let rule = rule_of(policy, path, (self.apply_version < 3).then_some(undeclared));
            undeclared += usize::from(rule.is_some() && !policy.queues.contains_key(path));
            self.queues[id].rule = rule;
        }
        self.policy = Some(alloc::boxed::Box::new(policy.clone()));
        // From version 5 on a pool may have another name now; one that is only kept has no owned nodes.
        let owned = if self.apply_version < 5 { owned } else { self.pools_of_owned() };
        self.carry_owned(&owned);
        let ids: Vec<ClassId> = self.classes.ids().collect();
        for id in ids {
            self.classes[id].fits = self.fits(&self.classes[id].shape);
        }
        self.renew_patience();
        self.renew_longest_runs();
        for (queue, pool, share) in holders {
            self.take_quota(queue, pool, share);
        }
        self.count_costs_anew();
        self.rank_anew();
        self.unjudged = self.apply_version >= 2 && self.counters.configured > 1;
        self.capacity_epoch += 1;
    }

    /// Start targets are those of the policy in force; what was promised under another one is forgotten.
    fn renew_patience(&mut self) {
        let open: Vec<_> = self.index.open_jobs.iter().copied().collect();
        for id in open {
            let job = &self.jobs[id];
            let waits = job.first_start.is_none();
            let target = waits.then(|| self.start_target(job.queue, job.arrival, &self.specs[job.id])).flatten();
            let start_target = target.map(|target| self.target_anew(job, target));
            if start_target.is_some() || job.start_target.is_some() {
                self.edit_job(id, |row| row.start_target = start_target);
            }
        }
    }

    /// A run that the policy bounds may go on for as long as the policy in force says, as records from version 5 on mean. One that says less stops
    /// nothing that runs.
    fn renew_longest_runs(&mut self) {
        if self.apply_version < 5 {
            return;
        }
        let longest = self.lifecycle().max_run;
        let open: Vec<_> = self.index.open_jobs.iter().copied().collect();
        for id in open {
            let row = &self.jobs[id];
            let bounded = row.phase == Phase::Running && self.specs[id].max_run.is_none();
            if let Some(since) = row.running_since.filter(|_| bounded) {
                self.edit_job(id, |row| row.must_end_by = row.must_end_by.max(since + longest));
            }
        }
    }

    /// Who was held because nothing that it may have could be paid, and would be rejected if it were late, has the whole of its target from now on.
    pub(crate) fn renew_target(&mut self, id: JobId) {
        let job = &self.jobs[id];
        let rejects = |target: &JobStartTarget| target.when_late == WhenLate::Reject;
        if self.apply_version < 5 || job.phase != Phase::Held || !job.start_target.as_ref().is_some_and(rejects) {
            return;
        }
        let target = self.start_target(job.queue, job.arrival, &self.specs[id]);
        if let Some(target) = target.map(|target| self.target_anew(job, target)) {
            self.edit_job(id, |row| row.start_target = Some(target));
        }
    }

    /// The target of a job that waits, which would count from its arrival. Where who is late is rejected, a job has the whole of a new one from now
    /// on, the whole of a shorter one as far as it had that long, and what the end of a brake has given it. Up to version 4 all counted from the arrival.
    fn target_anew(&self, job: &Job, target: JobStartTarget) -> JobStartTarget {
        let rejects = |target: &JobStartTarget| target.when_late == WhenLate::Reject;
        if self.apply_version < 5 || !rejects(&target) {
            return target;
        }
        if job.service.is_some() {
            // A replica that is late is not replaced by another that is.
            return JobStartTarget { when_late: WhenLate::Wait, ..target };
        }
        let whole = self.now + target.by.since(job.arrival);
        // For one that no policy let start until now, the target is new.
        let before = job.start_target.filter(|before| rejects(before) && job.phase != Phase::Held);
        JobStartTarget { by: before.map_or(whole, |before| target.by.max(before.by.min(whole))), ..target }
    }

    /// Claims and runs follow their pool; those of a pool that is gone count in the first one.
    fn carry_pools(&mut self, policy: &Policy, moves: &PoolMoves) {
        let map = |pool: PoolId| moves.of(pool).unwrap_or(PoolId(0));
        self.observed.carry_pools(|pool| moves.of(pool));
        self.totals.pools = alloc::vec![super::Held::default(); policy.pools.len()];
        self.totals.all = super::Held::default();
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            let Some(mut node) = self.nodes.remove(&id) else {
                continue;
            };
            self.index.node_out(&node);
            node.pool = map(node.pool);
            let offer = &self.offerings[node.offering.index()].offer;
            self.totals.add(node.pool, offer.capacity, offer.gpus, node.booked_price);
            self.index.node_in(&node);
            self.nodes.insert(id, node);
        }
        self.carry_reservations(|pool| moves.declared(pool));
        // The tree is another one: what is short is found anew.
        self.allowances.clear();
        for purchase in self.purchases.values_mut() {
            purchase.pool = map(purchase.pool);
        }
        let ids: Vec<JobId> = self.jobs.ids().collect();
        for id in ids {
            let (pool, kept) = (self.jobs[id].pool.map(map), self.jobs[id].kept);
            if self.jobs[id].pool != pool {
                self.index.row_out(&self.jobs[id], &self.specs[id]);
                self.jobs[id].pool = pool;
                self.index.row_in(&self.jobs[id], &self.specs[id]);
            }
            // What was kept was kept by the rules of before.
            if kept.is_some() {
                self.edit_job(id, |job| job.kept = None);
            }
        }
    }

    fn offering_id(&mut self, offer: &Offering) -> OfferingId {
        let models = offer.models.iter().map(|m| self.model_id(m)).collect();
        if let Some(&id) = self.names.offerings.get(&key(offer)) {
            let row = &mut self.offerings[id.index()];
            row.offer = offer.clone();
            row.models = models;
            row.listed = true;
            return id;
        }
        self.new_offering(offer, models)
    }

    fn new_offering(&mut self, offer: &Offering, models: Vec<ModelId>) -> OfferingId {
        let id = OfferingId(self.offerings.len() as u32);
        self.names.offering_in(offer, id);
        let reserve = self.reserve_of(offer);
        self.offerings.push(OfferingRow {
            offer: offer.clone(),
            models,
            listed: true,
            blocked_until: crate::units::Timestamp(0),
            blocked_by: None,
            refused_size: 0,
            failures: 0,
            window: WIDE_OPEN,
            in_flight: 0,
            reserve,
        });
        id
    }

    /// The shape of an owned node. One that was never seen may hold what waits already.
    pub(super) fn owned_offering(&mut self, offer: &Offering) -> OfferingId {
        if let Some(id) = self.names.owned.get(&(OwnedShape::of(offer), offer.price)) {
            return *id;
        }
        let models = offer.models.iter().map(|m| self.model_id(m)).collect();
        let id = self.new_offering(offer, models);
        let ids: Vec<ClassId> = self.classes.ids().collect();
        for id in ids {
            self.classes[id].fits = self.fits(&self.classes[id].shape);
        }
        id
    }

    /// The shapes of all owned nodes that were ever seen.
    fn owned_offerings(&self) -> impl Iterator<Item = OfferingId> + '_ {
        let mut ids: Vec<OfferingId> = self.names.owned.values().copied().collect();
        ids.sort_unstable();
        ids.into_iter()
    }

    /// Offerings that can hold at least one worker of a shape, by pool in the queue's order.
    pub(super) fn fits(&self, shape: &Shape) -> Vec<(PoolId, Vec<OfferingId>)> {
        let (Some(policy), Some(rule)) = (&self.policy, &self.queues[shape.queue].rule) else {
            return Vec::new();
        };
        let ask = smallest_worker(&shape.gang);
        let mut fits = Vec::new();
        for &pool in &rule.pools {
            let Some(rules) = policy.pools.get(pool.index()) else {
                continue;
            };
            let listed = rules.offerings.iter().filter_map(|at| self.listed.get(*at as usize).copied());
            let cut = crate::layouts::can_be_held(rules, shape, &ask);
            let owned = rules.owned.iter().flat_map(|_| self.owned_offerings());
            let good = listed.chain(owned).filter(|id| cut && self.holds_one(*id, shape, &ask)).collect();
            fits.push((pool, good));
        }
        fits
    }

    fn holds_one(&self, id: OfferingId, shape: &Shape, ask: &WorkerAsk) -> bool {
        let row = &self.offerings[id.index()];
        let model = shape.models.is_empty() || shape.models.iter().any(|m| row.models.contains(m));
        let offer = &row.offer;
        let gpus = ask.gpus <= offer.gpus && (ask.gpus == 0 || ask.gpu_mem <= offer.gpu_mem);
        let capacity = offer.capacity != CapacityType::Spot || self.may_use_spot(shape);
        let avoided = shape.urgency == super::Urgency::Avoids(id);
        let room = row.room();
        model && gpus && capacity && !avoided && ask.cpu <= room.cpu && ask.mem <= room.mem
    }

    /// Whether jobs of a shape may run on spot: the job and its tier both say so, and its deadline leaves the time.
    pub(crate) fn may_use_spot(&self, shape: &Shape) -> bool {
        let Some(policy) = &self.policy else {
            return false;
        };
        let tier = policy.tiers.get(shape.tier.index());
        shape.spot
            && !matches!(shape.urgency, super::Urgency::Urgent | super::Urgency::AvoidsSpot)
            && tier.is_some_and(|t| t.buys != crate::policy::Buys::OnDemand)
    }
}

/// What the smallest worker of a gang needs on one node.
fn smallest_worker(gang: &Gang) -> WorkerAsk {
    match gang {
        Gang::Workers { each, .. } => *each,
        Gang::Spanning { per_gpu, .. } => *per_gpu,
    }
}

/// The rule of a queue: its own, or the one that undeclared queues share, as long as no more of them are `known` than the policy allows.
fn rule_of(policy: &Policy, path: &str, known: Option<usize>) -> Option<QueueRule> {
    if let Some(rule) = policy.queues.get(path) {
        return Some(rule.clone());
    }
    let Undeclared::Under { rule, at_most } = &policy.undeclared else {
        return None;
    };
    known.is_none_or(|known| known < *at_most as usize).then(|| rule.clone())
}
