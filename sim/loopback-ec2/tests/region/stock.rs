//! Stock and prices: limits, arrivals, quotas, addresses and gangs.

use std::collections::BTreeMap;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{Params, RegionOptions, StockArrival, Subnet, VcpuQuotas};

use super::{A, B, C, Stage, fleet, leaves, run, spot, stock};

/// How many instances there are of each (type, zone).
fn held(stage: &Stage) -> BTreeMap<(String, String), usize> {
    let mut held = BTreeMap::new();
    for i in stage.region.instances() {
        *held.entry((i.instance_type.clone(), i.zone.clone())).or_default() += 1;
    }
    held
}

fn of(rows: &[(&str, &str, usize)]) -> BTreeMap<(String, String), usize> {
    rows.iter().map(|(t, z, n)| (((*t).to_owned(), (*z).to_owned()), *n)).collect()
}

#[test]
fn a_gang_takes_its_minimum_or_nothing() {
    let counts = vec![stock("g5.xlarge", C, CapacityType::Spot, 3)];
    for (target, least, expected) in [(3, 3, 3), (4, 4, 0), (5, 3, 3), (2, 1, 2)] {
        let mut stage = Stage::new(RegionOptions { stock: counts.clone(), ..RegionOptions::default() });
        let requested = fleet(target, &[("g5.xlarge", C)])
            .with("SpotOptions.SingleInstanceType", "true")
            .with("SpotOptions.SingleAvailabilityZone", "true")
            .with("SpotOptions.MinTargetCapacity", least.to_string());
        let body = stage.call(&requested).unwrap();
        assert_eq!(stage.alive(), expected, "{target} {least}");
        let codes = leaves(&body, "errorCode");
        assert_eq!(codes.is_empty(), expected == target as usize, "missing instances have an error: {codes:?}");
        assert_eq!(expected == 0, codes.contains(&"UnfulfillableCapacity"), "{codes:?}");
    }
}

#[test]
fn a_run_launches_what_is_available_down_to_its_minimum() {
    let options =
        || RegionOptions { stock: vec![stock("g5.xlarge", A, CapacityType::OnDemand, 3)], ..RegionOptions::default() };
    for (least, most, expected) in [(1, 2, Ok(2)), (1, 5, Ok(3)), (3, 5, Ok(3)), (4, 5, Err(500))] {
        let mut stage = Stage::new(options());
        let made = stage.call(&run("g5.xlarge", A, least, most)).map(|body| leaves(&body, "instanceId").len());
        assert_eq!(made.map_err(|(status, _)| status), expected, "{least} {most}");
    }
    // Without a zone, one with enough stock is used.
    let mut stage = Stage::new(options());
    let anywhere = Params::new("RunInstances").with("InstanceType", "g5.xlarge").with("ImageId", "ami-1");
    stage.launch(&anywhere.with("MinCount", "4").with("MaxCount", "4"));
    assert_eq!(held(&stage), of(&[("g5.xlarge", B, 4)]));
}

#[test]
fn terminated_instances_and_arrivals_add_stock() {
    let origin = RegionOptions::default().origin;
    let mut stage = Stage::new(RegionOptions {
        stock: vec![stock("g5.xlarge", A, CapacityType::Spot, 1)],
        arrivals: vec![StockArrival {
            at: origin + Span::mins(10),
            instance_type: "g5.xlarge".to_owned(),
            zone: A.to_owned(),
            capacity: CapacityType::Spot,
            count: 2,
        }],
        ..RegionOptions::default()
    });
    let one = spot(run("g5.xlarge", A, 1, 1));
    let id = stage.launch(&one)[0].clone();
    assert_eq!(stage.code(&one), "InsufficientInstanceCapacity");
    assert!(stage.region.terminate_as_user(stage.now, &id));
    assert_eq!(stage.code(&one), "InsufficientInstanceCapacity", "not before it is terminated");
    stage.pass(Span::secs(15));
    stage.launch(&one);
    assert_eq!(stage.code(&one), "InsufficientInstanceCapacity");
    stage.pass(Span::mins(10));
    assert_eq!(stage.launch(&spot(run("g5.xlarge", A, 1, 9))).len(), 2);
}

#[test]
fn quotas_and_addresses_are_limits_with_errors() {
    let mut stage = Stage::new(RegionOptions {
        quotas: VcpuQuotas { on_demand: Some(10), spot: Some(8) },
        subnets: vec![Subnet { id: "subnet-00000000000000001".to_owned(), zone: A.to_owned(), free: 1 }],
        ..RegionOptions::default()
    });
    // 4 vCPUs each.
    assert_eq!(stage.launch(&run("g5.xlarge", A, 1, 9)).len(), 2);
    assert_eq!(stage.code(&run("g5.xlarge", A, 1, 1)), "VcpuLimitExceeded");
    let body = stage.call(&fleet(5, &[("g5.xlarge", A)])).unwrap();
    assert_eq!(super::fleet_ids(&body).len(), 2);
    assert!(leaves(&body, "errorCode").iter().all(|code| *code == "MaxSpotInstanceCountExceeded"), "{body}");
    let mut stage = Stage::new(stage.region.options().clone());
    let in_subnet = spot(run("g5.xlarge", A, 2, 2)).with("SubnetId", "subnet-00000000000000001");
    assert_eq!(stage.code(&in_subnet), "InsufficientFreeAddressesInSubnet");
    assert_eq!(stage.launch(&in_subnet.clone().with("MinCount", "1")).len(), 1);
    assert_eq!(stage.code(&in_subnet.with("MinCount", "1")), "InsufficientFreeAddressesInSubnet");
}

#[test]
fn a_price_cap_keeps_a_fleet_empty() {
    let mut stage = Stage::calm();
    let capped = |most: &str| fleet(2, &[("g6.xlarge", B)]).with("LaunchTemplateConfigs.1.Overrides.1.MaxPrice", most);
    let body = stage.call(&capped("0.29")).unwrap();
    assert_eq!(leaves(&body, "errorCode"), ["SpotMaxPriceTooLow"]);
    assert_eq!(leaves(&body, "maxPrice"), ["0.290000"]);
    assert_eq!(stage.launch(&capped("0.297776")).len(), 2);
    assert_eq!(held(&stage), of(&[("g6.xlarge", B, 2)]));
}

#[test]
fn a_fleet_buys_either_kind() {
    let mut stage = Stage::calm();
    for kind in ["on-demand", "spot"] {
        let requested =
            fleet(2, &[("g5.xlarge", A)]).with("TargetCapacitySpecification.DefaultTargetCapacityType", kind);
        assert_eq!(leaves(&stage.call(&requested).unwrap(), "lifecycle"), [kind]);
    }
    let spot = stage.region.instances().filter(|i| i.capacity == CapacityType::Spot).count();
    assert_eq!((spot, stage.alive()), (2, 4));
    assert!(stage.region.instances().all(|i| i.tags.contains_key("aws:ec2:fleet-id")));
    assert_eq!(stage.now, Timestamp(1_767_225_600_000));
}
