//! The region in virtual time, without a socket: errors, stock and prices, faults, reclaims, and determinism.

mod api_faults;
mod determinism;
mod faults;
mod reclaims;
mod stock;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{ApiReply, DEFAULT_TEMPLATE, InstanceState, Params, Region, RegionOptions};
use forebay_sim::world::Stock;

/// A region with the time that its calls are made at.
struct Stage {
    region: Region,
    now: Timestamp,
}

impl Stage {
    fn new(options: RegionOptions) -> Stage {
        let region = Region::new(options);
        let now = region.now();
        Stage { region, now }
    }

    fn calm() -> Stage {
        Stage::new(RegionOptions::default())
    }

    fn pass(&mut self, span: Span) -> Vec<serde_json::Value> {
        self.now = self.now + span;
        let messages = self.region.advance(self.now);
        messages.iter().map(|m| serde_json::from_str(&m.body).unwrap()).collect()
    }

    /// The body of a call that is answered with 200, or the code of its refusal with its status.
    fn call(&mut self, params: &Params) -> Result<String, (u16, String)> {
        match self.region.call(self.now, params) {
            ApiReply::Response { status: 200, body } => Ok(body),
            ApiReply::Response { status, body } => Err((status, leaves(&body, "Code").concat())),
            ApiReply::Dropped => Err((0, "dropped".to_owned())),
        }
    }

    /// The same, with the code alone.
    fn code(&mut self, params: &Params) -> String {
        self.call(params).map_or_else(|(_, code)| code, |_| "done".to_owned())
    }

    /// The ids in the response of a launch.
    fn launch(&mut self, params: &Params) -> Vec<String> {
        let body = self.call(params).unwrap();
        let ids = if body.contains("<instanceIds>") { fleet_ids(&body) } else { leaves(&body, "instanceId") };
        ids.into_iter().map(str::to_owned).collect()
    }

    fn state(&self, id: &str) -> InstanceState {
        self.region.instance(id).unwrap().state
    }

    fn alive(&self) -> usize {
        self.region.instances().filter(|i| !i.state.is_ending()).count()
    }
}

/// The texts of all elements of this name.
fn leaves<'a>(body: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    body.split(open.as_str()).skip(1).filter_map(|rest| rest.split_once(close.as_str())).map(|(text, _)| text).collect()
}

fn fleet_ids(body: &str) -> Vec<&str> {
    leaves(body, "instanceIds").into_iter().flat_map(|ids| leaves(ids, "item")).collect()
}

fn run(instance_type: &str, zone: &str, least: u32, most: u32) -> Params {
    Params::new("RunInstances")
        .with("InstanceType", instance_type)
        .with("ImageId", "ami-1")
        .with("Placement.AvailabilityZone", zone)
        .with("MinCount", least.to_string())
        .with("MaxCount", most.to_string())
}

fn spot(params: Params) -> Params {
    params.with("InstanceMarketOptions.MarketType", "spot")
}

/// A spot fleet over (type, zone) overrides.
fn fleet(target: u32, overrides: &[(&str, &str)]) -> Params {
    let mut params = Params::new("CreateFleet")
        .with("Type", "instant")
        .with("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", DEFAULT_TEMPLATE)
        .with("TargetCapacitySpecification.TotalTargetCapacity", target.to_string())
        .with("TargetCapacitySpecification.DefaultTargetCapacityType", "spot");
    for (nth, (instance_type, zone)) in overrides.iter().enumerate() {
        let prefix = format!("LaunchTemplateConfigs.1.Overrides.{}", nth + 1);
        params = params
            .with(&format!("{prefix}.InstanceType"), *instance_type)
            .with(&format!("{prefix}.AvailabilityZone"), *zone);
    }
    params
}

fn describe() -> Params {
    Params::new("DescribeInstances")
}

fn stock(instance_type: &str, zone: &str, capacity: CapacityType, count: u32) -> Stock {
    Stock { instance_type: instance_type.to_owned(), zone: zone.to_owned(), capacity, count }
}

const A: &str = "us-east-1a";
const B: &str = "us-east-1b";
const C: &str = "us-east-1c";
