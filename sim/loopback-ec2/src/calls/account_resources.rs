//! The other resources of an account: placement groups, capacity reservations, subnets and zones.

use super::filters::{Filters, Page};
use super::launch_parameters::subnet;
use crate::fault::Ec2Fault;
use crate::options::{ReservationKind, ReservationOptions};
use crate::params::Params;
use crate::region::{Region, millis, seconds};
use crate::xml::Xml;

/// The most placement groups of an account.
const MAX_GROUPS: usize = 500;

pub(super) fn create_group(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let name = params.required("GroupName")?.to_owned();
    let strategy = params.text("Strategy").unwrap_or("cluster");
    if !["cluster", "partition", "spread"].contains(&strategy) {
        return Err(Ec2Fault::invalid_value("Strategy", strategy));
    }
    if region.groups.contains(&name) {
        let message = format!("The placement group '{name}' already exists.");
        return Err(Ec2Fault::new(400, "InvalidPlacementGroup.Duplicate", message));
    }
    if region.groups.len() >= MAX_GROUPS {
        let message = format!("The maximum number of placement groups ({MAX_GROUPS}) has been reached.");
        return Err(Ec2Fault::new(400, "PlacementGroupLimitExceeded", message));
    }
    let id = format!("pg-{}", region.fresh_id());
    region.groups.insert(name.clone());
    Ok(Xml::of(|xml| {
        xml.element("placementGroup", |xml| {
            xml.leaf("groupName", &name);
            xml.leaf("groupId", &id);
            xml.leaf("state", "available");
            xml.leaf("strategy", strategy);
        });
    }))
}

pub(super) fn reservations(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let page = Page::read(params, 1, 1000)?;
    let filters = Filters::read(params, |name| ["availability-zone", "instance-type", "state"].contains(&name))?;
    let ids = params.list("CapacityReservationId");
    let all = &region.options.reservations;
    if let Some(unknown) = ids.iter().find(|id| !all.iter().any(|r| r.id == **id)) {
        let message = format!("The capacity reservation '{unknown}' does not exist.");
        return Err(Ec2Fault::new(400, "InvalidCapacityReservationId.NotFound", message));
    }
    let named = all.iter().filter(|r| ids.is_empty() || ids.contains(&r.id.as_str()));
    let matched = named.filter(|r| {
        filters.take(|filter| match filter {
            "availability-zone" => vec![r.zone.as_str()],
            "instance-type" => vec![r.instance_type.as_str()],
            _ => vec![state(region, r)],
        })
    });
    Ok(page.of("capacityReservationSet", matched, |xml, r| reservation_row(xml, region, r)))
}

fn reservation_row(xml: &mut Xml, region: &Region, r: &ReservationOptions) {
    xml.leaf("capacityReservationId", &r.id);
    xml.leaf("ownerId", &region.options.account);
    xml.leaf("instanceType", &r.instance_type);
    xml.leaf("instancePlatform", "Linux/UNIX");
    xml.leaf("availabilityZone", &r.zone);
    xml.leaf("availabilityZoneId", region.zone_id(&r.zone));
    xml.leaf("tenancy", "default");
    xml.leaf("totalInstanceCount", r.count);
    xml.leaf("availableInstanceCount", region.reservation_left(r));
    xml.leaf("state", state(region, r));
    xml.leaf("startDate", millis(region.options.origin));
    match r.kind {
        ReservationKind::OnDemand => xml.leaf("endDateType", "unlimited"),
        ReservationKind::Block { ends } => {
            xml.leaf("endDate", seconds(ends));
            xml.leaf("endDateType", "limited");
            xml.leaf("reservationType", "capacity-block");
        }
    }
    xml.leaf("instanceMatchCriteria", "targeted");
    xml.leaf("createDate", millis(region.options.origin));
}

fn state(region: &Region, r: &ReservationOptions) -> &'static str {
    match r.kind {
        ReservationKind::Block { ends } if region.now() >= ends => "expired",
        _ => "active",
    }
}

pub(super) fn subnets(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let page = Page::read(params, 5, 1000)?;
    let filters = Filters::read(params, |name| ["availability-zone", "subnet-id", "vpc-id", "state"].contains(&name))?;
    let ids = params.list("SubnetId");
    for id in &ids {
        subnet(region, id)?;
    }
    let named = region.options.subnets.iter().filter(|s| ids.is_empty() || ids.contains(&s.id.as_str()));
    let matched = named.filter(|s| {
        filters.take(|filter| match filter {
            "availability-zone" => vec![s.zone.as_str()],
            "subnet-id" => vec![s.id.as_str()],
            "vpc-id" => vec![VPC],
            _ => vec!["available"],
        })
    });
    Ok(page.of("subnetSet", matched, |xml, s| {
        xml.leaf("subnetId", &s.id);
        xml.leaf("state", "available");
        xml.leaf("vpcId", VPC);
        xml.leaf("availabilityZone", &s.zone);
        xml.leaf("availabilityZoneId", region.zone_id(&s.zone));
        xml.leaf("availableIpAddressCount", region.free_addresses(&s.id).unwrap_or(0));
        xml.leaf("defaultForAz", false);
    }))
}

/// The id of the VPC.
const VPC: &str = "vpc-00000000000000001";

pub(super) fn zones(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let filters = Filters::read(params, |name| ["zone-name", "state", "region-name", "zone-type"].contains(&name))?;
    let names = params.list("ZoneName");
    if let Some(unknown) = names.iter().find(|name| !region.options.zones.iter().any(|z| z == **name)) {
        let message = format!("Invalid availability zone: [{unknown}]");
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    let named = region.options.zones.iter().filter(|z| names.is_empty() || names.contains(&z.as_str()));
    let matched = named.filter(|zone| {
        filters.take(|filter| match filter {
            "zone-name" => vec![zone.as_str()],
            "region-name" => vec![region.options.name.as_str()],
            "zone-type" => vec!["availability-zone"],
            _ => vec!["available"],
        })
    });
    Ok(Xml::of(|xml| {
        xml.list("availabilityZoneInfo", matched, |xml, zone| {
            xml.leaf("zoneName", zone);
            xml.leaf("zoneId", region.zone_id(zone));
            xml.leaf("zoneState", "available");
            xml.leaf("zoneType", "availability-zone");
            xml.leaf("regionName", &region.options.name);
            xml.leaf("optInStatus", "opt-in-not-required");
        })
    }))
}
