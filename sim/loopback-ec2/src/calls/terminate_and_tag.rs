//! TerminateInstances, CreateTags and DeleteTags. One unknown id makes the whole call fail.

use std::collections::BTreeMap;

use super::describe::{known, state};
use super::launch_parameters::check_tags;
use crate::fault::Ec2Fault;
use crate::params::Params;
use crate::region::{EndReason, Region};
use crate::xml::Xml;

pub(super) fn terminate(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let ids = params.list("InstanceId");
    if ids.is_empty() {
        return Err(Ec2Fault::missing("InstanceId"));
    }
    let numbers = known(region, &ids)?;
    let before: Vec<_> = numbers.iter().map(|n| region.instances.row(*n).map(|row| row.state)).collect();
    for number in &numbers {
        region.end(*number, EndReason::Requested);
    }
    let mut xml = Xml::default();
    xml.list("instancesSet", numbers.iter().zip(before), |xml, (number, before)| {
        let (Some(row), Some(before)) = (region.instances.row(*number), before) else { return };
        xml.leaf("instanceId", &row.id);
        xml.element("currentState", |xml| state(xml, row.state));
        xml.element("previousState", |xml| state(xml, before));
    });
    Ok(xml)
}

pub(super) fn create_tags(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let tags = params.tags("Tag");
    if tags.is_empty() {
        return Err(Ec2Fault::missing("Tag"));
    }
    check_tags(&tags)?;
    for number in resources(region, params)? {
        let own = region.instances.row(number).map(|row| row.tags.clone()).unwrap_or_default();
        let all: BTreeMap<_, _> = own.into_iter().chain(tags.clone()).filter(|(k, _)| !k.starts_with("aws:")).collect();
        check_tags(&all)?;
        for (key, value) in &tags {
            region.tag(number, key, Some(value));
        }
    }
    Ok(done())
}

pub(super) fn delete_tags(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    for number in resources(region, params)? {
        for prefix in params.members("Tag") {
            let key = params.required(&format!("{prefix}Key"))?;
            let value = params.text(&format!("{prefix}Value"));
            let has = region.instances.row(number).and_then(|row| row.tags.get(key));
            if has.is_some_and(|has| value.is_none_or(|value| value == has)) {
                region.tag(number, key, None);
            }
        }
    }
    Ok(done())
}

fn done() -> Xml {
    Xml::of(|xml| xml.leaf("return", true))
}

/// The instances among the resources. Tags of other resources are ignored.
fn resources(region: &Region, params: &Params) -> Result<Vec<u64>, Ec2Fault> {
    let all = params.list("ResourceId");
    if all.is_empty() {
        return Err(Ec2Fault::missing("ResourceId"));
    }
    let instances: Vec<&str> = all.into_iter().filter(|id| id.starts_with("i-")).collect();
    known(region, &instances)
}
