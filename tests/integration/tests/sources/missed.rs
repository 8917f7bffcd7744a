//! What a broker deletes before it is read is counted: in `/v1/sources`, and in a metric that an alert waits for.
//!
//! Never: a count without the messages that it counts.

use crate::broker::{self, Sent, create, send};
use crate::support::{In, Stage, Wire, job, source, unique, wait_until};
use forebay_integration::Server;
use forebay_integration::openmetrics::Exposition;
use forebay_integration::teams::secret;

/// What is sent while nobody reads, and of that what is deleted.
const SENT: i64 = 20;
const DELETED: i64 = 15;

/// What the metric has of all sources.
fn missed(server: &Server) -> f64 {
    let read = Exposition::scrape(server, Some(&secret("ops")));
    read.families["forebay_source_missed_messages"].points.iter().map(|point| point.value).sum()
}

fn events(name: &str, count: i64) -> Vec<Sent> {
    (0..count).map(|n| Sent::body(job(&format!("{name}-{n}"), "a").to_string())).collect()
}

#[test]
fn what_retention_deleted_before_it_was_read_moves_the_missed_messages() {
    let topic = unique("trimmed");
    create(&topic, 1);
    let kafka = Wire { read: vec![In::of(&topic, "team-a")], ..Wire::default() };
    let stage = Stage::new(&kafka, &Wire::default());
    let taken = |server: &Server, count: i64| {
        wait_until(&format!("{count} events"), || {
            let letters = source(server, "in", "kafka:")["letters"]["taken"].clone();
            if letters.as_i64() == Some(count) { Ok(()) } else { Err(letters.to_string()) }
        });
    };
    let server = stage.start();
    send(&topic, &events("read", 5));
    taken(&server, 5);
    assert!(missed(&server).abs() < 0.5, "nothing has been deleted");
    server.kill();
    send(&topic, &events("late", SENT));
    broker::trim(&topic, 0, 5 + DELETED);
    let server = stage.start();
    taken(&server, SENT - DELETED);
    // forebay_source_missed_messages_total, as Prometheus has it.
    assert!((missed(&server) - DELETED as f64).abs() < 0.5, "{} of {DELETED}", missed(&server));
    assert_eq!(source(&server, "in", "kafka:")["missed"].as_i64(), Some(DELETED));
}
