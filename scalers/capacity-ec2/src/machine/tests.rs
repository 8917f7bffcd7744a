//! The machine's calls after each response.

mod ends;

use super::purchases::NO_GROUP;
use super::*;
use crate::api_call::Ec2InstanceState;
use crate::request::{PurchaseOrder, ReservationTarget, TAG_CLUSTER, TAG_JOURNAL, TAG_PURCHASE};
use crate::settings::{JournalClaim, LaunchSettings};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::Terms;
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::{JournalEra, JournalId, JournalIdentity};
use forebay_kernel::units::{Mib, MilliCpu, Rate};

const T0: Timestamp = Timestamp(1_800_000_000_000);

fn settings() -> Ec2Settings {
    Ec2Settings::new("test", "journal-1", LaunchSettings { template: Some("gpu".into()), ..LaunchSettings::default() })
}

fn machine() -> Ec2Machine {
    Ec2Machine::new(settings(), BTreeSet::new(), 1)
}

fn offering(zone: &str) -> Offering {
    Offering {
        instance_type: "g5.xlarge".into(),
        zone: zone.into(),
        capacity: CapacityType::Spot,
        gpus: 1,
        gpu_mem: Mib(24_000),
        models: vec!["a10g".into()],
        cpu: MilliCpu(4000),
        mem: Mib(16_000),
        price: Rate(400_000),
        max_price: Rate(1_006_000),
        on_demand: Rate(1_006_000),
        boot: Span::mins(2),
        nvlink: 0,
        numa: 0,
    }
}

fn request(purchase: u64, zone: &str) -> LaunchRequest {
    request_of(purchase, zone, (2, 1), Terms::default())
}

fn request_of(purchase: u64, zone: &str, (count, at_least): (u32, u32), terms: Terms) -> LaunchRequest {
    let order = PurchaseOrder {
        effect: Seq(purchase + 100),
        purchase: PurchaseId(purchase),
        decided_at: T0,
        pool: "a10g",
        offering: &offering(zone),
        count,
        at_least,
        terms,
    };
    LaunchRequest::freeze(&settings(), &order)
}

fn described(instance: &str, journal: &str, purchase: u64, state: Ec2InstanceState) -> DescribedInstance {
    let tags =
        [(TAG_CLUSTER, "test".to_owned()), (TAG_JOURNAL, journal.to_owned()), (TAG_PURCHASE, purchase.to_string())];
    DescribedInstance {
        instance: instance.into(),
        instance_type: "g5.xlarge".into(),
        zone: "za".into(),
        capacity: CapacityType::Spot,
        state,
        reason: None,
        reason_text: None,
        reservation: None,
        launched: Some(T0),
        tags: tags.map(|(k, v)| (k.to_owned(), v)).into(),
    }
}

/// Responds to the machine's listing with these instances, and returns the other calls.
fn list(machine: &mut Ec2Machine, now: Timestamp, instances: Vec<DescribedInstance>) -> Vec<(CallId, Ec2Call)> {
    let (lists, rest): (Vec<_>, Vec<_>) =
        machine.poll(now).into_iter().partition(|(_, c)| matches!(c, Ec2Call::List { .. }));
    let [(id, _)] = lists[..] else { panic!("no listing at {now:?}: {lists:?}") };
    machine.handle_response(now, id, Ec2Response::Described { instances, next_token: None });
    let mut calls = rest;
    calls.extend(machine.poll(now));
    calls
}

fn launches(calls: &[(CallId, Ec2Call)]) -> Vec<(CallId, String)> {
    let launch = |(n, call): &(CallId, Ec2Call)| match call {
        Ec2Call::Launch(request) => Some((*n, request.token.clone())),
        _ => None,
    };
    calls.iter().filter_map(launch).collect()
}

fn outcomes(machine: &mut Ec2Machine) -> Vec<Event> {
    let outcome = |r| match r {
        MachineReport::Outcome(event) => Some(event),
        _ => None,
    };
    machine.take_reports().into_iter().filter_map(outcome).collect()
}

fn lost(why: &str) -> Ec2Response {
    Ec2Response::Refused(Ec2Error::no_response(why))
}

fn refused(code: &str, status: u16) -> Ec2Response {
    Ec2Response::Refused(Ec2Error::new(code, "no", status))
}

fn launched(instances: &[&str]) -> Ec2Response {
    Ec2Response::Launched { instances: instances.iter().map(|i| (*i).to_owned()).collect(), errors: Vec::new() }
}

#[test]
fn nothing_is_bought_before_a_listing_and_recovered_purchases_come_first() {
    let mut machine = machine();
    machine.launch(request(2, "zb"), PurchaseOrigin::New);
    machine.launch(request(1, "za"), PurchaseOrigin::Recovered);
    // The recovered one is requested as soon as it is known who else buys, with its token. The new one waits for it.
    let requested = launches(&list(&mut machine, T0, Vec::new()));
    assert_eq!(requested.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>(), ["journal-1-101"]);
    assert!(launches(&machine.poll(T0)).is_empty(), "the recovered purchase has no outcome yet");
    machine.handle_response(T0, requested[0].0, launched(&["i-1", "i-2"]));
    assert_eq!(launches(&machine.poll(T0))[0].1, "journal-1-102");
}

#[test]
fn while_buying_is_paused_no_launch_leaves_and_unknown_purchases_are_settled_by_a_listing() {
    let mut machine = machine();
    let _ = list(&mut machine, T0, Vec::new());
    machine.launch(request(0, "za"), PurchaseOrigin::New);
    let [(call, _)] = &launches(&machine.poll(T0))[..] else { panic!("one launch") };
    machine.set_buying(BuyingMode::Paused);
    machine.handle_response(T0, *call, lost("reset"));
    machine.launch(request(1, "zb"), PurchaseOrigin::New);
    machine.launch(request(2, "zc"), PurchaseOrigin::Recovered);
    let mut now = T0;
    let mut seen = Vec::new();
    while now < T0 + Span::mins(30) {
        now = now + Span::secs(20);
        for (id, call) in machine.poll(now) {
            assert!(matches!(call, Ec2Call::List { .. }), "only listings: {call:?}");
            let instances = vec![described("i-1", "journal-1", 0, Ec2InstanceState::Running)];
            machine.handle_response(now, id, Ec2Response::Described { instances, next_token: None });
        }
        seen.extend(outcomes(&mut machine));
    }
    let of = |event: &Event| match event {
        Event::LaunchOutcome { purchase, instances, error } => (purchase.0, instances.len(), *error),
        other => panic!("{other:?}"),
    };
    let seen: BTreeSet<_> = seen.iter().map(of).collect();
    assert_eq!(seen, BTreeSet::from([(0, 1, Some(LaunchError::Server)), (2, 0, Some(LaunchError::Server))]));
    // What has not left waits, and leaves when buying goes on.
    assert_eq!(machine.open_purchases(), 1);
    machine.set_buying(BuyingMode::On);
    assert_eq!(launches(&machine.poll(now)).len(), 1);
}

#[test]
fn a_lost_response_repeats_the_same_request() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    let first = machine.poll(T0);
    machine.launch(request(2, "za"), PurchaseOrigin::New);
    machine.launch(request(3, "zb"), PurchaseOrigin::New);
    machine.handle_response(T0, launches(&first)[0].0, lost("closed"));
    // Another zone continues; the same zone waits.
    assert_eq!(launches(&machine.poll(T0))[0].1, "journal-1-103");
    let again = machine.next_poll_at(T0);
    assert!(again > T0 && again <= T0 + Span::secs(1));
    let second = machine.poll(again);
    assert_eq!(launches(&second)[0].1, "journal-1-101");
    let body = |calls: &[(CallId, Ec2Call)]| {
        calls.iter().find_map(|(_, c)| match c {
            Ec2Call::Launch(r) => Some(r.encode().unwrap()),
            _ => None,
        })
    };
    assert_eq!(body(&first), body(&second));
    machine.handle_response(again, launches(&second)[0].0, launched(&["i-1", "i-2"]));
    assert_eq!(outcomes(&mut machine).len(), 1);
    assert_eq!(launches(&machine.poll(again))[0].1, "journal-1-102");
}

#[test]
fn a_refusal_ends_the_purchase_or_repeats_it() {
    for (response, expected) in [
        (refused("RequestLimitExceeded", 503), Some(LaunchError::Throttled)),
        (refused("InsufficientInstanceCapacity", 500), Some(LaunchError::Capacity)),
        (refused("UnauthorizedOperation", 403), Some(LaunchError::Auth)),
        (refused("InvalidSubnetID.NotFound", 400), Some(LaunchError::Config)),
        (refused("VcpuLimitExceeded", 400), Some(LaunchError::Quota)),
        (refused("InternalError", 500), None),
        (lost("timed out"), None),
        (refused("IdempotentParameterMismatch", 400), None),
    ] {
        let mut machine = machine();
        list(&mut machine, T0, Vec::new());
        machine.launch(request(1, "za"), PurchaseOrigin::New);
        let requested = launches(&machine.poll(T0));
        machine.handle_response(T0, requested[0].0, response.clone());
        let events = outcomes(&mut machine);
        let error = events.iter().map(|e| match e {
            Event::LaunchOutcome { instances, error, .. } if instances.is_empty() => *error,
            other => panic!("{other:?}"),
        });
        assert_eq!(error.collect::<Vec<_>>(), expected.map(Some).into_iter().collect::<Vec<_>>(), "{response:?}");
    }
}

#[test]
fn a_partial_fleet_has_its_instances_and_an_error() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    let requested = launches(&machine.poll(T0));
    let errors = vec![Ec2Error::new("InsufficientInstanceCapacity", "none", 400)];
    machine.handle_response(T0, requested[0].0, Ec2Response::Launched { instances: vec!["i-1".into()], errors });
    let expected = Event::LaunchOutcome {
        purchase: PurchaseId(1),
        instances: vec!["i-1".into()],
        error: Some(LaunchError::Capacity),
    };
    let first = outcomes(&mut machine);
    assert_eq!(first, [expected]);
    // Requested again by the same process, it has the same outcome.
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    assert_eq!(outcomes(&mut machine), first);
}

#[test]
fn a_purchase_without_a_response_is_settled_by_a_later_listing() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    let (mut now, mut last) = (T0, T0);
    let made = |state| vec![described("i-9", "journal-1", 1, state)];
    while outcomes(&mut machine).is_empty() {
        for (id, call) in machine.poll(now) {
            let response = match call {
                Ec2Call::Launch(_) => {
                    last = now;
                    refused("InternalError", 500)
                }
                _ => Ec2Response::Described { instances: made(Ec2InstanceState::Running), next_token: None },
            };
            machine.handle_response(now, id, response);
        }
        // The loop ends by the outcome, or the test fails here.
        assert!(now.since(T0) < Span::mins(20), "it is never settled");
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert!(last.since(T0) >= RETRY_FOR && now >= last + forebay_kernel::reconcile::SETTLED, "{:?}", now.since(T0));
    assert_eq!(machine.open_purchases(), 0);
}

#[test]
fn an_expired_token_is_not_used() {
    let mut machine = machine();
    let now = T0 + TOKEN_LASTS;
    machine.launch(request(1, "za"), PurchaseOrigin::Recovered);
    let calls = list(&mut machine, now, Vec::new());
    assert!(launches(&calls).is_empty());
    let later = now + forebay_kernel::reconcile::SETTLED;
    list(&mut machine, later, vec![described("i-1", "journal-1", 1, Ec2InstanceState::Running)]);
    let expected = Event::LaunchOutcome {
        purchase: PurchaseId(1),
        instances: vec!["i-1".into()],
        error: Some(LaunchError::Server),
    };
    assert_eq!(outcomes(&mut machine), [expected]);
}

#[test]
fn what_was_bought_after_the_backup_is_left_to_an_operator() {
    let at = |incarnation| JournalId { uuid: 7, incarnation };
    let era = |incarnation, begins, next_purchase| JournalEra {
        incarnation,
        begins: Seq(begins),
        next_purchase,
        runs: Vec::new(),
    };
    let lineage = JournalIdentity { id: at(9), created_ms: 0, eras: vec![era(0, 0, 0), era(9, 103, 3)] };
    let settings = Ec2Settings { journal: at(9).to_string(), lineage, ..settings() };
    // What is decided from now on has the tokens and the tags of its incarnation; what is still open has those that it had.
    let offering = offering("za");
    let order = |purchase| PurchaseOrder {
        effect: Seq(purchase + 100),
        purchase: PurchaseId(purchase),
        decided_at: T0,
        pool: "a10g",
        offering: &offering,
        count: 1,
        at_least: 1,
        terms: Terms::default(),
    };
    let first = at(0).to_string();
    for (purchase, journal) in [(2, at(0)), (3, at(9))] {
        let request = LaunchRequest::freeze(&settings, &order(purchase));
        assert_eq!(request.token, format!("{journal}-{}", purchase + 100));
        assert_eq!(request.tags.get(TAG_JOURNAL), Some(&journal.to_string()));
    }
    let running = Ec2InstanceState::Running;
    let known = described("i-2", &first, 2, running);
    let lost = described("i-3", &first, 3, running);
    let unreadable = DescribedInstance {
        tags: [(TAG_CLUSTER, "test"), (TAG_JOURNAL, &first)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..lost.clone()
    };
    let later = described("i-5", &at(10).to_string(), 3, running);
    let claim = |seen: &DescribedInstance| {
        settings
            .claim(seen.tag(TAG_JOURNAL).unwrap(), seen.tag(TAG_PURCHASE).and_then(|purchase| purchase.parse().ok()))
    };
    let claims = [&known, &lost, &unreadable, &later].map(claim);
    assert_eq!(claims, [JournalClaim::Ours, JournalClaim::Lost, JournalClaim::Lost, JournalClaim::Other]);
    // It neither keeps us from buying, nor is it ended.
    let mut machine = Ec2Machine::new(settings.clone(), BTreeSet::new(), 1);
    let calls = list(&mut machine, T0, vec![lost.clone(), unreadable]);
    assert!(machine.contested().is_empty() && !calls.iter().any(|(_, call)| matches!(call, Ec2Call::Terminate { .. })));
    let listing = InstanceListing { at: T0 + Span::mins(60), instances: vec![lost.clone()] };
    let state = forebay_kernel::state::State::default();
    assert_eq!(crate::reconcile::listing_events(&state, &settings, &listing), []);
    assert_eq!(crate::reconcile::unaccounted(&state, &settings, &listing), [&lost], "an operator is told");
}

#[test]
fn nothing_is_bought_while_another_journal_uses_the_tag() {
    let mut machine = machine();
    list(&mut machine, T0, vec![described("i-7", "journal-2", 1, Ec2InstanceState::Running)]);
    assert_eq!(machine.contested().get("journal-2"), Some(&1));
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    assert!(launches(&machine.poll(T0)).is_empty());
    let error = outcomes(&mut machine).into_iter().next();
    let contested = Some(LaunchError::Contested);
    assert_eq!(error, Some(Event::LaunchOutcome { purchase: PurchaseId(1), instances: Vec::new(), error: contested }));
    // Its instances are terminated, so buying continues.
    let later = T0 + Span::mins(1);
    list(&mut machine, later, vec![described("i-7", "journal-2", 1, Ec2InstanceState::Terminated)]);
    machine.launch(request(2, "za"), PurchaseOrigin::New);
    assert_eq!(launches(&machine.poll(later)).len(), 1);
}

#[test]
fn while_another_journal_buys_what_is_unknown_is_settled_by_a_listing() {
    let mut machine = machine();
    machine.launch(request(1, "za"), PurchaseOrigin::Recovered);
    let other = || vec![described("i-7", "journal-2", 1, Ec2InstanceState::Running)];
    let (mut now, mut ended) = (T0, Vec::new());
    while machine.open_purchases() > 0 {
        assert!(now < T0 + Span::mins(30));
        for (id, call) in machine.poll(now) {
            assert!(matches!(call, Ec2Call::List { .. }), "only listings: {call:?}");
            machine.handle_response(now, id, Ec2Response::Described { instances: other(), next_token: None });
        }
        ended.extend(outcomes(&mut machine));
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    let none = (Vec::new(), Some(LaunchError::Server));
    assert_eq!(ended, [Event::LaunchOutcome { purchase: PurchaseId(1), instances: none.0, error: none.1 }]);
}

#[test]
fn boots_that_an_earlier_process_has_begun_are_listed_as_often_as_its_own() {
    let mut machine = Ec2Machine::new(settings(), BTreeSet::from(["i-1".to_owned()]), 1);
    list(&mut machine, T0, vec![described("i-1", "journal-1", 1, Ec2InstanceState::Pending)]);
    assert_eq!(machine.next_poll_at(T0), T0 + Span::secs(5));
    let later = T0 + Span::secs(5);
    list(&mut machine, later, vec![described("i-1", "journal-1", 1, Ec2InstanceState::Running)]);
    assert_eq!(machine.next_poll_at(later), later + Span::mins(1));
}

#[test]
fn a_placement_group_that_cannot_be_created_holds_up_its_market_alone_and_not_for_ever() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    let terms = Terms { cluster: true, ..Terms::default() };
    machine.launch(request_of(1, "za", (4, 4), terms), PurchaseOrigin::New);
    let [(group, Ec2Call::CreateGroup(_))] = &machine.poll(T0)[..] else { panic!("a group") };
    machine.handle_response(T0, *group, lost("reset"));
    machine.launch(request(2, "zb"), PurchaseOrigin::New);
    let launched = launches(&machine.poll(T0));
    assert_eq!(launched.len(), 1, "another launch leaves at once");
    machine.handle_response(T0, launched[0].0, self::launched(&["i-1", "i-2"]));
    let attempts = group_attempts(&mut machine, ("InternalError", 500), Span::mins(15), 60);
    assert!((5..60).contains(&attempts), "{attempts} attempts in five minutes");
}

/// How often a placement group is asked for that cannot be created, until nothing waits for it any more.
fn group_attempts(machine: &mut Ec2Machine, (code, status): (&str, u16), within: Span, fewer: usize) -> usize {
    let (mut now, mut attempts) = (T0, 0);
    while machine.open_purchases() > 0 {
        assert!(now < T0 + within && attempts < fewer, "{attempts} attempts");
        for (id, call) in machine.poll(now) {
            let response = match call {
                Ec2Call::CreateGroup(_) => {
                    attempts += 1;
                    refused(code, status)
                }
                Ec2Call::Launch(_) => panic!("launched without its group"),
                _ => Ec2Response::Described { instances: Vec::new(), next_token: None },
            };
            machine.handle_response(now, id, response);
        }
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    attempts
}

#[test]
fn a_gang_waits_for_its_placement_group() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    let terms = Terms { cluster: true, ..Terms::default() };
    machine.launch(request_of(1, "za", (4, 4), terms), PurchaseOrigin::New);
    let calls = machine.poll(T0);
    let [(id, Ec2Call::CreateGroup(name))] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(name, "forebay-test-a10g-za");
    machine.handle_response(T0, *id, refused("InvalidPlacementGroup.Duplicate", 400));
    assert_eq!(launches(&machine.poll(T0)).len(), 1);
}

#[test]
fn an_unknown_instance_does_not_delay_the_termination_of_others() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    for n in 0..150 {
        machine.terminate(T0, format!("i-{n:03}"));
    }
    let calls = machine.poll(T0);
    let sizes = |calls: &[(CallId, Ec2Call)]| {
        calls
            .iter()
            .map(|(_, c)| match c {
                Ec2Call::Terminate(ids) => ids.len(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&calls), [100, 50]);
    let unknown = Ec2Error::new("InvalidInstanceID.NotFound", "The instance ID 'i-003' does not exist", 400);
    machine.handle_response(T0, calls[0].0, Ec2Response::Refused(unknown));
    machine.handle_response(T0, calls[1].0, Ec2Response::Done);
    // The others are terminated at once, without it.
    assert_eq!(sizes(&machine.poll(T0)), [99]);
    let later = T0 + Span::secs(2);
    let alone: Vec<Ec2Call> =
        machine.poll(later).into_iter().map(|(_, c)| c).filter(|c| matches!(c, Ec2Call::Terminate(_))).collect();
    assert_eq!(alone, [Ec2Call::Terminate(vec!["i-003".into()])]);
}

#[test]
fn a_claim_without_its_tags_is_described_by_its_id() {
    let mut machine = Ec2Machine::new(settings(), BTreeSet::from(["i-1".to_owned()]), 1);
    let calls = list(&mut machine, T0, Vec::new());
    let [(id, Ec2Call::Describe(ids))] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(ids, &["i-1"]);
    let bare = DescribedInstance { tags: BTreeMap::new(), ..described("i-1", "", 0, Ec2InstanceState::Running) };
    machine.handle_response(T0, *id, Ec2Response::Described { instances: vec![bare.clone()], next_token: None });
    let listing = machine.take_reports().into_iter().find_map(|r| match r {
        MachineReport::Listing(listing) => Some(listing),
        _ => None,
    });
    assert_eq!(listing, Some(InstanceListing { at: T0, instances: vec![bare] }));
}

#[test]
fn a_failed_listing_reports_no_instances() {
    let mut machine = machine();
    let calls = machine.poll(T0);
    machine.handle_response(T0, calls[0].0, refused("UnauthorizedOperation", 403));
    let reports = machine.take_reports();
    assert!(matches!(&reports[..], [MachineReport::Failing { operation: "list instances", .. }]), "{reports:?}");
    assert!(!machine.has_listed());
    // Nor does an incomplete one.
    let again = machine.next_poll_at(T0);
    let calls = machine.poll(again);
    let page = vec![described("i-1", "journal-1", 1, Ec2InstanceState::Running)];
    machine.handle_response(
        again,
        calls[0].0,
        Ec2Response::Described { instances: page, next_token: Some("more".into()) },
    );
    let calls = machine.poll(again);
    assert!(matches!(&calls[0].1, Ec2Call::List { next_token: Some(token), .. } if token == "more"));
    machine.handle_response(again, calls[0].0, lost("closed"));
    assert_eq!(machine.take_reports(), []);
}

/// Whether each failure begins or ends, with its operation and subject.
fn failures(machine: &mut Ec2Machine) -> Vec<(bool, &'static str, String)> {
    let failure = |report| match report {
        MachineReport::Failing { operation, subject, .. } => Some((true, operation, subject)),
        MachineReport::Recovered { operation, subject } => Some((false, operation, subject)),
        _ => None,
    };
    machine.take_reports().into_iter().filter_map(failure).collect()
}

#[test]
fn a_lack_of_responses_is_reported_until_there_is_one() {
    let mut machine = machine();
    let (mut now, mut reported) = (T0, Vec::new());
    for nth in 0..8 {
        let calls = machine.poll(now);
        let lost = [lost("no route to host"), refused("InternalError", 500)][nth % 2].clone();
        machine.handle_response(now, calls[0].0, lost);
        reported.push(failures(&mut machine).len());
        now = machine.next_poll_at(now);
    }
    assert_eq!(reported[..4], [0; 4], "a few are not reported");
    assert_eq!(reported[4..], [1, 1, 0, 0], "each error once");
    list(&mut machine, now, Vec::new());
    assert_eq!(failures(&mut machine), [(false, "list instances", String::new())]);
}

#[test]
fn failures_of_two_markets_are_separate() {
    let mut machine = machine();
    let mut now = T0;
    list(&mut machine, now, Vec::new());
    let mut buy = |machine: &mut Ec2Machine, purchase: u64, zone: &str, response: Ec2Response| {
        now = now + Span::secs(10);
        machine.launch(request(purchase, zone), PurchaseOrigin::New);
        let calls = machine.poll(now);
        let requested = launches(&calls);
        machine.handle_response(now, requested[0].0, response);
        failures(machine)
    };
    let subject = "g5.xlarge spot in za for pool a10g".to_owned();
    assert_eq!(
        buy(&mut machine, 1, "za", refused("InvalidSubnetID.NotFound", 400)),
        [(true, "launch instances", subject.clone())]
    );
    assert_eq!(buy(&mut machine, 2, "zb", launched(&["i-1", "i-2"])), []);
    assert_eq!(buy(&mut machine, 3, "za", refused("InvalidSubnetID.NotFound", 400)), [], "reported once");
    assert_eq!(buy(&mut machine, 4, "za", launched(&["i-3", "i-4"])), [(false, "launch instances", subject.clone())]);
    // A failure of something that is no longer requested ends after a while.
    assert_eq!(buy(&mut machine, 5, "za", refused("InvalidSubnetID.NotFound", 400)).len(), 1);
    machine.poll(now + FAILURE_LASTS);
    assert_eq!(failures(&mut machine), [(false, "launch instances", subject)]);
}

#[test]
fn an_operator_gets_the_error_that_decides() {
    let error = |code: &str| Ec2Error::new(code, "no", 400);
    let fleet = |codes: &[&str]| Ec2Response::Launched {
        instances: Vec::new(),
        errors: codes.iter().map(|code| error(code)).collect(),
    };
    for (response, reported) in [
        (fleet(&["InsufficientInstanceCapacity", "UnauthorizedOperation"]), Some("UnauthorizedOperation")),
        (fleet(&["InsufficientInstanceCapacity"]), None),
        (
            fleet(&["UnfulfillableCapacity", "InsufficientFreeAddressesInSubnet"]),
            Some("InsufficientFreeAddressesInSubnet"),
        ),
        (refused("InsufficientFreeAddressesInSubnet", 400), Some("InsufficientFreeAddressesInSubnet")),
        (refused("Client.InsufficientInstanceCapacity", 400), None),
        (refused("IdempotentParameterMismatch", 400), Some("IdempotentParameterMismatch")),
        (refused("IdempotentInstanceTerminated", 400), None),
    ] {
        let mut machine = machine();
        list(&mut machine, T0, Vec::new());
        machine.launch(request(1, "za"), PurchaseOrigin::New);
        let requested = launches(&machine.poll(T0));
        machine.handle_response(T0, requested[0].0, response.clone());
        let code = |report| match report {
            MachineReport::Failing { error, .. } => Some(error.code),
            _ => None,
        };
        let codes: Vec<String> = machine.take_reports().into_iter().filter_map(code).collect();
        assert_eq!(codes, reported.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{response:?}");
    }
}

#[test]
fn a_forbidden_termination_does_not_delay_others() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    let mut now = T0 + Span::secs(1);
    ["i-1", "i-2", "i-3"].into_iter().for_each(|i| machine.terminate(now, i.to_owned()));
    let (mut ended, mut reported) = (BTreeSet::new(), Vec::new());
    for _ in 0..40 {
        for (id, call) in machine.poll(now) {
            let Ec2Call::Terminate(ids) = call else {
                machine.handle_response(now, id, Ec2Response::Described { instances: Vec::new(), next_token: None });
                continue;
            };
            let denied = ids.iter().any(|i| i == "i-2");
            ended.extend(ids.into_iter().filter(|_| !denied));
            machine.handle_response(
                now,
                id,
                if denied { refused("UnauthorizedOperation", 403) } else { Ec2Response::Done },
            );
        }
        reported.extend(failures(&mut machine));
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert_eq!(ended.into_iter().collect::<Vec<_>>(), ["i-1", "i-3"]);
    assert_eq!(reported, [(true, "terminate instances", "i-2".to_owned())], "once, and only for this instance");
}

#[test]
fn a_repeated_response_with_too_few_instances_is_settled_by_a_listing() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(request(1, "za"), PurchaseOrigin::New);
    let requested = launches(&machine.poll(T0 + Span::secs(1)));
    machine.handle_response(T0 + Span::secs(1), requested[0].0, lost("closed"));
    let mut now = machine.next_poll_at(T0 + Span::secs(1));
    let mut given = false;
    let mut found = Vec::new();
    while found.is_empty() {
        assert!(now < T0 + Span::mins(30), "it is settled");
        for (id, call) in machine.poll(now) {
            let both = ["i-1", "i-2"].map(|i| described(i, "journal-1", 1, Ec2InstanceState::Running)).to_vec();
            let response = match call {
                Ec2Call::Launch(_) => launched(&[]),
                _ => Ec2Response::Described { instances: if given { both } else { Vec::new() }, next_token: None },
            };
            given |= response == launched(&[]);
            machine.handle_response(now, id, response);
        }
        found = outcomes(&mut machine);
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    let both = vec!["i-1".to_owned(), "i-2".to_owned()];
    assert_eq!(found, [Event::LaunchOutcome { purchase: PurchaseId(1), instances: both, error: None }]);
}

#[test]
fn a_removed_group_is_created_again_and_a_forbidden_one_ends_its_purchases() {
    let clustered = |purchase| request_of(purchase, "za", (2, 2), Terms { cluster: true, ..Terms::default() });
    let mut machine = machine();
    let mut now = T0;
    list(&mut machine, now, Vec::new());
    machine.launch(clustered(1), PurchaseOrigin::New);
    let (mut made, mut requested) = (0, 0);
    while machine.open_purchases() > 0 {
        assert!(now < T0 + Span::mins(30));
        for (id, call) in machine.poll(now) {
            let response = match call {
                Ec2Call::CreateGroup(_) => {
                    made += 1;
                    Ec2Response::Done
                }
                Ec2Call::Launch(_) => {
                    requested += 1;
                    if requested == 1 { refused(NO_GROUP, 400) } else { launched(&["i-1", "i-2"]) }
                }
                _ => Ec2Response::Described { instances: Vec::new(), next_token: None },
            };
            machine.handle_response(now, id, response);
        }
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert_eq!((made, requested), (2, 2));
    // A recovered purchase is settled by a listing, and does not request its group forever.
    let mut machine = Ec2Machine::new(settings(), BTreeSet::new(), 1);
    machine.launch(clustered(2), PurchaseOrigin::Recovered);
    let attempts = group_attempts(&mut machine, ("UnauthorizedOperation", 403), Span::mins(60), 20);
    assert_eq!(attempts, 1);
}

fn reserved(purchase: u64) -> LaunchRequest {
    let reservation = |id: &str| ReservationTarget { id: id.to_owned(), block: false };
    LaunchRequest {
        capacity: CapacityType::Reserved,
        reservation: Some(reservation("cr-1")),
        other_reservations: ["cr-2", "cr-3"].map(reservation).to_vec(),
        ..request(purchase, "za")
    }
}

#[test]
fn the_next_reservation_is_used_with_another_token() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(reserved(1), PurchaseOrigin::New);
    let (mut now, mut requested) = (T0 + Span::secs(1), Vec::new());
    let mut found = Vec::new();
    while found.is_empty() {
        for (id, call) in machine.poll(now) {
            let Ec2Call::Launch(request) = call else { panic!("{call:?}") };
            let reservation = request.reservation.unwrap().id;
            let full = reservation == "cr-1";
            requested.push((reservation, request.token));
            machine.handle_response(
                now,
                id,
                if full { refused("ReservationCapacityExceeded", 400) } else { launched(&["i-1", "i-2"]) },
            );
        }
        found = outcomes(&mut machine);
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert!(matches!(&found[..], [Event::LaunchOutcome { error: None, .. }]), "{found:?}");
    let pair = |id: &str, token: &str| (id.to_owned(), token.to_owned());
    assert_eq!(requested, [pair("cr-1", "journal-1-101"), pair("cr-2", "journal-1-101r")]);
}

#[test]
fn a_recovered_purchase_with_several_reservations_is_not_requested_again() {
    let mut machine = machine();
    machine.launch(reserved(1), PurchaseOrigin::Recovered);
    let (mut now, mut found) = (T0, Vec::new());
    while found.is_empty() {
        assert!(now < T0 + Span::mins(30), "it is settled");
        for (id, call) in machine.poll(now) {
            assert!(!matches!(call, Ec2Call::Launch(_)), "{call:?}");
            let instances = ["i-1", "i-2"].map(|i| described(i, "journal-1", 1, Ec2InstanceState::Running)).to_vec();
            machine.handle_response(now, id, Ec2Response::Described { instances, next_token: None });
        }
        found = outcomes(&mut machine);
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert!(
        matches!(&found[..], [Event::LaunchOutcome { instances, error: None, .. }] if instances.len() == 2),
        "{found:?}"
    );
}

#[test]
fn reserved_capacity_without_a_reservation_is_out_of_stock() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    machine.launch(
        LaunchRequest { reservation: None, other_reservations: Vec::new(), ..reserved(1) },
        PurchaseOrigin::New,
    );
    assert_eq!(launches(&machine.poll(T0 + Span::secs(1))), []);
    let error = Some(LaunchError::Capacity);
    let none = Event::LaunchOutcome { purchase: PurchaseId(1), instances: Vec::new(), error };
    assert_eq!(outcomes(&mut machine), [none]);
}

#[test]
fn many_forbidden_terminations_leave_the_rate_to_others() {
    let mut machine = machine();
    list(&mut machine, T0, Vec::new());
    let mut now = T0 + Span::secs(1);
    (0..150).for_each(|n| machine.terminate(now, format!("i-{n:03}")));
    let mut ended = None;
    while now < T0 + Span::mins(10) {
        if now >= T0 + Span::mins(5) && ended.is_none() {
            machine.terminate(now, "i-999".to_owned());
        }
        for (id, call) in machine.poll(now) {
            let Ec2Call::Terminate(ids) = call else {
                machine.handle_response(now, id, Ec2Response::Described { instances: Vec::new(), next_token: None });
                continue;
            };
            let allowed = ids == ["i-999"];
            if allowed {
                ended.get_or_insert(now);
            }
            machine.handle_response(
                now,
                id,
                if allowed { Ec2Response::Done } else { refused("OperationNotPermitted", 400) },
            );
        }
        now = machine.next_poll_at(now).max(now + Span(1));
    }
    assert!(ended.is_some_and(|at| at < T0 + Span::mins(5) + Span::secs(30)), "{ended:?}");
}
