//! Tests that drive the `forebay` binary from outside, as its users do.
//!
//! The binary is `$FOREBAY_BIN`, else `<target>/debug/forebay`, which is built when it is not there.
//!
//! ```no_run
//! use forebay_integration::forebay;
//!
//! let output = forebay(std::env::temp_dir().as_path(), &["--version"]).output()?;
//! assert!(output.status.success());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Never: sleeps to wait. A server prints where it listens; answers are waited for where they come from.

pub mod dice;
pub mod folders;
pub mod history;
pub mod kafka;
pub mod openmetrics;
pub mod segments;
pub mod sqs;
pub mod teams;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The project's root: tests run in their package's folder. Not as it was when they were built, for builds are shared by clones.
#[must_use]
pub fn root() -> PathBuf {
    std::env::current_dir().unwrap_or_default().join("../..")
}

/// The binary under test.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("FOREBAY_BIN").map_or_else(|| program("forebay"), PathBuf::from))
}

/// A binary of the workspace, built when it is not there.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn program(package: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("debug").join(format!("{package}{}", std::env::consts::EXE_SUFFIX));
    if !path.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", package]).current_dir(root()).status();
        assert!(built.is_ok_and(|s| s.success()), "`cargo build -p {package}` failed");
    }
    path
}

/// The binary with arguments, in a folder, without colours.
#[must_use]
pub fn forebay(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(folder).args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command.env_remove("FOREBAY_SERVER").env_remove("FOREBAY_TOKEN").env_remove("FOREBAY_LOG");
    command
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    /// Its stdout as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }
}

/// Runs the binary to its end.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn run(folder: &Path, args: &[&str]) -> Said {
    let output = forebay(folder, args).output();
    output.unwrap_or_else(|e| panic!("{}: {e}", binary().display())).into()
}

/// Sends a request as it is to whatever serves at this address: its status and body.
///
/// # Panics
/// When there is no answer.
#[must_use]
pub fn send(url: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent: ureq::Agent = config.into();
    let mut request = ureq::http::Request::builder().method(method).uri(format!("{url}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_vec()).expect("a request");
    let mut response = agent.run(request).unwrap_or_else(|e| panic!("{method} {path}: {e}"));
    let text = response.body_mut().read_to_string().unwrap_or_else(|e| panic!("{method} {path}: {e}"));
    (response.status().as_u16(), text)
}

/// A running server, ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its address, such as `http://127.0.0.1:41234`.
    pub url: String,
    /// What it said on stderr before it listened.
    pub said: Vec<String>,
    /// What it says from then on.
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `forebay run` with these arguments on a free port.
    ///
    /// # Panics
    /// When it ends instead of listening.
    #[must_use]
    pub fn start(folder: &Path, args: &[&str]) -> Server {
        Server::start_with(folder, args, &[])
    }

    /// The same, with these variables in its environment.
    ///
    /// # Panics
    /// When it ends instead of listening.
    #[must_use]
    pub fn start_with(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Server {
        Starting::new(folder, &[&["--listen", "127.0.0.1:0"], args].concat(), variables).listens()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as by `kill -9`.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets it work until then.
    ///
    /// # Panics
    /// When it ends by itself before.
    pub fn lives_until(&mut self, then: Instant) {
        while Instant::now() < then {
            let ended = self.child.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "it ended by itself with {ended:?}: {}", self.log());
            std::thread::park_timeout(then.saturating_duration_since(Instant::now()).min(PAUSE));
        }
    }

    /// What it has said on stderr since it listens.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().map(|log| log.clone()).unwrap_or_default()
    }

    /// A client command against this server.
    #[must_use]
    pub fn ask(&self, folder: &Path, args: &[&str]) -> Said {
        let output = forebay(folder, args).env("FOREBAY_SERVER", &self.url).output();
        output.unwrap_or_else(|e| panic!("{}: {e}", binary().display())).into()
    }

    /// Sends a request as it is: its status and body.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        send(&self.url, method, path, headers, body)
    }

    /// The same, where there may be no answer.
    #[must_use]
    pub fn try_get(&self, path: &str) -> Option<(u16, Value)> {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let mut answer = ureq::Agent::from(config).get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), serde_json::from_str(&text).ok()?))
    }

    /// A JSON answer with its status.
    ///
    /// # Panics
    /// When it is no JSON.
    #[must_use]
    pub fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.send("GET", path, &[], &[]);
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e} in {text}")))
    }

    /// Posts events as JSON.
    ///
    /// # Panics
    /// When the answer is no JSON.
    #[must_use]
    pub fn post(&self, body: &Value) -> (u16, Value) {
        let kind = [("content-type", "application/json")];
        let (status, text) = self.send("POST", "/v1/events", &kind, body.to_string().as_bytes());
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Between two looks at something that takes a while: short beside it, long beside the look.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks until it holds, and fails with the last look when it does not in time.
///
/// # Panics
/// When it does not hold within that time.
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + within;
    loop {
        match holds() {
            Ok(()) => return,
            Err(why) => assert!(Instant::now() < deadline, "not within {within:?}: {what}: {why}"),
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// How long a process may take until it says what is waited for: many times what anything takes on a busy machine.
const SAYS: Duration = Duration::from_secs(120);

/// A `forebay run` that does not listen yet, ended when dropped.
#[derive(Debug)]
pub struct Starting {
    /// `None`: it has become a server.
    child: Option<Child>,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Starting {
    /// Starts `forebay run` with these arguments and variables.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn new(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Starting {
        let mut command = forebay(folder, &[&["run"], args].concat());
        command.envs(variables.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", binary().display()));
        let stderr = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let (to, lines) = channel();
        // Read as they come, so that it never waits for a full pipe.
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Starting { child: Some(child), lines, said: Vec::new() }
    }

    /// Waits for a line with this in it.
    ///
    /// # Panics
    /// When it ends instead, or takes too long.
    pub fn wait_for(&mut self, part: &str) -> String {
        let end = Instant::now() + SAYS;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.said.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
        let ended = self.child.as_mut().map(|child| child.kill().and_then(|()| child.wait()));
        panic!("it did not say `{part}` ({ended:?}): {:?}", self.said)
    }

    /// Waits until it listens.
    ///
    /// # Panics
    /// When it ends instead, or takes too long.
    #[must_use]
    pub fn listens(mut self) -> Server {
        let line = self.wait_for("listening http://");
        let url = line.split_whitespace().find(|w| w.starts_with("http://")).unwrap_or_default().to_owned();
        let lines = std::mem::replace(&mut self.lines, channel().1);
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines {
                if let Ok(mut kept) = kept.lock() {
                    kept.push_str(&line);
                    kept.push('\n');
                }
            }
        });
        let child = self.child.take().expect("it has not become a server before");
        Server { child, url, said: std::mem::take(&mut self.said), log }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
