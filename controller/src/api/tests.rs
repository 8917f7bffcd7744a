//! Handlers over a driver of their own: what one caller asks for keeps no other waiting, and what is asked for twice is done once.

mod bills;

use super::auth::{Reader, Submitter};
use super::find::Name;
use super::*;
use crate::config::secret::Secret;
use crate::config::tokens::{Role, Token};
use crate::cost::CostRange;
use crate::driver::tests::{lasting, once, teams, two_threads};
use crate::driver::{
    EffectExecutor, EffectRequest, MOST_QUERIES, RealAdapters, Running, Settings, Shares, start as start_driver,
};
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use forebay_driver::journal::JournalIdentity;
use forebay_kernel::effect::Effect;
use forebay_kernel::event::Event;
use forebay_kernel::state::State as EngineState;
use forebay_kernel::state::jobs::Phase;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(60);

/// A cluster in which nothing happens: what is started says nothing, and what is stopped does not end.
struct SilentCluster;

impl EffectExecutor for SilentCluster {
    fn begin(&mut self, _: &JournalIdentity, _: &EngineState) {}

    fn freeze(&mut self, _: &Effect, _: &EngineState) -> Option<Vec<u8>> {
        None
    }

    fn execute(&mut self, _: EffectRequest<'_>) {}

    fn observe(&mut self, _: &EngineState) {}
}

/// What handlers work on, with a driver whose time goes ten minutes a second.
struct ServedApi {
    running: Running,
    runtime: Runtime,
    api: Api,
    _ending: watch::Sender<bool>,
    _folder: TempDir,
}

impl ServedApi {
    fn new() -> ServedApi {
        ServedApi::with(Room::default(), |_, _| {})
    }

    /// The same, with so much room, and what else is set. Secrets may lie in the folder.
    fn with(room: Room, set: impl FnOnce(&mut ApiOptions, &Path)) -> ServedApi {
        let folder = tempfile::tempdir().unwrap();
        let real = RealAdapters { cloud: None, cluster: Some(Box::new(SilentCluster)) };
        let running = start_driver(Settings { real, ..teams(folder.path()) }).unwrap();
        let runtime = two_threads();
        let mut options = ApiOptions::of(&running);
        set(&mut options, folder.path());
        let (_ending, ending) = watch::channel(false);
        let api = Api {
            options: Arc::new(options),
            waiters: Arc::default(),
            local: Arc::new(Who::local()),
            room,
            ledger: LedgerLimits::default(),
            status_counts: Arc::default(),
            accounts: Arc::default(),
            starts: Arc::default(),
            activity: Arc::default(),
            ending,
        };
        ServedApi { running, runtime, api, _ending, _folder: folder }
    }

    /// Submits a job, and waits until it runs.
    fn run(&self, subject: &str) {
        let handle = &self.running.handle;
        handle.submit(vec![lasting(subject, &Value::Null)]).unwrap();
        let subject = subject.to_owned();
        let look = move |engine: &Engine, _: &QueryContext| {
            let state = engine.state();
            let (row, _) = state.job(state.job_of("default", &subject)?)?;
            (row.phase == Phase::Starting).then_some((row.id, row.attempt))
        };
        let end = Instant::now() + SOON;
        let (job, attempt) = loop {
            if let Some(starting) = handle.query(look.clone()).unwrap() {
                break starting;
            }
            assert!(Instant::now() < end, "it does not start within {SOON:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        };
        handle.submit(vec![Event::RunStarted { job, attempt }]).unwrap();
    }

    fn stop(self) {
        self.running.handle.stop();
        self.running.join().unwrap();
    }
}

#[test]
fn bills_of_one_caller_leave_the_controllers_own_questions_their_part() {
    let served = ServedApi::new();
    let (handle, api) = (&served.running.handle, &served.api);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    served.runtime.block_on(async {
        let holder: Arc<str> = Arc::from("holder");
        let mut held = Box::pin(handle.query_as(&holder, move |_, _| gate.recv().is_ok()));
        assert!(once(held.as_mut()).await.is_pending());
        let mut bills = Vec::new();
        for _ in 0..MOST_QUERIES {
            let mut bill = Box::pin(cost::charges_of(api, &api.local, |_| CostRange::default()));
            assert!(once(bill.as_mut()).await.is_pending(), "it waits for its turn");
            bills.push(bill);
        }
        let mut own = Box::pin(handle.query_async(|_, _| ()));
        assert!(once(own.as_mut()).await.is_pending(), "the controller's own question is taken");
        open.send(()).unwrap();
        assert_eq!(own.await, Ok(()));
    });
    served.stop();
}

#[test]
fn a_bill_is_computed_in_its_callers_turn_and_other_callers_have_theirs() {
    let served = ServedApi::new();
    let api = &served.api;
    let [a, b] = ["a", "b"].map(|name| Arc::new(Who::agent(name, vec!["i-1".to_owned()])));
    let bill = |who: &Arc<Who>| cost::cost(State(api.clone()), Reader(Arc::clone(who)), Ok(Query(Vec::new())));
    let csv =
        |who: &Arc<Who>| cost::focus(State(api.clone()), Reader(Arc::clone(who)), Ok(Query(CostRange::default())));
    served.runtime.block_on(async {
        let turn = api.room.bill(&a).await.expect("a turn");
        let waits = tokio::spawn(bill(&a));
        for _ in 0..3 {
            assert!(bill(&b).await.is_ok() && csv(&b).await.is_ok());
        }
        assert!(!waits.is_finished(), "one bill of a caller is computed at once");
        drop(turn);
        assert!(waits.await.expect("no panic").is_ok());
    });
    served.stop();
}

#[test]
fn a_cancel_that_was_asked_for_before_is_answered_as_such() {
    let served = ServedApi::new();
    served.run("long");
    let api = &served.api;
    let cancel = || {
        let who = Submitter(Arc::clone(&api.local));
        let asked = jobs::cancel(State(api.clone()), who, Name("long".to_owned()));
        let (status, act, _) = served.runtime.block_on(asked).expect("it is cancelled");
        (status, act.is_some())
    };
    assert_eq!(cancel(), (StatusCode::ACCEPTED, true), "the first one is an act");
    for _ in 0..2 {
        assert_eq!(cancel(), (StatusCode::OK, false), "further ones do nothing");
    }
    served.stop();
}

#[test]
fn a_cancel_is_answered_with_whose_job_it_is() {
    let served = ServedApi::new();
    served.run("long");
    let api = &served.api;
    let mut ops = Who::local();
    ops.caller.principal = "ops".to_owned();
    for (who, own) in [(Arc::new(ops), false), (Arc::clone(&api.local), true)] {
        let asked = jobs::cancel(State(api.clone()), Submitter(who), Name("long".to_owned()));
        let (_, _, Json(found)) = served.runtime.block_on(asked).expect("it is cancelled");
        let answer = serde_json::to_value(&found).expect("JSON");
        let whose = json!({"tenant": answer["tenant"], "principal": answer["principal"], "own": answer["own"]});
        assert_eq!(whose, json!({"tenant": "default", "principal": "local", "own": own}), "{answer}");
        let read: jobs::CancelledJob = serde_json::from_value(answer).expect("a client reads it");
        assert_eq!((read.principal, read.own, read.one.job.job), (found.principal, own, found.one.job.job));
    }
    served.stop();
}

#[test]
fn jobs_have_what_they_cost_where_that_is_asked_for() {
    let served = ServedApi::new();
    served.run("long");
    let api = &served.api;
    let own = || Reader(Arc::clone(&api.local));
    let address = |query: &str| format!("http://forebay/v1/jobs?{query}").parse::<Uri>().expect("an address");
    let list = |query: &str| {
        let asked = listing::list(State(api.clone()), own(), Query::try_from_uri(&address(query)));
        let (_, Json(page)) = served.runtime.block_on(asked).expect("a page");
        serde_json::from_str::<Value>(&serde_json::to_string(&page).expect("JSON")).expect("JSON")
    };
    let one = |query: &str| {
        let long = Name("long".to_owned());
        let asked = jobs::one(State(api.clone()), own(), long, Query::try_from_uri(&address(query)));
        let Json(job) = served.runtime.block_on(asked).expect("a job");
        serde_json::to_value(&job).expect("JSON")
    };
    let bill = |subject: &str| {
        let asked = cost::of_job(State(api.clone()), own(), Name(subject.to_owned()));
        let Json(cost) = served.runtime.block_on(asked).expect("a bill");
        cost.cost_usd
    };
    // Time goes on between two questions: what is said between two bills is between their costs.
    let is_billed = |subject: &str, said: &dyn Fn() -> Value| {
        let end = Instant::now() + SOON;
        while bill(subject) <= 0.0 {
            assert!(Instant::now() < end, "{subject} costs nothing within {SOON:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let (before, said, after) = (bill(subject), said(), bill(subject));
        assert_eq!(said["subject"], subject);
        let cost = said["cost_usd"].as_f64().unwrap_or_else(|| panic!("no cost: {said}"));
        assert!(before <= cost && cost <= after, "{before} {cost} {after}");
    };
    is_billed("long", &|| list("cost=true")["jobs"][0].clone());
    is_billed("long", &|| one("cost=true"));
    // Of two the charges of a week are read, and each has its own.
    served.run("other");
    is_billed("long", &|| list("cost=true&open=true")["jobs"][0].clone());
    is_billed("other", &|| list("cost=true")["jobs"][1].clone());
    for said in [list("")["jobs"][0].clone(), list("cost=false")["jobs"][0].clone(), one("")] {
        assert!(said["subject"] == "long" && said.get("cost_usd").is_none(), "{said}");
    }
    served.stop();
}

/// Connections of a small server beside its reserve. A proxy has 60 of them at most.
const CONNECTIONS: usize = 64;

/// Of these one caller has half of what is beside those that are kept for newcomers.
const OF_ONE: usize = 30;

/// More than there are.
const TOO_MANY: usize = 100;

/// A small server whose callers all come through one trusted proxy, with tokens of two teams.
fn behind_a_proxy() -> (ServedApi, SocketAddr) {
    let token = |folder: &Path, name: &str| {
        let path = folder.join(format!("{name}.token"));
        std::fs::write(&path, format!("{name}-0123456789")).unwrap();
        let roles = vec![Role::Submit, Role::Read];
        Token { name: name.into(), tenant: "default".into(), roles, instances: Vec::new(), secret: Secret::File(path) }
    };
    let served = ServedApi::with(Room::with_connections(CONNECTIONS), |options, folder| {
        let written = ["team-a", "team-b"].map(|name| token(folder, name));
        options.tokens = Tokens::read(&written, &mut Vec::new()).unwrap();
        options.proxies = vec![IpAddr::from([127, 0, 0, 1])];
    });
    let listener = served.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (api, routes) = (served.api.clone(), router(served.api.clone(), address));
    served.runtime.spawn(async move {
        let places = Shares::new(CONNECTIONS);
        listen::serve_within(&places, listener, routes, &api.proxies, api.ending.clone()).await
    });
    (served, address)
}

/// The headers of a request in a team's name.
fn bearer(team: &str) -> String {
    format!("authorization: Bearer {team}-0123456789\r\n")
}

/// Asks on a connection of its own: it, and the status that comes first. What else comes is not read.
fn ask(address: SocketAddr, line: &str, headers: &str) -> (TcpStream, u16) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n").as_bytes()).unwrap();
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).unwrap();
    let status = std::str::from_utf8(&begun).unwrap().strip_prefix("HTTP/1.1 ").unwrap();
    (stream, status.parse().unwrap())
}

/// Asks the same on more connections than there are, and keeps them. One caller has its part, and is refused beyond it.
fn all_it_gets(address: SocketAddr, line: &str, headers: impl Fn(usize) -> String, status: u16) -> Vec<TcpStream> {
    let asked: Vec<(TcpStream, u16)> = (0..TOO_MANY).map(|nth| ask(address, line, &headers(nth))).collect();
    let statuses: Vec<u16> = asked.iter().map(|(_, status)| *status).collect();
    let expected: Vec<u16> = (0..TOO_MANY).map(|nth| if nth < OF_ONE { status } else { 429 }).collect();
    assert_eq!(statuses, expected, "{line}");
    asked.into_iter().map(|(stream, _)| stream).collect()
}

#[test]
fn one_caller_behind_a_proxy_has_a_part_of_all_connections_and_others_are_served() {
    // A stream, a body that is awaited and does not come, and an answer after which nothing more is asked.
    let body = "content-type: application/json\r\ncontent-length: 2\r\nexpect: 100-continue\r\n";
    let attacks = [("GET /v1/status", "", 200), ("POST /v1/events", body, 100), ("GET /v1/queues", "", 200)];
    for (line, more, status) in attacks {
        let (served, address) = behind_a_proxy();
        let greedy = all_it_gets(address, line, |_| bearer("team-a") + more, status);
        let own = |line: &str| ask(address, line, &bearer("team-a"));
        let (mut refused, status) = own("GET /v1/queues");
        let mut text = String::new();
        refused.read_to_string(&mut text).unwrap();
        assert!(status == 429 && text.contains("\"TooManyConnections\"") && text.contains("this caller"), "{text}");
        assert!(text.contains("retry-after: 5\r\n") && text.contains("connection: close\r\n"), "{text}");
        for line in ["GET /healthz", "GET /readyz", "GET /metrics"] {
            assert_eq!(own(line).1, 200, "{line}");
        }
        assert_eq!(ask(address, "GET /v1/queues", &bearer("team-b")).1, 200, "another caller has its own");
        drop(greedy);
        let end = Instant::now() + SOON;
        while own("GET /v1/queues").1 == 429 {
            assert!(Instant::now() < end, "what it closes is not free within {SOON:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        served.stop();
    }
}

#[test]
fn callers_without_a_token_are_told_apart_by_the_address_that_the_proxy_names() {
    let (served, address) = behind_a_proxy();
    // What stands before the proxy's own word is the client's.
    let forged = |nth: usize| format!("x-forwarded-for: 203.0.113.{nth}, 192.0.2.1\r\n");
    let greedy = all_it_gets(address, "GET /v1/queues", forged, 401);
    let other = "x-forwarded-for: 192.0.2.2\r\n";
    assert_eq!(ask(address, "GET /v1/queues", other).1, 401);
    let known = bearer("team-a") + &forged(1);
    assert_eq!(ask(address, "GET /v1/queues", &known).1, 200, "a token goes before an address");
    drop(greedy);
    served.stop();
}
