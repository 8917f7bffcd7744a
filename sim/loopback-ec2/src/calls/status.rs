//! DescribeInstanceStatus: running instances and their scheduled events. The results are never stale.

use super::describe::{self, known};
use super::filters::{Filters, Page};
use crate::fault::Ec2Fault;
use crate::params::Params;
use crate::region::{InstanceState, LoopbackInstance, Region, millis};
use crate::xml::Xml;

const FILTERS: [&str; 3] = ["availability-zone", "event.code", "instance-state-name"];

/// The only kind of scheduled event in a region.
const CODE: &str = "instance-retirement";

pub(super) fn statuses(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let ids = params.list("InstanceId");
    known(region, &ids)?;
    let named = |row: &LoopbackInstance| ids.is_empty() || ids.contains(&row.id.as_str());
    let all = params.flag("IncludeAllInstances")?;
    let page = Page::read(params, 5, 1000)?;
    let filters = Filters::read(params, |name| FILTERS.contains(&name))?;
    let shown = |row: &LoopbackInstance| all || row.state == InstanceState::Running;
    let wanted = |row: &&LoopbackInstance| named(row) && shown(row) && filters.take(|name| values(row, name));
    let mut found: Vec<&LoopbackInstance> =
        region.instances.after(page.after).filter(wanted).take(page.most + 1).collect();
    let more = found.len() > page.most;
    found.truncate(page.most);
    let next = found.last().filter(|_| more).map(|row| Page::token(row.number));
    let mut xml = Xml::default();
    xml.list("instanceStatusSet", found, status);
    xml.maybe("nextToken", next);
    Ok(xml)
}

fn values<'v>(row: &'v LoopbackInstance, name: &str) -> Vec<&'v str> {
    match name {
        "availability-zone" => vec![&row.zone],
        "event.code" => row.retires_at.map(|_| CODE).into_iter().collect(),
        _ => vec![row.state.as_str()],
    }
}

fn status(xml: &mut Xml, row: &LoopbackInstance) {
    xml.leaf("instanceId", &row.id);
    xml.leaf("availabilityZone", &row.zone);
    xml.list("eventsSet", row.retires_at.iter(), |xml, at| {
        xml.leaf("instanceEventId", format_args!("instance-event-{:017x}", row.number));
        xml.leaf("code", CODE);
        xml.leaf("description", "The instance is running on degraded hardware");
        xml.leaf("notBefore", millis(*at));
    });
    xml.element("instanceState", |xml| describe::state(xml, row.state));
}
