//! Bills and costs that would take more of the ledger than one read may: refused with what to do, or left out, and never a part as if it were all.

use super::*;
use crate::api::auth::Browser;

/// What an error says, where a bill is too large.
fn too_large(refused: &ApiError, takes: &str) {
    let body = refused.body();
    assert_eq!((refused.status(), body.code.as_str()), (StatusCode::BAD_REQUEST, "BillTooLarge"));
    assert!(body.message.contains(takes) && body.remedy.contains("--data"), "{body:?}");
}

#[test]
fn what_would_take_too_much_of_the_ledger_is_refused_and_never_told_in_part() {
    let served = ServedApi::new();
    served.run("long");
    let own = || Reader(Arc::clone(&served.api.local));
    let bill = |api: &Api| {
        let asked = cost::cost(State(api.clone()), own(), Ok(Query(Vec::new())));
        served.runtime.block_on(asked)
    };
    let no_rows = LedgerLimits { rows: 0, ..LedgerLimits::default() };
    let no_time = LedgerLimits { rows: 1, time: Duration::ZERO, ..no_rows };
    for (ledger, takes) in [(no_rows, "more than 0 rows of the ledger"), (no_time, "more than 0 s to read")] {
        let tight = Api { ledger, ..served.api.clone() };
        let end = Instant::now() + SOON;
        let refused = loop {
            match bill(&tight) {
                Err(refused) => break refused,
                Ok(_) => assert!(Instant::now() < end, "nothing is in the ledger within {SOON:?}"),
            }
            std::thread::park_timeout(Duration::from_millis(10));
        };
        too_large(&refused, takes);
        let focus = cost::focus(State(tight.clone()), own(), Ok(Query(CostRange::default())));
        too_large(&served.runtime.block_on(focus).err().expect("it is refused"), takes);
        let of_job = cost::of_job(State(tight.clone()), own(), Name("long".to_owned()));
        too_large(&served.runtime.block_on(of_job).expect_err("it is refused"), takes);
        let page = pages::money::page(State(tight.clone()), Browser(own().0), Ok(Query(Vec::new())));
        let page = served.runtime.block_on(page).expect("a page");
        assert_eq!(page.status(), StatusCode::BAD_REQUEST);
        let html = served.runtime.block_on(axum::body::to_bytes(page.into_body(), usize::MAX)).expect("all of it");
        let html = String::from_utf8_lossy(&html);
        assert!(html.contains(takes) && html.contains("less time") && !html.contains("Spent"), "{html}");
        // What a job of a list costs is not known then, which is no zero.
        let address = "http://forebay/v1/jobs?cost=true".parse::<Uri>().expect("an address");
        let list = listing::list(State(tight), own(), Query::try_from_uri(&address));
        let (_, Json(page)) = served.runtime.block_on(list).expect("a page");
        let page: Value = serde_json::from_str(&serde_json::to_string(&page).expect("JSON")).expect("JSON");
        assert_eq!(page["jobs"][0]["subject"], "long", "{page}");
        assert!(page["jobs"][0].get("cost_usd").is_none(), "{page}");
    }
    assert!(bill(&served.api).is_ok(), "it is no more than a bill may have");
    served.stop();
}

#[test]
fn a_bill_has_its_turn_from_its_first_question_until_it_is_made() {
    let served = ServedApi::new();
    let (handle, api) = (&served.running.handle, &served.api);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    served.runtime.block_on(async {
        let holder: Arc<str> = Arc::from("holder");
        let mut held = Box::pin(handle.query_as(&holder, move |_, _| gate.recv().is_ok()));
        assert!(once(held.as_mut()).await.is_pending());
        let mut bill = Box::pin(cost::charges_of(api, &api.local, |_| CostRange::default()));
        assert!(once(bill.as_mut()).await.is_pending(), "it waits for the engine");
        let another = || tokio::time::timeout(Duration::ZERO, api.room.bill(&api.local));
        assert!(another().await.is_err(), "no other of its caller is read meanwhile");
        open.send(()).unwrap();
        let Ok((turn, _)) = bill.await else { panic!("no bill") };
        assert!(another().await.is_err(), "nor while something is made of it");
        drop(turn);
        assert!(another().await.is_ok_and(|turn| turn.is_ok()));
    });
    served.stop();
}
