//! TerminateInstances. One unknown id makes the whole call fail.

use super::describe::{known, state};
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
