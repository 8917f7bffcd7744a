//! CreateFleet of type `instant`: a list of overrides, filled in the order of a strategy, whole or in part.
//!
//! ```text
//! overrides -> bids with their room -> ranked -> groups (one type, one zone, or all) -> a plan -> instances and errors
//! ```
//!
//! Never: anything launched below the minimum, a request that keeps itself filled.

mod plan;

use forebay_engine::catalog::CapacityType;

use super::launch::{check_tags, subnet, template, template_tags};
use crate::options::LaunchTemplate;
use crate::params::Params;
use crate::refusal::Refusal;
use crate::region::{Bid, Region};
use crate::xml::Xml;
use plan::{Ranked, Terms};

/// The most overrides of one request.
const MOST_OVERRIDES: usize = 300;
/// The most that a minimum may be.
const MOST_MINIMUM: u32 = 1000;

/// One override, as it was asked.
#[derive(Clone, Debug)]
struct Override {
    template: LaunchTemplate,
    instance_type: String,
    zone: String,
    /// Whether the request named the zone itself.
    zone_asked: bool,
    subnet: Option<String>,
    group: Option<String>,
    max_price: Option<u64>,
    /// In 1/1000; lower comes first.
    priority: Option<u64>,
    image: Option<String>,
}

/// What came of one kind of capacity.
struct Outcome {
    capacity: CapacityType,
    launched: Vec<(usize, Vec<u64>)>,
    short: Vec<(usize, Refusal)>,
}

pub(super) fn create(region: &mut Region, params: &Params) -> Result<Xml, Refusal> {
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
        let bid = |o: &Override| {
            let mut tags = tags.clone();
            tags.insert("aws:ec2:fleet-id".to_owned(), fleet.clone());
            tags.extend(template_tags(Some(&o.template)));
            Bid {
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
        let ranked = overrides.iter().enumerate().map(|(ix, o)| Ranked::new(region, ix, bid(o), o.priority)).collect();
        outcomes.push(fill(region, capacity, ranked, &terms));
    }
    Ok(written(region, &fleet, &overrides, &outcomes))
}

/// Carries a plan out.
fn fill(region: &mut Region, capacity: CapacityType, ranked: Vec<Ranked>, terms: &Terms) -> Outcome {
    let plan = plan::plan(region, &ranked, terms);
    let mut launched = Vec::new();
    for (ix, count) in plan.counts {
        if let Some(one) = ranked.iter().find(|r| r.ix == ix) {
            launched.push((ix, region.create(&one.bid, count)));
        }
    }
    Outcome { capacity, launched, short: plan.short }
}

fn overrides(region: &Region, params: &Params) -> Result<Vec<Override>, Refusal> {
    let configs = params.members("LaunchTemplateConfigs");
    let mut all = Vec::new();
    for config in &configs {
        let template = template(region, params, &format!("{config}LaunchTemplateSpecification."))?;
        let template = template.ok_or_else(|| Refusal::missing("LaunchTemplateSpecification"))?;
        for prefix in params.members(&format!("{config}Overrides")) {
            all.push(read_override(region, params, &template, &prefix)?);
        }
    }
    if all.is_empty() {
        // The templates here name no instance type of their own.
        return Err(Refusal::missing(if configs.is_empty() { "LaunchTemplateConfigs" } else { "InstanceType" }));
    }
    if all.len() > MOST_OVERRIDES {
        let message = format!("The number of overrides {} exceeds the limit of {MOST_OVERRIDES}.", all.len());
        return Err(Refusal::new(400, "InvalidParameterValue", message));
    }
    Ok(all)
}

fn read_override(
    region: &Region,
    params: &Params,
    template: &LaunchTemplate,
    prefix: &str,
) -> Result<Override, Refusal> {
    let field = |name: &str| format!("{prefix}{name}");
    let text = |name: &str| params.text(&field(name)).map(str::to_owned);
    if params.any(&field("InstanceRequirements.")) {
        return Err(unsupported("InstanceRequirements".to_owned()));
    }
    if text("WeightedCapacity").is_some_and(|w| w != "1" && w != "1.0") {
        return Err(unsupported("weighted capacity".to_owned()));
    }
    let (asked, subnet_id) = (text("AvailabilityZone"), text("SubnetId"));
    let zone = match (&asked, &subnet_id) {
        (Some(_), Some(_)) => {
            let message = "Only one of the subnet and the Availability Zone of an override may be specified";
            return Err(Refusal::combination(message));
        }
        (Some(zone), None) => zone.clone(),
        (None, Some(id)) => subnet(region, id)?.zone.clone(),
        (None, None) => region.options.zones.first().cloned().unwrap_or_default(),
    };
    Ok(Override {
        template: template.clone(),
        instance_type: params.required(&field("InstanceType"))?.to_owned(),
        zone,
        zone_asked: asked.is_some(),
        subnet: subnet_id,
        group: text("Placement.GroupName"),
        max_price: params.dollars(&field("MaxPrice"))?,
        // A decimal number, read as a price is: to the sixth digit.
        priority: params.dollars(&field("Priority"))?,
        image: text("ImageId"),
    })
}

/// How many on demand and how many spot.
fn targets(params: &Params) -> Result<(u32, u32), Refusal> {
    let number = |name: &str| params.number(&format!("TargetCapacitySpecification.{name}"));
    let total = number("TotalTargetCapacity")?.ok_or_else(|| Refusal::missing("TotalTargetCapacity"))?;
    let (mut on_demand, mut spot) =
        (number("OnDemandTargetCapacity")?.unwrap_or(0), number("SpotTargetCapacity")?.unwrap_or(0));
    let named = on_demand.saturating_add(spot);
    let message = |what: &str| Refusal::new(400, "InvalidTargetCapacitySpecification", what);
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
        None => return Err(Refusal::missing("DefaultTargetCapacityType")),
        Some(other) => return Err(Refusal::value("DefaultTargetCapacityType", other)),
    }
    Ok((on_demand, spot))
}

fn terms(params: &Params, prefix: &str, target: u32) -> Result<Terms, Refusal> {
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
            return Err(Refusal::combination(message));
        }
        if least == 0 || least > MOST_MINIMUM || least > target {
            return Err(Refusal::value(&field("MinTargetCapacity"), &least.to_string()));
        }
    }
    let strategy = params.text(&field("AllocationStrategy")).unwrap_or("lowest-price");
    let strategy = plan::Strategy::read(strategy, prefix == "SpotOptions.")
        .ok_or_else(|| Refusal::value(&field("AllocationStrategy"), strategy))?;
    Ok(Terms { target, least: least.unwrap_or(0), single_type, single_zone, strategy })
}

/// What EC2 can do and this cannot: said aloud, so that nobody takes a wrong answer for EC2's.
fn unsupported(what: String) -> Refusal {
    Refusal::new(400, "UnsupportedOperation", format!("The loopback EC2 does not do {what}."))
}

fn written(region: &Region, fleet: &str, overrides: &[Override], outcomes: &[Outcome]) -> Xml {
    let mut xml = Xml::default();
    xml.leaf("fleetId", fleet);
    let short = outcomes.iter().flat_map(|o| o.short.iter().map(|(ix, refusal)| (o.capacity, *ix, refusal)));
    xml.list("errorSet", short, |xml, (capacity, ix, refusal)| {
        echo(xml, overrides.get(ix));
        xml.leaf("lifecycle", capacity.as_str());
        xml.leaf("errorCode", refusal.code);
        xml.leaf("errorMessage", &refusal.message);
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

/// The override again, as it was asked.
fn echo(xml: &mut Xml, asked: Option<&Override>) {
    let Some(o) = asked else { return };
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
