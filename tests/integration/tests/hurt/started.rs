//! `forebay run` on a data folder, as its owner starts it: it listens, or it ends with a code and says why. Asked to end, it is waited for.
//!
//! Never: a process that outlives its test.

use forebay_integration::forebay;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longer than a start or an end takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One that listens. Dropped: ended by `kill -9`.
pub struct Started {
    child: Child,
    /// Its address, such as `http://127.0.0.1:41234`.
    pub url: String,
    /// What it says on stderr from then on.
    lines: Receiver<String>,
}

/// One that ended instead.
pub struct Refusal {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it said on stderr.
    pub said: String,
}

impl Started {
    /// Starts it on this folder.
    pub fn on(data: &Path) -> Result<Started, Refusal> {
        Started::with(data, &[], &[])
    }

    /// The same with further arguments, whose relative paths begin at the folder around this one, and variables in its environment.
    pub fn with(data: &Path, more: &[&str], variables: &[(&str, &str)]) -> Result<Started, Refusal> {
        let (folder, data) = (data.parent().expect("a folder around it"), data.display().to_string());
        let args = [&["run", "--data", data.as_str(), "--listen", "127.0.0.1:0"][..], more].concat();
        let mut command = forebay(folder, &args);
        command.envs(variables.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let (to, lines) = channel();
        // Read as they come, so that it never waits for a full pipe.
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        let (mut said, end) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix("listening ") {
                        let url = rest.split_whitespace().next().unwrap_or_default().to_owned();
                        return Ok(Started { child, url, lines });
                    }
                    said.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let code = ended(&mut child).code().unwrap_or(-1);
                    return Err(Refusal { code, said: said.join("\n") });
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill().and_then(|()| child.wait());
                    panic!("it neither listens nor ends within {PATIENCE:?}: {said:?}");
                }
            }
        }
    }

    /// Ends it as by `kill -9`.
    pub fn kill(self) {
        drop(self);
    }

    /// Asks it to end, as a service manager does, and waits until it has ended with nothing to complain of.
    pub fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill");
        assert!(asked.success(), "{asked}");
        let status = ended(&mut self.child);
        let said: Vec<String> = self.lines.iter().collect();
        assert!(status.success() && said.iter().any(|line| line.starts_with("stopped; ")), "{status}: {said:?}");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process that is about to end.
fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        if Instant::now() >= end {
            let _ = child.kill().and_then(|()| child.wait());
            panic!("it does not end within {PATIENCE:?}");
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
