//! The desk by itself: what it asks after each answer.

use super::purchases::NO_GROUP;
use super::*;
use crate::call::InstanceState;
use crate::request::{Order, TAG_CLUSTER, TAG_JOURNAL, TAG_PURCHASE};
use crate::settings::Launch;
use forebay_engine::catalog::{CapacityType, Offering};
use forebay_engine::effect::Terms;
use forebay_engine::ids::Seq;
use forebay_engine::units::{Mib, MilliCpu, Rate};

const T0: Millis = Millis(1_800_000_000_000);

fn settings() -> Settings {
    Settings::new("test", "journal-1", Launch { template: Some("gpu".into()), ..Launch::default() })
}

fn desk() -> Desk {
    Desk::new(settings(), BTreeSet::new(), 1)
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

fn request(purchase: u64, zone: &str) -> Request {
    request_of(purchase, zone, (2, 1), Terms::default())
}

fn request_of(purchase: u64, zone: &str, (count, at_least): (u32, u32), terms: Terms) -> Request {
    let order = Order {
        effect: Seq(purchase + 100),
        purchase: PurchaseId(purchase),
        decided_at: T0,
        pool: "a10g",
        offering: &offering(zone),
        count,
        at_least,
        terms,
    };
    Request::freeze(&settings(), &order)
}

fn seen(instance: &str, journal: &str, purchase: u64, state: InstanceState) -> Seen {
    let tags =
        [(TAG_CLUSTER, "test".to_owned()), (TAG_JOURNAL, journal.to_owned()), (TAG_PURCHASE, purchase.to_string())];
    Seen {
        instance: instance.into(),
        instance_type: "g5.xlarge".into(),
        zone: "za".into(),
        capacity: CapacityType::Spot,
        state,
        reason: None,
        words: None,
        reservation: None,
        launched: Some(T0),
        tags: tags.map(|(k, v)| (k.to_owned(), v)).into(),
    }
}

/// Lets the desk look, and answers with these.
fn look(desk: &mut Desk, now: Millis, instances: Vec<Seen>) -> Vec<(u64, Call)> {
    let (looks, rest): (Vec<_>, Vec<_>) = desk.poll(now).into_iter().partition(|(_, c)| matches!(c, Call::List { .. }));
    let [(number, _)] = looks[..] else { panic!("no look at {now:?}: {looks:?}") };
    desk.answer(now, number, Answer::Seen { instances, next: None });
    let mut calls = rest;
    calls.extend(desk.poll(now));
    calls
}

fn launches(calls: &[(u64, Call)]) -> Vec<(u64, String)> {
    let launch = |(n, call): &(u64, Call)| match call {
        Call::Launch(request) => Some((*n, request.token.clone())),
        _ => None,
    };
    calls.iter().filter_map(launch).collect()
}

fn outcomes(desk: &mut Desk) -> Vec<Event> {
    let outcome = |r| match r {
        Report::Outcome(event) => Some(event),
        _ => None,
    };
    desk.reports().into_iter().filter_map(outcome).collect()
}

fn refused(code: &str, status: u16) -> Answer {
    Answer::Refused(Refusal::new(code, "no", status))
}

fn launched(instances: &[&str]) -> Answer {
    Answer::Launched { instances: instances.iter().map(|i| (*i).to_owned()).collect(), errors: Vec::new() }
}

#[test]
fn nothing_is_bought_before_a_look_and_what_may_have_been_made_comes_first() {
    let mut desk = desk();
    desk.launch(request(2, "zb"), false);
    desk.launch(request(1, "za"), true);
    // The one that was under way is asked at once, under its old token; the new one waits for it and for the look.
    let calls = desk.poll(T0);
    let asked = launches(&calls);
    assert_eq!(asked.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>(), ["journal-1-101"]);
    let (list, _) = calls.iter().find(|(_, c)| matches!(c, Call::List { .. })).unwrap();
    desk.answer(T0, *list, Answer::Seen { instances: Vec::new(), next: None });
    assert!(launches(&desk.poll(T0)).is_empty(), "it is not known yet what became of the old one");
    desk.answer(T0, asked[0].0, launched(&["i-1", "i-2"]));
    assert_eq!(launches(&desk.poll(T0))[0].1, "journal-1-102");
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_request() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(request(1, "za"), false);
    let first = desk.poll(T0);
    desk.launch(request(2, "za"), false);
    desk.launch(request(3, "zb"), false);
    desk.answer(T0, launches(&first)[0].0, Answer::Lost("closed".into()));
    // Another zone goes on; the same zone waits.
    assert_eq!(launches(&desk.poll(T0))[0].1, "journal-1-103");
    let again = desk.next(T0);
    assert!(again > T0 && again <= T0 + Span::secs(1));
    let second = desk.poll(again);
    assert_eq!(launches(&second)[0].1, "journal-1-101");
    let body = |calls: &[(u64, Call)]| {
        calls.iter().find_map(|(_, c)| match c {
            Call::Launch(r) => Some(r.encode()),
            _ => None,
        })
    };
    assert_eq!(body(&first), body(&second));
    desk.answer(again, launches(&second)[0].0, launched(&["i-1", "i-2"]));
    assert_eq!(outcomes(&mut desk).len(), 1);
    assert_eq!(launches(&desk.poll(again))[0].1, "journal-1-102");
}

#[test]
fn what_a_refusal_means_is_told_or_asked_again() {
    for (answer, expected) in [
        (refused("RequestLimitExceeded", 503), Some(LaunchError::Throttled)),
        (refused("InsufficientInstanceCapacity", 500), Some(LaunchError::Capacity)),
        (refused("UnauthorizedOperation", 403), Some(LaunchError::Auth)),
        (refused("InvalidSubnetID.NotFound", 400), Some(LaunchError::Config)),
        (refused("VcpuLimitExceeded", 400), Some(LaunchError::Quota)),
        (refused("InternalError", 500), None),
        (Answer::Lost("timed out".into()), None),
        (refused("IdempotentParameterMismatch", 400), None),
    ] {
        let mut desk = desk();
        look(&mut desk, T0, Vec::new());
        desk.launch(request(1, "za"), false);
        let asked = launches(&desk.poll(T0));
        desk.answer(T0, asked[0].0, answer.clone());
        let told = outcomes(&mut desk);
        let error = told.iter().map(|e| match e {
            Event::LaunchOutcome { instances, error, .. } if instances.is_empty() => *error,
            other => panic!("{other:?}"),
        });
        assert_eq!(error.collect::<Vec<_>>(), expected.map(Some).into_iter().collect::<Vec<_>>(), "{answer:?}");
    }
}

#[test]
fn a_partial_fleet_says_which_instances_and_why_not_all() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(request(1, "za"), false);
    let asked = launches(&desk.poll(T0));
    let errors = vec![("InsufficientInstanceCapacity".to_owned(), "none".to_owned())];
    desk.answer(T0, asked[0].0, Answer::Launched { instances: vec!["i-1".into()], errors });
    let expected = Event::LaunchOutcome {
        purchase: PurchaseId(1),
        instances: vec!["i-1".into()],
        error: Some(LaunchError::Capacity),
    };
    let first = outcomes(&mut desk);
    assert_eq!(first, [expected]);
    // Asked again in the same life, the same is said.
    desk.launch(request(1, "za"), false);
    assert_eq!(outcomes(&mut desk), first);
}

#[test]
fn what_is_never_answered_is_settled_by_a_look_that_is_later() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(request(1, "za"), false);
    let (mut now, mut last) = (T0, T0);
    let made = |state| vec![seen("i-9", "journal-1", 1, state)];
    while outcomes(&mut desk).is_empty() {
        for (number, call) in desk.poll(now) {
            let answer = match call {
                Call::Launch(_) => {
                    last = now;
                    refused("InternalError", 500)
                }
                _ => Answer::Seen { instances: made(InstanceState::Running), next: None },
            };
            desk.answer(now, number, answer);
        }
        // The test ends by the outcome, or fails by this.
        assert!(now.since(T0) < Span::mins(20), "it is never settled");
        now = desk.next(now).max(now + Span(1));
    }
    assert!(last.since(T0) >= ASK_FOR && now >= last + forebay_engine::reconcile::SETTLED, "{:?}", now.since(T0));
    assert_eq!(desk.open_purchases(), 0);
}

#[test]
fn a_token_that_ec2_has_forgotten_is_not_asked_for() {
    let mut desk = desk();
    let now = T0 + TOKEN_LASTS;
    desk.launch(request(1, "za"), true);
    let calls = look(&mut desk, now, Vec::new());
    assert!(launches(&calls).is_empty());
    let later = now + forebay_engine::reconcile::SETTLED;
    look(&mut desk, later, vec![seen("i-1", "journal-1", 1, InstanceState::Running)]);
    let expected = Event::LaunchOutcome {
        purchase: PurchaseId(1),
        instances: vec!["i-1".into()],
        error: Some(LaunchError::Server),
    };
    assert_eq!(outcomes(&mut desk), [expected]);
}

#[test]
fn nothing_is_bought_while_another_journal_uses_the_name() {
    let mut desk = desk();
    look(&mut desk, T0, vec![seen("i-7", "journal-2", 1, InstanceState::Running)]);
    assert_eq!(desk.contested().get("journal-2"), Some(&1));
    desk.launch(request(1, "za"), false);
    assert!(launches(&desk.poll(T0)).is_empty());
    let error = outcomes(&mut desk).into_iter().next();
    let contested = Some(LaunchError::Contested);
    assert_eq!(error, Some(Event::LaunchOutcome { purchase: PurchaseId(1), instances: Vec::new(), error: contested }));
    // Its instances are gone: it goes on.
    let later = T0 + Span::mins(1);
    look(&mut desk, later, vec![seen("i-7", "journal-2", 1, InstanceState::Terminated)]);
    desk.launch(request(2, "za"), false);
    assert_eq!(launches(&desk.poll(later)).len(), 1);
}

#[test]
fn a_gang_waits_for_its_placement_group() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    let terms = Terms { cluster: true, ..Terms::default() };
    desk.launch(request_of(1, "za", (4, 4), terms), false);
    let calls = desk.poll(T0);
    let [(number, Call::MakeGroup(name))] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(name, "forebay-test-a10g-za");
    desk.answer(T0, *number, refused("InvalidPlacementGroup.Duplicate", 400));
    assert_eq!(launches(&desk.poll(T0)).len(), 1);
}

#[test]
fn instances_are_ended_in_batches_and_one_that_is_unknown_holds_up_no_other() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    for n in 0..150 {
        desk.terminate(T0, format!("i-{n:03}"));
    }
    let calls = desk.poll(T0);
    let sizes = |calls: &[(u64, Call)]| {
        calls
            .iter()
            .map(|(_, c)| match c {
                Call::Terminate(ids) => ids.len(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&calls), [100, 50]);
    let unknown = Refusal::new("InvalidInstanceID.NotFound", "The instance ID 'i-003' does not exist", 400);
    desk.answer(T0, calls[0].0, Answer::Refused(unknown));
    desk.answer(T0, calls[1].0, Answer::Done);
    // The others at once, without it.
    assert_eq!(sizes(&desk.poll(T0)), [99]);
    let later = T0 + Span::secs(2);
    let alone: Vec<Call> =
        desk.poll(later).into_iter().map(|(_, c)| c).filter(|c| matches!(c, Call::Terminate(_))).collect();
    assert_eq!(alone, [Call::Terminate(vec!["i-003".into()])]);
}

#[test]
fn a_claim_that_has_lost_its_tags_is_looked_up_by_its_id() {
    let mut desk = Desk::new(settings(), BTreeSet::from(["i-1".to_owned()]), 1);
    let calls = look(&mut desk, T0, Vec::new());
    let [(number, Call::Describe(ids))] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(ids, &["i-1"]);
    let bare = Seen { tags: BTreeMap::new(), ..seen("i-1", "", 0, InstanceState::Running) };
    desk.answer(T0, *number, Answer::Seen { instances: vec![bare.clone()], next: None });
    let look = desk.reports().into_iter().find_map(|r| match r {
        Report::Look(look) => Some(look),
        _ => None,
    });
    assert_eq!(look, Some(Look { at: T0, instances: vec![bare] }));
}

#[test]
fn a_list_that_fails_says_nothing() {
    let mut desk = desk();
    let calls = desk.poll(T0);
    desk.answer(T0, calls[0].0, refused("UnauthorizedOperation", 403));
    let reports = desk.reports();
    assert!(matches!(&reports[..], [Report::Trouble { what: "list instances", .. }]), "{reports:?}");
    assert!(!desk.has_looked());
    // Half a list says nothing either.
    let again = desk.next(T0);
    let calls = desk.poll(again);
    let page = vec![seen("i-1", "journal-1", 1, InstanceState::Running)];
    desk.answer(again, calls[0].0, Answer::Seen { instances: page, next: Some("more".into()) });
    let calls = desk.poll(again);
    assert!(matches!(&calls[0].1, Call::List { from: Some(from), .. } if from == "more"));
    desk.answer(again, calls[0].0, Answer::Lost("closed".into()));
    assert_eq!(desk.reports(), []);
}

fn troubles(desk: &mut Desk) -> Vec<(bool, &'static str, String)> {
    let trouble = |report| match report {
        Report::Trouble { what, about, .. } => Some((true, what, about)),
        Report::Over { what, about } => Some((false, what, about)),
        _ => None,
    };
    desk.reports().into_iter().filter_map(trouble).collect()
}

#[test]
fn no_answer_for_a_while_is_said_until_there_is_one() {
    let mut desk = desk();
    let (mut now, mut said) = (T0, Vec::new());
    for nth in 0..8 {
        let calls = desk.poll(now);
        let lost = [Answer::Lost("no route to host".into()), refused("InternalError", 500)][nth % 2].clone();
        desk.answer(now, calls[0].0, lost);
        said.push(troubles(&mut desk).len());
        now = desk.next(now);
    }
    assert_eq!(said[..4], [0; 4], "a few are nothing");
    assert_eq!(said[4..], [1, 1, 0, 0], "each cause once");
    look(&mut desk, now, Vec::new());
    assert_eq!(troubles(&mut desk), [(false, "list instances", String::new())]);
}

#[test]
fn what_one_market_refuses_another_does_not_mend() {
    let mut desk = desk();
    let mut now = T0;
    look(&mut desk, now, Vec::new());
    let mut buy = |desk: &mut Desk, purchase: u64, zone: &str, answer: Answer| {
        now = now + Span::secs(10);
        desk.launch(request(purchase, zone), false);
        let calls = desk.poll(now);
        let asked = launches(&calls);
        desk.answer(now, asked[0].0, answer);
        troubles(desk)
    };
    let about = "g5.xlarge spot in za for pool a10g".to_owned();
    assert_eq!(
        buy(&mut desk, 1, "za", refused("InvalidSubnetID.NotFound", 400)),
        [(true, "launch instances", about.clone())]
    );
    assert_eq!(buy(&mut desk, 2, "zb", launched(&["i-1", "i-2"])), []);
    assert_eq!(buy(&mut desk, 3, "za", refused("InvalidSubnetID.NotFound", 400)), [], "said once");
    assert_eq!(buy(&mut desk, 4, "za", launched(&["i-3", "i-4"])), [(false, "launch instances", about.clone())]);
    // What nobody asks for any more is over in the end.
    assert_eq!(buy(&mut desk, 5, "za", refused("InvalidSubnetID.NotFound", 400)).len(), 1);
    desk.poll(now + TROUBLE_LASTS);
    assert_eq!(troubles(&mut desk), [(false, "launch instances", about)]);
}

#[test]
fn an_instance_that_may_not_be_ended_holds_up_no_other() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    let mut now = T0 + Span::secs(1);
    ["i-1", "i-2", "i-3"].into_iter().for_each(|i| desk.terminate(now, i.to_owned()));
    let (mut ended, mut said) = (BTreeSet::new(), Vec::new());
    for _ in 0..40 {
        for (number, call) in desk.poll(now) {
            let Call::Terminate(ids) = call else {
                desk.answer(now, number, Answer::Seen { instances: Vec::new(), next: None });
                continue;
            };
            let denied = ids.iter().any(|i| i == "i-2");
            ended.extend(ids.into_iter().filter(|_| !denied));
            desk.answer(now, number, if denied { refused("UnauthorizedOperation", 403) } else { Answer::Done });
        }
        said.extend(troubles(&mut desk));
        now = desk.next(now).max(now + Span(1));
    }
    assert_eq!(ended.into_iter().collect::<Vec<_>>(), ["i-1", "i-3"]);
    assert_eq!(said, [(true, "terminate instances", "i-2".to_owned())], "once, and about the one");
}

#[test]
fn an_answer_given_again_that_names_too_few_is_settled_by_a_look() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(request(1, "za"), false);
    let asked = launches(&desk.poll(T0 + Span::secs(1)));
    desk.answer(T0 + Span::secs(1), asked[0].0, Answer::Lost("closed".into()));
    let mut now = desk.next(T0 + Span::secs(1));
    let mut given = false;
    let mut found = Vec::new();
    while found.is_empty() {
        assert!(now < T0 + Span::mins(30), "it is settled");
        for (number, call) in desk.poll(now) {
            let both = ["i-1", "i-2"].map(|i| seen(i, "journal-1", 1, InstanceState::Running)).to_vec();
            let answer = match call {
                Call::Launch(_) => launched(&[]),
                _ => Answer::Seen { instances: if given { both } else { Vec::new() }, next: None },
            };
            given |= answer == launched(&[]);
            desk.answer(now, number, answer);
        }
        found = outcomes(&mut desk);
        now = desk.next(now).max(now + Span(1));
    }
    let both = vec!["i-1".to_owned(), "i-2".to_owned()];
    assert_eq!(found, [Event::LaunchOutcome { purchase: PurchaseId(1), instances: both, error: None }]);
}

#[test]
fn a_group_that_was_removed_is_made_again_and_one_that_may_not_be_made_ends_what_waits_for_it() {
    let clustered = |purchase| request_of(purchase, "za", (2, 2), Terms { cluster: true, ..Terms::default() });
    let mut desk = desk();
    let mut now = T0;
    look(&mut desk, now, Vec::new());
    desk.launch(clustered(1), false);
    let (mut made, mut asked) = (0, 0);
    while desk.open_purchases() > 0 {
        assert!(now < T0 + Span::mins(30));
        for (number, call) in desk.poll(now) {
            let answer = match call {
                Call::MakeGroup(_) => {
                    made += 1;
                    Answer::Done
                }
                Call::Launch(_) => {
                    asked += 1;
                    if asked == 1 { refused(NO_GROUP, 400) } else { launched(&["i-1", "i-2"]) }
                }
                _ => Answer::Seen { instances: Vec::new(), next: None },
            };
            desk.answer(now, number, answer);
        }
        now = desk.next(now).max(now + Span(1));
    }
    assert_eq!((made, asked), (2, 2));
    // After a start: a purchase that may have been made is settled by a look, and does not ask for its group for ever.
    let mut desk = Desk::new(settings(), BTreeSet::new(), 1);
    desk.launch(clustered(2), true);
    let (mut now, mut tries) = (T0, 0);
    while desk.open_purchases() > 0 {
        assert!(now < T0 + Span::mins(60) && tries < 20, "{tries} tries");
        for (number, call) in desk.poll(now) {
            let answer = match call {
                Call::MakeGroup(_) => {
                    tries += 1;
                    refused("UnauthorizedOperation", 403)
                }
                Call::Launch(_) => panic!("without its group"),
                _ => Answer::Seen { instances: Vec::new(), next: None },
            };
            desk.answer(now, number, answer);
        }
        now = desk.next(now).max(now + Span(1));
    }
    assert_eq!(tries, 1);
}

fn reserved(purchase: u64) -> Request {
    let others = ["cr-2", "cr-3"].map(|id| (id.to_owned(), false)).to_vec();
    Request {
        capacity: CapacityType::Reserved,
        reservation: Some(("cr-1".to_owned(), false)),
        other_reservations: others,
        ..request(purchase, "za")
    }
}

#[test]
fn a_full_reservation_is_turned_away_from_under_another_token() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(reserved(1), false);
    let (mut now, mut asked) = (T0 + Span::secs(1), Vec::new());
    let mut found = Vec::new();
    while found.is_empty() {
        for (number, call) in desk.poll(now) {
            let Call::Launch(request) = call else { panic!("{call:?}") };
            let reservation = request.reservation.unwrap().0;
            let full = reservation == "cr-1";
            asked.push((reservation, request.token));
            desk.answer(
                now,
                number,
                if full { refused("ReservationCapacityExceeded", 400) } else { launched(&["i-1", "i-2"]) },
            );
        }
        found = outcomes(&mut desk);
        now = desk.next(now).max(now + Span(1));
    }
    assert!(matches!(&found[..], [Event::LaunchOutcome { error: None, .. }]), "{found:?}");
    let words = |id: &str, token: &str| (id.to_owned(), token.to_owned());
    assert_eq!(asked, [words("cr-1", "journal-1-101"), words("cr-2", "journal-1-101r")]);
}

#[test]
fn after_a_start_nobody_knows_which_reservation_was_asked_last_so_none_is_asked_again() {
    let mut desk = desk();
    desk.launch(reserved(1), true);
    let (mut now, mut found) = (T0, Vec::new());
    while found.is_empty() {
        assert!(now < T0 + Span::mins(30), "it is settled");
        for (number, call) in desk.poll(now) {
            assert!(!matches!(call, Call::Launch(_)), "{call:?}");
            let seen = ["i-1", "i-2"].map(|i| seen(i, "journal-1", 1, InstanceState::Running)).to_vec();
            desk.answer(now, number, Answer::Seen { instances: seen, next: None });
        }
        found = outcomes(&mut desk);
        now = desk.next(now).max(now + Span(1));
    }
    assert!(
        matches!(&found[..], [Event::LaunchOutcome { instances, error: None, .. }] if instances.len() == 2),
        "{found:?}"
    );
}

#[test]
fn reserved_capacity_without_a_reservation_is_out_of_stock_and_nothing_is_asked() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    desk.launch(Request { reservation: None, other_reservations: Vec::new(), ..reserved(1) }, false);
    assert_eq!(launches(&desk.poll(T0 + Span::secs(1))), []);
    let error = Some(LaunchError::Capacity);
    let none = Event::LaunchOutcome { purchase: PurchaseId(1), instances: Vec::new(), error };
    assert_eq!(outcomes(&mut desk), [none]);
}

#[test]
fn many_that_may_not_be_ended_leave_the_rate_to_others() {
    let mut desk = desk();
    look(&mut desk, T0, Vec::new());
    let mut now = T0 + Span::secs(1);
    (0..150).for_each(|n| desk.terminate(now, format!("i-{n:03}")));
    let mut ended = None;
    while now < T0 + Span::mins(10) {
        if now >= T0 + Span::mins(5) && ended.is_none() {
            desk.terminate(now, "i-999".to_owned());
        }
        for (number, call) in desk.poll(now) {
            let Call::Terminate(ids) = call else {
                desk.answer(now, number, Answer::Seen { instances: Vec::new(), next: None });
                continue;
            };
            let allowed = ids == ["i-999"];
            if allowed {
                ended.get_or_insert(now);
            }
            desk.answer(now, number, if allowed { Answer::Done } else { refused("OperationNotPermitted", 400) });
        }
        now = desk.next(now).max(now + Span(1));
    }
    assert!(ended.is_some_and(|at| at < T0 + Span::mins(5) + Span::secs(30)), "{ended:?}");
}
