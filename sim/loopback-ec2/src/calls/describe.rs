//! DescribeInstances, and how an instance is written.
//!
//! Never: the truth where the options ask for less: each instance is shown as it was when the draw says.

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::Millis;

use super::filters::{Filters, Page};
use crate::options::{RegionOptions, ReservationKind};
use crate::params::Params;
use crate::refusal::Refusal;
use crate::region::{Instance, InstanceState, Region, View, Why, millis, spaced};
use crate::xml::Xml;

/// The filters that are known, beside `tag:KEY`.
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

pub(super) fn instances(region: &mut Region, params: &Params) -> Result<Xml, Refusal> {
    let ids = params.list("InstanceId");
    if !ids.is_empty() && params.text("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(Refusal::combination(message));
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

/// An instance with what it looks like to this call.
type Shown<'a> = (&'a Instance, &'a View);

fn shown<'a>(region: &Region, row: &'a Instance) -> Option<Shown<'a>> {
    let age = region.age_shown(row.number);
    let view = row.seen_at(Millis(region.now().0.saturating_sub(age.0)))?;
    Some((row, view))
}

/// The instances asked for by id, in the order of their launches; all of them or a refusal.
fn named<'a>(region: &'a Region, ids: &[&str]) -> Result<Vec<Shown<'a>>, Refusal> {
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

/// Ids look like ids, or the whole call is refused.
pub(super) fn check_ids(ids: &[&str]) -> Result<(), Refusal> {
    let hex = |id: &str| id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let well_formed = |id: &str| id.strip_prefix("i-").is_some_and(|rest| [8, 17].contains(&rest.len()) && hex(rest));
    match ids.iter().find(|id| !well_formed(id)) {
        Some(id) => Err(Refusal::new(400, "InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""))),
        None => Ok(()),
    }
}

pub(super) fn not_found(ids: &[&str]) -> Refusal {
    let message = match ids {
        [one] => format!("The instance ID '{one}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", many.join(", ")),
    };
    Refusal::new(400, "InvalidInstanceID.NotFound", message)
}

fn values<'v>((row, view): &Shown<'v>, name: &str) -> Vec<&'v str> {
    let row: &'v Instance = row;
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

/// The inside of one launch: DescribeInstances has a list of them, RunInstances is one.
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

fn lifecycle(row: &Instance, options: &RegionOptions) -> Option<&'static str> {
    if row.capacity == CapacityType::Spot {
        return Some("spot");
    }
    let held = options.reservations.iter().find(|r| Some(&r.id) == row.reservation.as_ref())?;
    matches!(held.kind, ReservationKind::Block { .. }).then_some("capacity-block")
}

/// What EC2 says beside the state: nothing while it runs.
fn reason(view: &View) -> Option<(&'static str, &'static str)> {
    match view.state {
        InstanceState::Pending => Some(("pending", "pending")),
        InstanceState::Running => None,
        _ => view.why.map(Why::reason),
    }
}

fn transition(view: &View) -> String {
    match (view.state, view.why) {
        (InstanceState::Pending | InstanceState::Running, _) | (_, None) => String::new(),
        (_, Some(Why::Asked)) => format!("User initiated ({})", spaced(view.since)),
        (_, Some(why)) => why.reason().0.to_owned(),
    }
}

/// An address of 10.0.0.0/8 by the instance's number.
fn address(number: u64) -> String {
    format!("10.{}.{}.{}", number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff)
}
