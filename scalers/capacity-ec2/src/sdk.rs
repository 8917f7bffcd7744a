//! Executes calls with the AWS SDK. Each call is sent once, and a call without a usable response is refused with [`ErrorClass::NoResponse`].

mod launch;

use crate::api_call::{DescribedInstance, Ec2Call, Ec2InstanceState, Ec2Response};
use crate::error_class::{Ec2Error, ErrorClass};
use crate::request::{LaunchApi, LaunchRequest, TAG_CLUSTER};
pub use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{
    Filter, Instance, InstanceLifecycleType, InstanceStateName, Placement, PlacementStrategy, Reservation, Tag,
};
pub use aws_sdk_sqs::Client as SqsClient;
use forebay_aws::{AwsSettings, CallError, NoRegion};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Timestamp;
use launch::{fleet_call, run_call};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// The response timeout. `CreateFleet` waits for each launch of the fleet.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Instances per page, EC2's maximum.
const PAGE: i32 = 1000;

/// The SDK's clients.
#[derive(Clone, Debug)]
pub struct Ec2Clients {
    /// For EC2.
    pub ec2: Client,
    /// For SQS, which has the interruption queues.
    pub sqs: SqsClient,
}

/// Creates the clients.
///
/// # Errors
/// No region is configured.
pub async fn connect(settings: &AwsSettings) -> Result<Ec2Clients, NoRegion> {
    let config = forebay_aws::load_client_config(settings).await?;
    let mut ec2 = aws_sdk_ec2::config::Builder::from(&config.sdk);
    ec2.set_endpoint_url(config.endpoint.clone());
    let mut sqs = aws_sdk_sqs::config::Builder::from(&config.sdk);
    sqs.set_endpoint_url(config.endpoint.clone());
    Ok(Ec2Clients { ec2: Client::from_conf(ec2.build()), sqs: SqsClient::from_conf(sqs.build()) })
}

/// Executes a call.
pub async fn execute(client: &Client, call: &Ec2Call) -> Ec2Response {
    match call {
        Ec2Call::Launch(request) if request.via == LaunchApi::Fleet => fleet(client, request).await,
        Ec2Call::Launch(request) => run(client, request).await,
        Ec2Call::CreateGroup(name) => {
            let call = client.create_placement_group().group_name(name).strategy(PlacementStrategy::Cluster);
            send(call.send()).await.map_or_else(Ec2Response::Refused, |_| Ec2Response::Done)
        }
        Ec2Call::Terminate(instances) => {
            let call = client.terminate_instances().set_instance_ids(Some(instances.clone()));
            send(call.send()).await.map_or_else(Ec2Response::Refused, |_| Ec2Response::Done)
        }
        Ec2Call::List { cluster, next_token } => {
            let call = client.describe_instances().filters(filter(&format!("tag:{TAG_CLUSTER}"), [cluster.clone()]));
            let call = call.max_results(PAGE).set_next_token(next_token.clone());
            let response = send(call.send()).await;
            response.map_or_else(Ec2Response::Refused, |page| described(page.reservations(), page.next_token()))
        }
        Ec2Call::Describe(instances) => {
            // A filter ignores unknown ids, while the parameter for ids would make the whole call fail.
            let call = client.describe_instances().filters(filter("instance-id", instances.iter().cloned()));
            let response = send(call.send()).await;
            response.map_or_else(Ec2Response::Refused, |page| described(page.reservations(), None))
        }
    }
}

/// Checks whether a launch would be allowed. Nothing is launched.
pub(crate) async fn dry_run_launch(client: &Client, request: &LaunchRequest) -> Result<(), Ec2Error> {
    match request.via {
        LaunchApi::Fleet => send(fleet_call(client, request).dry_run(true).send()).await.map(drop),
        LaunchApi::Run => send(run_call(client, request).dry_run(true).send()).await.map(drop),
    }
}

async fn fleet(client: &Client, request: &LaunchRequest) -> Ec2Response {
    let fleet = match send(fleet_call(client, request).send()).await {
        Ok(fleet) => fleet,
        Err(error) => return Ec2Response::Refused(error),
    };
    let instances = fleet.instances().iter().flat_map(|i| i.instance_ids().iter().cloned()).collect();
    let error = |e: &aws_sdk_ec2::types::CreateFleetError| {
        Ec2Error::new(e.error_code().unwrap_or("without a code"), e.error_message().unwrap_or_default(), 400)
    };
    Ec2Response::Launched { instances, errors: fleet.errors().iter().map(error).collect() }
}

async fn run(client: &Client, request: &LaunchRequest) -> Ec2Response {
    match send(run_call(client, request).send()).await {
        Ok(launched) => {
            let ids = launched.instances().iter().filter_map(Instance::instance_id).map(str::to_owned);
            Ec2Response::Launched { instances: ids.collect(), errors: Vec::new() }
        }
        Err(error) => Ec2Response::Refused(error),
    }
}

pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

fn described(reservations: &[Reservation], next_token: Option<&str>) -> Ec2Response {
    let instances = reservations.iter().flat_map(|r| r.instances()).filter_map(instance).collect();
    Ec2Response::Described { instances, next_token: next_token.filter(|t| !t.is_empty()).map(str::to_owned) }
}

/// Converts the SDK's instance. `None`: it has no id or no state.
fn instance(of: &Instance) -> Option<DescribedInstance> {
    let state = match of.state()?.name()? {
        InstanceStateName::Pending => Ec2InstanceState::Pending,
        InstanceStateName::Running => Ec2InstanceState::Running,
        InstanceStateName::Stopping => Ec2InstanceState::Stopping,
        InstanceStateName::Stopped => Ec2InstanceState::Stopped,
        InstanceStateName::ShuttingDown => Ec2InstanceState::ShuttingDown,
        InstanceStateName::Terminated => Ec2InstanceState::Terminated,
        // An unknown state does not count as an end.
        _ => Ec2InstanceState::Pending,
    };
    let capacity = match of.instance_lifecycle() {
        Some(InstanceLifecycleType::Spot) => CapacityType::Spot,
        Some(InstanceLifecycleType::CapacityBlock) => CapacityType::Reserved,
        _ => CapacityType::OnDemand,
    };
    let tag = |t: &Tag| Some((t.key()?.to_owned(), t.value().unwrap_or_default().to_owned()));
    Some(DescribedInstance {
        instance: of.instance_id()?.to_owned(),
        instance_type: of.instance_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
        zone: of.placement().and_then(Placement::availability_zone).unwrap_or_default().to_owned(),
        capacity,
        state,
        reason: of.state_reason().and_then(|r| r.code()).map(str::to_owned),
        reason_text: of.state_reason().and_then(|r| r.message()).map(|m| m.chars().take(200).collect()),
        reservation: of.capacity_reservation_id().map(str::to_owned),
        launched: of
            .launch_time()
            .and_then(|t| t.to_millis().ok())
            .and_then(|ms| u64::try_from(ms).ok())
            .map(Timestamp),
        tags: of.tags().iter().filter_map(tag).collect(),
    })
}

/// Awaits a call.
pub(crate) async fn send<T, E>(call: impl Future<Output = Result<T, SdkError<E>>>) -> Result<T, Ec2Error>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match tokio::time::timeout(RESPONSE_TIMEOUT, call).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(error_from_sdk(&error)),
        Err(_) => Err(Ec2Error::no_response(format!("no response within {RESPONSE_TIMEOUT:?}"))),
    }
}

/// Classifies an SDK error. Only a call that EC2 refused, and one that was never sent, are known to have had no effect.
fn error_from_sdk<E>(error: &SdkError<E>) -> Ec2Error
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match CallError::from_sdk(error) {
        CallError::Service { code, message, status } if code != "without a code" => {
            Ec2Error::new(&code, &message, status)
        }
        // The error page of a proxy.
        CallError::Service { status, .. } => Ec2Error::no_response(format!("status {status} without a code")),
        CallError::NoCredentials(message) => {
            Ec2Error { class: ErrorClass::Auth, code: "NoCredentials".to_owned(), message }
        }
        CallError::NoResponse(message) if matches!(error, SdkError::ConstructionFailure(_)) => {
            Ec2Error { class: ErrorClass::Config, code: "NotSent".to_owned(), message }
        }
        CallError::NoResponse(message) => Ec2Error::no_response(message),
    }
}
