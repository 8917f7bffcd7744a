//! CreateFleet of type `instant`, as Forebay requests it: one override of one capacity type, filled completely or in part, and not below the
//! minimum.

use forebay_kernel::catalog::CapacityType;

use super::launch_parameters::{check_tags, subnet, template, template_tags};
use crate::fault::Ec2Fault;
use crate::options::LaunchTemplate;
use crate::params::Params;
use crate::region::{LaunchSpec, Region};
use crate::xml::Xml;

/// The largest minimum.
const MAX_MINIMUM: u32 = 1000;

/// The override of the request.
#[derive(Clone, Debug)]
struct FleetOverride {
    template: LaunchTemplate,
    instance_type: String,
    zone: String,
    /// Whether the request has the zone itself.
    zone_asked: bool,
    subnet: Option<String>,
    group: Option<String>,
    max_price: Option<u64>,
    image: Option<String>,
}

pub(super) fn create(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    match params.text("Type") {
        Some("instant") => {}
        other => return Err(unsupported(format!("fleets of type {}", other.unwrap_or("maintain")))),
    }
    let requested = requested(region, params)?;
    let (capacity, target) = target(params)?;
    let least = least(params, capacity, target)?;
    let mut tags = params.tags_for("instance");
    check_tags(&tags)?;
    let fleet = format!("fleet-{}", region.fresh_id());
    tags.insert("aws:ec2:fleet-id".to_owned(), fleet.clone());
    tags.extend(template_tags(Some(&requested.template)));
    let spec = LaunchSpec {
        instance_type: requested.instance_type.clone(),
        zone: requested.zone.clone(),
        capacity,
        subnet: requested.subnet.clone(),
        group: requested.group.clone(),
        reservation: None,
        max_price: requested.max_price.filter(|_| capacity == CapacityType::Spot),
        image: requested.image.clone().unwrap_or_else(|| "ami-00000000000000001".to_owned()),
        tags,
        client_token: params.text("ClientToken").unwrap_or_default().to_owned(),
        shown_token: fleet.clone(),
        efa_interfaces: 0,
    };
    let (count, short) = match region.availability(&spec) {
        Ok(availability) if availability.most >= target => (target, None),
        Ok(availability) if availability.most >= least => (availability.most, Some(availability.short)),
        Ok(availability) if availability.most > 0 => (0, Some(unfulfillable())),
        Ok(availability) => (0, Some(availability.short)),
        Err(fault) => (0, Some(fault)),
    };
    let launched = if count > 0 { region.create(&spec, count) } else { Vec::new() };
    Ok(to_response(region, &fleet, &requested, capacity, &launched, short))
}

fn requested(region: &Region, params: &Params) -> Result<FleetOverride, Ec2Fault> {
    let configs = params.members("LaunchTemplateConfigs");
    let overrides: Vec<String> = configs.iter().flat_map(|c| params.members(&format!("{c}Overrides"))).collect();
    let ([config], [prefix]) = (&configs[..], &overrides[..]) else {
        return Err(match (configs.len(), overrides.len()) {
            (0, _) => Ec2Fault::missing("LaunchTemplateConfigs"),
            // Launch templates have no instance type here.
            (_, 0) => Ec2Fault::missing("InstanceType"),
            _ => unsupported("fleets with several overrides".to_owned()),
        });
    };
    let template = template(region, params, &format!("{config}LaunchTemplateSpecification."))?;
    let template = template.ok_or_else(|| Ec2Fault::missing("LaunchTemplateSpecification"))?;
    let field = |name: &str| format!("{prefix}{name}");
    let text = |name: &str| params.text(&field(name)).map(str::to_owned);
    if params.any(&field("InstanceRequirements.")) {
        return Err(unsupported("InstanceRequirements".to_owned()));
    }
    if text("WeightedCapacity").is_some_and(|w| w != "1" && w != "1.0") {
        return Err(unsupported("weighted capacity".to_owned()));
    }
    let (requested, subnet_id) = (text("AvailabilityZone"), text("SubnetId"));
    let zone = match (&requested, &subnet_id) {
        (Some(_), Some(_)) => {
            let message = "Only one of the subnet and the Availability Zone of an override may be specified";
            return Err(Ec2Fault::invalid_combination(message));
        }
        (Some(zone), None) => zone.clone(),
        (None, Some(id)) => subnet(region, id)?.zone.clone(),
        (None, None) => region.options.zones.first().cloned().unwrap_or_default(),
    };
    Ok(FleetOverride {
        template,
        instance_type: params.required(&field("InstanceType"))?.to_owned(),
        zone,
        zone_asked: requested.is_some(),
        subnet: subnet_id,
        group: text("Placement.GroupName"),
        max_price: params.dollars(&field("MaxPrice"))?,
        image: text("ImageId"),
    })
}

/// The capacity type and the number of instances.
fn target(params: &Params) -> Result<(CapacityType, u32), Ec2Fault> {
    let field = |name: &str| format!("TargetCapacitySpecification.{name}");
    let total =
        params.number(&field("TotalTargetCapacity"))?.ok_or_else(|| Ec2Fault::missing("TotalTargetCapacity"))?;
    if total == 0 || total > 10_000 {
        let message = "The total target capacity must be between 1 and 10000";
        return Err(Ec2Fault::new(400, "InvalidTargetCapacitySpecification", message));
    }
    if ["OnDemandTargetCapacity", "SpotTargetCapacity"].iter().any(|part| params.text(&field(part)).is_some()) {
        return Err(unsupported("fleets of both capacity types".to_owned()));
    }
    match params.required(&field("DefaultTargetCapacityType"))? {
        "spot" => Ok((CapacityType::Spot, total)),
        "on-demand" => Ok((CapacityType::OnDemand, total)),
        other => Err(Ec2Fault::invalid_value("DefaultTargetCapacityType", other)),
    }
}

/// Nothing is launched below this number.
fn least(params: &Params, capacity: CapacityType, target: u32) -> Result<u32, Ec2Fault> {
    let prefix = if capacity == CapacityType::Spot { "SpotOptions." } else { "OnDemandOptions." };
    let field = |name: &str| format!("{prefix}{name}");
    if let Some(name) = ["MaxTotalPrice", "AllocationStrategy"].iter().find(|name| params.text(&field(name)).is_some())
    {
        return Err(unsupported((*name).to_owned()));
    }
    let single = params.flag(&field("SingleInstanceType"))? | params.flag(&field("SingleAvailabilityZone"))?;
    match params.number(&field("MinTargetCapacity"))? {
        Some(_) if !single => {
            let message = "MinTargetCapacity requires SingleInstanceType or SingleAvailabilityZone";
            Err(Ec2Fault::invalid_combination(message))
        }
        Some(least) if least == 0 || least > MAX_MINIMUM || least > target => {
            Err(Ec2Fault::invalid_value(&field("MinTargetCapacity"), &least.to_string()))
        }
        least => Ok(least.unwrap_or(0)),
    }
}

fn unfulfillable() -> Ec2Fault {
    let message =
        "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.";
    Ec2Fault::new(400, "UnfulfillableCapacity", message)
}

/// The fault for a feature of EC2 that is missing here, so that no wrong response is taken for EC2's.
fn unsupported(what: String) -> Ec2Fault {
    Ec2Fault::new(400, "UnsupportedOperation", format!("The loopback EC2 does not do {what}."))
}

fn to_response(
    region: &Region,
    fleet: &str,
    requested: &FleetOverride,
    capacity: CapacityType,
    launched: &[u64],
    short: Option<Ec2Fault>,
) -> Xml {
    let mut xml = Xml::default();
    xml.leaf("fleetId", fleet);
    xml.list("errorSet", short, |xml, fault| {
        echo(xml, requested);
        xml.leaf("lifecycle", capacity.as_str());
        xml.leaf("errorCode", fault.code);
        xml.leaf("errorMessage", &fault.message);
    });
    xml.list("fleetInstanceSet", (!launched.is_empty()).then_some(launched), |xml, numbers| {
        echo(xml, requested);
        xml.leaf("lifecycle", capacity.as_str());
        xml.texts("instanceIds", numbers.iter().filter_map(|n| region.instances.row(*n)).map(|row| &row.id));
        xml.leaf("instanceType", &requested.instance_type);
    });
    xml
}

/// Repeats the override of the request.
fn echo(xml: &mut Xml, o: &FleetOverride) {
    xml.element("launchTemplateAndOverrides", |xml| {
        xml.element("launchTemplateSpecification", |xml| {
            xml.leaf("launchTemplateId", &o.template.id);
            xml.leaf("version", 1);
        });
        xml.element("overrides", |xml| {
            xml.leaf("instanceType", &o.instance_type);
            xml.maybe("maxPrice", o.max_price.map(crate::params::dollars));
            xml.maybe("subnetId", o.subnet.as_ref());
            xml.maybe("availabilityZone", o.zone_asked.then_some(&o.zone));
            if let Some(group) = &o.group {
                xml.element("placement", |xml| xml.leaf("groupName", group));
            }
        });
    });
}
