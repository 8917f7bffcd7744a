//! Slow, greedy and malformed clients: each is bounded by itself, and whoever else asks is served beside it.

use crate::wire::{PATIENCE, answer, code, connect, head, p99, resident_mib, send, status, timed, try_connect};
use crate::{full, many};
use forebay_integration::Server;
use forebay_integration::teams::{ask, prepared, start, submission, submit, write};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Health, figures and another team's post and read are served: how long the latter took.
fn others_are_served(server: &Server, round: usize) -> Duration {
    assert_eq!(server.send("GET", "/healthz", &[], b"").0, 200);
    assert_eq!(server.send("GET", "/readyz", &[], b"").0, 200);
    assert_eq!(ask(server, "scraper", "GET", "/metrics", None).0, 200);
    assert_eq!(ask(server, "team-b", "GET", "/v1/jobs?limit=5", None).0, 200);
    let (took, (status, text)) =
        timed(|| ask(server, "team-b", "POST", "/v1/events", Some(&submission(&format!("b-{round}"), "b", 36_000))));
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
        let held: Vec<TcpStream> = (0..many(400, 9_000))
            .map_while(|_| {
                let mut stream = try_connect(&server)?;
                stream.write_all(begun.as_bytes()).ok().map(|()| stream)
            })
            .collect();
        let times = (0..many(20, 200)).map(|n| others_are_served(&server, n)).collect();
        println!(
            "{} connections ({what}): a post takes {:?} (p99), {} MiB",
            held.len(),
            p99(times),
            resident_mib(&server)
        );
        drop(held);
    }
    assert!(resident_mib(&server) <= before + 512, "{} MiB, {before} before", resident_mib(&server));
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
    let large = head("team-a", "POST /v1/events", "content-type: application/json\r\ncontent-length: 4194304\r\n");
    let mut slow = Vec::new();
    for _ in 0..many(40, 500) {
        let mut stream = connect(&server);
        stream.write_all(large.as_bytes()).and_then(|()| stream.write_all(b"[")).expect("writes");
        slow.push(stream);
    }
    let times = (0..many(10, 100)).map(|n| others_are_served(&server, n)).collect();
    println!("{} slow bodies: a post of another takes {:?} (p99)", slow.len(), p99(times));
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
}

#[test]
fn waits_and_streams_of_one_principal_are_a_part_of_all() {
    let folder = prepared();
    let server = start(folder.path(), &[]);
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
    let waits = (0..many(200, 10_000)).map_while(|_| {
        let mut stream = try_connect(&server)?;
        let line = format!("GET /v1/jobs/{job}?waitFor=terminal&timeout=10m");
        stream.write_all(head("team-a", &line, "").as_bytes()).ok().map(|()| stream)
    });
    let waits: Vec<TcpStream> = waits.collect();
    let times = (0..many(20, 200)).map(|n| others_are_served(&server, n)).collect();
    println!("{} waits: a post of another takes {:?} (p99)", waits.len(), p99(times));
}

#[test]
fn one_principal_that_posts_as_fast_as_it_can_keeps_no_other_waiting() {
    let folder = prepared();
    let server = behind_a_proxy(folder.path());
    let rounds = many(40, 400);
    let idle: Vec<Duration> = (0..rounds).map(|n| others_are_served(&server, n)).collect();
    let over = AtomicBool::new(false);
    let (beside, refused) = std::thread::scope(|scope| {
        let (over, server) = (&over, &server);
        let greedy: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut round, mut refused) = (0, 0);
                    while !over.load(Ordering::Acquire) {
                        let some =
                            (0..200).map(|n| submission(&format!("g-{thread}-{round}-{n}"), "a", 36_000)).collect();
                        let (status, text) = ask(server, "team-a", "POST", "/v1/events", Some(&Value::Array(some)));
                        assert!(matches!(status, 202 | 429), "{status} {text}");
                        refused += usize::from(status == 429);
                        round += 1;
                    }
                    refused
                })
            })
            .collect();
        let beside: Vec<Duration> = (0..rounds).map(|n| others_are_served(server, rounds + n)).collect();
        over.store(true, Ordering::Release);
        let refused: usize = greedy.into_iter().map(|greedy| greedy.join().expect("it ends")).sum();
        (beside, refused)
    });
    println!(
        "a post of another takes {:?} (p99) idle, {:?} beside a greedy one ({refused} of its refused)",
        p99(idle),
        p99(beside)
    );
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
    let upgrade = format!(
        "GET /healthz HTTP/1.1\r\n{host}connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n"
    );
    assert_eq!(status(&send(&server, upgrade.as_bytes())), 200, "an upgrade is not taken up");
}
