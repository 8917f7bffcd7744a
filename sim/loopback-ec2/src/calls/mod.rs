//! The actions that the region knows, one function each: parameters in, the answer's inside out, or a refusal.
//!
//! Never: an action that does half of what it refuses.

mod catalog;
mod describe;
mod end;
mod filters;
mod fleet;
mod launch;
mod places;
mod run;
mod status;

use crate::params::Params;
use crate::refusal::Refusal;
use crate::region::Region;
use crate::xml::Xml;

/// What each action is done by.
type Call = fn(&mut Region, &Params) -> Result<Xml, Refusal>;

/// The call of an action, and whether a client token makes it idempotent.
fn call_of(action: &str) -> Option<(Call, bool)> {
    let call: (Call, bool) = match action {
        "CreateFleet" => (fleet::create, true),
        "RunInstances" => (run::run, true),
        "DescribeInstances" => (describe::instances, false),
        "DescribeInstanceStatus" => (status::statuses, false),
        "TerminateInstances" => (end::terminate, false),
        "CreateTags" => (end::create_tags, false),
        "DeleteTags" => (end::delete_tags, false),
        "DescribeInstanceTypes" => (catalog::types, false),
        "DescribeInstanceTypeOfferings" => (catalog::offerings, false),
        "DescribeSpotPriceHistory" => (catalog::spot_prices, false),
        "CreatePlacementGroup" => (places::create_group, false),
        "DescribePlacementGroups" => (places::groups, false),
        "DescribeCapacityReservations" => (places::reservations, false),
        "DescribeLaunchTemplates" => (places::launch_templates, false),
        "DescribeSubnets" => (places::subnets, false),
        "DescribeAvailabilityZones" => (places::zones, false),
        _ => return None,
    };
    Some(call)
}

/// The whole answer to an action.
pub(crate) fn answer(region: &mut Region, action: &str, params: &Params, request_id: &str) -> Result<String, Refusal> {
    if action.is_empty() {
        return Err(Refusal::new(400, "MissingAction", "The request must contain the parameter Action"));
    }
    let Some((call, idempotent)) = call_of(action) else {
        let message = format!("The action {action} is not valid for this web service.");
        return Err(Refusal::new(400, "InvalidAction", message));
    };
    if params.flag("DryRun")? {
        let message = "Request would have succeeded, but DryRun flag is set.";
        return Err(Refusal::new(412, "DryRunOperation", message));
    }
    if let Some(body) = idempotent.then(|| region.answered(action, params)).transpose()?.flatten() {
        return Ok(body);
    }
    let body = call(region, params)?.answer(action, request_id);
    if idempotent {
        region.remember(action, params, &body);
    }
    Ok(body)
}
