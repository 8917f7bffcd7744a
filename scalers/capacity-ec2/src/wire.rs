//! Calls made for real: to the SDK and back. One call, one answer; nothing is tried twice here.
//!
//! Never: a credential in a message, or an error that says more than it knows. What was not answered is `Lost`.

mod launch;

use crate::call::{Answer, Call, InstanceState, Seen};
use crate::request::{Request, TAG_CLUSTER, Via};
use crate::trouble::{Class, Refusal};
pub use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{
    Filter, Instance, InstanceLifecycleType, InstanceStateName, Placement, PlacementStrategy, Tag,
};
pub use aws_sdk_sqs::Client as SqsClient;
use forebay_aws::{Answer as Said, NoRegion, Place};
use forebay_engine::catalog::CapacityType;
use forebay_engine::units::Millis;
use launch::{fleet_call, run_call};
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

async fn run(client: &Client, request: &Request) -> Answer {
    match within(run_call(client, request).send()).await {
        Ok(made) => {
            let ids = made.instances().iter().filter_map(Instance::instance_id).map(str::to_owned);
            Answer::Launched { instances: ids.collect(), errors: Vec::new() }
        }
        Err(no) => no,
    }
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
