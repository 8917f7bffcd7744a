//! Where the tests find real traces: a folder `shared/traces` beside a parent of this crate; without it, made-up ones.
//! It names which of the two a test used, and never fetches anything. Where the folder is there, so is every file that a test names.

use std::path::{Path, PathBuf};

/// The path of a real trace, if the folder is there.
#[allow(dead_code, reason = "each test file uses its part of this module")]
pub fn real(name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let folder = here.ancestors().map(|up| up.join("shared/traces")).find(|path| path.is_dir());
    let path = in_folder(folder.as_deref(), name);
    match &path {
        Some(path) => println!("real data: {}", path.display()),
        None => println!("shared/traces is not here: generated data instead of {name}"),
    }
    path
}

/// The file of that name in the folder, if that is there.
#[allow(dead_code, reason = "likewise")]
pub fn in_folder(folder: Option<&Path>, name: &str) -> Option<PathBuf> {
    let path = folder?.join(name);
    assert!(path.is_file(), "{}: the folder is there, and this file is not: mend its name", path.display());
    Some(path)
}

/// A real file, else one of the same name with this content, for as long as the guard lives.
#[allow(dead_code, reason = "likewise")]
pub fn real_or(name: &str, made: impl FnOnce() -> String) -> (Option<tempfile::TempDir>, PathBuf) {
    match real(name) {
        Some(path) => (None, path),
        None => {
            let (folder, path) = file(name, made());
            (Some(folder), path)
        }
    }
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
