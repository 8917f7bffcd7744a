//! Everything that buying needs, tried without buying: dry runs, and looks at what the configuration names.
//!
//! Never: a change. A dry run asks EC2 whether it would be allowed; to end an instance cannot be tried so without having one.

use crate::call::Answer;
use crate::request::{Order, Request, tried_group};
use crate::settings::Settings;
use crate::trouble::Class;
use crate::wire::{self, Ways, within};
use forebay_engine::catalog::{CapacityType, Offering};
use forebay_engine::effect::Terms;
use forebay_engine::ids::{PurchaseId, Seq};
use forebay_engine::units::{Mib, MilliCpu, Millis, Rate, Span};
use std::collections::BTreeSet;

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What.
    pub what: String,
    /// What was seen, or what is wrong with what to do.
    pub said: Result<String, String>,
}

impl Found {
    fn new(what: impl Into<String>, said: Result<String, String>) -> Found {
        Found { what: what.into(), said }
    }
}

/// Tries everything, one call after the other: well below EC2's rates.
pub async fn probe(ways: &Ways, settings: &Settings, zones: &[String], queues: &[String]) -> Vec<Found> {
    let mut found = vec![instances(ways, settings).await];
    if found.iter().any(|f| f.said.is_err()) {
        // Without credentials or a network the rest would say the same.
        return found;
    }
    found.push(in_zones(ways, zones).await);
    for subnet in launches(settings).flat_map(|l| l.subnets.iter()).collect::<BTreeSet<_>>() {
        found.push(subnet_of(ways, subnet).await);
    }
    for (pool, launch) in
        std::iter::once(("", &settings.other)).chain(settings.pools.iter().map(|(n, l)| (n.as_str(), l)))
    {
        if launch.template.is_none() && launch.image.is_none() {
            continue;
        }
        let at = if pool.is_empty() { "launch".to_owned() } else { format!("launch for pool {pool}") };
        found.push(Found::new(at, dry_launch(ways, settings, pool, zones).await));
    }
    found.push(Found::new(
        "placement groups",
        dry(ways.ec2.create_placement_group().group_name(tried_group(&settings.cluster)).dry_run(true).send()).await,
    ));
    let history = ways.ec2.describe_spot_price_history().dry_run(true).send();
    found.push(Found::new("spot prices", dry(history).await));
    found.push(Found::new("scheduled changes", dry(ways.ec2.describe_instance_status().dry_run(true).send()).await));
    found.push(Found::new("instance types", dry(ways.ec2.describe_instance_types().dry_run(true).send()).await));
    for reservation in &settings.reservations {
        let call = ways.ec2.describe_capacity_reservations().capacity_reservation_ids(&reservation.id).send();
        let said = within(call).await.map_err(|no| remedy(&no, "ec2:DescribeCapacityReservations"));
        let said = said.and_then(|all| match all.capacity_reservations().first() {
            Some(one) => Ok(format!(
                "{} of {} free",
                one.available_instance_count().unwrap_or_default(),
                one.total_instance_count().unwrap_or_default()
            )),
            None => Err("is not there: mend its id, or its region".to_owned()),
        });
        found.push(Found::new(format!("reservation {}", reservation.id), said));
    }
    for queue in queues {
        found.push(Found::new(format!("interruptions {}", short(queue)), read_queue(ways, queue).await));
    }
    found
}

fn launches(settings: &Settings) -> impl Iterator<Item = &crate::settings::Launch> {
    std::iter::once(&settings.other).chain(settings.pools.values())
}

async fn instances(ways: &Ways, settings: &Settings) -> Found {
    let call = crate::call::Call::List { cluster: settings.cluster.clone(), from: None };
    let said = match wire::make(&ways.ec2, &call).await {
        Answer::Seen { instances, .. } => {
            let there = instances.iter().filter(|i| i.exists()).count();
            Ok(format!("{there} carry the name `{}`", settings.cluster))
        }
        other => Err(remedy(&other, "ec2:DescribeInstances")),
    };
    Found::new("instances", said)
}

async fn in_zones(ways: &Ways, zones: &[String]) -> Found {
    let call = ways.ec2.describe_availability_zones().send();
    let said = within(call).await.map_err(|no| remedy(&no, "ec2:DescribeAvailabilityZones")).and_then(|all| {
        let known: BTreeSet<&str> = all.availability_zones().iter().filter_map(|z| z.zone_name()).collect();
        match zones.iter().find(|zone| !known.contains(zone.as_str())) {
            Some(zone) => Err(format!(
                "`{zone}` is not of this region, which has {}",
                known.iter().copied().collect::<Vec<_>>().join(", ")
            )),
            None => Ok(zones.join(", ")),
        }
    });
    Found::new("zones", said)
}

async fn subnet_of(ways: &Ways, (zone, subnet): (&String, &String)) -> Found {
    let call = ways.ec2.describe_subnets().subnet_ids(subnet).send();
    let said = within(call).await.map_err(|no| remedy(&no, "ec2:DescribeSubnets")).and_then(|all| {
        let one = all.subnets().first().ok_or_else(|| "is not there: mend its id".to_owned())?;
        let lies = one.availability_zone().unwrap_or_default();
        if lies != zone {
            return Err(format!("lies in {lies}, and is given for {zone}"));
        }
        Ok(format!("{} addresses free in {zone}", one.available_ip_address_count().unwrap_or_default()))
    });
    Found::new(format!("subnet {subnet}"), said)
}

/// Asks whether a launch would be allowed. The type is a small one that every region sells.
async fn dry_launch(ways: &Ways, settings: &Settings, pool: &str, zones: &[String]) -> Result<String, String> {
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
    let order = Order {
        effect: Seq(0),
        purchase: PurchaseId(0),
        decided_at: Millis(0),
        pool,
        offering: &offering,
        count: 1,
        at_least: 1,
        terms: Terms::default(),
    };
    let request = Request::freeze(settings, &order);
    judged(wire::dry_launch(&ways.ec2, &request).await)
}

async fn dry<T, E>(call: impl Future<Output = Result<T, aws_sdk_ec2::error::SdkError<E>>>) -> Result<String, String>
where
    E: aws_sdk_ec2::error::ProvideErrorMetadata + std::error::Error + 'static,
{
    judged(match within(call).await {
        Ok(_) => Answer::Done,
        Err(no) => no,
    })
}

/// What a dry run says: `DryRunOperation` is a yes.
fn judged(answer: Answer) -> Result<String, String> {
    match answer {
        Answer::Done | Answer::Launched { .. } | Answer::Seen { .. } => Ok("allowed".to_owned()),
        Answer::Refused(refusal) if refusal.code == "DryRunOperation" => Ok("allowed".to_owned()),
        other => Err(remedy(&other, "the call")),
    }
}

fn remedy(answer: &Answer, permission: &str) -> String {
    match answer {
        Answer::Refused(refusal) => {
            let what = match refusal.class {
                Class::Auth if refusal.code == "NoCredentials" => {
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, or the keys in the configuration".to_owned()
                }
                Class::Auth => format!("allow {permission} to these credentials (deploy/aws has the policy)"),
                Class::Throttled | Class::Server => "try again in a minute".to_owned(),
                _ => "mend what the configuration names".to_owned(),
            };
            format!("{refusal}; {what}")
        }
        Answer::Lost(why) => format!("{why}; check the endpoint, the region and the network"),
        Answer::Done | Answer::Launched { .. } | Answer::Seen { .. } => "an answer to another question".to_owned(),
    }
}

async fn read_queue(ways: &Ways, queue: &str) -> Result<String, String> {
    let url = if queue.contains("://") {
        queue.to_owned()
    } else {
        let found = ways.sqs.get_queue_url().queue_name(queue).send().await;
        let found = found.map_err(|e| {
            format!("{}; make the queue (deploy/aws), or mend its name", forebay_aws::cut(&forebay_aws::chain(&e)))
        })?;
        found.queue_url().unwrap_or_default().to_owned()
    };
    let name = aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;
    let asked = ways.sqs.get_queue_attributes().queue_url(url).attribute_names(name.clone()).send().await;
    let asked = asked.map_err(|e| {
        format!("{}; allow sqs:GetQueueAttributes, or mend its URL", forebay_aws::cut(&forebay_aws::chain(&e)))
    })?;
    let waiting =
        asked.attributes().and_then(|all| all.get(&name)).cloned().unwrap_or_else(|| "an unknown number of".to_owned());
    Ok(format!("{waiting} messages wait"))
}

fn short(queue: &str) -> &str {
    queue.rsplit('/').next().unwrap_or(queue)
}
