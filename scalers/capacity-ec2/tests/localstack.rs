//! The wire format as somebody else reads it: LocalStack's EC2 takes the launches, tags, lists and terminations as they are sent.
//!
//! It knows no stock, no gangs and no tokens; those are tried against the loopback EC2.

use aws_sdk_ec2::types::RequestLaunchTemplateData;
use forebay_aws::{Keys, Place};
use forebay_capacity_ec2::changes::changes;
use forebay_capacity_ec2::request::{TAG_CLUSTER, TAG_POOL, TAG_PURCHASE};
use forebay_capacity_ec2::wire::{Client, connect, make};
use forebay_capacity_ec2::{Answer, Call, InstanceState, Launch, Order, Request, Seen, Settings};
use forebay_engine::catalog::{CapacityType, Offering};
use forebay_engine::effect::Terms;
use forebay_engine::ids::{PurchaseId, Seq};
use forebay_engine::units::{Mib, MilliCpu, Millis, Rate, Span};
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

fn request(launch: Launch, purchase: u64, capacity: CapacityType, count: u32) -> Request {
    let settings = Settings::new("wire", "6f1c1a52-5a3e-4f0e-9a43-1d2c7b1e9a10", launch);
    let order = Order {
        effect: Seq(purchase),
        purchase: PurchaseId(purchase),
        decided_at: Millis(1_800_000_000_000),
        pool: "t4",
        offering: &offering(capacity),
        count,
        at_least: 1,
        terms: Terms::default(),
    };
    Request::freeze(&settings, &order)
}

async fn launched(client: &Client, request: &Request) -> Vec<String> {
    match make(client, &Call::Launch(Box::new(request.clone()))).await {
        Answer::Launched { instances, errors } => {
            assert_eq!((instances.len() as u32, errors.len()), (request.count, 0), "{errors:?}");
            instances
        }
        other => panic!("{other:?}"),
    }
}

async fn seen(client: &Client, call: Call) -> Vec<Seen> {
    match make(client, &call).await {
        Answer::Seen { mut instances, next: None } => {
            instances.sort_by(|a, b| a.instance.cmp(&b.instance));
            instances
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn instances_are_launched_tagged_described_and_ended() {
    let localstack = LocalStack::start(LocalStackOptions::default()).unwrap();
    let keys = Keys { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let endpoint = Some(localstack.endpoint().to_owned());
    let place = Place { region: Some("us-east-1".into()), endpoint, keys: Some(keys) };
    let client = connect(&place).await.unwrap().ec2;
    let images = client.describe_images().send().await.unwrap();
    let image = images.images().first().and_then(|i| i.image_id()).unwrap().to_owned();
    let data = RequestLaunchTemplateData::builder().image_id(&image).build();
    client.create_launch_template().launch_template_name("gpu").launch_template_data(data).send().await.unwrap();

    let by_fleet = Launch { template: Some("gpu".into()), ..Launch::default() };
    let fleet = launched(&client, &request(by_fleet, 1, CapacityType::OnDemand, 2)).await;
    let user_data = Some("#!/bin/sh\necho up\n".to_owned());
    let by_run = Launch { image: Some(image), user_data: user_data.clone(), ..Launch::default() };
    let single = launched(&client, &request(by_run, 2, CapacityType::OnDemand, 1)).await;

    let list = Call::List { cluster: "wire".into(), from: None };
    let all = seen(&client, list.clone()).await;
    let mut expected: Vec<String> = fleet.iter().chain(&single).cloned().collect();
    expected.sort();
    assert_eq!(all.iter().map(|s| s.instance.clone()).collect::<Vec<_>>(), expected);
    for one in &all {
        assert_eq!((one.tag(TAG_CLUSTER), one.tag(TAG_POOL)), (Some("wire"), Some("t4")));
        assert_eq!(one.tag(TAG_PURCHASE), Some(if fleet.contains(&one.instance) { "1" } else { "2" }));
        // It does not look at the zone of a fleet's override.
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
    // An id that was never one is left out, and refuses nothing.
    let described = seen(&client, Call::Describe(vec![fleet[0].clone(), "i-0123456789abcdef0".into()])).await;
    assert_eq!(described.iter().map(|s| &s.instance).collect::<Vec<_>>(), [&fleet[0]]);

    assert_eq!(changes(&client).await, Ok(BTreeMap::new()), "nothing is planned there");
    assert_eq!(make(&client, &Call::Terminate(expected)).await, Answer::Done);
    for one in seen(&client, list).await {
        assert!(matches!(one.state, InstanceState::ShuttingDown | InstanceState::Terminated), "{one:?}");
    }
    // What is refused is told by its code.
    let unknown = make(&client, &Call::Terminate(vec!["i-0123456789abcdef0".into()])).await;
    assert!(matches!(&unknown, Answer::Refused(r) if r.code == "InvalidInstanceID.NotFound"), "{unknown:?}");
    println!(
        "LocalStack: {} by CreateFleet, {} by RunInstances, tagged, listed, described, ended",
        fleet.len(),
        single.len()
    );
}
