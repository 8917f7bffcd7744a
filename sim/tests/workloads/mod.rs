//! Where the tests find real traces: a folder `shared/traces` beside a parent of this crate; without it, made-up ones.
//! It never fetches anything, and names which of the two a test used.

use std::path::PathBuf;

/// The path of a real trace, if the folder is there.
#[allow(dead_code, reason = "each test file uses its part of this module")]
pub fn real(name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().map(|up| up.join("shared/traces").join(name)).find(|p| p.is_file());
    match &found {
        Some(path) => println!("real data: {}", path.display()),
        None => println!("{name} is not here: generated data instead"),
    }
    found
}

/// Jobs as a normalized CSV.
#[allow(dead_code, reason = "likewise")]
pub fn as_csv(jobs: &[forebay_sim::trace::TraceJob]) -> String {
    let mut out = String::from("job_id,submit_s,duration_s,gpus,queue,user\n");
    for j in jobs {
        let (submit, run) = (seconds(j.submit_ms), seconds(j.duration_ms));
        let (queue, user) = (j.queue.clone().unwrap_or_default(), j.user.clone().unwrap_or_default());
        out += &format!("{},{submit},{run},{},{queue},{user}\n", j.id, j.gpus);
    }
    out
}

#[allow(dead_code, reason = "likewise")]
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// A file in a folder of its own, gone when the guard is.
#[allow(dead_code, reason = "likewise")]
pub fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a temporary file");
    (folder, path)
}
