//! DescribeInstances, and the XML of an instance. Each instance is described as stale as the options allow.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Timestamp;

use super::filters::{Filters, Page};
use crate::fault::Ec2Fault;
use crate::options::{RegionOptions, ReservationKind};
use crate::params::Params;
use crate::region::{EndReason, InstanceState, LoopbackInstance, Region, View, millis, spaced};
use crate::xml::Xml;

/// The supported filters, in addition to `tag:KEY`.
const FILTERS: [&str; 10] = [
    "availability-zone",
    "capacity-reservation-id",
    "client-token",
    "instance-id",
    "instance-lifecycle",
    "instance-state-name",
    "instance-type",
    "placement-group-name",
    "reservation-id",
    "tag-key",
];

pub(super) fn instances(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let ids = params.list("InstanceId");
    if !ids.is_empty() && params.text("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(Ec2Fault::invalid_combination(message));
    }
    let page = Page::read(params, 5, 1000)?;
    let filters = Filters::read(params, |name| FILTERS.contains(&name) || name.starts_with("tag:"))?;
    let matched = |shown: &Shown<'_>| filters.take(|name| values(shown, name));
    let (shown, next) = if ids.is_empty() {
        let all = region.instances.after(page.after).filter_map(|row| shown(region, row));
        let mut found: Vec<Shown> = all.filter(matched).take(page.most + 1).collect();
        let more = found.len() > page.most;
        found.truncate(page.most);
        let next = found.last().filter(|_| more).map(|(row, _)| Page::token(row.number));
        (found, next)
    } else {
        let mut found = named(region, &ids)?;
        found.retain(matched);
        (found, None)
    };
    let mut xml = Xml::default();
    let of_one_launch = shown.chunk_by(|(a, _), (b, _)| a.launch == b.launch);
    xml.list("reservationSet", of_one_launch, |xml, launch| {
        let id = launch.first().map_or("", |(row, _)| &row.launch);
        reservation(xml, &region.options, id, launch);
    });
    xml.maybe("nextToken", next);
    Ok(xml)
}

/// An instance with the view that this call describes.
type Shown<'a> = (&'a LoopbackInstance, &'a View);

fn shown<'a>(region: &Region, row: &'a LoopbackInstance) -> Option<Shown<'a>> {
    let age = region.age_shown(row.number);
    let view = row.seen_at(Timestamp(region.now().0.saturating_sub(age.0)))?;
    Some((row, view))
}

/// The instances with these ids, in the order of their launches. An unknown id is an error.
fn named<'a>(region: &'a Region, ids: &[&str]) -> Result<Vec<Shown<'a>>, Ec2Fault> {
    check_ids(ids)?;
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for id in ids {
        match region.instances.by_id(id).and_then(|row| shown(region, row)) {
            Some(one) => found.push(one),
            None => missing.push(*id),
        }
    }
    if !missing.is_empty() {
        return Err(not_found(&missing));
    }
    found.sort_by_key(|(row, _)| row.number);
    found.dedup_by_key(|(row, _)| row.number);
    Ok(found)
}

pub(super) fn known(region: &Region, ids: &[&str]) -> Result<Vec<u64>, Ec2Fault> {
    check_ids(ids)?;
    let missing: Vec<&str> = ids.iter().copied().filter(|id| region.instances.number(id).is_none()).collect();
    if !missing.is_empty() {
        return Err(not_found(&missing));
    }
    let mut numbers: Vec<u64> = Vec::with_capacity(ids.len());
    for number in ids.iter().filter_map(|id| region.instances.number(id)) {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Checks the format of ids.
fn check_ids(ids: &[&str]) -> Result<(), Ec2Fault> {
    let hex = |id: &str| id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let well_formed = |id: &str| id.strip_prefix("i-").is_some_and(|rest| [8, 17].contains(&rest.len()) && hex(rest));
    match ids.iter().find(|id| !well_formed(id)) {
        Some(id) => Err(Ec2Fault::new(400, "InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""))),
        None => Ok(()),
    }
}

fn not_found(ids: &[&str]) -> Ec2Fault {
    let message = match ids {
        [one] => format!("The instance ID '{one}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", many.join(", ")),
    };
    Ec2Fault::new(400, "InvalidInstanceID.NotFound", message)
}

fn values<'v>((row, view): &Shown<'v>, name: &str) -> Vec<&'v str> {
    let row: &'v LoopbackInstance = row;
    let one = |text: Option<&'v str>| text.into_iter().collect();
    match name {
        "availability-zone" => vec![&row.zone],
        "capacity-reservation-id" => one(row.reservation.as_deref()),
        "client-token" => vec![&row.shown_token],
        "instance-id" => vec![&row.id],
        "instance-lifecycle" => one((row.capacity == CapacityType::Spot).then_some("spot")),
        "instance-state-name" => vec![view.state.as_str()],
        "instance-type" => vec![&row.instance_type],
        "placement-group-name" => one(row.placement_group.as_deref()),
        "reservation-id" => vec![&row.launch],
        "tag-key" => view.tags.keys().map(String::as_str).collect(),
        other => one(other.strip_prefix("tag:").and_then(|key| view.tags.get(key)).map(String::as_str)),
    }
}

/// The content of one launch, which is a list member in DescribeInstances and the response of RunInstances.
pub(super) fn reservation(xml: &mut Xml, options: &RegionOptions, id: &str, instances: &[Shown<'_>]) {
    xml.leaf("reservationId", id);
    xml.leaf("ownerId", &options.account);
    xml.element("groupSet", |_| {});
    xml.list("instancesSet", instances.iter().enumerate(), |xml, (nth, shown)| instance(xml, options, nth, *shown));
}

fn instance(xml: &mut Xml, options: &RegionOptions, nth: usize, (row, view): Shown<'_>) {
    xml.leaf("instanceId", &row.id);
    xml.leaf("imageId", &row.image);
    xml.element("instanceState", |xml| state(xml, view.state));
    let address = address(row.number);
    xml.leaf("privateDnsName", format_args!("ip-{}.ec2.internal", address.replace('.', "-")));
    xml.leaf("dnsName", "");
    xml.leaf("reason", transition(view));
    xml.leaf("amiLaunchIndex", nth);
    xml.leaf("instanceType", &row.instance_type);
    xml.leaf("launchTime", millis(row.launched));
    xml.element("placement", |xml| {
        xml.leaf("availabilityZone", &row.zone);
        xml.leaf("groupName", row.placement_group.as_deref().unwrap_or_default());
        xml.leaf("tenancy", "default");
    });
    xml.element("monitoring", |xml| xml.leaf("state", "disabled"));
    xml.maybe("subnetId", row.subnet.as_deref());
    xml.leaf("privateIpAddress", address);
    xml.leaf("architecture", "x86_64");
    xml.leaf("clientToken", &row.shown_token);
    xml.maybe("instanceLifecycle", lifecycle(row, options));
    xml.maybe("spotInstanceRequestId", row.spot_request.as_deref());
    xml.maybe("capacityReservationId", row.reservation.as_deref());
    if let Some((code, message)) = reason(view) {
        xml.element("stateReason", |xml| {
            xml.leaf("code", code);
            xml.leaf("message", message);
        });
    }
    tags(xml, view.tags.iter());
    xml.list("networkInterfaceSet", 0..row.efa_interfaces, |xml, nth| {
        xml.leaf("interfaceType", "efa");
        xml.leaf("networkInterfaceId", format_args!("eni-{:05x}{:012x}", nth, row.number));
    });
}

pub(super) fn state(xml: &mut Xml, state: InstanceState) {
    xml.leaf("code", state.code());
    xml.leaf("name", state.as_str());
}

pub(super) fn tags<'t>(xml: &mut Xml, tags: impl Iterator<Item = (&'t String, &'t String)>) {
    xml.list("tagSet", tags, |xml, (key, value)| {
        xml.leaf("key", key);
        xml.leaf("value", value);
    });
}

fn lifecycle(row: &LoopbackInstance, options: &RegionOptions) -> Option<&'static str> {
    if row.capacity == CapacityType::Spot {
        return Some("spot");
    }
    let held = options.reservations.iter().find(|r| Some(&r.id) == row.reservation.as_ref())?;
    matches!(held.kind, ReservationKind::Block { .. }).then_some("capacity-block")
}

/// The state reason of EC2. A running instance has none.
fn reason(view: &View) -> Option<(&'static str, &'static str)> {
    match view.state {
        InstanceState::Pending => Some(("pending", "pending")),
        InstanceState::Running => None,
        _ => view.end_reason.map(EndReason::reason),
    }
}

fn transition(view: &View) -> String {
    match (view.state, view.end_reason) {
        (InstanceState::Pending | InstanceState::Running, _) | (_, None) => String::new(),
        (_, Some(EndReason::Requested)) => format!("User initiated ({})", spaced(view.since)),
        (_, Some(end_reason)) => end_reason.reason().0.to_owned(),
    }
}

/// A private address of 10.0.0.0/8, by the number of the instance.
fn address(number: u64) -> String {
    format!("10.{}.{}.{}", number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff)
}
