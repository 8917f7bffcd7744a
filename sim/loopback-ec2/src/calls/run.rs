//! RunInstances: one type in one zone, and at least `MinCount` instances or none.

use forebay_kernel::catalog::CapacityType;
use std::collections::BTreeSet;

use super::launch_parameters::{check_tags, subnet, template, template_tags};
use super::{catalog, describe};
use crate::fault::Ec2Fault;
use crate::options::ReservationKind;
use crate::params::Params;
use crate::region::{LaunchSpec, Region};
use crate::xml::Xml;

pub(super) fn run(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let least = params.number("MinCount")?.ok_or_else(|| Ec2Fault::missing("MinCount"))?;
    let most = params.number("MaxCount")?.ok_or_else(|| Ec2Fault::missing("MaxCount"))?;
    if least == 0 || most < least || most > 1000 {
        let message = format!("Value ({least}, {most}) for parameters MinCount and MaxCount is invalid.");
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    let specs = specs(region, params)?;
    let mut first = None;
    for spec in specs {
        match region.availability(&spec) {
            Ok(availability) if availability.most >= least => {
                return Ok(launched(region, &spec, availability.most.min(most)));
            }
            Ok(availability) => first = first.or(Some(availability.short)),
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    Err(first.unwrap_or_else(|| Ec2Fault::missing("Placement.AvailabilityZone")))
}

fn launched(region: &mut Region, spec: &LaunchSpec, count: u32) -> Xml {
    let numbers = region.create(spec, count);
    let made: Vec<_> = numbers.iter().filter_map(|n| region.instances.row(*n)).collect();
    let views: Vec<_> = made.iter().filter_map(|row| row.seen_at(region.now()).map(|view| (*row, view))).collect();
    let id = made.first().map_or("", |row| &row.launch);
    Xml::of(|xml| describe::reservation(xml, &region.options, id, &views))
}

/// The requested specification, for each possible zone.
fn specs(region: &Region, params: &Params) -> Result<Vec<LaunchSpec>, Ec2Fault> {
    let template = template(region, params, "LaunchTemplate.")?;
    if template.is_none() && params.text("ImageId").is_none() {
        return Err(Ec2Fault::missing("ImageId"));
    }
    let instance_type = params.required("InstanceType")?.to_owned();
    let efa_interfaces = efa_interfaces(params, &instance_type)?;
    let (capacity, reservation, reserved_zone) = paid(region, params, &instance_type)?;
    let (subnet, asked_zone) = place(region, params)?;
    if let (Some(requested), Some(reserved)) = (&asked_zone, &reserved_zone)
        && requested != reserved
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
    let spec = |zone| LaunchSpec {
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
    Ok(zones.into_iter().map(spec).collect())
}

/// The capacity type, with the reservation and its zone.
fn paid(
    region: &Region,
    params: &Params,
    instance_type: &str,
) -> Result<(CapacityType, Option<String>, Option<String>), Ec2Fault> {
    let market = params.text("InstanceMarketOptions.MarketType");
    if let Some(other) = market.filter(|m| !["spot", "capacity-block"].contains(m)) {
        return Err(Ec2Fault::invalid_value("InstanceMarketOptions.MarketType", other));
    }
    let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
    let Some(id) = params.text(target) else {
        return match market {
            Some("spot") => Ok((CapacityType::Spot, None, None)),
            Some(_) => Err(Ec2Fault::missing(target)),
            None => Ok((CapacityType::OnDemand, None, None)),
        };
    };
    let found = region.options.reservations.iter().find(|r| r.id == id).ok_or_else(|| {
        let message = format!("The capacity reservation '{id}' does not exist.");
        Ec2Fault::new(400, "InvalidCapacityReservationId.NotFound", message)
    })?;
    let block = matches!(found.kind, ReservationKind::Block { .. });
    if block != (market == Some("capacity-block")) {
        let message = "The market type does not match the capacity reservation: capacity-block goes with a Capacity Block, and with nothing else.";
        return Err(Ec2Fault::invalid_combination(message));
    }
    if found.instance_type != instance_type {
        return Err(mismatch());
    }
    Ok((CapacityType::Reserved, Some(found.id.clone()), Some(found.zone.clone())))
}

/// The requested subnet and zone, of the instance or of its interfaces.
fn place(region: &Region, params: &Params) -> Result<(Option<String>, Option<String>), Ec2Fault> {
    let of_instance = params.text("SubnetId");
    let interfaces = params.members("NetworkInterface");
    if !interfaces.is_empty() && of_instance.is_some() {
        let message = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
        return Err(Ec2Fault::invalid_combination(message));
    }
    let of_interfaces = interfaces.iter().find_map(|prefix| params.text(&format!("{prefix}SubnetId")));
    let zone = params.text("Placement.AvailabilityZone").map(str::to_owned);
    let Some(id) = of_instance.or(of_interfaces) else { return Ok((None, zone)) };
    let subnet = subnet(region, id)?;
    if zone.as_ref().is_some_and(|zone| *zone != subnet.zone) {
        let message = format!("The subnet {id} is not in the Availability Zone that was asked for.");
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    Ok((Some(subnet.id.clone()), Some(subnet.zone.clone())))
}

/// The number of requested EFA interfaces. Each device of a network card may be requested once, the first device of the first card is
/// required, and security groups are those of the interfaces.
fn efa_interfaces(params: &Params, instance_type: &str) -> Result<u32, Ec2Fault> {
    let interfaces = params.members("NetworkInterface");
    if interfaces.is_empty() {
        return Ok(0);
    }
    if params.any("SecurityGroupId.") || params.any("SecurityGroup.") {
        let message =
            "Network interfaces and an instance-level security groups may not be specified on the same request";
        return Err(Ec2Fault::invalid_combination(message));
    }
    let most = catalog::efa_interfaces(instance_type);
    let (mut requested, mut account_resources) = (0, BTreeSet::new());
    for prefix in &interfaces {
        let number = |name: &str| params.number(&format!("{prefix}{name}"));
        let place = (number("NetworkCardIndex")?.unwrap_or(0), number("DeviceIndex")?.unwrap_or(0));
        if !account_resources.insert(place) {
            let message = "Each network interface requires a unique device index.";
            return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
        }
        if params.text(&format!("{prefix}InterfaceType")).is_some_and(|t| t.starts_with("efa")) {
            requested += 1;
            if most > 0 && place.0 >= most {
                return Err(Ec2Fault::invalid_value("NetworkCardIndex", &place.0.to_string()));
            }
        }
    }
    if !account_resources.contains(&(0, 0)) {
        let message = "When specifying network interfaces, you must include a device at index 0.";
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    if requested <= most {
        Ok(requested)
    } else if most == 0 {
        Err(Ec2Fault::invalid_combination(format!("EFA interfaces are not supported on {instance_type}")))
    } else {
        let message = format!("Interface count {requested} exceeds the limit for {instance_type}");
        Err(Ec2Fault::new(400, "AttachmentLimitExceeded", message))
    }
}

fn mismatch() -> Ec2Fault {
    let message = "The instance's type or zone does not match those of the capacity reservation.";
    Ec2Fault::new(400, "InvalidParameterValue", message)
}
