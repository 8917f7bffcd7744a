//! Lookups of offers and scheduled events against the loopback EC2, over the real protocol.

use forebay_aws::{AccessKey, AwsSettings};
use forebay_capacity_ec2::error_class::ErrorClass;
use forebay_capacity_ec2::offerings::{InstanceGpus, LookupError, SpotMarket, instance_shapes, spot_prices};
use forebay_capacity_ec2::scheduled_events::scheduled_events;
use forebay_capacity_ec2::sdk::{Client, connect};
use forebay_catalog::PriceRow;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Rate, Span, Timestamp};
use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions, VirtualClock, builtin_types};
use forebay_sim::market::Market;
use std::collections::{BTreeMap, BTreeSet};

/// The EC2 of one test.
struct Stage {
    clock: VirtualClock,
    loopback: Loopback,
    client: Client,
}

async fn stage(options: RegionOptions) -> Stage {
    let clock = VirtualClock::new(options.origin);
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Virtual(clock.clone())).unwrap();
    let keys = AccessKey { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    let settings =
        AwsSettings { region: Some("us-east-1".into()), endpoint: Some(loopback.url()), access_key: Some(keys) };
    let client = connect(&settings).await.unwrap().ec2;
    Stage { clock, loopback, client }
}

fn names<S: AsRef<str>>(list: &[S]) -> BTreeSet<String> {
    list.iter().map(|n| n.as_ref().to_owned()).collect()
}

fn calls(stage: &Stage, action: &str) -> u64 {
    stage.loopback.region().calls().get(action).map_or(0, |count| count.total)
}

#[tokio::test]
async fn shapes_match_the_catalog() {
    let stage = stage(RegionOptions::default()).await;
    let rows = builtin_types();
    let all: Vec<&str> = rows.iter().map(|r| r.instance_type.as_str()).collect();
    let found = instance_shapes(&stage.client, &names(&all)).await.unwrap();
    assert_eq!(found.len(), rows.len());
    for row in &rows {
        let shape = &found[&row.instance_type];
        let name = &row.instance_type;
        assert_eq!((u64::from(shape.vcpus) * 1000, shape.mem_mib), (row.cpu_milli, row.mem_mib), "{name}");
        assert!(shape.spot, "{name}");
        let gpus = shape.gpus.as_ref().map_or((0, 0, 1000), |g| (g.count, g.mem_mib, g.milli));
        assert_eq!(gpus, (row.gpus, row.gpu_mem_mib, row.gpu_milli), "{name}");
    }
    let eighth = InstanceGpus { count: 1, mem_mib: 2861, model: "l4".to_owned(), milli: 125 };
    assert_eq!(found["g6f.large"].gpus, Some(eighth));
    assert_eq!(found["p4d.24xlarge"].gpus.as_ref().unwrap().model, "a100");
    for (name, efa) in [("p5.48xlarge", 32), ("p4d.24xlarge", 4), ("p5.4xlarge", 1), ("g6f.large", 0)] {
        assert_eq!(found[name].efa, efa, "{name}");
    }
}

#[tokio::test]
async fn unknown_types_are_left_out() {
    let stage = stage(RegionOptions::default()).await;
    let found = instance_shapes(&stage.client, &names(&["g5.xlarge", "x9.huge", "g5.*", "p5.48xlarge"])).await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["g5.xlarge", "p5.48xlarge"]);
    assert_eq!(calls(&stage, "DescribeInstanceTypes"), 1);
    assert!(instance_shapes(&stage.client, &names(&["g5.*"])).await.unwrap().is_empty());
    assert_eq!(calls(&stage, "DescribeInstanceTypes"), 1, "patterns are not sent");
}

#[tokio::test]
async fn pages_are_read_to_the_last() {
    let mut types = builtin_types();
    let pattern = types[0].clone();
    types.extend((0..450).map(|n| {
        let instance_type = format!("t{n:03}.large");
        PriceRow { instance_type, ..pattern.clone() }
    }));
    let all: Vec<String> = types.iter().map(|r| r.instance_type.clone()).collect();
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c"];
    let stage = stage(RegionOptions { types, ..RegionOptions::default() }).await;
    let found = instance_shapes(&stage.client, &names(&all)).await.unwrap();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), names(&all));
    // Each full filter has two pages, and the last one has one or two.
    let (filters, pages) = (all.len().div_ceil(200), calls(&stage, "DescribeInstanceTypes"));
    assert!(pages > filters as u64, "{pages} pages for {filters} filters");

    let priced = spot_prices(&stage.client, stage.clock.now(), &names(&all), &names(&zones)).await.unwrap();
    assert_eq!(priced.len(), all.len() * zones.len());
    assert_eq!(calls(&stage, "DescribeSpotPriceHistory"), filters as u64, "200 types in 3 zones are one page");
}

#[tokio::test]
async fn prices_are_the_current_ones() {
    let market = |t: &str, z: &str| SpotMarket { instance_type: t.to_owned(), zone: z.to_owned() };
    let pairs = ["us-east-1a", "us-east-1b"].map(|zone| ("g5.xlarge".to_owned(), zone.to_owned()));
    let prices = Market::seeded(3, &pairs, 7 * 86_400_000);
    let stage = stage(RegionOptions { market: prices, ..RegionOptions::default() }).await;
    let types = names(&["g5.xlarge", "g6f.large", "x9.huge"]);
    let zones = names(&["us-east-1a", "us-east-1b", "eu-west-9z"]);
    let mut seen = BTreeSet::new();
    for hours in [0, 12, 24, 36, 48] {
        stage.clock.set(RegionOptions::default().origin + Span::mins(60 * hours));
        let found = spot_prices(&stage.client, stage.clock.now(), &types, &zones).await.unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
        for (SpotMarket { instance_type, zone }, rate) in &found {
            let truth = stage.loopback.region().spot_price(instance_type, zone);
            assert_eq!(*rate, Rate(truth), "{instance_type} in {zone} after {hours} h");
        }
        assert_eq!(found[&market("g6f.large", "us-east-1b")], Rate(74_740));
        seen.insert(found[&market("g5.xlarge", "us-east-1a")]);
    }
    assert!(seen.len() > 1, "the market did not move: {seen:?}");
}

#[tokio::test]
async fn scheduled_events_are_read_over_all_pages_until_they_are_over() {
    let stage = stage(RegionOptions::default()).await;
    let now = stage.clock.now();
    let start = |n: usize| now + Span::mins(60) + Span::secs(n as u64);
    let mut planned = BTreeMap::new();
    {
        let mut region = stage.loopback.region();
        for n in 0..1203 {
            let capacity = CapacityType::OnDemand;
            let id = region.launch_foreign(now, "g5.xlarge", "us-east-1a", capacity, BTreeMap::new()).unwrap();
            if n % 400 != 3 {
                planned.insert(id, start(n));
            }
        }
    }
    stage.clock.set(now + Span::mins(10));
    for (id, at) in &planned {
        assert!(stage.loopback.region().schedule_retirement(stage.clock.now(), id, *at));
    }
    assert_eq!(scheduled_events(&stage.client).await, Ok(planned.clone()));
    assert_eq!(calls(&stage, "DescribeInstanceStatus"), 2, "a page has 1,000");
    stage.clock.set(now + Span::mins(120));
    assert_eq!(scheduled_events(&stage.client).await, Ok(BTreeMap::new()), "the instances are stopped");
}

#[tokio::test]
async fn refused_and_lost_calls_are_errors() {
    let origin = RegionOptions::default().origin;
    let throttled = vec![(origin, origin + Span::mins(1))];
    let stage = stage(RegionOptions { throttled, ..RegionOptions::default() }).await;
    let (types, zones) = (names(&["g5.xlarge"]), names(&["us-east-1a"]));
    let error = instance_shapes(&stage.client, &types).await.unwrap_err();
    assert!(matches!(&error, LookupError::Refused(why) if why.class == ErrorClass::Throttled), "{error:?}");
    let error = spot_prices(&stage.client, origin, &types, &zones).await.unwrap_err();
    assert!(matches!(&error, LookupError::Refused(why) if why.class == ErrorClass::Throttled), "{error:?}");
    assert_eq!(calls(&stage, "DescribeInstanceTypes"), 1, "nothing is retried here");
    stage.clock.set(origin + Span::mins(2));
    assert_eq!(instance_shapes(&stage.client, &types).await.unwrap().len(), 1);

    let lost = self::stage(RegionOptions { lost_after_permille: 1000, ..RegionOptions::default() }).await;
    assert!(
        matches!(instance_shapes(&lost.client, &types).await, Err(LookupError::Refused(why)) if why.class == ErrorClass::NoResponse)
    );
    assert!(
        matches!(spot_prices(&lost.client, Timestamp(0), &types, &zones).await, Err(LookupError::Refused(why)) if why.class == ErrorClass::NoResponse)
    );
}
