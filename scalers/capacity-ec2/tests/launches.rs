//! Launches by RunInstances with a template, against the loopback EC2.

use forebay_aws::{AccessKey, AwsSettings};
use forebay_capacity_ec2::error_class::ErrorClass;
use forebay_capacity_ec2::offerings::instance_shapes;
use forebay_capacity_ec2::request::{LaunchApi, PurchaseOrder};
use forebay_capacity_ec2::sdk::{Client, connect, execute};
use forebay_capacity_ec2::{Ec2Call, Ec2Response, Ec2Settings, LaunchRequest, LaunchSettings};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::Terms;
use forebay_kernel::ids::{PurchaseId, Seq};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span, Timestamp};
use forebay_loopback_ec2::{DEFAULT_TEMPLATE, Loopback, LoopbackClock, Region, RegionOptions, VirtualClock};
use forebay_sim::world::Stock;
use std::collections::BTreeSet;

const ZONE: &str = "us-east-1a";

/// An EC2 of a test's own with a few spot instances in stock. It ends with it.
async fn stage(instance_type: &str, count: u32) -> (Loopback, Client) {
    let stock = Stock { instance_type: instance_type.into(), zone: ZONE.into(), capacity: CapacityType::Spot, count };
    let options = RegionOptions { stock: vec![stock], ..RegionOptions::default() };
    let clock = VirtualClock::new(options.origin);
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Virtual(clock)).unwrap();
    let keys = AccessKey { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let settings =
        AwsSettings { region: Some("us-east-1".into()), endpoint: Some(loopback.url()), access_key: Some(keys) };
    let client = connect(&settings).await.unwrap().ec2;
    (loopback, client)
}

fn template() -> LaunchSettings {
    LaunchSettings { template: Some(DEFAULT_TEMPLATE.to_owned()), ..LaunchSettings::default() }
}

fn request(settings: &Ec2Settings, instance_type: &str, (count, at_least): (u32, u32), terms: Terms) -> LaunchRequest {
    let offering = Offering {
        instance_type: instance_type.into(),
        zone: ZONE.into(),
        capacity: CapacityType::Spot,
        gpus: 1,
        gpu_mem: Mib(1),
        models: Vec::new(),
        cpu: MilliCpu(1),
        mem: Mib(1),
        price: Rate(90_000_000),
        max_price: Rate(90_000_000),
        on_demand: Rate(90_000_000),
        boot: Span::mins(2),
        nvlink: 0,
        numa: 0,
    };
    // Another purchase has another token.
    let effect = Seq(u64::from(count * 100 + at_least));
    let order = PurchaseOrder {
        effect,
        purchase: PurchaseId(effect.0),
        decided_at: Timestamp(1),
        pool: "p",
        offering: &offering,
        count,
        at_least,
        terms,
    };
    LaunchRequest::freeze(settings, &order)
}

#[tokio::test]
async fn a_profile_beside_a_template_is_launched_whole_in_part_or_not_at_all() {
    let (loopback, client) = stage("g5.xlarge", 3).await;
    let launch = LaunchSettings { instance_profile: Some("nodes".to_owned()), ..template() };
    let settings = Ec2Settings::new("lab", "journal-1", launch);
    let ask = |counts| Ec2Call::Launch(Box::new(request(&settings, "g5.xlarge", counts, Terms::default())));
    let none = execute(&client, &ask((5, 4))).await;
    assert!(matches!(&none, Ec2Response::Refused(why) if why.class == ErrorClass::Capacity), "{none:?}");
    let some = execute(&client, &ask((5, 2))).await;
    assert!(matches!(&some, Ec2Response::Launched { instances, .. } if instances.len() == 3), "{some:?}");
    assert_eq!(execute(&client, &ask((5, 2))).await, some, "the same token is the same launch");
    let region = loopback.region();
    assert_eq!(region.instances().count(), 3);
    for one in region.instances() {
        assert_eq!(one.capacity, CapacityType::Spot);
        assert_eq!(one.tags.get("forebay:cluster").map(String::as_str), Some("lab"));
    }
    assert_eq!(region.calls().get("CreateFleet").map_or(0, |count| count.total), 0);
}

#[tokio::test]
async fn every_network_card_that_ec2_tells_of_has_its_adapter() {
    for (instance_type, cards) in [("p5.48xlarge", 32), ("p4d.24xlarge", 4), ("p5.4xlarge", 1)] {
        let (loopback, client) = stage(instance_type, 1).await;
        let known = instance_shapes(&client, &BTreeSet::from([instance_type.to_owned()])).await.unwrap();
        let launch = LaunchSettings { security_groups: vec!["sg-1".to_owned()], ..template() };
        let mut settings = Ec2Settings::new("lab", "journal-1", launch);
        settings.efa = known.into_iter().map(|(name, shape)| (name, shape.efa)).collect();
        let request = request(&settings, instance_type, (1, 1), Terms { efa: true, ..Terms::default() });
        assert_eq!(request.via, LaunchApi::Run);
        let response = execute(&client, &Ec2Call::Launch(Box::new(request))).await;
        assert!(matches!(&response, Ec2Response::Launched { instances, .. } if instances.len() == 1), "{response:?}");
        let region = loopback.region();
        let found: Vec<u32> = region.instances().map(|one| one.efa_interfaces).collect();
        assert_eq!(found, [cards], "{instance_type}");
    }
}
