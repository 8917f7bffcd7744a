//! Calls made for real: to the SDK and back. One call, one answer; nothing is tried twice here.
//!
//! Never: a credential in a message, or an error that says more than it knows. What was not answered is `Lost`.

use crate::call::{Answer, Call, InstanceState, Seen};
use crate::request::{Request, TAG_CLUSTER, Via};
use crate::trouble::{Class, Refusal};
pub use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    CapacityReservationSpecification, CapacityReservationTarget, DefaultTargetCapacityType, Filter,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetType, IamInstanceProfileSpecification, Instance, InstanceLifecycleType, InstanceMarketOptionsRequest,
    InstanceNetworkInterfaceSpecification, InstanceStateName, InstanceType, LaunchTemplateSpecification, MarketType,
    OnDemandOptionsRequest, Placement, PlacementStrategy, ResourceType, SpotInstanceType, SpotMarketOptions,
    SpotOptionsRequest, Tag, TagSpecification, TargetCapacitySpecificationRequest,
};
pub use aws_sdk_sqs::Client as SqsClient;
use aws_smithy_types::base64;
use forebay_aws::{Answer as Said, NoRegion, Place};
use forebay_engine::catalog::CapacityType;
use forebay_engine::units::Millis;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// How long an answer may take. `CreateFleet` waits for each launch of the fleet.
const LIMIT: Duration = Duration::from_secs(60);

/// Instances of one page: the most that EC2 gives.
const PAGE: i32 = 1000;

/// The ways to EC2, and to the queues with its messages.
#[derive(Clone, Debug)]
pub struct Ways {
    /// EC2.
    pub ec2: Client,
    /// SQS.
    pub sqs: SqsClient,
}

/// Finds them.
///
/// # Errors
/// Nobody says which region.
pub async fn connect(place: &Place) -> Result<Ways, NoRegion> {
    let way = forebay_aws::find(place).await?;
    let mut ec2 = aws_sdk_ec2::config::Builder::from(&way.shared);
    ec2.set_endpoint_url(way.endpoint.clone());
    let mut sqs = aws_sdk_sqs::config::Builder::from(&way.shared);
    sqs.set_endpoint_url(way.endpoint.clone());
    Ok(Ways { ec2: Client::from_conf(ec2.build()), sqs: SqsClient::from_conf(sqs.build()) })
}

/// Makes a call.
pub async fn make(client: &Client, call: &Call) -> Answer {
    match call {
        Call::Launch(request) if request.via == Via::Fleet => fleet(client, request).await,
        Call::Launch(request) => run(client, request).await,
        Call::MakeGroup(name) => {
            let call = client.create_placement_group().group_name(name).strategy(PlacementStrategy::Cluster);
            within(call.send()).await.map_or_else(|no| no, |_| Answer::Done)
        }
        Call::Terminate(instances) => {
            let call = client.terminate_instances().set_instance_ids(Some(instances.clone()));
            within(call.send()).await.map_or_else(|no| no, |_| Answer::Done)
        }
        Call::List { cluster, from } => {
            let call = client.describe_instances().filters(filter(&format!("tag:{TAG_CLUSTER}"), [cluster.clone()]));
            let call = call.max_results(PAGE).set_next_token(from.clone());
            within(call.send()).await.map_or_else(|no| no, |page| seen(page.reservations(), page.next_token()))
        }
        Call::Describe(instances) => {
            // By a filter and not by ids: one that is not known would refuse the whole call.
            let call = client.describe_instances().filters(filter("instance-id", instances.iter().cloned()));
            within(call.send()).await.map_or_else(|no| no, |page| seen(page.reservations(), None))
        }
    }
}

/// Asks whether a launch would be allowed, and launches nothing.
pub(crate) async fn dry_launch(client: &Client, request: &Request) -> Answer {
    let asked = match request.via {
        Via::Fleet => within(fleet_call(client, request).dry_run(true).send()).await.map(drop),
        Via::Run => within(run_call(client, request).dry_run(true).send()).await.map(drop),
    };
    asked.map_or_else(|no| no, |()| Answer::Done)
}

async fn fleet(client: &Client, request: &Request) -> Answer {
    let made = match within(fleet_call(client, request).send()).await {
        Ok(made) => made,
        Err(no) => return no,
    };
    let instances = made.instances().iter().flat_map(|i| i.instance_ids().iter().cloned()).collect();
    let error = |e: &aws_sdk_ec2::types::CreateFleetError| {
        (e.error_code().unwrap_or("without a code").to_owned(), e.error_message().unwrap_or_default().to_owned())
    };
    Answer::Launched { instances, errors: made.errors().iter().map(error).collect() }
}

fn fleet_call(client: &Client, request: &Request) -> CreateFleetFluentBuilder {
    let mut template = FleetLaunchTemplateSpecificationRequest::builder();
    template = match request.template.as_deref() {
        Some(id) if id.starts_with("lt-") => template.launch_template_id(id),
        name => template.launch_template_name(name.unwrap_or_default()),
    };
    template = template.version(request.version.as_deref().unwrap_or("$Default"));
    // The zone is in every override, so that errors say of which stock they speak.
    let mut place = FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(InstanceType::from(request.instance_type.as_str()))
        .set_max_price(request.max_price.clone())
        .set_image_id(request.image.clone());
    place = match &request.subnet {
        Some(subnet) => place.subnet_id(subnet),
        None => place.availability_zone(&request.zone),
    };
    if let Some(group) = &request.group {
        place = place.placement(Placement::builder().group_name(group).build());
    }
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template.build())
        .overrides(place.build())
        .build();
    let count = signed(request.count);
    let gang = (request.at_least > 1).then(|| signed(request.at_least));
    let single = gang.map(|_| true);
    let spot = request.capacity == CapacityType::Spot;
    let target = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(count)
        .default_target_capacity_type(if spot {
            DefaultTargetCapacityType::Spot
        } else {
            DefaultTargetCapacityType::OnDemand
        })
        .build();
    let mut call = client
        .create_fleet()
        .r#type(FleetType::Instant)
        .client_token(&request.token)
        .launch_template_configs(config)
        .target_capacity_specification(target)
        .tag_specifications(tags(ResourceType::Instance, request))
        .tag_specifications(tags(ResourceType::Fleet, request));
    if spot {
        let options = SpotOptionsRequest::builder()
            .set_min_target_capacity(gang)
            .set_single_instance_type(single)
            .set_single_availability_zone(single);
        call = call.spot_options(options.build());
    } else {
        let options = OnDemandOptionsRequest::builder()
            .set_min_target_capacity(gang)
            .set_single_instance_type(single)
            .set_single_availability_zone(single);
        call = call.on_demand_options(options.build());
    }
    call
}

async fn run(client: &Client, request: &Request) -> Answer {
    match within(run_call(client, request).send()).await {
        Ok(made) => {
            let ids = made.instances().iter().filter_map(Instance::instance_id).map(str::to_owned);
            Answer::Launched { instances: ids.collect(), errors: Vec::new() }
        }
        Err(no) => no,
    }
}

fn run_call(client: &Client, request: &Request) -> RunInstancesFluentBuilder {
    let mut call = client
        .run_instances()
        .client_token(&request.token)
        .instance_type(InstanceType::from(request.instance_type.as_str()))
        .min_count(signed(request.at_least))
        .max_count(signed(request.count))
        .set_image_id(request.image.clone())
        .set_user_data(request.user_data.as_ref().map(base64::encode))
        .tag_specifications(tags(ResourceType::Instance, request))
        .tag_specifications(tags(ResourceType::Volume, request));
    if let Some(template) = &request.template {
        let version = request.version.as_deref().unwrap_or("$Default");
        let by = LaunchTemplateSpecification::builder().version(version);
        let by = if template.starts_with("lt-") {
            by.launch_template_id(template)
        } else {
            by.launch_template_name(template)
        };
        call = call.launch_template(by.build());
    }
    if let Some(name) = &request.instance_profile {
        call = call.iam_instance_profile(IamInstanceProfileSpecification::builder().name(name).build());
    }
    let mut place = Placement::builder().availability_zone(&request.zone);
    if let Some(group) = &request.group {
        place = place.group_name(group);
    }
    call = call.placement(place.build());
    if request.efa {
        let card = InstanceNetworkInterfaceSpecification::builder()
            .device_index(0)
            .interface_type("efa")
            .delete_on_termination(true)
            .set_subnet_id(request.subnet.clone())
            .set_groups((!request.security_groups.is_empty()).then(|| request.security_groups.clone()));
        call = call.network_interfaces(card.build());
    } else {
        call = call.set_subnet_id(request.subnet.clone());
        call =
            call.set_security_group_ids((!request.security_groups.is_empty()).then(|| request.security_groups.clone()));
    }
    if let Some(market) = market(request) {
        call = call.instance_market_options(market);
    }
    if let Some((id, _)) = &request.reservation {
        let target = CapacityReservationTarget::builder().capacity_reservation_id(id).build();
        let specification = CapacityReservationSpecification::builder().capacity_reservation_target(target);
        call = call.capacity_reservation_specification(specification.build());
    }
    call
}

/// How it is paid for, where that is not on demand.
fn market(request: &Request) -> Option<InstanceMarketOptionsRequest> {
    let block = matches!(request.reservation, Some((_, true)));
    if block {
        return Some(InstanceMarketOptionsRequest::builder().market_type(MarketType::CapacityBlock).build());
    }
    if request.capacity != CapacityType::Spot {
        return None;
    }
    let terms = SpotMarketOptions::builder()
        .set_max_price(request.max_price.clone())
        .spot_instance_type(SpotInstanceType::OneTime)
        .build();
    Some(InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(terms).build())
}

fn tags(of: ResourceType, request: &Request) -> TagSpecification {
    let tag = |(key, value): (&String, &String)| Tag::builder().key(key).value(value).build();
    TagSpecification::builder().resource_type(of).set_tags(Some(request.tags.iter().map(tag).collect())).build()
}

pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

fn seen(reservations: &[aws_sdk_ec2::types::Reservation], next: Option<&str>) -> Answer {
    let instances = reservations.iter().flat_map(|r| r.instances()).filter_map(instance);
    Answer::Seen { instances: instances.collect(), next: next.filter(|t| !t.is_empty()).map(str::to_owned) }
}

/// An instance as it is described. One without an id or a state is none.
fn instance(of: &Instance) -> Option<Seen> {
    let state = match of.state()?.name()? {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::Stopping | InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        // A state that is not known yet is no end.
        _ => InstanceState::Pending,
    };
    let capacity = match of.instance_lifecycle() {
        Some(InstanceLifecycleType::Spot) => CapacityType::Spot,
        Some(InstanceLifecycleType::CapacityBlock) => CapacityType::Reserved,
        _ => CapacityType::OnDemand,
    };
    let tag = |t: &Tag| Some((t.key()?.to_owned(), t.value().unwrap_or_default().to_owned()));
    Some(Seen {
        instance: of.instance_id()?.to_owned(),
        instance_type: of.instance_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
        zone: of.placement().and_then(Placement::availability_zone).unwrap_or_default().to_owned(),
        capacity,
        state,
        reason: of.state_reason().and_then(|r| r.code()).map(str::to_owned),
        words: of.state_reason().and_then(|r| r.message()).map(|m| m.chars().take(200).collect()),
        reservation: of.capacity_reservation_id().map(str::to_owned),
        launched: of.launch_time().and_then(|t| t.to_millis().ok()).and_then(|ms| u64::try_from(ms).ok()).map(Millis),
        tags: of.tags().iter().filter_map(tag).collect(),
    })
}

/// Awaits a call. `Err`: the answer that is to be given for it.
pub(crate) async fn within<T, E>(call: impl Future<Output = Result<T, SdkError<E>>>) -> Result<T, Answer>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(Answer::Lost(format!("no answer within {LIMIT:?}"))),
    }
}

/// What an error says. Only a refusal by EC2 itself, and a call that was never sent, are known not to have been carried out.
pub fn refused<E>(error: &SdkError<E>) -> Answer
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match Said::of(error) {
        Said::Service { code, message, status } if code != "without a code" => {
            Answer::Refused(Refusal::new(&code, &message, status))
        }
        // An error page of something in between.
        Said::Service { status, .. } => Answer::Lost(format!("status {status} without a code")),
        Said::NoCredentials(message) => {
            Answer::Refused(Refusal { class: Class::Auth, code: "NoCredentials".to_owned(), message })
        }
        Said::NoAnswer(message) if matches!(error, SdkError::ConstructionFailure(_)) => {
            Answer::Refused(Refusal { class: Class::Config, code: "NotSent".to_owned(), message })
        }
        Said::NoAnswer(message) => Answer::Lost(message),
    }
}

fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
