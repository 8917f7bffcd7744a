//! Checks everything that buying needs, without a change: with dry runs, and by describing the objects in the configuration.
//!
//! Whether an instance may be terminated cannot be checked without having one.

use crate::api_call::Ec2Response;
use crate::error_class::{Ec2Error, ErrorClass};
use crate::queue::short_name;
use crate::request::{LaunchRequest, PurchaseOrder, dry_run_group};
use crate::sdk::{self, Ec2Clients};
use crate::settings::{Ec2Settings, ReservedCapacity};
use aws_sdk_ec2::types::CapacityReservationType;
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::Terms;
use forebay_kernel::ids::{PurchaseId, Seq};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span, Timestamp};
use std::collections::BTreeSet;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// The subject of the check, such as `subnet subnet-1`.
    pub subject: String,
    /// What was found, or the error with its remedy.
    pub result: Result<String, String>,
}

impl ProbeResult {
    fn new(subject: impl Into<String>, result: Result<String, String>) -> ProbeResult {
        ProbeResult { subject: subject.into(), result }
    }
}

/// Runs all checks, one call after the other, which is far below EC2's rate limits.
pub async fn probe(
    clients: &Ec2Clients,
    settings: &Ec2Settings,
    zones: &[String],
    queues: &[String],
) -> Vec<ProbeResult> {
    let mut results = vec![check_instances(clients, settings).await];
    if results.iter().any(|r| r.result.is_err()) {
        // Without credentials or a network, the other checks would fail the same way.
        return results;
    }
    results.push(check_zones(clients, zones).await);
    for subnet in launches(settings).flat_map(|l| l.subnets.iter()).collect::<BTreeSet<_>>() {
        results.push(check_subnet(clients, subnet).await);
    }
    for (pool, launch) in
        std::iter::once(("", &settings.other)).chain(settings.pools.iter().map(|(n, l)| (n.as_str(), l)))
    {
        if launch.template.is_none() && launch.image.is_none() {
            continue;
        }
        let subject = if pool.is_empty() { "launch".to_owned() } else { format!("launch for pool {pool}") };
        results.push(ProbeResult::new(subject, check_launch(clients, settings, pool, zones).await));
    }
    let group = clients.ec2.create_placement_group().group_name(dry_run_group(&settings.cluster)).dry_run(true);
    results.push(ProbeResult::new("placement groups", dry_run(group.send()).await));
    let history = clients.ec2.describe_spot_price_history().dry_run(true);
    results.push(ProbeResult::new("spot prices", dry_run(history.send()).await));
    let statuses = clients.ec2.describe_instance_status().dry_run(true);
    results.push(ProbeResult::new("scheduled changes", dry_run(statuses.send()).await));
    let types = clients.ec2.describe_instance_types().dry_run(true);
    results.push(ProbeResult::new("instance types", dry_run(types.send()).await));
    for reservation in &settings.reservations {
        let result = check_reservation(clients, reservation).await;
        results.push(ProbeResult::new(format!("reservation {}", reservation.id), result));
    }
    for queue in queues {
        results
            .push(ProbeResult::new(format!("interruptions {}", short_name(queue)), read_queue(clients, queue).await));
    }
    results
}

fn launches(settings: &Ec2Settings) -> impl Iterator<Item = &crate::settings::LaunchSettings> {
    std::iter::once(&settings.other).chain(settings.pools.values())
}

async fn check_instances(clients: &Ec2Clients, settings: &Ec2Settings) -> ProbeResult {
    let call = crate::api_call::Ec2Call::List { cluster: settings.cluster.clone(), next_token: None };
    let result = match sdk::execute(&clients.ec2, &call).await {
        Ec2Response::Described { instances, .. } => {
            let count = instances.iter().filter(|i| i.exists()).count();
            Ok(format!("{count} with the name `{}`", settings.cluster))
        }
        Ec2Response::Refused(error) => Err(remedy(&error, "ec2:DescribeInstances")),
        Ec2Response::Done | Ec2Response::Launched { .. } => Err("a response of another kind".to_owned()),
    };
    ProbeResult::new("instances", result)
}

async fn check_zones(clients: &Ec2Clients, zones: &[String]) -> ProbeResult {
    let call = clients.ec2.describe_availability_zones().send();
    let result =
        sdk::send(call).await.map_err(|failed| remedy(&failed, "ec2:DescribeAvailabilityZones")).and_then(|all| {
            let known: BTreeSet<&str> = all.availability_zones().iter().filter_map(|z| z.zone_name()).collect();
            match zones.iter().find(|zone| !known.contains(zone.as_str())) {
                Some(zone) => Err(format!(
                    "`{zone}` is not in this region, which has {}",
                    known.iter().copied().collect::<Vec<_>>().join(", ")
                )),
                None => Ok(zones.join(", ")),
            }
        });
    ProbeResult::new("zones", result)
}

async fn check_subnet(clients: &Ec2Clients, (zone, subnet): (&String, &String)) -> ProbeResult {
    let call = clients.ec2.describe_subnets().subnet_ids(subnet).send();
    let result = sdk::send(call).await.map_err(|failed| remedy(&failed, "ec2:DescribeSubnets")).and_then(|all| {
        let one = all.subnets().first().ok_or_else(|| "does not exist; correct its id".to_owned())?;
        let actual = one.availability_zone().unwrap_or_default();
        if actual != zone {
            return Err(format!("is in {actual} and configured for {zone}"));
        }
        Ok(format!("{} addresses free in {zone}", one.available_ip_address_count().unwrap_or_default()))
    });
    ProbeResult::new(format!("subnet {subnet}"), result)
}

/// Compares a reservation with its configuration: EC2 refuses each launch into another type or zone, and clears a block at its own end.
async fn check_reservation(clients: &Ec2Clients, own: &ReservedCapacity) -> Result<String, String> {
    let call = clients.ec2.describe_capacity_reservations().capacity_reservation_ids(&own.id).send();
    let all = sdk::send(call).await.map_err(|failed| remedy(&failed, "ec2:DescribeCapacityReservations"))?;
    let one = all.capacity_reservations().first();
    let one = one.ok_or_else(|| "does not exist; correct its id or the region".to_owned())?;
    let (instance_type, zone) = (one.instance_type().unwrap_or_default(), one.availability_zone().unwrap_or_default());
    if (instance_type, zone) != (own.instance_type.as_str(), own.zone.as_str()) {
        return Err(format!(
            "is for {instance_type} in {zone} and configured for {} in {}; correct `instanceType` and `zone`",
            own.instance_type, own.zone
        ));
    }
    if one.reservation_type().is_some_and(|kind| (*kind == CapacityReservationType::CapacityBlock) != own.block) {
        let is = if own.block { "no Capacity Block" } else { "a Capacity Block" };
        return Err(format!("is {is}; correct `block`, and `ends` with it"));
    }
    // Times are written to the minute.
    let differs = |at: Timestamp, configured: Timestamp| at.0.abs_diff(configured.0) >= 60_000;
    let actual = one.end_date().filter(|_| own.block);
    let at = actual.and_then(|end| end.to_millis().ok()).and_then(|ms| u64::try_from(ms).ok()).map(Timestamp);
    if let (Some(end), true) = (actual, at.zip(own.ends).is_some_and(|(at, configured)| differs(at, configured))) {
        return Err(format!("ends at {end}, which is not what is configured; correct `ends`"));
    }
    let (free, total) = (one.available_instance_count().unwrap_or_default(), one.total_instance_count());
    Ok(format!("{free} of {} free", total.unwrap_or_default()))
}

/// Checks whether a launch would be allowed, with a small type that every region sells.
async fn check_launch(
    clients: &Ec2Clients,
    settings: &Ec2Settings,
    pool: &str,
    zones: &[String],
) -> Result<String, String> {
    let zone = zones.first().cloned().unwrap_or_default();
    let offering = Offering {
        instance_type: "g4dn.xlarge".to_owned(),
        zone,
        capacity: CapacityType::OnDemand,
        gpus: 1,
        gpu_mem: Mib(0),
        models: Vec::new(),
        cpu: MilliCpu(0),
        mem: Mib(0),
        price: Rate(0),
        max_price: Rate(0),
        on_demand: Rate(0),
        boot: Span::ZERO,
        nvlink: 0,
        numa: 0,
    };
    let order = PurchaseOrder {
        effect: Seq(0),
        purchase: PurchaseId(0),
        decided_at: Timestamp(0),
        pool,
        offering: &offering,
        count: 1,
        at_least: 1,
        terms: Terms::default(),
    };
    let request = LaunchRequest::freeze(settings, &order);
    dry_run_result(sdk::dry_run_launch(&clients.ec2, &request).await)
}

async fn dry_run<T, E>(call: impl Future<Output = Result<T, aws_sdk_ec2::error::SdkError<E>>>) -> Result<String, String>
where
    E: aws_sdk_ec2::error::ProvideErrorMetadata + std::error::Error + 'static,
{
    dry_run_result(sdk::send(call).await.map(drop))
}

/// The result of a dry run, which is allowed if its error code is `DryRunOperation`.
fn dry_run_result(response: Result<(), Ec2Error>) -> Result<String, String> {
    match response {
        Err(error) if error.code != "DryRunOperation" => Err(remedy(&error, "the call")),
        _ => Ok("allowed".to_owned()),
    }
}

fn remedy(error: &Ec2Error, permission: &str) -> String {
    let remedy = match error.class {
        ErrorClass::NoResponse => return format!("{}; check the endpoint, the region and the network", error.message),
        ErrorClass::Auth if error.code == "NoCredentials" => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, or the keys in the configuration"
                .to_owned()
        }
        ErrorClass::Auth => format!("allow {permission} to these credentials (deploy/aws has the policy)"),
        ErrorClass::Throttled | ErrorClass::Server => "try again in a minute".to_owned(),
        _ => "correct the configuration".to_owned(),
    };
    format!("{error}; {remedy}")
}

async fn read_queue(clients: &Ec2Clients, queue: &str) -> Result<String, String> {
    let why = |error: &(dyn std::error::Error + 'static)| forebay_aws::truncate(&forebay_aws::error_chain(error));
    let url = if queue.contains("://") {
        queue.to_owned()
    } else {
        let found = clients.sqs.get_queue_url().queue_name(queue).send().await;
        let found = found.map_err(|e| format!("{}; create the queue (deploy/aws), or correct its name", why(&e)))?;
        found.queue_url().unwrap_or_default().to_owned()
    };
    let name = aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;
    let attributes = clients.sqs.get_queue_attributes().queue_url(url).attribute_names(name.clone()).send().await;
    let attributes =
        attributes.map_err(|e| format!("{}; allow sqs:GetQueueAttributes, or correct its URL", why(&e)))?;
    let waiting = attributes
        .attributes()
        .and_then(|all| all.get(&name))
        .cloned()
        .unwrap_or_else(|| "an unknown number of".to_owned());
    Ok(format!("{waiting} messages are waiting"))
}
