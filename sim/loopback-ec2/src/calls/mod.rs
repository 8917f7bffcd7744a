//! The actions of the API, with one function each: from the parameters to the content of the response, or to a fault without an effect.

mod account_resources;
mod catalog;
mod describe;
mod filters;
mod fleet;
mod launch_parameters;
mod run;
mod status;
mod terminate;

use crate::fault::Ec2Fault;
use crate::params::Params;
use crate::region::Region;
use crate::xml::Xml;

/// The function of an action.
type Call = fn(&mut Region, &Params) -> Result<Xml, Ec2Fault>;

/// The function of an action, and whether a client token makes it idempotent.
fn call_of(action: &str) -> Option<(Call, bool)> {
    let call: (Call, bool) = match action {
        "CreateFleet" => (fleet::create, true),
        "RunInstances" => (run::run, true),
        "DescribeInstances" => (describe::instances, false),
        "DescribeInstanceStatus" => (status::statuses, false),
        "TerminateInstances" => (terminate::terminate, false),
        "DescribeInstanceTypes" => (catalog::types, false),
        "DescribeSpotPriceHistory" => (catalog::spot_prices, false),
        "CreatePlacementGroup" => (account_resources::create_group, false),
        "DescribeCapacityReservations" => (account_resources::reservations, false),
        "DescribeSubnets" => (account_resources::subnets, false),
        "DescribeAvailabilityZones" => (account_resources::zones, false),
        _ => return None,
    };
    Some(call)
}

/// The complete response to an action.
pub(crate) fn respond(
    region: &mut Region,
    action: &str,
    params: &Params,
    request_id: &str,
) -> Result<String, Ec2Fault> {
    if action.is_empty() {
        return Err(Ec2Fault::new(400, "MissingAction", "The request must contain the parameter Action"));
    }
    let Some((call, idempotent)) = call_of(action) else {
        let message = format!("The action {action} is not valid for this web service.");
        return Err(Ec2Fault::new(400, "InvalidAction", message));
    };
    if params.flag("DryRun")? {
        let message = "Request would have succeeded, but DryRun flag is set.";
        return Err(Ec2Fault::new(412, "DryRunOperation", message));
    }
    if let Some(body) = idempotent.then(|| region.response(action, params)).transpose()?.flatten() {
        return Ok(body);
    }
    let body = call(region, params)?.response(action, request_id);
    if idempotent {
        region.remember(action, params, &body);
    }
    Ok(body)
}
