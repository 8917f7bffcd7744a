//! How instances come into being: what bounds a bid, and what is made of it.
//!
//! Never: part of a bid decided here. How many of what there is room for are taken is the call's to say.

use std::collections::BTreeMap;

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};
use forebay_sim::world::hash::{Draw, below, chance, draw, name};

use super::agenda::Due;
use super::instance::{Instance, InstanceState};
use super::{Pool, Region};
use crate::refusal::Refusal;

/// Instances of one kind in one place.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub instance_type: String,
    pub zone: String,
    pub capacity: CapacityType,
    pub subnet: Option<String>,
    pub group: Option<String>,
    pub reservation: Option<String>,
    /// The most that a spot instance may cost, in micro-dollars an hour; the on-demand price where none is given.
    pub max_price: Option<u64>,
    pub image: String,
    pub tags: BTreeMap<String, String>,
    pub client_token: String,
    /// What describes show as its client token: EC2 makes up its own for a fleet's.
    pub shown_token: String,
    pub efa_interfaces: u32,
}

/// What one call has planned already and not yet created.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planned {
    pools: BTreeMap<Pool, u32>,
    vcpus: u64,
    addresses: BTreeMap<String, u32>,
}

impl Planned {
    pub(crate) fn add(&mut self, region: &Region, bid: &Bid, count: u32) {
        *self.pools.entry(bid.pool()).or_default() += count;
        self.vcpus += u64::from(count) * region.vcpus_of(&bid.instance_type);
        if let Some(subnet) = &bid.subnet {
            *self.addresses.entry(subnet.clone()).or_default() += count;
        }
    }
}

/// How many a bid could have, and why not more.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub most: u32,
    pub short: Refusal,
}

/// An instance that cannot boot is pending for so long.
const FAILS_AFTER: Span = Span::secs(3);

impl Bid {
    pub(crate) fn pool(&self) -> Pool {
        Pool::new(&self.instance_type, &self.zone, self.capacity)
    }

    fn is_spot(&self) -> bool {
        self.capacity == CapacityType::Spot
    }
}

impl Region {
    /// How many instances a bid could have now, beside what is planned. A refusal is one that no count would change.
    pub(crate) fn room(&self, bid: &Bid, planned: &Planned) -> Result<Room, Refusal> {
        if !self.types.contains_key(&bid.instance_type) {
            let message = format!("Invalid value '{}' for InstanceType.", bid.instance_type);
            return Err(Refusal::new(400, "InvalidParameterValue", message));
        };
        if !self.options.zones.contains(&bid.zone) {
            let message = format!("Invalid availability zone: [{}]", bid.zone);
            return Err(Refusal::new(400, "InvalidParameterValue", message));
        }
        if let Some(group) = bid.group.as_ref().filter(|group| !self.groups.contains_key(*group)) {
            let message = format!("The Placement Group '{group}' is unknown.");
            return Err(Refusal::new(400, "InvalidPlacementGroup.Unknown", message));
        }
        let price = self.spot_price(&bid.instance_type, &bid.zone);
        if bid.is_spot() && bid.max_price.is_some_and(|most| most < price) {
            let message = format!(
                "Your Spot request price of {} is lower than the minimum required Spot request fulfillment price of {}.",
                crate::params::dollars(bid.max_price.unwrap_or(0)),
                crate::params::dollars(price)
            );
            return Err(Refusal::new(400, "SpotMaxPriceTooLow", message));
        }
        let mut room = Room { most: u32::MAX, short: Refusal::no_stock(&bid.instance_type, &bid.zone, bid.is_spot()) };
        if let Some(reservation) = &bid.reservation {
            let found = self.options.reservations.iter().find(|r| r.id == *reservation);
            let left = found.map_or(0, |r| self.reservation_left(r));
            let message = "The requested reservation does not have sufficient compatible and available capacity for this request.";
            room = Room { most: left, short: Refusal::new(400, "ReservationCapacityExceeded", message) };
        } else if let Some(left) = self.left(&bid.pool()) {
            room.most = left.saturating_sub(planned.pools.get(&bid.pool()).copied().unwrap_or(0));
        }
        let each = self.vcpus_of(&bid.instance_type);
        if let Some(left) = self.quota_left(bid.capacity) {
            let left = left.saturating_sub(planned.vcpus);
            room.at_most(u32::try_from(left / each).unwrap_or(u32::MAX), || over_quota(bid.is_spot()));
        }
        if let Some(subnet) = &bid.subnet {
            let free = self.free_addresses(subnet).unwrap_or(0);
            room.at_most(free.saturating_sub(planned.addresses.get(subnet).copied().unwrap_or(0)), || {
                let message = format!("There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances.");
                Refusal::new(400, "InsufficientFreeAddressesInSubnet", message)
            });
        }
        Ok(room)
    }

    /// Makes so many instances. The caller has looked for room. Returns their numbers in the order of all instances.
    pub(crate) fn create(&mut self, bid: &Bid, count: u32) -> Vec<u64> {
        let launch = format!("r-{}", self.fresh_id());
        if count > 0
            && bid.capacity == CapacityType::Spot
            && let Some(pair) = self.pair(&bid.instance_type, &bid.zone)
        {
            self.watch(pair);
        }
        (0..count).map(|_| self.create_one(bid, &launch)).collect()
    }

    fn create_one(&mut self, bid: &Bid, launch: &str) -> u64 {
        let number = self.instances.next_number();
        let row = self.types.get(&bid.instance_type);
        let on_demand = row.map_or(0, |r| r.on_demand_micros_per_hour);
        let vcpus = self.vcpus_of(&bid.instance_type);
        let id = format!("i-{}", self.fresh_id());
        let spot_request = (bid.capacity == CapacityType::Spot).then(|| format!("sir-{}", self.fresh_id()));
        let mut instance = Instance {
            id: id.clone(),
            instance_type: bid.instance_type.clone(),
            zone: bid.zone.clone(),
            capacity: bid.capacity,
            state: InstanceState::Pending,
            tags: bid.tags.clone(),
            client_token: bid.client_token.clone(),
            shown_token: bid.shown_token.clone(),
            launched: self.now,
            gone: None,
            why: None,
            placement_group: bid.group.clone(),
            reservation: bid.reservation.clone(),
            subnet: bid.subnet.clone(),
            reclaim_at: None,
            retires_at: None,
            rebalance_at: None,
            efa_interfaces: bid.efa_interfaces,
            number,
            launch: launch.to_owned(),
            image: bid.image.clone(),
            spot_request,
            max_price: bid.max_price.unwrap_or(on_demand),
            vcpus,
            since: self.now,
            history: Vec::new(),
        };
        instance.changed(self.now, self.options.stale);
        self.count(&instance, true);
        if self.options.failed_boots.iter().any(|(from, to)| *from <= self.now && self.now < *to) {
            self.agenda.at(self.now + FAILS_AFTER, Due::Failed(number));
        } else if let Some(boots) = self.boot(&id) {
            self.agenda.at(self.now + boots, Due::Runs(number));
        }
        self.say_state(&instance);
        self.instances.insert(instance);
        number
    }

    /// Adds an instance to what is counted, or takes it away.
    pub(super) fn count(&mut self, instance: &Instance, comes: bool) {
        let step = |n: u32| if comes { n.saturating_add(1) } else { n.saturating_sub(1) };
        match &instance.reservation {
            Some(reservation) => {
                let held = self.in_reservation.entry(reservation.clone()).or_default();
                *held = step(*held);
            }
            None => {
                let pool = Pool::new(&instance.instance_type, &instance.zone, instance.capacity);
                let existing = self.existing.entry(pool).or_default();
                *existing = step(*existing);
            }
        }
        let vcpus = self.vcpus.entry(instance.capacity).or_default();
        *vcpus = if comes { vcpus.saturating_add(instance.vcpus) } else { vcpus.saturating_sub(instance.vcpus) };
        if let Some(subnet) = &instance.subnet {
            let taken = self.addresses.entry(subnet.clone()).or_default();
            *taken = step(*taken);
        }
    }

    fn vcpus_of(&self, instance_type: &str) -> u64 {
        self.types.get(instance_type).map_or(0, |row| row.cpu_milli / 1000).max(1)
    }

    /// From pending to running, 20 % shorter to 50 % longer than usual. `None`: never.
    fn boot(&self, id: &str) -> Option<Span> {
        let whose = name(&[id]);
        if chance(draw(self.options.seed, Draw::NoBoot, whose, 0), self.options.no_boot_permille) {
            return None;
        }
        Some(self.about(self.options.running_after, Draw::Boot, whose))
    }

    /// 20 % shorter to 50 % longer.
    pub(super) fn about(&self, usual: Span, what: Draw, whose: u64) -> Span {
        Span(usual.0.saturating_mul(800 + below(draw(self.options.seed, what, whose, 0), 701)) / 1000)
    }

    /// An instance of somebody else's, launched by hand: no room is asked for, no token kept. Nothing where there is no such type.
    /// Returns its id.
    pub fn launch_foreign(
        &mut self,
        now: Millis,
        instance_type: &str,
        zone: &str,
        capacity: CapacityType,
        tags: BTreeMap<String, String>,
    ) -> Option<String> {
        self.settle(now);
        self.types.get(instance_type)?;
        let bid = Bid {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity,
            subnet: None,
            group: None,
            reservation: None,
            max_price: None,
            image: "ami-foreign".to_owned(),
            tags,
            client_token: String::new(),
            shown_token: String::new(),
            efa_interfaces: 0,
        };
        let number = self.create(&bid, 1).first().copied()?;
        self.instances.row(number).map(|row| row.id.clone())
    }
}

impl Room {
    fn at_most(&mut self, most: u32, why: impl FnOnce() -> Refusal) {
        if most < self.most {
            *self = Room { most, short: why() };
        }
    }
}

fn over_quota(spot: bool) -> Refusal {
    if spot {
        Refusal::new(400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    } else {
        let message = "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the \
                       specified instance type belongs to.";
        Refusal::new(400, "VcpuLimitExceeded", message)
    }
}
