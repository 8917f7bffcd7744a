//! Invalid requests: each has its error code and no effect.

use forebay_loopback_ec2::Params;

use super::{A, B, Stage, describe, fleet, run, spot};

/// With an EFA interface on a network card, as a device.
fn card(params: Params, nth: u32, (card, device): (&str, &str)) -> Params {
    params
        .with(&format!("NetworkInterface.{nth}.NetworkCardIndex"), card)
        .with(&format!("NetworkInterface.{nth}.DeviceIndex"), device)
        .with(&format!("NetworkInterface.{nth}.InterfaceType"), "efa")
}

#[test]
fn each_refusal_has_its_code_and_leaves_nothing() {
    let new = Params::new;
    let one = || run("g5.xlarge", A, 1, 1);
    let p5 = || run("p5.48xlarge", A, 1, 1);
    let three = || fleet(3, &[("g5.xlarge", A)]);
    let terminate = |id: &str| new("TerminateInstances").with("InstanceId.1", id);
    let cases = [
        (new(""), 400, "MissingAction"),
        (new("DescribeVpcs"), 400, "InvalidAction"),
        (describe().with("DryRun", "true"), 412, "DryRunOperation"),
        (describe().with("DryRun", "perhaps"), 400, "InvalidParameterValue"),
        (describe().with("MaxResults", "4"), 400, "InvalidParameterValue"),
        (describe().with("MaxResults", "many"), 400, "InvalidParameterValue"),
        (describe().with("NextToken", "x"), 400, "InvalidNextToken"),
        (describe().with("Filter.1.Name", "colour").with("Filter.1.Value.1", "x"), 400, "InvalidParameterValue"),
        (describe().with("InstanceId.1", "x"), 400, "InvalidInstanceID.Malformed"),
        (describe().with("InstanceId.1", "i-00000000000000000"), 400, "InvalidInstanceID.NotFound"),
        (new("TerminateInstances"), 400, "MissingParameter"),
        (terminate("i-0123"), 400, "InvalidInstanceID.Malformed"),
        (terminate("i-00000000000000000"), 400, "InvalidInstanceID.NotFound"),
        (new("RunInstances").with("MinCount", "1"), 400, "MissingParameter"),
        (run("g5.xlarge", A, 2, 1), 400, "InvalidParameterValue"),
        (run("g5.xlarge", A, 0, 0), 400, "InvalidParameterValue"),
        (run("x9.huge", A, 1, 1), 400, "InvalidParameterValue"),
        (run("g5.xlarge", "eu-west-1a", 1, 1), 400, "InvalidParameterValue"),
        (one().with("ImageId", ""), 400, "MissingParameter"),
        (one().with("LaunchTemplate.LaunchTemplateName", "x"), 400, "InvalidLaunchTemplateName.NotFoundException"),
        (one().with("LaunchTemplate.LaunchTemplateId", "lt-x"), 400, "InvalidLaunchTemplateId.NotFound"),
        (one().with("SubnetId", "subnet-x"), 400, "InvalidSubnetID.NotFound"),
        (one().with("SubnetId", "subnet-00000000000000002"), 400, "InvalidParameterValue"),
        (one().with("SubnetId", "s").with("NetworkInterface.1.DeviceIndex", "0"), 400, "InvalidParameterCombination"),
        (one().with("NetworkInterface.1.InterfaceType", "efa"), 400, "InvalidParameterCombination"),
        (card(one(), 1, ("0", "0")).with("SecurityGroupId.1", "sg-1"), 400, "InvalidParameterCombination"),
        (card(one(), 1, ("0", "1")), 400, "InvalidParameterValue"),
        (card(card(p5(), 1, ("0", "0")), 2, ("0", "0")), 400, "InvalidParameterValue"),
        (card(card(p5(), 1, ("0", "0")), 2, ("32", "1")), 400, "InvalidParameterValue"),
        (
            card(card(p5(), 1, ("0", "0")), 2, ("0", "1")).with("InstanceType", "p5.4xlarge"),
            400,
            "AttachmentLimitExceeded",
        ),
        (one().with("Placement.GroupName", "x"), 400, "InvalidPlacementGroup.Unknown"),
        (spot(one()).with("InstanceMarketOptions.SpotOptions.MaxPrice", "0.1"), 400, "SpotMaxPriceTooLow"),
        (spot(one()).with("InstanceMarketOptions.SpotOptions.MaxPrice", "cheap"), 400, "InvalidParameterValue"),
        (one().with("InstanceMarketOptions.MarketType", "barter"), 400, "InvalidParameterValue"),
        (one().with("InstanceMarketOptions.MarketType", "capacity-block"), 400, "MissingParameter"),
        (
            one().with("TagSpecification.1.ResourceType", "instance").with("TagSpecification.1.Tag.1.Key", "aws:x"),
            400,
            "InvalidParameterValue",
        ),
        (three().with("Type", "maintain"), 400, "UnsupportedOperation"),
        (three().with("TargetCapacitySpecification.TotalTargetCapacity", ""), 400, "MissingParameter"),
        (
            three().with("TargetCapacitySpecification.TotalTargetCapacity", "0"),
            400,
            "InvalidTargetCapacitySpecification",
        ),
        (three().with("TargetCapacitySpecification.SpotTargetCapacity", "4"), 400, "UnsupportedOperation"),
        (three().with("TargetCapacitySpecification.DefaultTargetCapacityType", ""), 400, "MissingParameter"),
        (three().with("SpotOptions.MinTargetCapacity", "2"), 400, "InvalidParameterCombination"),
        (
            three().with("SpotOptions.MinTargetCapacity", "4").with("SpotOptions.SingleInstanceType", "true"),
            400,
            "InvalidParameterValue",
        ),
        (three().with("SpotOptions.AllocationStrategy", "diversified"), 400, "UnsupportedOperation"),
        (three().with("SpotOptions.MaxTotalPrice", "1"), 400, "UnsupportedOperation"),
        (three().with("LaunchTemplateConfigs.1.Overrides.1.WeightedCapacity", "2"), 400, "UnsupportedOperation"),
        (three().with("LaunchTemplateConfigs.1.Overrides.1.SubnetId", "s"), 400, "InvalidParameterCombination"),
        (fleet(1, &[]), 400, "MissingParameter"),
        (fleet(3, &[("g5.xlarge", A), ("g5.xlarge", B)]), 400, "UnsupportedOperation"),
        (
            three().with("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "x"),
            400,
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        (new("CreatePlacementGroup"), 400, "MissingParameter"),
        (
            new("DescribeCapacityReservations").with("CapacityReservationId.1", "x"),
            400,
            "InvalidCapacityReservationId.NotFound",
        ),
        (new("DescribeInstanceTypes").with("InstanceType.1", "x"), 400, "InvalidInstanceType"),
        (new("DescribeAvailabilityZones").with("ZoneName.1", "x"), 400, "InvalidParameterValue"),
    ];
    let mut stage = Stage::calm();
    for (params, status, code) in &cases {
        assert_eq!(stage.call(params), Err((*status, (*code).to_owned())), "{params:?}");
    }
    assert_eq!(stage.alive(), 0);
    assert!(stage.region.advance(stage.now).is_empty());
}

#[test]
fn one_unknown_id_fails_the_whole_termination() {
    let mut stage = Stage::calm();
    let ids = stage.launch(&run("g5.xlarge", A, 2, 2));
    let both = Params::new("TerminateInstances").with("InstanceId.1", &ids[0]);
    let mixed = both.clone().with("InstanceId.2", "i-00000000000000000");
    assert_eq!(stage.code(&mixed), "InvalidInstanceID.NotFound");
    assert_eq!(stage.alive(), 2);
    assert_eq!(stage.code(&both), "done");
    assert_eq!(stage.alive(), 1);
    assert_eq!(stage.code(&both), "done", "terminating twice is no error");
}

#[test]
fn a_client_token_repeats_its_response() {
    let mut stage = Stage::calm();
    let requested = spot(run("g5.xlarge", A, 1, 3)).with("ClientToken", "t");
    let first = stage.call(&requested).unwrap();
    assert_eq!(stage.call(&requested).unwrap(), first);
    assert_eq!(stage.code(&requested.clone().with("MaxCount", "2")), "IdempotentParameterMismatch");
    assert_eq!(
        stage.code(&fleet(1, &[("g5.xlarge", A)]).with("ClientToken", "t")),
        "done",
        "another action, another token"
    );
    assert_eq!(stage.alive(), 4);
    stage.pass(forebay_kernel::units::Span::mins(24 * 60));
    assert_eq!(stage.code(&requested), "done");
    assert_eq!(stage.alive(), 7, "after a day the token is a new one");
}

#[test]
fn a_failed_launch_can_be_repeated_with_its_token() {
    let mut stage = Stage::calm();
    stage.region.set_stock("g5.xlarge", A, forebay_kernel::catalog::CapacityType::Spot, Some(0));
    let requested = spot(run("g5.xlarge", A, 1, 1)).with("ClientToken", "t");
    assert_eq!(stage.call(&requested), Err((500, "InsufficientInstanceCapacity".to_owned())));
    stage.region.set_stock("g5.xlarge", A, forebay_kernel::catalog::CapacityType::Spot, None);
    assert_eq!(stage.code(&requested), "done");
}
