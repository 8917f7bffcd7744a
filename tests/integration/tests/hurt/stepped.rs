//! A clock of the host that is stepped under a running program: a library before the system's own, which the program asks for the time.
//!
//! ```text
//! program -> clock_gettime: CLOCK_REALTIME + the seconds in a file        all other clocks as they are
//! ```
//!
//! It is built by the C compiler that builds SQLite for the program itself. A program that does not load libraries cannot be tried so: its
//! clock does not move, and the test fails.
//! Never: the clock of this machine, which is everybody's.

use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Where the seconds are, for the library.
const FILE: &str = "FOREBAY_HURT_CLOCK";

/// The system is asked by its number, so that the library does not find itself.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long stepped(void) {
    char text[32] = {0};
    int before = errno;
    const char *path = getenv("FOREBAY_HURT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
    }
    errno = before;
    return strtoll(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (failed == 0 && clock == CLOCK_REALTIME) at->tv_sec += stepped();
    return failed;
}
"#;

/// A clock that goes with the system's until it is stepped.
pub struct SteppedClock {
    folder: TempDir,
    library: String,
    file: String,
}

impl SteppedClock {
    /// Builds the library.
    pub fn build() -> SteppedClock {
        let folder = tempfile::tempdir().expect("a folder");
        let [source, library, file] =
            ["clock.c", "clock.so", "seconds"].map(|name| folder.path().join(name).display().to_string());
        std::fs::write(&source, LIBRARY).expect("writes");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", library.as_str(), source.as_str()]).output();
        let built = built.expect("`cc`, as for SQLite");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let clock = SteppedClock { folder, library, file };
        clock.step(0);
        clock
    }

    /// What a program has in its environment that has this clock.
    pub fn variables(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", self.library.as_str()), (FILE, self.file.as_str())]
    }

    /// From now on it is so many seconds ahead of the system's, or behind it, below zero.
    pub fn step(&self, seconds: i64) {
        let next: PathBuf = self.folder.path().join("next");
        // At once, for it is read at any time.
        std::fs::write(&next, seconds.to_string()).and_then(|()| std::fs::rename(&next, &self.file)).expect("writes");
    }
}
