//! The wire format against LocalStack's EC2: launches, tags, listings and terminations.
//!
//! It has no stock, no gangs and no tokens, which are tested against the loopback EC2.

use aws_sdk_ec2::types::RequestLaunchTemplateData;
use forebay_aws::{AccessKey, AwsSettings};
use forebay_capacity_ec2::request::{TAG_CLUSTER, TAG_POOL, TAG_PURCHASE};
use forebay_capacity_ec2::scheduled_events::scheduled_events;
use forebay_capacity_ec2::sdk::{Client, connect, execute};
use forebay_capacity_ec2::{
    DescribedInstance, Ec2Call, Ec2InstanceState, Ec2Response, Ec2Settings, LaunchRequest, LaunchSettings,
    PurchaseOrder,
};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::Terms;
use forebay_kernel::ids::{PurchaseId, Seq};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span, Timestamp};
use forebay_parts::{LocalStack, LocalStackOptions};
use std::collections::BTreeMap;

fn offering(capacity: CapacityType) -> Offering {
    Offering {
        instance_type: "g4dn.xlarge".into(),
        zone: "us-east-1b".into(),
        capacity,
        gpus: 1,
        gpu_mem: Mib(16_000),
        models: vec!["t4".into()],
        cpu: MilliCpu(4000),
        mem: Mib(16_000),
        price: Rate(200_000),
        max_price: Rate(526_000),
        on_demand: Rate(526_000),
        boot: Span::mins(2),
        nvlink: 0,
        numa: 0,
    }
}

fn request(launch: LaunchSettings, purchase: u64, capacity: CapacityType, count: u32) -> LaunchRequest {
    let settings = Ec2Settings::new("wire", "6f1c1a52-5a3e-4f0e-9a43-1d2c7b1e9a10", launch);
    let order = PurchaseOrder {
        effect: Seq(purchase),
        purchase: PurchaseId(purchase),
        decided_at: Timestamp(1_800_000_000_000),
        pool: "t4",
        offering: &offering(capacity),
        count,
        at_least: 1,
        terms: Terms::default(),
    };
    LaunchRequest::freeze(&settings, &order)
}

async fn launched(client: &Client, request: &LaunchRequest) -> Vec<String> {
    match execute(client, &Ec2Call::Launch(Box::new(request.clone()))).await {
        Ec2Response::Launched { instances, errors } => {
            assert_eq!((instances.len() as u32, errors.len()), (request.count, 0), "{errors:?}");
            instances
        }
        other => panic!("{other:?}"),
    }
}

async fn seen(client: &Client, call: Ec2Call) -> Vec<DescribedInstance> {
    match execute(client, &call).await {
        Ec2Response::Described { mut instances, next_token: None } => {
            instances.sort_by(|a, b| a.instance.cmp(&b.instance));
            instances
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn instances_are_launched_tagged_described_and_ended() {
    let localstack = LocalStack::start(LocalStackOptions::default()).unwrap();
    let keys = AccessKey { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let endpoint = Some(localstack.endpoint().to_owned());
    let settings = AwsSettings { region: Some("us-east-1".into()), endpoint, access_key: Some(keys) };
    let client = connect(&settings).await.unwrap().ec2;
    let images = client.describe_images().send().await.unwrap();
    let image = images.images().first().and_then(|i| i.image_id()).unwrap().to_owned();
    let data = RequestLaunchTemplateData::builder().image_id(&image).build();
    client.create_launch_template().launch_template_name("gpu").launch_template_data(data).send().await.unwrap();

    let by_fleet = LaunchSettings { template: Some("gpu".into()), ..LaunchSettings::default() };
    let fleet = launched(&client, &request(by_fleet, 1, CapacityType::OnDemand, 2)).await;
    let user_data = Some("#!/bin/sh\necho up\n".to_owned());
    let by_run = LaunchSettings { image: Some(image), user_data: user_data.clone(), ..LaunchSettings::default() };
    let single = launched(&client, &request(by_run, 2, CapacityType::OnDemand, 1)).await;

    let list = Ec2Call::List { cluster: "wire".into(), next_token: None };
    let all = seen(&client, list.clone()).await;
    let mut expected: Vec<String> = fleet.iter().chain(&single).cloned().collect();
    expected.sort();
    assert_eq!(all.iter().map(|s| s.instance.clone()).collect::<Vec<_>>(), expected);
    for one in &all {
        assert_eq!((one.tag(TAG_CLUSTER), one.tag(TAG_POOL)), (Some("wire"), Some("t4")));
        assert_eq!(one.tag(TAG_PURCHASE), Some(if fleet.contains(&one.instance) { "1" } else { "2" }));
        // LocalStack ignores the zone of a fleet's override.
        let zone = if fleet.contains(&one.instance) { one.zone.as_str() } else { "us-east-1b" };
        assert_eq!((one.instance_type.as_str(), one.zone.as_str()), ("g4dn.xlarge", zone));
        assert!(one.exists() && one.launched.is_some(), "{one:?}");
    }
    let kept = client
        .describe_instance_attribute()
        .instance_id(&single[0])
        .attribute(aws_sdk_ec2::types::InstanceAttributeName::UserData)
        .send()
        .await
        .unwrap();
    let kept = kept.user_data().and_then(|d| d.value()).unwrap().to_owned();
    let bytes = aws_smithy_types::base64::decode(kept).unwrap();
    assert_eq!(Some(String::from_utf8(bytes).unwrap()), user_data);
    // An unknown id is left out, and is no error.
    let described = seen(&client, Ec2Call::Describe(vec![fleet[0].clone(), "i-0123456789abcdef0".into()])).await;
    assert_eq!(described.iter().map(|s| &s.instance).collect::<Vec<_>>(), [&fleet[0]]);

    assert_eq!(scheduled_events(&client).await, Ok(BTreeMap::new()), "there are no scheduled events");
    assert_eq!(execute(&client, &Ec2Call::Terminate(expected)).await, Ec2Response::Done);
    for one in seen(&client, list).await {
        assert!(matches!(one.state, Ec2InstanceState::ShuttingDown | Ec2InstanceState::Terminated), "{one:?}");
    }
    // A refusal has its code.
    let unknown = execute(&client, &Ec2Call::Terminate(vec!["i-0123456789abcdef0".into()])).await;
    assert!(matches!(&unknown, Ec2Response::Refused(r) if r.code == "InvalidInstanceID.NotFound"), "{unknown:?}");
    println!(
        "LocalStack: {} by CreateFleet, {} by RunInstances, tagged, listed, described, ended",
        fleet.len(),
        single.len()
    );
}
