//! Slow, greedy and malformed clients: each is bounded by itself, and whoever else asks is served beside it.

use crate::nothing::compare;
use crate::wire::{PATIENCE, answer, code, connect, connections, cost_little, head, resident_mib, send, status, timed};
use crate::{full, many};
use forebay_integration::teams::{ask_at, prepared, start, submission, submit, write};
use forebay_integration::{Server, until};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Health, figures and another team's post and read are served: how long the latter took.
fn others_are_served(url: &str) -> Duration {
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    for (name, path) in
        [("scraper", "/healthz"), ("scraper", "/readyz"), ("scraper", "/metrics"), ("team-b", "/v1/jobs?limit=5")]
    {
        assert_eq!(ask_at(url, name, "GET", path, None).0, 200, "{path}");
    }
    let event = submission(&format!("b-{}", ROUND.fetch_add(1, Ordering::Relaxed)), "b", 36_000);
    let (took, (status, text)) = timed(|| ask_at(url, "team-b", "POST", "/v1/events", Some(&event)));
    assert_eq!(status, 202, "{text}");
    took
}

/// A server to which loopback is a trusted proxy: all callers come from there, and are told apart by their tokens.
fn behind_a_proxy(folder: &Path) -> Server {
    let config = std::fs::read_to_string(folder.join("forebay.yaml")).expect("reads");
    write(folder, "forebay.yaml", &format!("{config}trustedProxies: [127.0.0.1]\n"));
    start(folder, &[])
}

#[test]
fn idle_connections_and_half_heads_of_one_address_leave_room_for_others() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let before = resident_mib(&server);
    for (what, begun) in [("idle", ""), ("half a head", "GET /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ")] {
        let count = many(400, 9_000);
        let attack = |url: &str| connections(url, count, begun);
        compare(&server, &format!("{count} connections ({what})"), attack, others_are_served, many(20, 200));
    }
    cost_little(&server, "idle connections and half heads", before);
}

#[test]
fn a_head_that_does_not_come_ends_its_connection() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let mut slow = connect(&server);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").expect("writes");
    let mut kept = connect(&server);
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").expect("writes");
    assert_eq!(status(&answer(&mut kept)), 200);
    // The server ends both: a byte that never comes is the end of the connection.
    let (took, read) = timed(|| slow.read(&mut [0; 512]));
    assert!(took < PATIENCE && read.is_ok(), "after {took:?}: {read:?}");
    assert_eq!(kept.read(&mut [0; 1]).ok(), Some(0), "one on which nothing is asked ends too");
}

#[test]
fn slow_bodies_of_one_principal_leave_room_for_those_of_others() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let before = resident_mib(&server);
    let large = head("team-a", "POST /v1/events", "content-type: application/json\r\ncontent-length: 4194304\r\n");
    let begun = format!("{large}[");
    let slow_ones = |url: &str| connections(url, many(40, 500), &begun);
    compare(&server, "slow bodies", slow_ones, others_are_served, many(10, 100));
    let mut slow = slow_ones(&server.url);
    // Which of them are let in is up to the server's threads. Those are given up when nothing more comes, the others at once.
    let (given_up, refused): (Vec<u16>, Vec<u16>) =
        slow.iter_mut().map(|stream| status(&answer(stream))).partition(|status| *status == 408);
    assert!((1..=8).contains(&given_up.len()), "16 have room, and half of them by one: {}", given_up.len());
    assert!(refused.iter().all(|status| *status == 429), "beyond its part it is refused: {refused:?}");
    if full() {
        let mut trickled = connect(&server);
        trickled.write_all(large.as_bytes()).expect("writes");
        let (took, text) = timed(|| {
            while trickled.write_all(b" ").is_ok() && trickled.set_read_timeout(Some(Duration::from_secs(1))).is_ok() {
                let mut piece = [0; 4096];
                if let Ok(read) = trickled.read(&mut piece) {
                    return String::from_utf8_lossy(&piece[..read]).into_owned();
                }
            }
            String::new()
        });
        println!("a body that comes a byte a second is given up after {took:?}");
        assert!(status(&text) == 408 && took < Duration::from_secs(90), "{took:?}: {text}");
    }
    cost_little(&server, "slow bodies", before);
}

#[test]
fn waits_and_streams_of_one_principal_are_a_part_of_all() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let before = resident_mib(&server);
    let job = submit(&server, "team-a", &submission("long", "a", 360_000));
    let open = |line: &str| {
        let mut stream = connect(&server);
        stream.write_all(head("team-a", line, "").as_bytes()).expect("writes");
        stream
    };
    let streams: Vec<TcpStream> = (0..300).map(|_| open("GET /v1/status")).collect();
    // Which of them are let in is up to the server's threads.
    let answers = streams.iter().map(|mut stream| {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).expect("an answer");
        status(&String::from_utf8_lossy(&piece[..read]))
    });
    let (open, refused): (Vec<u16>, Vec<u16>) = answers.partition(|status| *status == 200);
    assert!((85..=128).contains(&open.len()), "256 can be open, and half of them by one: {}", open.len());
    assert!(refused.iter().all(|status| *status == 429), "{refused:?}");
    let mut other = connect(&server);
    other.write_all(head("team-b", "GET /v1/status", "").as_bytes()).expect("writes");
    let mut piece = [0; 1024];
    let read = other.read(&mut piece).expect("an answer");
    assert_eq!(status(&String::from_utf8_lossy(&piece[..read])), 200, "another principal has its own");
    drop(streams);
    cost_little(&server, "streams", before);
    let line = head("team-a", &format!("GET /v1/jobs/{job}?waitFor=terminal&timeout=10m"), "");
    let waits = |url: &str| connections(url, many(200, 10_000), &line);
    compare(&server, "waits", waits, others_are_served, many(20, 200));
    if full() {
        // One address has half of 9,216 connections at most, and one principal half of 8,192 waits.
        are_refused(waits(&server.url), 10_000 - 9_216 / 2);
    }
    cost_little(&server, "waits", before);
}

/// Of these requests at least so many are answered, and each of those with 429: the others wait.
fn are_refused(mut asked: Vec<TcpStream>, least: usize) {
    let mut refused = 0;
    until("the refusals", PATIENCE, || {
        asked.retain_mut(|stream| {
            let mut piece = [0; 1024];
            stream.set_nonblocking(true).expect("a mode of a connection");
            match stream.read(&mut piece) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Ok(read) if read > 0 => assert_eq!(status(&String::from_utf8_lossy(&piece[..read])), 429),
                // Closed under a request that was still on its way, which takes the answer with it.
                Ok(_) | Err(_) => {}
            }
            refused += 1;
            false
        });
        if refused >= least { Ok(()) } else { Err(format!("{refused} of at least {least}")) }
    });
    println!("{refused} waits are refused, {} wait", asked.len());
}

#[test]
fn answers_that_nobody_reads_are_bounded_and_others_are_served() {
    let folder = prepared();
    let server = behind_a_proxy(folder.path());
    for round in 0..10 {
        let some = (0..1_000).map(|n| submission(&format!("u-{round}-{n}"), "a", 36_000)).collect();
        assert_eq!(ask_at(&server.url, "team-a", "POST", "/v1/events", Some(&Value::Array(some))).0, 202);
    }
    let before = resident_mib(&server);
    let line = head("team-a", "GET /v1/jobs?limit=10000", "");
    let unread = |url: &str| connections(url, many(40, 300), &line);
    compare(&server, "unread answers", unread, others_are_served, many(10, 100));
    let mut unread = unread(&server.url);
    let statuses: Vec<u16> = unread
        .iter_mut()
        .map(|stream| {
            let mut piece = [0; 64];
            let read = stream.read(&mut piece).expect("an answer");
            status(&String::from_utf8_lossy(&piece[..read]))
        })
        .collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(served + refused, statuses.len(), "{statuses:?}");
    assert!((1..=8).contains(&served) && refused > 0, "one principal has room for a few: {served}, {refused} refused");
    cost_little(&server, "unread answers", before);
}

/// Posts of 200 jobs that the greedy one has. After them the same ones come again, for what was taken stays in memory, and is meant to.
const POSTS: usize = 500;

/// Events of a large post. Of the mailbox's 16,384 one principal has half while it has anything in it: a second such post is too many.
const LARGE_POST: usize = 6_000;

/// Threads that post as fast as they can, until it is dropped.
struct Greedy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Greedy {
    fn begin(url: &str) -> Greedy {
        static POST: AtomicUsize = AtomicUsize::new(0);
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..4).map(|_| {
            let (over, url) = (Arc::clone(&over), url.to_owned());
            std::thread::spawn(move || {
                while !over.load(Ordering::Acquire) {
                    let post = POST.fetch_add(1, Ordering::Relaxed) % POSTS;
                    let some = (0..200).map(|n| submission(&format!("g-{post}-{n}"), "a", 36_000)).collect();
                    let (status, text) = ask_at(&url, "team-a", "POST", "/v1/events", Some(&Value::Array(some)));
                    assert!(matches!(status, 202 | 429), "{status} {text}");
                }
            })
        });
        let threads = threads.collect();
        Greedy { over, threads }
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.join().expect("each of its posts is taken or refused");
        }
    }
}

#[test]
fn one_principal_that_posts_as_fast_as_it_can_keeps_no_other_waiting() {
    let folder = prepared();
    let server = behind_a_proxy(folder.path());
    let before = resident_mib(&server);
    compare(&server, "one that posts as fast as it can", Greedy::begin, others_are_served, many(40, 100));
    cost_little(&server, "one that posts as fast as it can", before);
    beyond_its_part_it_is_refused(&server);
    cost_little(&server, "one that posts more than there is room for", before);
}

/// Posts that are too many together: what is beyond the principal's part of the mailbox is refused as documented, the rest is taken, and others
/// are served meanwhile.
fn beyond_its_part_it_is_refused(server: &Server) {
    let mut answers = Vec::new();
    // Which of them meet in the mailbox is up to the server's threads.
    for round in 0..10 {
        let post = |nth: usize| {
            let some = (0..LARGE_POST).map(|n| submission(&format!("l-{round}-{nth}-{n}"), "a", 36_000)).collect();
            ask_at(&server.url, "team-a", "POST", "/v1/events", Some(&Value::Array(some)))
        };
        let (together, took): (Vec<(u16, String)>, Duration) = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..6).map(|nth| scope.spawn(move || post(nth))).collect();
            let mut longest = Duration::ZERO;
            while asked.iter().any(|one| !one.is_finished()) {
                longest = longest.max(others_are_served(&server.url));
            }
            (asked.into_iter().map(|one| one.join().expect("an answer")).collect(), longest)
        });
        println!("round {round} of six posts of {LARGE_POST}: another's post took {took:?} at most");
        answers.extend(together);
        if answers.iter().any(|(status, _)| *status == 429) {
            break;
        }
    }
    let (refused, taken): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 429);
    for (_, text) in &refused {
        let error: Value = serde_json::from_str(text).unwrap_or_default();
        assert!(error["error"]["code"] == "Busy" && error["error"]["remedy"].is_string(), "{text}");
    }
    assert!(!refused.is_empty() && !taken.is_empty(), "{} refused, {} taken", refused.len(), taken.len());
    assert!(taken.iter().all(|(status, _)| *status == 202), "what is not taken is refused with 429");
}

#[test]
fn what_is_no_request_gets_the_shape_of_all_errors() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
    let host = "host: 127.0.0.1\r\n";
    let cases: [(&str, Vec<u8>, u16, &str); 8] = [
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400, "Unreadable"),
        ("a bad address", format!("GET http://[ HTTP/1.1\r\n{host}\r\n").into_bytes(), 400, "Unreadable"),
        (
            "a long address",
            format!("GET /{} HTTP/1.1\r\n{host}\r\n", "a".repeat(9_000)).into_bytes(),
            414,
            "AddressTooLong",
        ),
        (
            "a long head",
            format!("GET / HTTP/1.1\r\n{host}x: {}\r\n\r\n", "a".repeat(64 << 10)).into_bytes(),
            431,
            "HeadTooLong",
        ),
        (
            "many headers",
            format!("GET / HTTP/1.1\r\n{host}{}\r\n", "x: y\r\n".repeat(200)).into_bytes(),
            431,
            "HeadTooLong",
        ),
        ("two hosts", format!("GET /healthz HTTP/1.1\r\n{host}host: b.example\r\n\r\n").into_bytes(), 400, "BadHost"),
        ("a host that is no text", b"GET /healthz HTTP/1.1\r\nhost: \xe9\r\n\r\n".to_vec(), 400, "BadHost"),
        (
            "one host by its address, another by its header",
            format!("GET http://b.example/healthz HTTP/1.1\r\n{host}\r\n").into_bytes(),
            400,
            "BadHost",
        ),
    ];
    for (what, bytes, expected, named) in cases {
        let text = send(&server, &bytes);
        assert_eq!((status(&text), code(&text).as_str()), (expected, named), "{what}: {text}");
    }
    let preface = send(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(preface, "", "who speaks HTTP/2 would read no answer of HTTP/1.1: the connection is closed");
    let unknown = send(&server, format!("GET /v9 HTTP/1.1\r\n{host}\r\n").as_bytes());
    assert_eq!((status(&unknown), code(&unknown).as_str()), (404, "NoSuchPath"));
    for (name, method, path) in [
        ("team-a", "GET", "/v1/jobs/%ff"),
        ("team-a", "GET", "/v1/jobs/%ff/why"),
        ("team-a", "GET", "/v1/jobs/%ff/cost"),
        ("team-a", "GET", "/v1/jobs/%ff/logs"),
        ("team-a", "GET", "/v1/jobs/%ff/events"),
        ("team-a", "POST", "/v1/jobs/%ff/cancel"),
        ("ops", "POST", "/v1/jobs/%ff/confirm-dead"),
        ("ops", "GET", "/assets/%ff"),
    ] {
        let (status, text) = ask_at(&server.url, name, method, path, None);
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!((status, error["error"]["code"].as_str()), (400, Some("Unreadable")), "{path}: {text}");
        assert!(error["error"]["remedy"].is_string(), "{path}: {text}");
    }
    let upgrade = format!(
        "GET /healthz HTTP/1.1\r\n{host}connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n"
    );
    assert_eq!(status(&send(&server, upgrade.as_bytes())), 200, "an upgrade is not taken up");
}
