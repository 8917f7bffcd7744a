//! A year of jobs, small: what is over leaves memory and the folder, and the first job of the year is still known.
//!
//! `cargo xtask bench history` does it with a million jobs, and a million over HTTP.

use forebay_integration::history::{bytes_of, plot, resident_mib, write_policy, year};
use forebay_integration::{Server, run};

const JOBS: u64 = 120_000;

#[test]
fn a_years_folder_is_flat_and_its_first_job_is_known_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let sizes = year(folder.path(), JOBS);
    println!("{}", plot(&sizes));
    // From the day on which the first are beyond all retention it grows by identities alone.
    let at = |day: f64| sizes.iter().rfind(|size| size.day <= day).expect("a size");
    let (early, late) = (at(90.0), sizes.last().expect("a size"));
    let (grown, more) = (late.bytes as f64 - early.bytes as f64, (late.finished - early.finished) as f64);
    // The batches of two snapshots' distances are there or not, and the write-ahead log is long or short.
    let pieces = 160e6;
    assert!(grown < 120.0 * more + pieces, "{grown} bytes for {more} jobs");
    assert_eq!(late.finished, JOBS);

    // The year that was replayed into it is its file's.
    let args = ["--policy", "policy.yaml", "--data", "data", "--accept-time"];
    write_policy(folder.path());
    let refused = run(folder.path(), &["run", "--listen", "127.0.0.1:0", "--data", "data", "--replay", "year.csv"]);
    assert_ne!(refused.code, 0, "a folder that is in use or has a journal is not replayed into: {refused:?}");
    let server = Server::start(folder.path(), &args);
    assert!(resident_mib(server.pid()) < 150.0, "{} MiB", resident_mib(server.pid()));
    // Its row has left the archive; its identity has not.
    let gone = server.ask(folder.path(), &["job", "j0"]);
    assert_ne!(gone.code, 0, "{gone:?}");
    let last = server.ask(folder.path(), &["why", &format!("j{}", JOBS - 1)]);
    assert_eq!(last.code, 0, "{last:?}");
    println!("{} bytes a finished job", bytes_of(&folder.path().join("data")) / JOBS);
}
