//! Faults as the SDK sees them: lost responses, rate limits and denied actions.

use aws_sdk_ec2::types::InstanceType;
use forebay_kernel::units::Span;
use forebay_loopback_ec2::RegionOptions;

use super::{Stage, code};

#[tokio::test]
async fn an_answer_that_is_lost_is_an_error_of_the_connection() {
    for (before, after, made) in [(1000, 0, 0), (0, 1000, 1)] {
        let options =
            RegionOptions { lost_before_permille: before, lost_after_permille: after, ..RegionOptions::default() };
        let stage = Stage::new(options);
        let run = stage.ec2.run_instances().image_id("ami-1").instance_type(InstanceType::G5Xlarge);
        let error = run.min_count(1).max_count(1).send().await.unwrap_err();
        assert!(error.as_service_error().is_none(), "{error:?}");
        assert!(matches!(error, aws_sdk_ec2::error::SdkError::DispatchFailure(_)), "{error:?}");
        assert_eq!(stage.loopback.region().instances().count(), made);
    }
}

#[tokio::test]
async fn refusals_come_with_their_codes() {
    let stage = Stage::new(RegionOptions {
        rate_limits: true,
        denied: ["DescribeSubnets".to_owned()].into(),
        ..RegionOptions::default()
    });
    assert_eq!(code(stage.ec2.describe_subnets().send().await), "UnauthorizedOperation");
    assert_eq!(code(stage.ec2.describe_vpcs().send().await), "InvalidAction");
    assert_eq!(code(stage.ec2.describe_instances().dry_run(true).send().await), "DryRunOperation");
    let run =
        || stage.ec2.run_instances().image_id("ami-1").instance_type(InstanceType::G5Xlarge).min_count(1).max_count(1);
    for _ in 0..5 {
        run().send().await.unwrap();
    }
    assert_eq!(code(run().send().await), "RequestLimitExceeded");
    stage.pass(Span::secs(1));
    run().send().await.unwrap();
    let unknown = stage.ec2.terminate_instances().instance_ids("i-00000000000000000").send().await;
    assert_eq!(code(unknown), "InvalidInstanceID.NotFound");
    let malformed = stage.ec2.terminate_instances().instance_ids("i-xyz").send().await;
    assert_eq!(code(malformed), "InvalidInstanceID.Malformed");
    let calls = stage.loopback.region().calls()["RunInstances"].clone();
    assert_eq!((calls.total, calls.throttled), (7, 1));
}
