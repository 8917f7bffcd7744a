//! The simulated cloud: answers launches, boots instances, takes spot back when the market has less of it, ends instances on request.
//!
//! ```text
//! launch -> (1..3 s) answer -> boot -> ready -> ... -> terminate -> (5..15 s) gone
//!                         market falls -> notice -> (120 s) gone
//! ```
//!
//! Never: instances that fail on their own once they are ready.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::state::State;
use forebay_kernel::units::{HOUR_MS, Mib, MilliCpu, Rate, Span, Timestamp};

use super::hash::{Draw, below, chance, draw, name};
use super::{Due, World};

/// A reclaim is announced this long ahead, as EC2 does.
const NOTICE: Span = Span::secs(120);

/// A launch as asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchRequest {
    pub purchase: PurchaseId,
    pub offering: OfferingId,
    pub count: u32,
    pub at_least: u32,
}

/// A launch and, once the cloud has answered, its instances.
#[derive(Clone, Debug)]
struct Launch {
    ask: LaunchRequest,
    answer: Option<(Vec<usize>, Option<LaunchError>)>,
}

/// An instance, existing or gone.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub name: String,
    pub purchase: PurchaseId,
    pub offering: OfferingId,
    pub launched: Timestamp,
    pub ready: bool,
    ending: bool,
    pub reclaim_at: Option<Timestamp>,
    gone: Option<GoneWhy>,
}

/// An offering as the cloud sells it.
#[derive(Clone, Debug)]
struct Sold {
    offer: Offering,
    /// The price that its market's permille are of.
    mean: Rate,
    pair: Option<usize>,
    stock: Option<u32>,
    /// The price now, and when it was announced, if ever.
    price: (Option<Timestamp>, Rate),
    existing: u32,
}

/// What an instance has for work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Whole GPUs.
    pub gpus: u16,
    /// Memory of each.
    pub gpu_mem: Mib,
    pub cpu: MilliCpu,
    pub mem: Mib,
}

/// The cloud.
#[derive(Clone, Debug, Default)]
pub(super) struct Cloud {
    sold: Vec<Sold>,
    /// Pairs of the market whose changes are on the agenda.
    watched: BTreeSet<usize>,
    launches: BTreeMap<PurchaseId, Launch>,
    instances: Vec<Instance>,
    by_name: BTreeMap<String, usize>,
    existing: BTreeSet<usize>,
    /// Nodes that nobody bought. They are in no listing of the cloud's, and are never taken back.
    owned: Vec<usize>,
}

impl World {
    /// Takes note of offerings that it has not heard of.
    pub(super) fn know(&mut self, state: &State) {
        let rows = state.offerings();
        for (at, row) in rows.iter().enumerate().skip(self.cloud.sold.len()) {
            let offer = &row.offer;
            let listed = state.policy().and_then(|p| p.offerings.iter().find(|o| o.key() == offer.key()));
            let pair = (0..self.options.market.len())
                .find(|ix| self.options.market.pair(*ix) == Some((offer.instance_type.as_str(), offer.zone.as_str())));
            let pair = pair.filter(|_| offer.capacity == CapacityType::Spot);
            let stock = self.options.stock.iter().find(|s| {
                s.instance_type == offer.instance_type && s.zone == offer.zone && s.capacity == offer.capacity
            });
            self.billing.know(Timestamp(0), offer);
            self.cloud.sold.push(Sold {
                offer: offer.clone(),
                mean: listed.map_or(offer.price, |o| o.price),
                pair,
                stock: stock.map(|s| s.count),
                price: (None, offer.price),
                existing: 0,
            });
            if let Some(pair) = pair {
                self.agenda.at(state.now(), Due::Price(OfferingId(u32::try_from(at).unwrap_or(u32::MAX))));
                if self.cloud.watched.insert(pair) {
                    self.agenda.at(state.now(), Due::Market(pair));
                }
            }
        }
    }

    /// A launch arrives. For one that is known, everything that has become of it and of its instances is reported again.
    pub(super) fn launch(&mut self, now: Timestamp, ask: LaunchRequest) {
        let id = ask.purchase;
        match self.cloud.launches.get(&id) {
            None => {
                self.cloud.launches.insert(id, Launch { ask, answer: None });
                let answer = 1000 + below(draw(self.options.seed, Draw::Answer, id.0, 0), 2000);
                self.agenda.at(now + Span(answer), Due::Answer(id));
            }
            Some(Launch { answer: Some((instances, error)), .. }) => {
                let names = instances.iter().filter_map(|ix| self.cloud.instances.get(*ix)).map(|i| i.name.clone());
                self.agenda
                    .report(now, Event::LaunchOutcome { purchase: id, instances: names.collect(), error: *error });
                for instance in instances.iter().filter_map(|ix| self.cloud.instances.get(*ix)) {
                    let instance_name = instance.name.clone();
                    match instance.gone {
                        Some(why) => self.agenda.report(now, Event::NodeGone { instance: instance_name, why }),
                        None if instance.ready => self.agenda.report(now, Event::NodeReady { instance: instance_name }),
                        None => {}
                    }
                }
            }
            Some(_) => {}
        }
    }

    /// The cloud answers a launch.
    pub(super) fn answer(&mut self, at: Timestamp, id: PurchaseId) -> Option<Event> {
        let ask = self.cloud.launches.get(&id)?.ask;
        let (count, error) = self.offered(at, ask);
        let made: Vec<usize> = (0..count).map(|nth| self.create(at, ask, nth)).collect();
        let names = made.iter().filter_map(|ix| self.cloud.instances.get(*ix)).map(|i| i.name.clone()).collect();
        if let Some(launch) = self.cloud.launches.get_mut(&id) {
            launch.answer = Some((made, error));
        }
        Some(Event::LaunchOutcome { purchase: id, instances: names, error })
    }

    /// The rack of an instance that takes work, if the cloud reports racks.
    pub(super) fn stands(&self, ix: usize) -> Option<Event> {
        let instance =
            self.cloud.instances.get(ix).filter(|i| i.ready && i.gone.is_none() && self.options.racks > 0)?;
        let zone = &self.sold_of(ix)?.offer.zone;
        let nth = below(draw(self.options.seed, Draw::Rack, instance.purchase.0, 0), self.options.racks);
        Some(Event::NodePlaced { instance: instance.name.clone(), rack: format!("{zone}/{nth}") })
    }

    /// An instance joins the cluster, unless it is going already.
    pub(super) fn ready(&mut self, ix: usize) -> Option<Event> {
        let instance = self.cloud.instances.get_mut(ix)?;
        if instance.gone.is_some() || instance.ending || instance.ready {
            return None;
        }
        instance.ready = true;
        Some(Event::NodeReady { instance: instance.name.clone() })
    }

    /// A termination arrives. Returns the instance that it will end, the first time.
    pub(super) fn terminate(&mut self, now: Timestamp, instance: &str) -> Option<usize> {
        let Some(ix) = self.find(instance) else {
            self.agenda.report(now, Event::NodeGone { instance: instance.to_owned(), why: GoneWhy::Terminated });
            return None;
        };
        let row = self.cloud.instances.get_mut(ix)?;
        if let Some(why) = row.gone {
            self.agenda.report(now, Event::NodeGone { instance: instance.to_owned(), why });
            return None;
        }
        if row.ending {
            return None;
        }
        row.ending = true;
        let takes = 5000 + below(draw(self.options.seed, Draw::Termination, name(&[instance]), 0), 10_000);
        self.agenda.at(now + Span(takes), Due::Gone(ix, GoneWhy::Terminated));
        Some(ix)
    }

    /// An instance is no more.
    pub(super) fn gone(&mut self, at: Timestamp, ix: usize, why: GoneWhy) -> Option<Event> {
        let instance = self.cloud.instances.get_mut(ix)?;
        if instance.gone.is_some() {
            return None;
        }
        instance.gone = Some(why);
        self.cloud.existing.remove(&ix);
        self.billing.gone(instance.offering, instance.launched, at);
        let taken = why == GoneWhy::Reclaimed || instance.reclaim_at.is_some();
        self.billing.reclaims += u64::from(taken);
        self.billing.unwarned += u64::from(taken && instance.reclaim_at.is_none());
        if let Some(sold) = self.cloud.sold.get_mut(instance.offering.index()) {
            sold.existing = sold.existing.saturating_sub(1);
        }
        let instance = instance.name.clone();
        self.node_gone(at, ix, why);
        Some(Event::NodeGone { instance, why })
    }

    /// A pair's availability may have changed: spot beyond it is taken back.
    pub(super) fn market(&mut self, at: Timestamp, pair: usize) {
        if let Some(next) = self.next_change(pair, at) {
            self.agenda.at(next, Due::Market(pair));
        }
        let Some(most) = self.available(pair, at) else { return };
        let of_pair = |ix: &usize| self.sold_of(*ix).is_some_and(|s| s.pair == Some(pair));
        let mut held: Vec<usize> = self.cloud.existing.iter().copied().filter(of_pair).collect();
        held.retain(|ix| self.cloud.instances.get(*ix).is_some_and(|i| i.reclaim_at.is_none() && !i.ending));
        let excess = held.len().saturating_sub(most as usize);
        if excess == 0 {
            return;
        }
        let seed = self.options.seed;
        held.sort_by_key(|ix| (draw(seed, Draw::Reclaim, *ix as u64, at.0), *ix));
        for ix in held.into_iter().take(excess) {
            let Some(instance) = self.cloud.instances.get_mut(ix) else { continue };
            let warned =
                chance(draw(seed, Draw::Warning, name(&[&instance.name]), at.0), self.options.warning_permille);
            let goes = if warned { at + NOTICE } else { at };
            if warned {
                instance.reclaim_at = Some(goes);
                self.events.push(Event::ReclaimNotice { instance: instance.name.clone(), at: goes });
            }
            self.agenda.at(goes, Due::Gone(ix, GoneWhy::Reclaimed));
        }
    }

    /// An offering's price may have changed. It is announced at most once an hour.
    pub(super) fn price(&mut self, at: Timestamp, offering: OfferingId) -> Option<Event> {
        let pair = self.cloud.sold.get(offering.index())?.pair?;
        let next = self.next_change(pair, at);
        let sold = self.cloud.sold.get_mut(offering.index())?;
        if let Some(earliest) = sold.price.0.map(|last| last + Span(HOUR_MS)).filter(|e| at < *e) {
            self.agenda.at(earliest, Due::Price(offering));
            return None;
        }
        if let Some(next) = next {
            self.agenda.at(next, Due::Price(offering));
        }
        let permille = self.options.market.state_at(pair, at.since(self.options.origin).0).price_permille;
        let moved = Rate(sold.mean.0.saturating_mul(u64::from(permille)).div_ceil(1000)).min(sold.offer.max_price);
        if moved == sold.price.1 {
            return None;
        }
        sold.price = (Some(at), moved);
        self.billing.reprice(at, offering, moved);
        Some(Event::PriceChanged { offering, price: moved })
    }

    /// An instance by its name.
    pub(super) fn find(&self, instance: &str) -> Option<usize> {
        self.cloud.by_name.get(instance).copied()
    }

    /// Whether work can start there.
    pub(super) fn usable(&self, ix: usize) -> bool {
        self.cloud.instances.get(ix).is_some_and(|i| i.ready && i.gone.is_none() && !i.ending)
    }

    /// What an instance has for work.
    pub(super) fn room(&self, ix: usize) -> Room {
        let of = |offer: &Offering| Room { gpus: offer.gpus, gpu_mem: offer.gpu_mem, cpu: offer.cpu, mem: offer.mem };
        self.sold_of(ix).map_or_else(Room::default, |sold| of(&sold.offer))
    }

    /// Instances that exist, by launch.
    pub(super) fn existing(&self) -> impl Iterator<Item = &Instance> + '_ {
        self.cloud.existing.iter().filter_map(|ix| self.cloud.instances.get(*ix))
    }

    /// An instance that is there already, for a rebuilt world.
    pub(super) fn adopt(&mut self, instance: Instance) -> usize {
        if let Some(sold) = self.cloud.sold.get_mut(instance.offering.index()) {
            sold.existing += 1;
        }
        self.billing.launched();
        let ix = self.enter(instance);
        self.cloud.existing.insert(ix);
        ix
    }

    fn enter(&mut self, instance: Instance) -> usize {
        let ix = self.cloud.instances.len();
        self.cloud.by_name.insert(instance.name.clone(), ix);
        self.cloud.instances.push(instance);
        ix
    }

    /// A node that nobody bought is there from now on, and runs may be started on it. `state` has seen it.
    pub fn own(&mut self, now: Timestamp, name: &str, offering: OfferingId, state: &State) {
        self.know(state);
        if self.find(name).is_some() {
            return;
        }
        let node = Instance::new(name.to_owned(), PurchaseId(0), offering, now);
        let ix = self.enter(Instance { ready: true, ..node });
        self.cloud.owned.push(ix);
    }

    /// Nodes that nobody bought.
    pub(super) fn owned(&self) -> impl Iterator<Item = &Instance> + '_ {
        self.cloud.owned.iter().filter_map(|ix| self.cloud.instances.get(*ix))
    }

    /// An instance of another cloud than this world's: runs may be started on it. For a real cloud with a simulated cluster.
    pub fn host(&mut self, now: Timestamp, instance: &str, purchase: PurchaseId, offering: OfferingId, state: &State) {
        self.know(state);
        let new = || Instance::new(instance.to_owned(), purchase, offering, now);
        let ix = self.find(instance).unwrap_or_else(|| self.adopt(new()));
        self.cloud.instances[ix].ready = true;
    }

    /// A hosted instance is no more, and so is every worker on it. The world reports nothing of it: its own cloud does.
    pub fn take_away(&mut self, now: Timestamp, instance: &str) {
        if let Some(ix) = self.find(instance) {
            let _ = self.gone(now, ix, GoneWhy::Terminated);
        }
    }

    fn create(&mut self, at: Timestamp, ask: LaunchRequest, nth: u32) -> usize {
        let id = draw(self.options.seed, Draw::Instance, ask.purchase.0, u64::from(nth));
        let instance = Instance::new(format!("i-{id:016x}"), ask.purchase, ask.offering, at);
        let boot = self.boot(&instance.name, ask.offering);
        let ix = self.adopt(instance);
        match boot {
            Some(boot) => self.agenda.at(at + boot, Due::Ready(ix)),
            None => self.say_boot_failed(at, ix),
        }
        ix
    }

    /// The cloud may say of a boot that never ends that it has failed.
    fn say_boot_failed(&mut self, at: Timestamp, ix: usize) {
        let Some(instance) = self.cloud.instances.get(ix).map(|i| i.name.clone()) else { return };
        let hash = name(&[&instance]);
        if chance(draw(self.options.seed, Draw::BootFailed, hash, 0), self.options.boot_failed_permille) {
            let after = Span(30_000 + below(draw(self.options.seed, Draw::BootFailed, hash, 1), 240_000));
            self.agenda.report(at + after, Event::BootFailed { instance });
        }
    }

    /// From launch to ready: as long as one of those that were measured, or the offering's time, 20 % shorter to 50 % longer. `None`: never.
    pub(super) fn boot(&self, instance: &str, offering: OfferingId) -> Option<Span> {
        let offer = &self.cloud.sold.get(offering.index())?.offer;
        let usual = offer.boot;
        let hash = name(&[instance]);
        if chance(draw(self.options.seed, Draw::NoBoot, hash, 0), self.options.no_boot_permille) {
            return None;
        }
        let slow = chance(draw(self.options.seed, Draw::SlowBoot, hash, 0), self.options.slow_boot_permille);
        let drawn = draw(self.options.seed, Draw::Boot, hash, 0);
        let measured = self.options.boots.get(&(offer.instance_type.clone(), offer.zone.clone(), offer.capacity));
        if let Some(measured) = measured.filter(|boots| !boots.is_empty()) {
            let nth = usize::try_from(below(drawn, measured.len() as u64)).unwrap_or(0);
            return measured.get(nth).map(|boot| Span(boot.0 * if slow { 5 } else { 1 }));
        }
        let permille = 800 + below(drawn, 701);
        Some(Span(usual.0.saturating_mul(permille) / 1000 * if slow { 5 } else { 1 }))
    }

    /// How many of what is asked the cloud gives, and why not all.
    fn offered(&self, at: Timestamp, ask: LaunchRequest) -> (u32, Option<LaunchError>) {
        let refused = |draw_kind, permille| chance(draw(self.options.seed, draw_kind, ask.purchase.0, 0), permille);
        if refused(Draw::Throttle, self.options.throttle_permille) {
            return (0, Some(LaunchError::Throttled));
        }
        if refused(Draw::ServerError, self.options.server_error_permille) {
            return (0, Some(LaunchError::Server));
        }
        if let Some((_, _, error)) = self.options.account_refuses.iter().find(|(from, to, _)| *from <= at && at < *to) {
            return (0, Some(*error));
        }
        let Some(sold) = self.cloud.sold.get(ask.offering.index()) else { return (0, Some(LaunchError::Config)) };
        let within = |list: &[(Timestamp, Timestamp)]| list.iter().any(|(from, to)| *from <= at && at < *to);
        let most = match sold.offer.capacity {
            CapacityType::OnDemand if within(&self.options.on_demand_out) => Some(0),
            CapacityType::Spot => sold.pair.and_then(|pair| self.available(pair, at)),
            _ => None,
        };
        let most = match (most, sold.stock) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let free = most.map_or(u32::MAX, |most| most.saturating_sub(sold.existing));
        let count = ask.count.min(free);
        if count < ask.count {
            return (if count < ask.at_least.max(1) { 0 } else { count }, Some(LaunchError::Capacity));
        }
        (count, None)
    }

    /// Spot nodes of a pair at `at`. `None`: without bound.
    fn available(&self, pair: usize, at: Timestamp) -> Option<u32> {
        self.options.market.state_at(pair, at.since(self.options.origin).0).nodes(self.options.depth)
    }

    /// The next moment after `at` at which a pair's availability or price may be another.
    fn next_change(&self, pair: usize, at: Timestamp) -> Option<Timestamp> {
        let market = self.options.market.next_change_after(pair, at.since(self.options.origin).0);
        market.map(|t| self.options.origin + Span(t)).filter(|t| *t > at)
    }

    fn sold_of(&self, ix: usize) -> Option<&Sold> {
        self.cloud.sold.get(self.cloud.instances.get(ix)?.offering.index())
    }
}

impl Instance {
    pub(super) fn new(name: String, purchase: PurchaseId, offering: OfferingId, launched: Timestamp) -> Instance {
        Instance { name, purchase, offering, launched, ready: false, ending: false, reclaim_at: None, gone: None }
    }
}
