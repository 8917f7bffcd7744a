//! CreateFleet of type `instant`: overrides are filled in the order of the allocation strategy, completely or in part, and not below the minimum.
//!
//! ```text
//! overrides -> specifications with their availability -> ranked -> groups (one type, one zone, or all) -> plan -> instances and errors
//! ```

mod plan;

use forebay_kernel::catalog::CapacityType;

use super::launch_parameters::{check_tags, subnet, template, template_tags};
use crate::fault::Ec2Fault;
use crate::options::LaunchTemplate;
use crate::params::Params;
use crate::region::{LaunchSpec, Region};
use crate::xml::Xml;
use plan::{FleetTerms, Ranked};

/// The most overrides of a request.
const MAX_OVERRIDES: usize = 300;
/// The largest minimum.
const MAX_MINIMUM: u32 = 1000;

/// An override of the request.
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
    /// In 1/1000. The lowest comes first.
    priority: Option<u64>,
    image: Option<String>,
}

/// The result for one capacity type.
struct FleetPart {
    capacity: CapacityType,
    launched: Vec<(usize, Vec<u64>)>,
    short: Vec<(usize, Ec2Fault)>,
}

pub(super) fn create(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    match params.text("Type") {
        Some("instant") => {}
        other => return Err(unsupported(format!("fleets of type {}", other.unwrap_or("maintain")))),
    }
    let overrides = overrides(region, params)?;
    let (on_demand, spot) = targets(params)?;
    let on_demand_terms = terms(params, "OnDemandOptions.", on_demand)?;
    let spot_terms = terms(params, "SpotOptions.", spot)?;
    let tags = params.tags_for("instance");
    check_tags(&tags)?;
    let fleet = format!("fleet-{}", region.fresh_id());
    let mut outcomes = Vec::new();
    for (capacity, terms) in [(CapacityType::OnDemand, on_demand_terms), (CapacityType::Spot, spot_terms)] {
        if terms.target == 0 {
            continue;
        }
        let spec = |o: &FleetOverride| {
            let mut tags = tags.clone();
            tags.insert("aws:ec2:fleet-id".to_owned(), fleet.clone());
            tags.extend(template_tags(Some(&o.template)));
            LaunchSpec {
                instance_type: o.instance_type.clone(),
                zone: o.zone.clone(),
                capacity,
                subnet: o.subnet.clone(),
                group: o.group.clone(),
                reservation: None,
                max_price: o.max_price.filter(|_| capacity == CapacityType::Spot),
                image: o.image.clone().unwrap_or_else(|| "ami-00000000000000001".to_owned()),
                tags,
                client_token: params.text("ClientToken").unwrap_or_default().to_owned(),
                shown_token: fleet.clone(),
                efa_interfaces: 0,
            }
        };
        let ranked = overrides.iter().enumerate().map(|(ix, o)| Ranked::new(region, ix, spec(o), o.priority)).collect();
        outcomes.push(fill(region, capacity, ranked, &terms));
    }
    Ok(to_response(region, &fleet, &overrides, &outcomes))
}

/// Plans and launches.
fn fill(region: &mut Region, capacity: CapacityType, ranked: Vec<Ranked>, terms: &FleetTerms) -> FleetPart {
    let plan = plan::plan(region, &ranked, terms);
    let mut launched = Vec::new();
    for (ix, count) in plan.counts {
        if let Some(one) = ranked.iter().find(|r| r.ix == ix) {
            launched.push((ix, region.create(&one.spec, count)));
        }
    }
    FleetPart { capacity, launched, short: plan.short }
}

fn overrides(region: &Region, params: &Params) -> Result<Vec<FleetOverride>, Ec2Fault> {
    let configs = params.members("LaunchTemplateConfigs");
    let mut all = Vec::new();
    for config in &configs {
        let template = template(region, params, &format!("{config}LaunchTemplateSpecification."))?;
        let template = template.ok_or_else(|| Ec2Fault::missing("LaunchTemplateSpecification"))?;
        for prefix in params.members(&format!("{config}Overrides")) {
            all.push(read_override(region, params, &template, &prefix)?);
        }
    }
    if all.is_empty() {
        // Launch templates have no instance type here.
        return Err(Ec2Fault::missing(if configs.is_empty() { "LaunchTemplateConfigs" } else { "InstanceType" }));
    }
    if all.len() > MAX_OVERRIDES {
        let message = format!("The number of overrides {} exceeds the limit of {MAX_OVERRIDES}.", all.len());
        return Err(Ec2Fault::new(400, "InvalidParameterValue", message));
    }
    Ok(all)
}

fn read_override(
    region: &Region,
    params: &Params,
    template: &LaunchTemplate,
    prefix: &str,
) -> Result<FleetOverride, Ec2Fault> {
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
        template: template.clone(),
        instance_type: params.required(&field("InstanceType"))?.to_owned(),
        zone,
        zone_asked: requested.is_some(),
        subnet: subnet_id,
        group: text("Placement.GroupName"),
        max_price: params.dollars(&field("MaxPrice"))?,
        // A decimal number, parsed like a price.
        priority: params.dollars(&field("Priority"))?,
        image: text("ImageId"),
    })
}

/// The numbers of on-demand and spot instances.
fn targets(params: &Params) -> Result<(u32, u32), Ec2Fault> {
    let number = |name: &str| params.number(&format!("TargetCapacitySpecification.{name}"));
    let total = number("TotalTargetCapacity")?.ok_or_else(|| Ec2Fault::missing("TotalTargetCapacity"))?;
    let (mut on_demand, mut spot) =
        (number("OnDemandTargetCapacity")?.unwrap_or(0), number("SpotTargetCapacity")?.unwrap_or(0));
    let named = on_demand.saturating_add(spot);
    let message = |what: &str| Ec2Fault::new(400, "InvalidTargetCapacitySpecification", what);
    if total == 0 || total > 10_000 {
        return Err(message("The total target capacity must be between 1 and 10000"));
    }
    let Some(rest) = total.checked_sub(named) else {
        return Err(message("The total target capacity must not be less than the sum of its parts"));
    };
    match params.text("TargetCapacitySpecification.DefaultTargetCapacityType") {
        Some("spot") => spot += rest,
        Some("on-demand") => on_demand += rest,
        None if rest == 0 => {}
        None => return Err(Ec2Fault::missing("DefaultTargetCapacityType")),
        Some(other) => return Err(Ec2Fault::invalid_value("DefaultTargetCapacityType", other)),
    }
    Ok((on_demand, spot))
}

fn terms(params: &Params, prefix: &str, target: u32) -> Result<FleetTerms, Ec2Fault> {
    let field = |name: &str| format!("{prefix}{name}");
    let single_type = params.flag(&field("SingleInstanceType"))?;
    let single_zone = params.flag(&field("SingleAvailabilityZone"))?;
    let least = params.number(&field("MinTargetCapacity"))?;
    if params.text(&field("MaxTotalPrice")).is_some() {
        return Err(unsupported("MaxTotalPrice".to_owned()));
    }
    if let Some(least) = least {
        if !single_type && !single_zone {
            let message = "MinTargetCapacity requires SingleInstanceType or SingleAvailabilityZone";
            return Err(Ec2Fault::invalid_combination(message));
        }
        if least == 0 || least > MAX_MINIMUM || least > target {
            return Err(Ec2Fault::invalid_value(&field("MinTargetCapacity"), &least.to_string()));
        }
    }
    let strategy = params.text(&field("AllocationStrategy")).unwrap_or("lowest-price");
    let strategy = plan::Strategy::read(strategy, prefix == "SpotOptions.")
        .ok_or_else(|| Ec2Fault::invalid_value(&field("AllocationStrategy"), strategy))?;
    Ok(FleetTerms { target, least: least.unwrap_or(0), single_type, single_zone, strategy })
}

/// The fault for a feature of EC2 that is missing here, so that no wrong response is taken for EC2's.
fn unsupported(what: String) -> Ec2Fault {
    Ec2Fault::new(400, "UnsupportedOperation", format!("The loopback EC2 does not do {what}."))
}

fn to_response(region: &Region, fleet: &str, overrides: &[FleetOverride], outcomes: &[FleetPart]) -> Xml {
    let mut xml = Xml::default();
    xml.leaf("fleetId", fleet);
    let short = outcomes.iter().flat_map(|o| o.short.iter().map(|(ix, fault)| (o.capacity, *ix, fault)));
    xml.list("errorSet", short, |xml, (capacity, ix, fault)| {
        echo(xml, overrides.get(ix));
        xml.leaf("lifecycle", capacity.as_str());
        xml.leaf("errorCode", fault.code);
        xml.leaf("errorMessage", &fault.message);
    });
    let launched = outcomes.iter().flat_map(|o| o.launched.iter().map(|(ix, numbers)| (o.capacity, *ix, numbers)));
    xml.list("fleetInstanceSet", launched, |xml, (capacity, ix, numbers)| {
        echo(xml, overrides.get(ix));
        xml.leaf("lifecycle", capacity.as_str());
        xml.texts("instanceIds", numbers.iter().filter_map(|n| region.instances.row(*n)).map(|row| &row.id));
        if let Some(o) = overrides.get(ix) {
            xml.leaf("instanceType", &o.instance_type);
        }
    });
    xml
}

/// Repeats the override of the request.
fn echo(xml: &mut Xml, requested: Option<&FleetOverride>) {
    let Some(o) = requested else { return };
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
