//! A small disk of its own: a file system in memory, mounted for the test and unmounted after it, whatever becomes of the test.
//!
//! ```text
//! may mount (root)?          -> mount
//! may have a namespace?      -> this test runs again in one of its own, where it may mount
//! FOREBAY_SMALL_DISK=FOLDER  -> a small disk that somebody else has mounted there, such as on systems other than Linux
//! ```
//!
//! Never: skipped. Where no way is open the test fails and says what to do.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Enough for the journal and the statuses of some thousand jobs, small enough to be filled in a moment.
const SIZE: &str = "64m";

/// Set in the process that runs in its own namespace.
const INSIDE: &str = "FOREBAY_TEST_NAMESPACE";

const REMEDY: &str = "run the tests as root, or where users may have namespaces (`unshare -Urm true` must work), or mount a disk of \
                      64 MiB yourself and name its folder in FOREBAY_SMALL_DISK (macOS: `diskutil erasevolume HFS+ small \
                      $(hdiutil attach -nomount ram://131072)`)";

/// The disk. Unmounted when dropped.
pub struct Disk {
    pub path: PathBuf,
    mounted: bool,
    /// The folder that it is mounted in.
    _folder: TempDir,
}

impl Disk {
    /// Mounts one. `None`: this test has run in a process of its own, and passed.
    ///
    /// # Panics
    /// When there is no way, with what to do.
    pub fn small() -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(path) = std::env::var_os("FOREBAY_SMALL_DISK") {
            let path = PathBuf::from(path).join(format!("forebay-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("FOREBAY_SMALL_DISK: {e}"));
            return Some(Disk { path, mounted: false, _folder: folder });
        }
        let options = format!("size={SIZE}");
        let said = ended(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()));
        match said {
            Ok(()) => Some(Disk { path: folder.path().to_owned(), mounted: true, _folder: folder }),
            Err(why) if std::env::var_os(INSIDE).is_some() => panic!("no small disk: {why}; {REMEDY}"),
            Err(why) => {
                again_inside(&why);
                None
            }
        }
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Fills it up to so many bytes.
    pub fn leave(&self, room: u64) {
        let mut ballast = File::options().append(true).create(true).open(self.ballast()).expect("a file");
        // Large pieces first, then what is smaller than a page.
        for piece in [256 << 10, 4 << 10, 1] {
            let zeros = vec![0_u8; piece];
            let end = loop {
                if let Err(error) = ballast.write_all(&zeros) {
                    break error;
                }
            };
            assert_eq!(end.kind(), ErrorKind::StorageFull, "{end}");
        }
        let size = ballast.metadata().expect("a size").len();
        assert!(size > room, "{} has {size} bytes free: it is too small", self.path.display());
        ballast.set_len(size - room).and_then(|()| ballast.sync_all()).expect("made smaller");
    }

    /// Makes room again.
    pub fn clear(&self) {
        std::fs::remove_file(self.ballast()).expect("removed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that still has it open, after a failure, must not keep it.
        let left = if self.mounted {
            ended(Command::new("umount").arg("-l").arg(&self.path))
        } else {
            std::fs::remove_dir_all(&self.path).map_err(|e| e.to_string())
        };
        if let Err(why) = left {
            eprintln!("{} is left: {why}", self.path.display());
        }
    }
}

/// Runs this test in namespaces of its own, where its user is root.
fn again_inside(why: &str) {
    let this = std::thread::current().name().map(str::to_owned).expect("a test's thread has its name");
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.arg("-Urm").arg(program).args(["--exact", &this, "--nocapture"]).env(INSIDE, "1");
    if let Err(inside) = ended(&mut command) {
        panic!("no small disk: {why}; in namespaces of its own: {inside}; {REMEDY}");
    }
}

fn ended(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    // The figures of a test that ran again; its result is this one's.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|l| l.starts_with("full disk:"))
        .for_each(|l| println!("{l}"));
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
