//! Two controllers and one journal: the second says who leads and waits; when the first is killed amid a stream of events it takes over
//! with the journal, and everything is handled once.
//!
//! Never: two that read at the same time.

use crate::broker::{self, Sent};
use crate::support::{In, Stage, Wire, ended, job, source, unique, wait_until};
use forebay_integration::teams::ask_json;
use forebay_integration::{Said, Server, Starting, forebay};
use rdkafka::producer::Producer;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events of the stream.
const EVENTS: usize = 3_000;

/// Between two of them.
const PACE: Duration = Duration::from_millis(1);

/// How many were handled when the first is killed, at least.
const BEFORE: u64 = 500;

/// Many times what a producer or a connection takes.
const LIMIT: Duration = Duration::from_secs(60);

/// `forebay run` on the same folder, without standing by.
fn second(stage: &Stage) -> Said {
    let mut command = forebay(stage.folder.path(), &["run", "--config", "forebay.yaml", "--listen", "127.0.0.1:0"]);
    command.envs(stage.variables()).output().expect("it runs").into()
}

/// Where nobody listens yet, and where no connection to the broker begins.
fn free() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, forebay_parts::free_port().expect("a port")).into()
}

/// Sends one after the other, some thousand a second, whoever reads; half of them only when the first has gone.
fn stream(topic: &str, first_has_gone: &AtomicBool) {
    let producer = broker::producer();
    for n in 0..EVENTS {
        broker::put(&producer, topic, &Sent::body(job(&subject(n), "a").to_string()));
        let pace = Instant::now() + PACE;
        while Instant::now() < pace || n >= EVENTS / 2 && !first_has_gone.load(Ordering::Acquire) {
            producer.poll(PACE);
        }
    }
    Producer::flush(&producer, LIMIT).expect("sent");
}

/// Says when dropped that the first has gone: by then, or the stream of a test that fails would wait for ever.
struct Goes<'a>(&'a AtomicBool);

impl Drop for Goes<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn subject(n: usize) -> String {
    format!("job-of-stream-{n:05}")
}

/// How many letters a server has taken.
fn taken(server: &Server) -> u64 {
    source(server, "in", "kafka:")["letters"]["taken"].as_u64().unwrap_or(0)
}

#[test]
fn the_second_waits_and_takes_over_with_the_journal() {
    let (topic, out) = (unique("stream"), unique("statuses"));
    broker::create(&topic, 3);
    broker::create(&out, 1);
    let kafka = Wire { read: vec![In::of(&topic, "team-a")], status: Some(out.clone()), rejected: None };
    let stage = Stage::new(&kafka, &Wire::default());
    let first = stage.start();
    let refused = second(&stage);
    assert_eq!((refused.code, refused.err.contains(&format!("process {}", first.pid()))), (2, true), "{refused:?}");

    let (address, gone) = (free(), AtomicBool::new(false));
    let listen = address.to_string();
    let args = ["--config", "forebay.yaml", "--listen", &listen, "--standby"];
    let mut waiting = Starting::new(stage.folder.path(), &args, &stage.variables());
    let line = waiting.wait_for("standby");
    assert!(line.contains(&format!("process {}", first.pid())), "{line}");
    let (second, leads, handles) = std::thread::scope(|scope| {
        scope.spawn(|| stream(&topic, &gone));
        let goes = Goes(&gone);
        wait_until("the first events", || {
            let seen = taken(&first);
            if seen >= BEFORE { Ok(()) } else { Err(seen.to_string()) }
        });
        assert_eq!(broker::members(&stage.group), 1, "only the leader is in the group");
        let refused = TcpStream::connect_timeout(&address, LIMIT).map(drop).map_err(|e| e.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused), "only the leader listens");
        let killed = Instant::now();
        drop(first);
        drop(goes);
        waiting.wait_for("taking over");
        let (second, leads) = (waiting.listens(), killed.elapsed());
        wait_until("its first event", || if taken(&second) > 0 { Ok(()) } else { Err("none".to_owned()) });
        (second, leads, killed.elapsed())
    });
    println!(
        "standby: after kill -9 the second leads in {} ms and handles events in {} ms",
        leads.as_millis(),
        handles.as_millis()
    );
    finish(&stage, &out, &second);
}

/// All of them are handled once, and said so.
fn finish(stage: &Stage, out: &str, server: &Server) {
    let subjects: BTreeSet<String> = (0..EVENTS).map(subject).collect();
    stage.wait_over(&subjects);
    let statuses = stage.statuses();
    let ends = ended(&statuses);
    assert!(ends.values().all(|end| end == "completed") && ends.len() == EVENTS + 1, "{} jobs", ends.len());
    assert!(stage.rejected().is_empty());
    let (_, summary) = ask_json(server, "ops", "GET", "/v1/summary", None);
    assert_eq!(summary["jobs"].as_u64(), Some(EVENTS as u64 + 1), "{summary}");
    wait_until("the last status", || {
        let seen = source(server, "status", "kafka:")["acknowledged"].as_u64().unwrap_or(0);
        if seen == statuses.len() as u64 { Ok(()) } else { Err(seen.to_string()) }
    });
    let published = broker::read(out, 1);
    let ids: BTreeSet<String> = published
        .iter()
        .filter_map(|sent| serde_json::from_slice::<serde_json::Value>(sent.body.as_deref()?).ok())
        .filter_map(|event| event["id"].as_str().map(str::to_owned))
        .collect();
    assert!(
        statuses.iter().all(|s| s["id"].as_str().is_some_and(|id| ids.contains(id))) && ids.len() == statuses.len()
    );
    let letters = &source(server, "in", "kafka:")["letters"];
    println!(
        "standby: {EVENTS} events are {} jobs, {} statuses, {} of them published again; \
         the second took {} letters and dropped {} as seen",
        ends.len() - 1,
        statuses.len(),
        published.len() - ids.len(),
        letters["taken"],
        letters["seen"]
    );
}
