//! An endpoint that fails: what it says is never taken for a missing checkpoint.

use crate::support::{key, runtime, settings, unknown};
use forebay_checkpoint_s3::{CheckpointSettings, CheckpointTimeouts, CheckpointVerifier, VerifyRequest};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Answers every request alike. Empty: never. Its endpoint.
fn answering(answer: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = answer.to_owned();
    // Ends with the process.
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = [0; 16 << 10];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(answer.as_bytes());
            if answer.is_empty() {
                kept.push(stream);
            }
        }
    });
    endpoint
}

fn error(status: &str, code: &str) -> String {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>said so</Message></Error>");
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn no_answer_is_unknown_with_its_remedy() {
    let runtime = runtime();
    for (answer, parts) in [
        (error("403 Forbidden", "AccessDenied"), ["AccessDenied", "allow s3:"]),
        (error("403 Forbidden", "InvalidAccessKeyId"), ["InvalidAccessKeyId", "correct the access key"]),
        (error("503 Slow Down", "SlowDown"), ["SlowDown", "retried after a delay"]),
        (error("500 Internal Server Error", "InternalError"), ["InternalError", "retried after a delay"]),
        (error("301 Moved Permanently", "PermanentRedirect"), ["PermanentRedirect", "correct `checkpoints.s3.region`"]),
        ("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n<oops".to_owned(), ["", ""]),
        ("nonsense".to_owned(), ["", "check the endpoint and the network"]),
        (String::new(), ["no response to", "within 1s"]),
    ] {
        let timeouts = CheckpointTimeouts {
            call: Duration::from_secs(1),
            read: Duration::from_secs(1),
            whole: Duration::from_secs(9),
        };
        let checkpoints = CheckpointVerifier::new(CheckpointSettings { timeouts, ..settings(&answering(&answer)) })
            .expect("they can be");
        let request = VerifyRequest { uri: "s3://ckpt/a/", job: "job-1", attempt: 1 };
        let began = Instant::now();
        for looked in
            [runtime.block_on(checkpoints.latest(&request)), runtime.block_on(checkpoints.verify(&request, &key(1, 1)))]
        {
            let why = unknown(looked);
            assert!(
                why.starts_with("s3://ckpt/a/manifests/") && parts.iter().all(|part| why.contains(part)),
                "{answer}: {why}"
            );
            assert!(!why.contains("hush") && why.len() < 800, "{why}");
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}

#[test]
fn a_whole_look_has_an_end() {
    let timeouts = CheckpointTimeouts { whole: Duration::from_millis(300), ..CheckpointTimeouts::default() };
    let checkpoints =
        CheckpointVerifier::new(CheckpointSettings { timeouts, ..settings(&answering("")) }).expect("they can be");
    let request = VerifyRequest { uri: "s3://ckpt/a/", job: "job-1", attempt: 1 };
    assert!(
        unknown(runtime().block_on(checkpoints.latest(&request))).contains("no response to the whole verification")
    );
}
