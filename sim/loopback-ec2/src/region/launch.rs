//! Launches instances, and computes how many instances of a specification are available. The callers decide how many of these are launched.

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::world::hash::{Draw, below, chance, draw, name};

use super::changes::TimedChange;
use super::instance::{InstanceState, LoopbackInstance};
use super::{Region, StockPool};
use crate::fault::Ec2Fault;

/// The specification of the instances of a launch.
#[derive(Clone, Debug)]
pub(crate) struct LaunchSpec {
    pub instance_type: String,
    pub zone: String,
    pub capacity: CapacityType,
    pub subnet: Option<String>,
    pub group: Option<String>,
    pub reservation: Option<String>,
    /// The highest price of a spot instance, in micro-dollars per hour. `None`: the on-demand price.
    pub max_price: Option<u64>,
    pub image: String,
    pub tags: BTreeMap<String, String>,
    pub client_token: String,
    /// The client token in describe calls. EC2 uses one of its own for a fleet.
    pub shown_token: String,
    pub efa_interfaces: u32,
}

/// How many instances are available, and the fault for more.
#[derive(Clone, Debug)]
pub(crate) struct Availability {
    pub most: u32,
    pub short: Ec2Fault,
}

/// How long an instance that fails to boot is pending.
const BOOT_FAILS_AFTER: Span = Span::secs(3);

/// Whether an instance is added to what is counted, or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Added,
    Removed,
}

impl LaunchSpec {
    pub(crate) fn pool(&self) -> StockPool {
        StockPool::new(&self.instance_type, &self.zone, self.capacity)
    }

    fn is_spot(&self) -> bool {
        self.capacity == CapacityType::Spot
    }
}

impl Region {
    /// How many instances of a specification are available now.
    ///
    /// # Errors
    /// No number of instances can be launched.
    pub(crate) fn availability(&self, spec: &LaunchSpec) -> Result<Availability, Ec2Fault> {
        if !self.types.contains_key(&spec.instance_type) {
            let message = format!("Invalid value '{}' for InstanceType.", spec.instance_type);
            return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
        };
        if !self.options.zones.contains(&spec.zone) {
            let message = format!("Invalid availability zone: [{}]", spec.zone);
            return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
        }
        if let Some(group) = spec.group.as_ref().filter(|group| !self.groups.contains(*group)) {
            let message = format!("The Placement Group '{group}' is unknown.");
            return Err(Ec2Fault::new(400, "InvalidPlacementGroup.Unknown", message));
        }
        let price = self.spot_price(&spec.instance_type, &spec.zone);
        if spec.is_spot() && spec.max_price.is_some_and(|most| most < price) {
            let message = format!(
                "Your Spot request price of {} is lower than the minimum required Spot request fulfillment price of {}.",
                crate::params::dollars(spec.max_price.unwrap_or(0)),
                crate::params::dollars(price)
            );
            return Err(Ec2Fault::new(400, "SpotMaxPriceTooLow", message));
        }
        let mut availability =
            Availability { most: u32::MAX, short: Ec2Fault::no_stock(&spec.instance_type, &spec.zone, spec.capacity) };
        if let Some(reservation) = &spec.reservation {
            let found = self.options.reservations.iter().find(|r| r.id == *reservation);
            let left = found.map_or(0, |r| self.reservation_left(r));
            let message = "The requested reservation does not have sufficient compatible and available capacity for this request.";
            availability =
                Availability { most: left, short: Ec2Fault::new(400, "ReservationCapacityExceeded", message) };
        } else if let Some(left) = self.left(&spec.pool()) {
            availability.most = left;
        }
        let each = self.vcpus_of(&spec.instance_type);
        if let Some(left) = self.quota_left(spec.capacity) {
            availability.at_most(u32::try_from(left / each).unwrap_or(u32::MAX), || over_quota(spec.capacity));
        }
        if let Some(subnet) = &spec.subnet {
            let free = self.free_addresses(subnet).unwrap_or(0);
            availability.at_most(free, || {
                let message = format!("There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances.");
                Ec2Fault::new(400, "InsufficientFreeAddressesInSubnet", message)
            });
        }
        Ok(availability)
    }

    /// Launches instances, whose availability the caller has checked. Returns their numbers.
    pub(crate) fn create(&mut self, spec: &LaunchSpec, count: u32) -> Vec<u64> {
        let launch = format!("r-{}", self.fresh_id());
        if count > 0
            && spec.capacity == CapacityType::Spot
            && let Some(pair) = self.pair(&spec.instance_type, &spec.zone)
        {
            self.watch(pair);
        }
        (0..count).map(|_| self.create_one(spec, &launch)).collect()
    }

    fn create_one(&mut self, spec: &LaunchSpec, launch: &str) -> u64 {
        let number = self.instances.next_number();
        let row = self.types.get(&spec.instance_type);
        let on_demand = row.map_or(0, |r| r.on_demand_micros_per_hour);
        let vcpus = self.vcpus_of(&spec.instance_type);
        let id = format!("i-{}", self.fresh_id());
        let spot_request = (spec.capacity == CapacityType::Spot).then(|| format!("sir-{}", self.fresh_id()));
        let mut instance = LoopbackInstance {
            id: id.clone(),
            instance_type: spec.instance_type.clone(),
            zone: spec.zone.clone(),
            capacity: spec.capacity,
            state: InstanceState::Pending,
            tags: spec.tags.clone(),
            client_token: spec.client_token.clone(),
            shown_token: spec.shown_token.clone(),
            launched: self.now,
            terminated_at: None,
            end_reason: None,
            placement_group: spec.group.clone(),
            reservation: spec.reservation.clone(),
            subnet: spec.subnet.clone(),
            reclaim_at: None,
            retires_at: None,
            rebalance_at: None,
            efa_interfaces: spec.efa_interfaces,
            number,
            launch: launch.to_owned(),
            image: spec.image.clone(),
            spot_request,
            max_price: spec.max_price.unwrap_or(on_demand),
            vcpus,
            since: self.now,
            history: Vec::new(),
        };
        instance.changed(self.now, self.options.max_staleness);
        self.count_usage(&instance, Usage::Added);
        if self.options.failed_boots.iter().any(|(from, to)| *from <= self.now && self.now < *to) {
            self.schedule.at(self.now + BOOT_FAILS_AFTER, TimedChange::FailBoot(number));
        } else if let Some(boots) = self.boot(&id) {
            self.schedule.at(self.now + boots, TimedChange::Boot(number));
        }
        self.emit_state_change(&instance);
        self.instances.insert(instance);
        number
    }

    /// Adds an instance to the usage, or removes it.
    pub(super) fn count_usage(&mut self, instance: &LoopbackInstance, usage: Usage) {
        let added = usage == Usage::Added;
        let step = |n: u32| if added { n.saturating_add(1) } else { n.saturating_sub(1) };
        match &instance.reservation {
            Some(reservation) => {
                let held = self.in_reservation.entry(reservation.clone()).or_default();
                *held = step(*held);
            }
            None => {
                let pool = StockPool::new(&instance.instance_type, &instance.zone, instance.capacity);
                let existing = self.existing.entry(pool).or_default();
                *existing = step(*existing);
            }
        }
        let vcpus = self.vcpus.entry(instance.capacity).or_default();
        *vcpus = if added { vcpus.saturating_add(instance.vcpus) } else { vcpus.saturating_sub(instance.vcpus) };
        if let Some(subnet) = &instance.subnet {
            let taken = self.addresses.entry(subnet.clone()).or_default();
            *taken = step(*taken);
        }
    }

    fn vcpus_of(&self, instance_type: &str) -> u64 {
        self.types.get(instance_type).map_or(0, |row| row.cpu_milli / 1000).max(1)
    }

    /// The time from pending to running. `None`: it never boots.
    fn boot(&self, id: &str) -> Option<Span> {
        let instance_key = name(&[id]);
        if chance(draw(self.options.seed, Draw::NoBoot, instance_key, 0), self.options.hanging_boot_permille) {
            return None;
        }
        Some(self.vary(self.options.boot_time, Draw::Boot, instance_key))
    }

    /// Draws a duration from 20 % less to 50 % more than the mean.
    pub(super) fn vary(&self, usual: Span, what: Draw, instance_key: u64) -> Span {
        Span(usual.0.saturating_mul(800 + below(draw(self.options.seed, what, instance_key, 0), 701)) / 1000)
    }

    /// Launches an instance of another user, without limits and without a client token. Returns its id, or `None` for an unknown type.
    pub fn launch_foreign(
        &mut self,
        now: Timestamp,
        instance_type: &str,
        zone: &str,
        capacity: CapacityType,
        tags: BTreeMap<String, String>,
    ) -> Option<String> {
        self.process_due(now);
        self.types.get(instance_type)?;
        let spec = LaunchSpec {
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
        let number = self.create(&spec, 1).first().copied()?;
        self.instances.row(number).map(|row| row.id.clone())
    }
}

impl Availability {
    fn at_most(&mut self, most: u32, end_reason: impl FnOnce() -> Ec2Fault) {
        if most < self.most {
            *self = Availability { most, short: end_reason() };
        }
    }
}

fn over_quota(capacity: CapacityType) -> Ec2Fault {
    if capacity == CapacityType::Spot {
        Ec2Fault::new(400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    } else {
        let message = "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the \
                       specified instance type belongs to.";
        Ec2Fault::new(400, "VcpuLimitExceeded", message)
    }
}
