//! A child process that dies with its starter, however that one ends.
//!
//! ```text
//! starter --pipe--> sh: a watcher in the background waits for the pipe to close, then kills the group
//!                   sh: becomes the program (`exec`), so that the child's id is the program's
//! ```
//!
//! The pipe closes when the starter drops it or dies, even by SIGKILL. The kernel's own signal for the death of a parent
//! is not used: it comes when the starting *thread* ends, and a test's thread ends before the tests that share its server.
//! Never: a shell that reads the program's arguments; they are passed through as they are.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::PartError;
use crate::wait::until;

/// `$$` is the id that the program will have, and that of its group. The watcher is of the group as well, so no other
/// process can get that id while it watches. A program that is still there when the pipe closes has lost its starter, and
/// with it whoever would have removed its folder (`$1`, or nothing).
const SCRIPT: &str = r#"exec 3<&0 </dev/null
folder=$1; shift
(trap '' HUP INT TERM; cat <&3
 kill -s KILL -- $$ && test -n "$folder" && rm -rf -- "$folder"
 kill -s KILL -- -$$) >/dev/null 2>&1 &
exec "$@" 3<&-"#;

/// How long the kernel may take to end a process that it was asked to kill.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// A command for [`GuardedChild::start`]; arguments, environment and outputs may be added, its input may not be changed.
pub fn guarded(program: impl AsRef<OsStr>) -> Command {
    with_folder(OsStr::new(""), program)
}

/// As [`guarded`], with a folder that is the program's own and goes with a starter that cannot remove it any more.
pub(crate) fn guarded_in(folder: &Path, program: impl AsRef<OsStr>) -> Command {
    with_folder(folder.as_os_str(), program)
}

fn with_folder(folder: &OsStr, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "sh"]).arg(folder).arg(program).stdin(Stdio::piped()).process_group(0);
    command
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct GuardedChild {
    name: &'static str,
    child: Child,
    /// Closed, it kills what is left of the group.
    pipe: Option<ChildStdin>,
}

impl GuardedChild {
    /// Starts a command that [`guarded`] made.
    ///
    /// # Errors
    /// The shell that watches over it cannot be started.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self, PartError> {
        let mut child = command.spawn().map_err(PartError::process(format!("{name}: /bin/sh")))?;
        let pipe = child.stdin.take();
        Ok(Self { name, child, pipe })
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, PartError> {
        self.child.try_wait().map_err(PartError::process(self.name))
    }

    /// Waits for its end, or gives nothing once the limit has passed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, PartError> {
        until(limit, || self.ended())
    }

    /// SIGTERM, and SIGKILL once the limit has passed.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<(), PartError> {
        if self.ended()?.is_none() {
            // It may end between this question and the signal.
            let _ = kill_process(self.pid(), Signal::TERM);
            self.wait(limit)?;
        }
        self.kill()
    }

    /// SIGKILL, at once and to all of its group; waits for its end.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<(), PartError> {
        self.end()
    }

    /// SIGTERM to all of its group; whoever watches over it ignores that.
    pub fn ask_to_end(&self) {
        if self.pipe.is_some() {
            // It may have ended by now: its id is its own until somebody has asked for its end.
            let _ = kill_process_group(self.pid(), Signal::TERM);
        }
    }

    /// SIGKILL to all of its group, without waiting for its end.
    pub fn end_at_once(&self) {
        if self.pipe.is_some() {
            // As above.
            let _ = kill_process_group(self.pid(), Signal::KILL);
        }
    }

    /// The id of its process, which is that of its group.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn end(&mut self) -> Result<(), PartError> {
        let Some(pipe) = self.pipe.take() else {
            return Ok(());
        };
        if self.ended()?.is_none() {
            kill_process_group(self.pid(), Signal::KILL)
                .map_err(|errno| PartError::process(format!("{}: SIGKILL", self.name))(errno.into()))?;
            if self.wait(KILL_LIMIT)?.is_none() {
                let source = std::io::Error::other(format!("still there {KILL_LIMIT:?} after SIGKILL"));
                return Err(PartError::Process { what: self.name.to_owned(), source });
            }
        }
        // Its id may be another's by now; the watcher knows the group and kills what is left of it.
        drop(pipe);
        Ok(())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        // Nobody is left who could handle the error.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// A program with a child of its own in its group; both print their ids.
    const FAMILY: &str = "sleep 600 & echo $$ $!; wait";

    fn family() -> (GuardedChild, Vec<Pid>) {
        let mut command = guarded("/bin/sh");
        command.args(["-c", FAMILY]).stdout(Stdio::piped());
        let mut running = GuardedChild::start("family", &mut command).unwrap();
        let mut line = String::new();
        BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids = line.split_whitespace().map(|word| Pid::from_raw(word.parse().unwrap()).unwrap()).collect();
        (running, pids)
    }

    /// A dead process may stay listed until its new parent has waited for it; its state shows that it is dead.
    fn gone(pid: Pid) -> bool {
        let pid = pid.as_raw_pid().to_string();
        // Linux has the state behind the name, which is in brackets; elsewhere there is `ps`.
        let state = if Path::new("/proc/self/stat").exists() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().unwrap_or_default().trim().to_owned()
        } else {
            let asked = Command::new("ps").args(["-o", "stat=", "-p", &pid]).output().unwrap();
            String::from_utf8_lossy(&asked.stdout).trim().to_owned()
        };
        state.is_empty() || state.starts_with('Z')
    }

    fn all_gone(pids: &[Pid]) -> bool {
        until(Duration::from_secs(10), || Ok(pids.iter().all(|pid| gone(*pid)).then_some(()))).unwrap().is_some()
    }

    #[test]
    fn the_childs_id_is_the_programs() {
        let (running, pids) = family();
        assert_eq!(running.pid(), pids[0]);
        assert!(!gone(pids[0]) && !gone(pids[1]));
    }

    #[test]
    fn stop_kill_and_drop_end_the_whole_group() {
        let limit = Duration::from_secs(10);
        let ends: [fn(GuardedChild); 3] = [|f| f.stop(Duration::from_secs(10)).unwrap(), |f| f.kill().unwrap(), drop];
        for end in ends {
            let (running, pids) = family();
            let start = std::time::Instant::now();
            end(running);
            assert!(all_gone(&pids), "{pids:?}");
            assert!(start.elapsed() < limit, "SIGTERM was enough");
        }
    }

    #[test]
    fn a_pipe_that_closes_ends_the_whole_group() {
        let (mut running, pids) = family();
        drop(running.pipe.take());
        assert!(all_gone(&pids), "{pids:?}");
        assert!(running.wait(Duration::from_secs(10)).unwrap().is_some());
    }

    #[test]
    fn a_folder_goes_with_the_starter_and_stays_when_the_program_was_ended() {
        let parent = tempfile::tempdir().unwrap();
        let [stays, goes] = ["a stays", "goes"].map(|name| parent.path().join(name));
        let start = |folder: &Path| {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("data"), "x").unwrap();
            GuardedChild::start("sleep", guarded_in(folder, "sleep").arg("600")).unwrap()
        };
        let ended = start(&stays);
        let pid = ended.pid();
        ended.stop(Duration::from_secs(10)).unwrap();
        assert!(all_gone(&[pid]));
        let mut orphan = start(&goes);
        drop(orphan.pipe.take());
        let gone = until(Duration::from_secs(10), || Ok((!goes.exists()).then_some(())));
        assert!(gone.unwrap().is_some() && stays.join("data").exists());
    }

    #[test]
    fn what_ignores_sigterm_is_killed_at_the_limit() {
        let mut command = guarded("/bin/sh");
        command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 600; done"]).stdout(Stdio::piped());
        let mut running = GuardedChild::start("stubborn", &mut command).unwrap();
        let mut line = String::new();
        BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = running.pid();
        running.stop(Duration::from_millis(200)).unwrap();
        assert!(all_gone(&[pid]));
    }

    #[test]
    fn arguments_and_exit_codes_pass_through() {
        let mut command = guarded("/bin/sh");
        command.args(["-c", "test \"$1\" = 'a $(b) \"c\"' && exit 7", "sh", "a $(b) \"c\""]);
        let mut running = GuardedChild::start("sh", &mut command).unwrap();
        assert_eq!(running.wait(Duration::from_secs(10)).unwrap().and_then(|status| status.code()), Some(7));
    }
}
