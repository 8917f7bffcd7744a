//! RunInstances: one type in one zone, at least `MinCount` or nothing.
//!
//! Never: a second zone once the request or the room in it has settled one.

use forebay_engine::catalog::CapacityType;
use std::collections::BTreeSet;

use super::launch::{check_tags, subnet, template, template_tags};
use super::{catalog, describe};
use crate::options::ReservationKind;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::region::{Bid, Planned, Region};
use crate::xml::Xml;

pub(super) fn run(region: &mut Region, params: &Params) -> Result<Xml, Refusal> {
    let least = params.number("MinCount")?.ok_or_else(|| Refusal::missing("MinCount"))?;
    let most = params.number("MaxCount")?.ok_or_else(|| Refusal::missing("MaxCount"))?;
    if least == 0 || most < least || most > 1000 {
        let message = format!("Value ({least}, {most}) for parameters MinCount and MaxCount is invalid.");
        return Err(Refusal::new(400, "InvalidParameterValue", message));
    }
    let bids = bids(region, params)?;
    let mut first = None;
    for bid in bids {
        match region.room(&bid, &Planned::default()) {
            Ok(room) if room.most >= least => return Ok(launched(region, &bid, room.most.min(most))),
            Ok(room) => first = first.or(Some(room.short)),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    Err(first.unwrap_or_else(|| Refusal::missing("Placement.AvailabilityZone")))
}

fn launched(region: &mut Region, bid: &Bid, count: u32) -> Xml {
    let numbers = region.create(bid, count);
    let made: Vec<_> = numbers.iter().filter_map(|n| region.instances.row(*n)).collect();
    let views: Vec<_> = made.iter().filter_map(|row| row.seen_at(region.now()).map(|view| (*row, view))).collect();
    let mut xml = Xml::default();
    let id = made.first().map_or("", |row| &row.launch);
    describe::reservation(&mut xml, &region.options, id, &views);
    xml
}

/// What is asked for, once for each zone where it may be.
fn bids(region: &Region, params: &Params) -> Result<Vec<Bid>, Refusal> {
    let template = template(region, params, "LaunchTemplate.")?;
    if template.is_none() && params.text("ImageId").is_none() {
        return Err(Refusal::missing("ImageId"));
    }
    let instance_type = params.required("InstanceType")?.to_owned();
    let efa_interfaces = efa_interfaces(params, &instance_type)?;
    let (capacity, reservation, reserved_zone) = paid(region, params, &instance_type)?;
    let (subnet, asked_zone) = place(region, params)?;
    if let (Some(asked), Some(reserved)) = (&asked_zone, &reserved_zone)
        && asked != reserved
    {
        return Err(mismatch());
    }
    let zones = match asked_zone.or(reserved_zone) {
        Some(zone) => vec![zone],
        None => region.options.zones.clone(),
    };
    let mut tags = params.tags_for("instance");
    check_tags(&tags)?;
    tags.extend(template_tags(template.as_ref()));
    let client_token = params.text("ClientToken").unwrap_or_default().to_owned();
    let bid = |zone| Bid {
        instance_type: instance_type.clone(),
        zone,
        capacity,
        subnet: subnet.clone(),
        group: params.text("Placement.GroupName").map(str::to_owned),
        reservation: reservation.clone(),
        max_price: params.dollars("InstanceMarketOptions.SpotOptions.MaxPrice").unwrap_or_default(),
        image: params.text("ImageId").unwrap_or("ami-00000000000000001").to_owned(),
        tags: tags.clone(),
        shown_token: client_token.clone(),
        client_token: client_token.clone(),
        efa_interfaces,
    };
    params.dollars("InstanceMarketOptions.SpotOptions.MaxPrice")?;
    Ok(zones.into_iter().map(bid).collect())
}

/// How it is paid for, by which reservation, and where that lies.
fn paid(
    region: &Region,
    params: &Params,
    instance_type: &str,
) -> Result<(CapacityType, Option<String>, Option<String>), Refusal> {
    let market = params.text("InstanceMarketOptions.MarketType");
    if let Some(other) = market.filter(|m| !["spot", "capacity-block"].contains(m)) {
        return Err(Refusal::value("InstanceMarketOptions.MarketType", other));
    }
    let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
    let Some(id) = params.text(target) else {
        return match market {
            Some("spot") => Ok((CapacityType::Spot, None, None)),
            Some(_) => Err(Refusal::missing(target)),
            None => Ok((CapacityType::OnDemand, None, None)),
        };
    };
    let found = region.options.reservations.iter().find(|r| r.id == id).ok_or_else(|| {
        let message = format!("The capacity reservation '{id}' does not exist.");
        Refusal::new(400, "InvalidCapacityReservationId.NotFound", message)
    })?;
    let block = matches!(found.kind, ReservationKind::Block { .. });
    if block != (market == Some("capacity-block")) {
        let message = "The market type does not match the capacity reservation: capacity-block goes with a Capacity Block, and with nothing else.";
        return Err(Refusal::combination(message));
    }
    if found.instance_type != instance_type {
        return Err(mismatch());
    }
    Ok((CapacityType::Reserved, Some(found.id.clone()), Some(found.zone.clone())))
}

/// The subnet and the zone that are asked for, of the instance or of its interfaces.
fn place(region: &Region, params: &Params) -> Result<(Option<String>, Option<String>), Refusal> {
    let of_instance = params.text("SubnetId");
    let interfaces = params.members("NetworkInterface");
    if !interfaces.is_empty() && of_instance.is_some() {
        let message = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
        return Err(Refusal::combination(message));
    }
    let of_interfaces = interfaces.iter().find_map(|prefix| params.text(&format!("{prefix}SubnetId")));
    let zone = params.text("Placement.AvailabilityZone").map(str::to_owned);
    let Some(id) = of_instance.or(of_interfaces) else { return Ok((None, zone)) };
    let subnet = subnet(region, id)?;
    if zone.as_ref().is_some_and(|zone| *zone != subnet.zone) {
        let message = format!("The subnet {id} is not in the Availability Zone that was asked for.");
        return Err(Refusal::new(400, "InvalidParameterValue", message));
    }
    Ok((Some(subnet.id.clone()), Some(subnet.zone.clone())))
}

/// How many of the interfaces that are asked for are EFAs. Each device of a network card is asked for once, the first one of the first card
/// among them, and groups are the interfaces' own.
fn efa_interfaces(params: &Params, instance_type: &str) -> Result<u32, Refusal> {
    let interfaces = params.members("NetworkInterface");
    if interfaces.is_empty() {
        return Ok(0);
    }
    if params.any("SecurityGroupId.") || params.any("SecurityGroup.") {
        let message =
            "Network interfaces and an instance-level security groups may not be specified on the same request";
        return Err(Refusal::combination(message));
    }
    let most = catalog::efa_interfaces(instance_type);
    let (mut asked, mut places) = (0, BTreeSet::new());
    for prefix in &interfaces {
        let number = |name: &str| params.number(&format!("{prefix}{name}"));
        let place = (number("NetworkCardIndex")?.unwrap_or(0), number("DeviceIndex")?.unwrap_or(0));
        if !places.insert(place) {
            let message = "Each network interface requires a unique device index.";
            return Err(Refusal::new(400, "InvalidParameterValue", message));
        }
        if params.text(&format!("{prefix}InterfaceType")).is_some_and(|t| t.starts_with("efa")) {
            asked += 1;
            if most > 0 && place.0 >= most {
                return Err(Refusal::value("NetworkCardIndex", &place.0.to_string()));
            }
        }
    }
    if !places.contains(&(0, 0)) {
        let message = "When specifying network interfaces, you must include a device at index 0.";
        return Err(Refusal::new(400, "InvalidParameterValue", message));
    }
    if asked <= most {
        Ok(asked)
    } else if most == 0 {
        Err(Refusal::combination(format!("EFA interfaces are not supported on {instance_type}")))
    } else {
        let message = format!("Interface count {asked} exceeds the limit for {instance_type}");
        Err(Refusal::new(400, "AttachmentLimitExceeded", message))
    }
}

fn mismatch() -> Refusal {
    let message = "The instance's type or zone does not match those of the capacity reservation.";
    Refusal::new(400, "InvalidParameterValue", message)
}
