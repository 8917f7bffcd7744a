//! What it costs to decode one event, in ns: what stands between a topic of 50,000 events a second and the engine.
//!
//! Never: a verdict. It prints figures; the best of its rounds is the one that other work on the machine disturbed least.

use forebay_kernel::ids::{Attempt, JobId};
use forebay_wire::intake::{AttemptKeys, Caller, Intake, NoRoutes};
use std::hint::black_box;
use std::time::{Duration, Instant};

const KEY: AttemptKeys = AttemptKeys::first([7; 32]);

/// Rounds a case, each as long as `ROUND`: a machine with other work on it has some that are quiet.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);

/// A submission as pipelines send them, some 500 bytes.
const SUBMISSION: &str = r#"{"specversion":"1.0","type":"job.submitted","source":"//airflow/prod","id":"9f1c0412","time":"2026-11-21T09:00:00Z","subject":"resnet-0412","data":{"queue":"research/vision","labels":{"team":"vision","costCenter":"4711"},"run":{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"]},"gang":{"workers":2,"each":{"gpus":8,"models":["H100"],"memory":"900GiB"}},"checkpoint":{"uri":"s3://ckpt/resnet-0412/","every":"10m","grace":"90s"},"expectedRun":"9h","maxRun":"20h","priority":10}}"#;

/// The event of the design, with everything in it.
const FULL: &[u8] = include_bytes!("../../fuzz/corpus/good-design.json");

const SMALL: &str = r#"{"type":"job.submitted","subject":"a","data":{"gang":{"each":{"gpus":1}}}}"#;

const REJECTED: &str = r#"{"type":"job.submitted","subject":"a","data":{"queue":"a//b","gang":{"each":{"gpus":1}}}}"#;

fn main() {
    let sent = KEY.token(JobId(12), Attempt(3));
    let report = format!(
        r#"{{"type":"run.checkpointed","data":{{"job":"job-12","attempt":3,"token":"{sent}","progress":"1h30m"}}}}"#
    );
    let cancel = r#"{"specversion":"1.0","type":"job.cancelled","source":"//a","id":"1","subject":"resnet-0412"}"#;
    let cases: [(&str, &[u8]); 6] = [
        ("submission", SUBMISSION.as_bytes()),
        ("full submission", FULL),
        ("small submission", SMALL.as_bytes()),
        ("report of a run", report.as_bytes()),
        ("cancellation", cancel.as_bytes()),
        ("rejected submission", REJECTED.as_bytes()),
    ];
    println!("{:<20} {:>6} {:>10} {:>12}", "event", "bytes", "ns/event", "events/s");
    for (name, bytes) in cases {
        let ns = best(bytes);
        println!("{name:<20} {:>6} {ns:>10.0} {:>12.0}", bytes.len(), 1e9 / ns);
    }
}

/// The fewest ns that one decode took, as the mean of a round.
fn best(bytes: &[u8]) -> f64 {
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: Some(&KEY) };
    let round = || {
        let (start, mut decoded) = (Instant::now(), 0u32);
        while start.elapsed() < ROUND {
            for _ in 0..100 {
                drop(black_box(intake.decode(black_box(bytes))));
            }
            decoded += 100;
        }
        start.elapsed().as_nanos() as f64 / f64::from(decoded)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}
