//! Faults: rate limits, outages, lost responses, stale results, and boots that never end.

use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{ApiReply, InstanceState, Params, RegionOptions};

use super::{A, Stage, describe, leaves, run};

#[test]
fn each_kind_of_call_has_its_bucket() {
    // Burst, and tokens a second.
    let cases = [
        (describe(), 100, 20),
        (Params::new("CreatePlacementGroup"), 50, 5),
        (run("g5.xlarge", A, 1, 1), 5, 2),
        (Params::new("TerminateInstances").with("InstanceId.1", "i-00000000000000000"), 100, 5),
    ];
    for (params, burst, a_second) in cases {
        let mut stage = Stage::new(RegionOptions { rate_limits: true, ..RegionOptions::default() });
        let let_in = |stage: &mut Stage| {
            (0..200).filter(|_| stage.call(&params) != Err((503, "RequestLimitExceeded".to_owned()))).count()
        };
        assert_eq!(let_in(&mut stage), burst, "{params:?}");
        stage.pass(Span::secs(2));
        assert_eq!(let_in(&mut stage), 2 * a_second, "{params:?}");
        let count = &stage.region.calls()[params.action()];
        assert_eq!((count.total, count.most_in_a_minute), (400, 400));
        assert_eq!(count.throttled as usize, 400 - burst - 2 * a_second);
    }
}

#[test]
fn an_outage_refuses_everything_and_ends() {
    let origin = RegionOptions::default().origin;
    let throttled = vec![(origin + Span::mins(1), origin + Span::mins(2))];
    let mut stage = Stage::new(RegionOptions { throttled, ..RegionOptions::default() });
    assert_eq!(stage.code(&describe()), "done");
    stage.pass(Span::mins(1));
    assert_eq!(stage.call(&describe()), Err((503, "RequestLimitExceeded".to_owned())));
    stage.pass(Span::mins(1));
    assert_eq!(stage.code(&describe()), "done");
}

#[test]
fn faults_have_their_configured_frequency() {
    let mut stage = Stage::new(RegionOptions {
        server_error_permille: 100,
        lost_before_permille: 100,
        lost_after_permille: 100,
        ..RegionOptions::default()
    });
    let (mut errors, mut dropped, mut told) = (0, 0, 0);
    for _ in 0..3000 {
        match stage.region.call(stage.now, &run("g5.xlarge", A, 1, 1)) {
            ApiReply::Dropped => dropped += 1,
            ApiReply::Response { status: 200, .. } => told += 1,
            ApiReply::Response { status, body } => {
                let code = leaves(&body, "Code").concat();
                assert!([(500, "InternalError"), (503, "Unavailable")].contains(&(status, code.as_str())), "{code}");
                errors += 1;
            }
        }
    }
    assert!((490..650).contains(&dropped), "{dropped} dropped of 3000 at 190 permille");
    assert!((190..300).contains(&errors), "{errors} errors of 3000 at 81 permille");
    let made = stage.region.instances().count();
    assert!(
        (190..300).contains(&(made - told)),
        "{made} made, {told} told: lost responses are of calls with an effect"
    );
}

#[test]
fn stale_results_are_within_their_bound() {
    let mut stage = Stage::new(RegionOptions { max_staleness: Span::secs(10), ..RegionOptions::default() });
    let id = stage.launch(&run("g5.xlarge", A, 1, 1))[0].clone();
    let seen = |stage: &mut Stage| match stage.call(&describe().with("InstanceId.1", &id)) {
        Ok(body) => leaves(leaves(&body, "instanceState")[0], "name")[0].to_owned(),
        Err((_, code)) => code,
    };
    let mut kinds: Vec<String> = (0..100)
        .map(|_| {
            stage.pass(Span(50));
            seen(&mut stage)
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["InvalidInstanceID.NotFound", "pending"], "a new instance may be missing");
    stage.pass(Span::mins(2));
    assert!((0..50).all(|_| seen(&mut stage) == "running"));
    assert!(stage.region.terminate_as_user(stage.now, &id));
    assert!(stage.region.instance(&id).unwrap().state == InstanceState::ShuttingDown, "the actual state is not stale");
    stage.pass(Span::secs(5));
    let mut kinds: Vec<String> = (0..100).map(|_| seen(&mut stage)).collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["running", "shutting-down"]);
    stage.pass(Span::secs(30));
    assert!((0..50).all(|_| seen(&mut stage) == "terminated"));
    // Tags are stale too.
    let id = stage.launch(&run("g5.xlarge", A, 1, 1))[0].clone();
    stage.pass(Span::mins(1));
    assert!(stage.region.retag(stage.now, &id, "k", Some("v")));
    stage.pass(Span::secs(5));
    let tagged = describe().with("Filter.1.Name", "tag:k").with("Filter.1.Value.1", "v");
    let found = (0..100).filter(|_| stage.call(&tagged).unwrap().contains(&id)).count();
    assert!((20..80).contains(&found), "{found} of 100");
    stage.pass(Span::secs(6));
    assert!(stage.call(&tagged).unwrap().contains(&id));
}

#[test]
fn boots_take_time_and_some_never_end() {
    let mut stage = Stage::new(RegionOptions { hanging_boot_permille: 100, ..RegionOptions::default() });
    let ids = stage.launch(&run("g5.xlarge", A, 1000, 1000));
    let running = |stage: &Stage| ids.iter().filter(|id| stage.state(id) == InstanceState::Running).count();
    stage.pass(Span(23_999));
    assert_eq!(running(&stage), 0, "30 s, at most 20 % shorter");
    stage.pass(Span(10_000));
    assert!((100..800).contains(&running(&stage)));
    stage.pass(Span(11_001));
    let booted = running(&stage);
    assert!((870..930).contains(&booted), "{booted} of 1000 at 100 permille");
    stage.pass(Span::mins(600));
    assert_eq!(running(&stage), booted);
}

#[test]
fn time_does_not_go_back() {
    let mut stage = Stage::calm();
    stage.pass(Span::mins(5));
    let now = stage.now;
    stage.region.call(Timestamp(0), &describe());
    assert_eq!(stage.region.now(), now);
}
