//! Reclaims by the market, by the end of a Capacity Block and by a test, with their messages.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{
    EndReason, InstanceState, Params, Region, RegionOptions, ReservationKind, ReservationOptions,
};
use forebay_sim::market::Market;
use serde_json::{Value, json};

use super::{A, B, Stage, describe, leaves, run, spot};

fn quiet() -> RegionOptions {
    RegionOptions { state_messages: false, ..RegionOptions::default() }
}

/// A market whose g5.xlarge in zone a has nothing from minute 10 to minute 20.
fn drought() -> RegionOptions {
    let pairs = [("g5.xlarge".to_owned(), A.to_owned())];
    RegionOptions { market: Market::calm(&pairs).with_drought(600_000, 1_200_000), ..quiet() }
}

#[test]
fn a_falling_market_warns_and_reclaims() {
    let mut stage = Stage::new(RegionOptions { rebalance_permille: 1000, ..drought() });
    let ids = stage.launch(&spot(run("g5.xlarge", A, 3, 3)));
    let kept = [stage.launch(&run("g5.xlarge", A, 1, 1)), stage.launch(&spot(run("g5.xlarge", B, 1, 1)))].concat();
    assert!(stage.pass(Span(599_999)).is_empty());
    assert!(stage.region.next_event().is_some_and(|at| at == stage.now + Span(1)));
    let said = stage.pass(Span(1));
    let kinds: Vec<&str> = said.iter().map(|m| m["detail-type"].as_str().unwrap()).collect();
    let (advice, warning) = ("EC2 Instance Rebalance Recommendation", "EC2 Spot Instance Interruption Warning");
    assert_eq!(kinds, [advice, warning, advice, warning, advice, warning]);
    for message in said.iter().filter(|m| m["detail-type"] == warning) {
        let id = message["detail"]["instance-id"].as_str().unwrap();
        assert!(ids.iter().any(|i| i == id));
        assert_eq!(message["detail"], json!({"instance-id": id, "instance-action": "terminate"}));
        assert_eq!(
            message["resources"],
            json!([format!("arn:aws:ec2:us-east-1a:instance/{id}")]),
            "the zone, not the region"
        );
        assert_eq!((&message["source"], &message["region"]), (&json!("aws.ec2"), &json!("us-east-1")));
        assert_eq!(message["time"], "2026-01-01T00:10:00Z");
    }
    assert_eq!(stage.code(&spot(run("g5.xlarge", A, 1, 1))), "InsufficientInstanceCapacity");
    stage.pass(Span(119_999));
    assert_eq!(stage.alive(), 5);
    stage.pass(Span(1));
    assert_eq!(stage.alive(), 2);
    stage.pass(Span::secs(15));
    for id in &ids {
        let row = stage.region.instance(id).unwrap();
        assert_eq!((row.state, row.end_reason), (InstanceState::Terminated, Some(EndReason::Reclaimed)));
    }
    let body = stage.call(&describe().with("InstanceId.1", &ids[0])).unwrap();
    assert_eq!(leaves(&body, "stateReason").len(), 1);
    assert!(body.contains("<code>Server.SpotInstanceTermination</code>"), "{body}");
    assert!(kept.iter().all(|id| stage.state(id) == InstanceState::Running));
    stage.pass(Span::mins(20));
    assert_eq!(stage.code(&spot(run("g5.xlarge", A, 1, 1))), "done", "the drought has ended");
}

#[test]
fn without_a_warning_there_is_no_message() {
    let mut stage = Stage::new(RegionOptions { warning_permille: 0, ..drought() });
    stage.launch(&spot(run("g5.xlarge", A, 3, 3)));
    assert!(stage.pass(Span::mins(10)).is_empty());
    assert_eq!(stage.alive(), 0);
}

#[test]
fn a_partial_fall_reclaims_a_part_of_the_instances() {
    let pairs = [("g5.xlarge".to_owned(), A.to_owned())];
    let market = Market::seeded(3, &pairs, 30 * 86_400_000);
    let (mut partial, mut at) = (None, 0);
    // The first fall from whole to a part.
    while let Some(next) = market.next_change_after(0, at) {
        let (was, is) = (market.state_at(0, at).available_permille, market.state_at(0, next).available_permille);
        if was == 1000 && (1..1000).contains(&is) {
            partial = Some((next, is));
            break;
        }
        at = next;
    }
    let (falls, permille) = partial.expect("a month of market has a partial fall");
    let mut stage = Stage::new(RegionOptions { market, depth: Some(8), warning_permille: 0, ..quiet() });
    stage.pass(Span(falls - 1));
    assert_eq!(stage.launch(&spot(run("g5.xlarge", A, 1, 20))).len(), 8);
    stage.pass(Span(1));
    assert_eq!(stage.alive(), 8 * usize::from(permille) / 1000);
}

#[test]
fn instances_above_their_maximum_price_are_reclaimed() {
    let pairs = [("g5.xlarge".to_owned(), A.to_owned())];
    let market = Market::seeded(5, &pairs, 30 * 86_400_000);
    let mut stage = Stage::new(RegionOptions { market: market.clone(), warning_permille: 0, ..quiet() });
    // Launch where the price rises before the stock falls.
    let mut at = 0;
    let rise = loop {
        let next = market.next_change_after(0, at).expect("a month of market has a rise");
        let (was, is) = (market.state_at(0, at), market.state_at(0, next));
        if was.available_permille == 1000 && is.available_permille == 1000 && is.price_permille > was.price_permille {
            break next;
        }
        at = next;
    };
    stage.pass(Span(rise - 1));
    let price = stage.region.spot_price("g5.xlarge", A);
    let spec = format!("0.{price:06}");
    let tight = spot(run("g5.xlarge", A, 1, 1)).with("InstanceMarketOptions.SpotOptions.MaxPrice", spec);
    let (tight, loose) = (stage.launch(&tight), stage.launch(&spot(run("g5.xlarge", A, 1, 1))));
    stage.pass(Span(1));
    assert!(stage.state(&tight[0]).is_ending());
    assert!(!stage.state(&loose[0]).is_ending());
}

#[test]
fn a_block_warns_and_is_cleared_before_its_end() {
    let ends = RegionOptions::default().origin + Span::mins(120);
    let mut stage = Stage::new(RegionOptions {
        reservations: vec![ReservationOptions {
            id: "cr-00000000000000001".to_owned(),
            instance_type: "p5.48xlarge".to_owned(),
            zone: A.to_owned(),
            count: 2,
            kind: ReservationKind::Block { ends },
        }],
        ..quiet()
    });
    let in_block = Params::new("RunInstances")
        .with("InstanceType", "p5.48xlarge")
        .with("ImageId", "ami-1")
        .with("MinCount", "1")
        .with("MaxCount", "1")
        .with("InstanceMarketOptions.MarketType", "capacity-block")
        .with(
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
            "cr-00000000000000001",
        );
    stage.launch(&in_block);
    assert!(stage.pass(Span(80 * 60_000 - 1)).is_empty());
    let said = stage.pass(Span(1));
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["detail-type"], "Capacity Block Reservation Expiration Warning");
    let detail = json!({"capacity-reservation-id": "cr-00000000000000001", "end-date": "2026-01-01T02:00:00Z"});
    assert_eq!(said[0]["detail"], detail);
    assert_eq!(stage.alive(), 1);
    stage.pass(Span::mins(10));
    assert_eq!(stage.alive(), 0);
    assert_eq!(stage.region.instances().next().unwrap().end_reason, Some(EndReason::Scheduled));
    stage.pass(Span::mins(1));
    assert_eq!(stage.code(&in_block), "ReservationCapacityExceeded");
    stage.pass(Span::mins(30));
    assert!(stage.call(&Params::new("DescribeCapacityReservations")).unwrap().contains("<state>expired</state>"));
}

/// A change of an instance by the test.
type Hand = fn(&mut Region, Timestamp, &str) -> bool;

#[test]
fn every_hand_says_its_message_and_knows_the_living() {
    let cases: [(&str, CapacityType, Hand, Option<&str>); 6] = [
        (
            "notice",
            CapacityType::Spot,
            |r, now, id| r.reclaim(now, id, Some(Span::secs(5))),
            Some("EC2 Spot Instance Interruption Warning"),
        ),
        ("no notice", CapacityType::Spot, |r, now, id| r.reclaim(now, id, None), None),
        (
            "reserved",
            CapacityType::Reserved,
            |r, now, id| r.reclaim(now, id, Some(Span::secs(5))),
            Some("EC2 Capacity Reservation Instance Interruption Warning"),
        ),
        ("advice", CapacityType::Spot, Region::recommend_rebalance, Some("EC2 Instance Rebalance Recommendation")),
        (
            "health",
            CapacityType::OnDemand,
            |r, now, id| r.schedule_retirement(now, id, now + Span::mins(60)),
            Some("AWS Health Event"),
        ),
        ("end", CapacityType::OnDemand, Region::terminate_as_user, None),
    ];
    for (name, capacity, hand, kind) in cases {
        let mut stage = Stage::new(quiet());
        let id = stage.region.launch_foreign(stage.now, "g5.xlarge", A, capacity, Default::default()).unwrap();
        assert!(hand(&mut stage.region, stage.now, &id), "{name}");
        let said = stage.pass(Span::ZERO);
        let kinds: Vec<&Value> = said.iter().map(|m| &m["detail-type"]).collect();
        assert_eq!(kinds, kind.map(Value::from).iter().collect::<Vec<_>>(), "{name}");
        assert!(said.iter().all(|m| m.to_string().contains(&id)), "{name}");
        if kind == Some("AWS Health Event") {
            assert_eq!(said[0]["source"], "aws.health");
            assert_eq!(said[0]["detail"]["eventTypeCategory"], "scheduledChange");
            assert_eq!(said[0]["detail"]["startTime"], "Thu, 1 Jan 2026 01:00:00 GMT");
            assert_eq!(said[0]["detail"]["affectedEntities"][0]["entityValue"], id);
        }
        stage.region.terminate_as_user(stage.now, &id);
        assert!(!hand(&mut stage.region, stage.now, &id), "{name}: it is ending");
        assert!(!hand(&mut stage.region, stage.now, "i-00000000000000000"), "{name}: there is none");
    }
}

#[test]
fn a_retirement_is_in_the_status_and_stops_the_instance() {
    let mut stage = Stage::calm();
    let ids = stage.launch(&run("g5.xlarge", A, 2, 2));
    stage.pass(Span::mins(1));
    assert!(stage.region.schedule_retirement(stage.now, &ids[0], stage.now + Span::mins(60)));
    let statuses = |stage: &mut Stage, code: Option<&str>| {
        let call = Params::new("DescribeInstanceStatus");
        let call = code
            .into_iter()
            .fold(call, |call, code| call.with("Filter.1.Name", "event.code").with("Filter.1.Value.1", code));
        let said = stage.call(&call).unwrap();
        (said.matches("<instanceId>").count(), said.contains("<notBefore>2026-01-01T01:01:00.000Z</notBefore>"))
    };
    assert_eq!(statuses(&mut stage, None), (2, true));
    assert_eq!(statuses(&mut stage, Some("instance-retirement")), (1, true));
    assert_eq!(statuses(&mut stage, Some("system-reboot")), (0, false));
    stage.pass(Span(60 * 60_000 - 1));
    assert_eq!(stage.region.instance(&ids[0]).unwrap().state, InstanceState::Running);
    stage.pass(Span::mins(1));
    let row = stage.region.instance(&ids[0]).unwrap();
    assert_eq!((row.state, row.end_reason), (InstanceState::Stopped, Some(EndReason::Scheduled)));
    assert_eq!(statuses(&mut stage, Some("instance-retirement")), (0, false), "it does not run any more");
}

#[test]
fn each_change_of_state_is_a_message() {
    let mut stage = Stage::calm();
    let id = stage.launch(&run("g5.xlarge", A, 1, 1))[0].clone();
    let mut said = stage.pass(Span::mins(1));
    assert!(stage.region.stop_as_user(stage.now, &id));
    said.extend(stage.pass(Span::mins(1)));
    assert!(stage.region.terminate_as_user(stage.now, &id));
    said.extend(stage.pass(Span::mins(1)));
    let states: Vec<&str> = said.iter().map(|m| m["detail"]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]);
    assert_eq!(said[0]["detail-type"], "EC2 Instance State-change Notification");
    assert_eq!(said[0]["resources"], json!([format!("arn:aws:ec2:us-east-1:000000000000:instance/{id}")]));
    let mut ids: Vec<&str> = said.iter().map(|m| m["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "every message has its own id");
    stage.pass(Span::mins(61));
    assert!(stage.region.instance(&id).is_none(), "an hour after its end it is forgotten");
}
