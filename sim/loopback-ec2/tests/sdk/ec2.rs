//! The responses of EC2 calls, as the SDK parses them.

use aws_sdk_ec2::types::{
    CapacityReservationSpecification, CapacityReservationTarget, DefaultTargetCapacityType, Filter,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetType, InstanceMarketOptionsRequest, InstanceNetworkInterfaceSpecification, InstanceStateName, InstanceType,
    MarketType, Placement, PlacementStrategy, ResourceType, SpotInstanceType, SpotMarketOptions, SpotOptionsRequest,
    Tag, TagSpecification, TargetCapacitySpecificationRequest,
};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{DEFAULT_TEMPLATE, RegionOptions, ReservationKind, ReservationOptions};
use forebay_sim::world::Stock;

use super::{Stage, code};

fn tag(key: &str, value: &str) -> Tag {
    Tag::builder().key(key).value(value).build()
}

fn tags(resource: ResourceType) -> TagSpecification {
    TagSpecification::builder().resource_type(resource).tags(tag("owner", "a&b <c>")).build()
}

fn over(instance_type: &str, zone: &str) -> FleetLaunchTemplateOverridesRequest {
    FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(InstanceType::from(instance_type))
        .availability_zone(zone)
        .build()
}

fn stock(instance_type: &str, zone: &str, capacity: CapacityType, count: u32) -> Stock {
    Stock { instance_type: instance_type.to_owned(), zone: zone.to_owned(), capacity, count }
}

fn fleet(
    stage: &Stage,
    token: &str,
    spot: SpotOptionsRequest,
    target: i32,
    overrides: Vec<FleetLaunchTemplateOverridesRequest>,
) -> aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder {
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(DEFAULT_TEMPLATE)
        .version("$Latest")
        .build();
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides))
        .build();
    let capacity = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(target)
        .default_target_capacity_type(DefaultTargetCapacityType::Spot)
        .build();
    stage
        .ec2
        .create_fleet()
        .r#type(FleetType::Instant)
        .client_token(token)
        .launch_template_configs(config)
        .target_capacity_specification(capacity)
        .spot_options(spot)
        .tag_specifications(tags(ResourceType::Instance))
}

#[tokio::test]
async fn a_partial_fleet_has_errors() {
    let options = RegionOptions {
        stock: vec![stock("g5.xlarge", "us-east-1a", CapacityType::Spot, 2)],
        ..RegionOptions::default()
    };
    let stage = Stage::new(options);
    let requested = |target| {
        let spot = SpotOptionsRequest::builder().build();
        fleet(&stage, "t-1", spot, target, vec![over("g5.xlarge", "us-east-1a")]).send()
    };
    let respond = requested(5).await.unwrap();
    assert!(respond.fleet_id().unwrap().starts_with("fleet-"));
    let [launched] = respond.instances() else { panic!("{respond:?}") };
    assert_eq!(launched.instance_ids().len(), 2);
    assert_eq!(launched.instance_type(), Some(&InstanceType::G5Xlarge));
    let of = launched.launch_template_and_overrides().unwrap().overrides().unwrap();
    assert_eq!(of.availability_zone(), Some("us-east-1a"));
    let [error] = respond.errors() else { panic!("{respond:?}") };
    let of = error.launch_template_and_overrides().unwrap().overrides().unwrap();
    assert_eq!(of.availability_zone(), Some("us-east-1a"));
    assert_eq!(error.error_code(), Some("InsufficientInstanceCapacity"));

    assert_eq!(requested(5).await.unwrap().instances(), respond.instances());
    assert_eq!(stage.loopback.region().instances().count(), 2);
    assert_eq!(code(requested(6).await), "IdempotentParameterMismatch");
}

#[tokio::test]
async fn a_gang_is_launched_completely_or_not_at_all() {
    let options = RegionOptions {
        stock: vec![stock("g5.xlarge", "us-east-1b", CapacityType::Spot, 4)],
        ..RegionOptions::default()
    };
    let stage = Stage::new(options);
    let overrides = vec![over("g5.xlarge", "us-east-1b")];
    let whole = |n| {
        SpotOptionsRequest::builder()
            .min_target_capacity(n)
            .single_instance_type(true)
            .single_availability_zone(true)
            .build()
    };
    let none = fleet(&stage, "t-5", whole(5), 5, overrides.clone()).send().await.unwrap();
    assert!(none.instances().is_empty(), "{none:?}");
    assert!(none.errors().iter().all(|e| e.error_code() == Some("UnfulfillableCapacity")), "{none:?}");
    assert_eq!(stage.loopback.region().instances().count(), 0);
    let all = fleet(&stage, "t-4", whole(4), 4, overrides.clone()).send().await.unwrap();
    let [launched] = all.instances() else { panic!("{all:?}") };
    assert_eq!(launched.instance_ids().len(), 4);
    let loose = SpotOptionsRequest::builder().min_target_capacity(1).build();
    assert_eq!(code(fleet(&stage, "t-x", loose, 1, overrides).send().await), "InvalidParameterCombination");
}

#[tokio::test]
async fn a_run_is_described_until_it_is_gone() {
    let stage = Stage::calm();
    let interface = InstanceNetworkInterfaceSpecification::builder()
        .device_index(0)
        .interface_type("efa")
        .subnet_id(format!("subnet-{:017x}", 2))
        .build();
    stage.ec2.create_placement_group().group_name("close").strategy(PlacementStrategy::Cluster).send().await.unwrap();
    let twice =
        stage.ec2.create_placement_group().group_name("close").strategy(PlacementStrategy::Cluster).send().await;
    assert_eq!(code(twice), "InvalidPlacementGroup.Duplicate");
    let spot = SpotMarketOptions::builder().max_price("99.5").spot_instance_type(SpotInstanceType::OneTime).build();
    let market = InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(spot).build();
    let run = || {
        stage
            .ec2
            .run_instances()
            .image_id("ami-1")
            .instance_type(InstanceType::from("p5.48xlarge"))
            .min_count(2)
            .max_count(2)
            .client_token("run-1")
            .user_data("aGVsbG8=")
            .network_interfaces(interface.clone())
            .instance_market_options(market.clone())
            .placement(Placement::builder().group_name("close").build())
            .tag_specifications(tags(ResourceType::Instance))
    };
    let launched = run().send().await.unwrap();
    let ids: Vec<&str> = launched.instances().iter().filter_map(|i| i.instance_id()).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(run().send().await.unwrap().instances(), launched.instances());

    let shown = stage.ec2.describe_instances().instance_ids(ids[0]).send().await.unwrap();
    let one = &shown.reservations()[0].instances()[0];
    assert_eq!(one.state().unwrap().name(), Some(&InstanceStateName::Pending));
    assert_eq!(one.client_token(), Some("run-1"));
    assert_eq!(one.instance_lifecycle().unwrap().as_str(), "spot");
    assert!(one.spot_instance_request_id().unwrap().starts_with("sir-"));
    assert_eq!(one.placement().unwrap().availability_zone(), Some("us-east-1b"));
    assert_eq!(one.placement().unwrap().group_name(), Some("close"));
    assert_eq!(one.tags(), [tag("owner", "a&b <c>")]);
    assert_eq!(one.launch_time().unwrap().secs(), 1_767_225_600);
    assert_eq!(one.network_interfaces().len(), 1);

    stage.pass(Span::mins(1));
    let running = Filter::builder().name("instance-state-name").values("running").build();
    let owned = Filter::builder().name("tag:owner").values("a&b*").build();
    let shown = stage.ec2.describe_instances().filters(running).filters(owned).send().await.unwrap();
    let found: Vec<_> = shown.reservations().iter().flat_map(|r| r.instances()).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|i| i.state_reason().is_none()));

    let ended = stage.ec2.terminate_instances().set_instance_ids(Some(ids.iter().map(|i| (*i).to_owned()).collect()));
    let ended = ended.send().await.unwrap();
    let first = &ended.terminating_instances()[0];
    assert_eq!(first.previous_state().unwrap().name(), Some(&InstanceStateName::Running));
    assert_eq!(first.current_state().unwrap().name(), Some(&InstanceStateName::ShuttingDown));
    stage.pass(Span::mins(1));
    let shown = stage.ec2.describe_instances().instance_ids(ids[1]).send().await.unwrap();
    let one = &shown.reservations()[0].instances()[0];
    assert_eq!(one.state().unwrap().name(), Some(&InstanceStateName::Terminated));
    assert_eq!(one.state_reason().unwrap().code(), Some("Client.UserInitiatedShutdown"));
    assert!(one.state_transition_reason().unwrap().starts_with("User initiated (2026-01-01 00:0"));
    stage.pass(Span::mins(61));
    let terminated_at = stage.ec2.describe_instances().instance_ids(ids[1]).send().await;
    assert_eq!(code(terminated_at), "InvalidInstanceID.NotFound");
}

#[tokio::test]
async fn pages_hold_every_instance_once() {
    let stage = Stage::calm();
    for _ in 0..3 {
        let run = stage.ec2.run_instances().image_id("ami-1").instance_type(InstanceType::G5Xlarge);
        run.min_count(4).max_count(4).send().await.unwrap();
    }
    let (mut seen, mut next, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = stage.ec2.describe_instances().max_results(5).set_next_token(next).send().await.unwrap();
        pages += 1;
        seen.extend(
            page.reservations().iter().flat_map(|r| r.instances()).filter_map(|i| i.instance_id()).map(str::to_owned),
        );
        next = page.next_token().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    let truth: Vec<String> = stage.loopback.region().instances().map(|i| i.id.clone()).collect();
    assert_eq!((pages, seen), (3, truth));
    let both = stage.ec2.describe_instances().max_results(5).instance_ids("i-00000000000000000").send().await;
    assert_eq!(code(both), "InvalidParameterCombination");
}

#[tokio::test]
async fn types_and_prices_are_described() {
    let stage = Stage::calm();
    let (mut names, mut next) = (Vec::new(), None);
    loop {
        let page = stage.ec2.describe_instance_types().max_results(5).set_next_token(next).send().await.unwrap();
        names.extend(page.instance_types().iter().filter_map(|t| t.instance_type()).map(|t| t.as_str().to_owned()));
        next = page.next_token().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    let all: Vec<String> = forebay_loopback_ec2::builtin_types().into_iter().map(|t| t.instance_type).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|t| names.contains(t)));

    let some = stage.ec2.describe_instance_types().instance_types(InstanceType::P548xlarge);
    let some = some.instance_types(InstanceType::from("g6f.xlarge")).send().await.unwrap();
    let [fraction, whole] = some.instance_types() else { panic!("{some:?}") };
    let gpu = |t: &aws_sdk_ec2::types::InstanceTypeInfo| t.gpu_info().unwrap().gpus()[0].clone();
    assert_eq!((gpu(whole).count(), gpu(whole).name()), (Some(8), Some("H100")));
    assert_eq!((gpu(fraction).count(), gpu(fraction).memory_info().unwrap().size_in_mib()), (Some(0), Some(2861)));
    assert_eq!(whole.network_info().unwrap().efa_info().unwrap().maximum_efa_interfaces(), Some(32));
    assert_eq!(fraction.network_info().unwrap().efa_supported(), Some(false));
    assert_eq!(whole.v_cpu_info().unwrap().default_v_cpus(), Some(192));
    assert_eq!(whole.supported_usage_classes().len(), 3);
    let unknown = stage.ec2.describe_instance_types().instance_types(InstanceType::from("x9.huge")).send().await;
    assert_eq!(code(unknown), "InvalidInstanceType");

    let prices = stage
        .ec2
        .describe_spot_price_history()
        .instance_types(InstanceType::G5Xlarge)
        .product_descriptions("Linux/UNIX");
    let prices = prices.send().await.unwrap();
    assert_eq!(prices.spot_price_history().len(), 3);
    assert_eq!(prices.spot_price_history()[0].spot_price(), Some("0.362160"));
    assert_eq!(prices.spot_price_history()[0].availability_zone(), Some("us-east-1a"));
}

#[tokio::test]
async fn account_resources_are_described() {
    let block = ReservationKind::Block { ends: Timestamp(1_767_225_600_000) + Span::mins(120) };
    let reservation = |n: u64, kind| ReservationOptions {
        id: format!("cr-{n:017x}"),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "us-east-1c".to_owned(),
        count: 2,
        kind,
    };
    let reservations = vec![reservation(1, ReservationKind::OnDemand), reservation(2, block)];
    let stage = Stage::new(RegionOptions { reservations, ..RegionOptions::default() });
    let run = |n: u64, market: Option<MarketType>| {
        let target = CapacityReservationTarget::builder().capacity_reservation_id(format!("cr-{n:017x}")).build();
        let spec = CapacityReservationSpecification::builder().capacity_reservation_target(target).build();
        let market = market.map(|m| InstanceMarketOptionsRequest::builder().market_type(m).build());
        let run = stage.ec2.run_instances().image_id("ami-1").instance_type(InstanceType::P548xlarge);
        run.min_count(2).max_count(2).capacity_reservation_specification(spec).set_instance_market_options(market)
    };
    let held = run(1, None).send().await.unwrap();
    assert_eq!(held.instances()[0].capacity_reservation_id(), Some("cr-00000000000000001"));
    assert_eq!(code(run(1, None).send().await), "ReservationCapacityExceeded");
    assert_eq!(code(run(2, None).send().await), "InvalidParameterCombination");
    assert_eq!(code(run(3, None).send().await), "InvalidCapacityReservationId.NotFound");
    let block = run(2, Some(MarketType::CapacityBlock)).send().await.unwrap();
    assert_eq!(block.instances()[0].instance_lifecycle().unwrap().as_str(), "capacity-block");

    let shown = stage.ec2.describe_capacity_reservations().send().await.unwrap();
    let rows: Vec<_> = shown.capacity_reservations().iter().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|r| r.available_instance_count() == Some(0) && r.total_instance_count() == Some(2)));
    assert_eq!(rows[1].end_date().unwrap().secs(), 1_767_225_600 + 7200);
    assert_eq!(rows[1].reservation_type().unwrap().as_str(), "capacity-block");

    let subnets = stage.ec2.describe_subnets().send().await.unwrap();
    assert_eq!(subnets.subnets().len(), 3);
    assert_eq!(subnets.subnets()[0].available_ip_address_count(), Some(4091));
    assert_eq!(code(stage.ec2.describe_subnets().subnet_ids("subnet-9").send().await), "InvalidSubnetID.NotFound");
    let zones = stage.ec2.describe_availability_zones().send().await.unwrap();
    assert_eq!(zones.availability_zones()[2].zone_id(), Some("use1-az3"));
}
