//! The cache folder, and how a part comes into it: once, whole or not at all, under a lock.
//!
//! A part's folder is named by its version and by what pins its files, so a changed pin makes a new folder. The cache may be
//! deleted at any time while nothing runs from it.
//! Never: a file of an installation outside the cache, a half-made folder under a part's name.

use std::fs::{self, File, Permissions, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::PartError;
use crate::guarded::GuardedChild;
use crate::wait::{tail, until};

/// An installation downloads at most 200 MB; past this the network is not there.
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A build from sources: ten minutes of two idle cores at most, several times that where other builds run beside it.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

/// Where parts are installed: `$FOREBAY_CACHE/parts`, else `$HOME/.cache/forebay/parts`.
///
/// # Errors
/// When neither variable is set.
pub fn cache() -> Result<PathBuf, PartError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let forebay = set("FOREBAY_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/forebay")));
    forebay.map(|folder| folder.join("parts")).ok_or(PartError::NoCache)
}

/// What is installed, and what pins it.
pub(crate) struct Recipe<'a> {
    /// Such as `Apache Kafka 4.1.1`.
    pub(crate) what: &'a str,
    /// Where it comes from and how much there is to fetch, for whoever waits.
    pub(crate) from: &'static str,
    /// The folder's name without its hash.
    pub(crate) name: String,
    /// The text that pins the files.
    pub(crate) pins: &'a str,
    /// A file that is there only when the folder can be used.
    pub(crate) proof: &'a str,
}

impl Recipe<'_> {
    fn folder_name(&self) -> String {
        format!("{}-{:08x}", self.name, hash(self.pins))
    }
}

/// FNV-1a folded to 32 bits: distinguishes one set of pins from the next. No guard against anyone, so nothing stronger is linked.
fn hash(text: &str) -> u32 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fold).to_be_bytes();
    u32::from_be_bytes([hash[0] ^ hash[4], hash[1] ^ hash[5], hash[2] ^ hash[6], hash[3] ^ hash[7]])
}

/// The folder of an installed part. Where it is not there yet, `make` fills a new one, which then gets its name.
pub(crate) fn install(
    cache: &Path,
    recipe: &Recipe<'_>,
    make: impl FnOnce(&Path) -> Result<(), PartError>,
) -> Result<PathBuf, PartError> {
    let name = recipe.folder_name();
    let folder = cache.join(&name);
    if folder.join(recipe.proof).exists() {
        return Ok(folder);
    }
    fs::create_dir_all(cache).map_err(PartError::file(cache))?;
    let _lock = lock(&cache.join(format!("{name}.lock")))?;
    if folder.join(recipe.proof).exists() {
        return Ok(folder);
    }
    // Under the lock, whatever is there was left by a process that did not come to its end.
    remove_started(cache, &format!("{name}.new-"))?;
    let new = cache.join(format!("{name}.new-{}", std::process::id()));
    fs::create_dir_all(&new).map_err(PartError::file(&new))?;
    eprintln!("installing {} into {} ({})", recipe.what, folder.display(), recipe.from);
    make(&new)?;
    if folder.exists() {
        // Its proof has gone, such as the Python that it pointed to.
        fs::remove_dir_all(&folder).map_err(PartError::file(&folder))?;
    }
    fs::rename(&new, &folder).map_err(PartError::file(&folder))?;
    eprintln!("installed {}", recipe.what);
    Ok(folder)
}

/// A temporary folder for a server's settings, data and log; only its owner may read it, for there may be a password in it.
pub(crate) fn temporary(prefix: &str) -> Result<TempDir, PartError> {
    let parent = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(&parent);
    made.map_err(PartError::file(&parent))
}

/// Held until it is dropped, or until this process ends in whatever way.
fn lock(path: &Path) -> Result<File, PartError> {
    let file = File::options().create(true).append(true).open(path).map_err(PartError::file(path))?;
    let mut printed = false;
    let held = until(BUILD_LIMIT, || match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(TryLockError::WouldBlock) => {
            if !printed {
                eprintln!("another process installs the same; waiting for {}", path.display());
                printed = true;
            }
            Ok(None)
        }
        Err(TryLockError::Error(source)) => Err(PartError::file(path)(source)),
    })?;
    match held {
        Some(()) => Ok(file),
        None => Err(PartError::Locked { lock: path.to_owned(), limit: BUILD_LIMIT }),
    }
}

fn remove_started(cache: &Path, prefix: &str) -> Result<(), PartError> {
    for entry in fs::read_dir(cache).map_err(PartError::file(cache))? {
        let entry = entry.map_err(PartError::file(cache))?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path()).map_err(PartError::file(&entry.path()))?;
        }
    }
    Ok(())
}

/// Runs a command that `guarded` made to its end, its output into `log`. Fails unless it exits with 0 within the limit.
pub(crate) fn run(name: &'static str, command: &mut Command, log: &Path, limit: Duration) -> Result<(), PartError> {
    File::create(log).map_err(PartError::file(log))?;
    let file = File::options().append(true).open(log).map_err(PartError::file(log))?;
    command.stdout(Stdio::from(file));
    run_printing(name, command, log, limit)
}

/// As [`run`], for a command whose output has a place; its errors go to the end of `log`.
pub(crate) fn run_printing(
    name: &'static str,
    command: &mut Command,
    log: &Path,
    limit: Duration,
) -> Result<(), PartError> {
    let errors = File::options().create(true).append(true).open(log).map_err(PartError::file(log))?;
    command.stderr(Stdio::from(errors));
    let ended = match GuardedChild::start(name, command)?.wait(limit)? {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("ended with {status}"),
        None => format!("did not end within {limit:?}"),
    };
    Err(PartError::Command { command: name.to_owned(), ended, tail: tail(log) })
}

/// As [`run`], for a step of an installation.
pub(crate) fn step(name: &'static str, command: &mut Command, log: &Path) -> Result<(), PartError> {
    run(name, command, log, INSTALL_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarded::guarded;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn recipe(pins: &str) -> Recipe<'_> {
        Recipe { what: "a thing", from: "nowhere", name: "thing-1".to_owned(), pins, proof: "it" }
    }

    fn write(new: &Path) -> Result<(), PartError> {
        fs::write(new.join("it"), "x").map_err(PartError::file(new))
    }

    #[test]
    fn a_part_is_made_once_by_whoever_comes_first() {
        let cache = tempfile::tempdir().unwrap();
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let folder = install(cache.path(), &recipe("a"), |new| {
                        made.fetch_add(1, Ordering::SeqCst);
                        write(new)
                    });
                    assert!(folder.unwrap().join("it").exists());
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn another_pin_is_another_folder() {
        let cache = tempfile::tempdir().unwrap();
        let one = install(cache.path(), &recipe("a==1"), write).unwrap();
        let other = install(cache.path(), &recipe("a==2"), write).unwrap();
        assert_ne!(one, other);
        assert!(one.join("it").exists() && other.join("it").exists());
    }

    #[test]
    fn what_did_not_come_to_its_end_is_not_a_part_and_is_made_again() {
        let cache = tempfile::tempdir().unwrap();
        let half = install(cache.path(), &recipe("a"), |new| {
            write(new)?;
            Err(PartError::NoCache)
        });
        assert!(half.is_err());
        let left: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().contains('.')), "{left:?}");
        let folder = install(cache.path(), &recipe("a"), write).unwrap();
        fs::remove_file(folder.join("it")).unwrap();
        assert_eq!(install(cache.path(), &recipe("a"), write).unwrap(), folder, "without its proof it is made again");
        assert!(folder.join("it").exists());
        let left = fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(left, 2, "the folder and its lock");
    }

    #[test]
    fn nobody_else_may_read_a_servers_folder() {
        let folder = temporary("forebay-test-").unwrap();
        assert_eq!(folder.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_step_that_goes_wrong_shows_the_end_of_what_it_printed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut wrong = guarded("/bin/sh");
        wrong.args(["-c", "echo first; echo no such version >&2; exit 3"]);
        let error = step("fetch", &mut wrong, &log).unwrap_err().to_string();
        assert_eq!(error, "`fetch` ended with exit status: 3; its last lines:\n  | first\n  | no such version");
        let mut slow = guarded("/bin/sh");
        slow.args(["-c", "echo begun; sleep 600"]);
        let error = run("fetch", &mut slow, &log, Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.starts_with("`fetch` did not end within 300ms"), "{error}");
    }
}
