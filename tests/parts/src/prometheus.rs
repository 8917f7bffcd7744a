//! Prometheus, which scrapes a server on loopback and answers PromQL, and its promtool, which reads rules and metrics.
//!
//! ```text
//! on the path -> as they are
//! elsewhere   -> Debian's package, downloaded and unpacked into the cache
//! ```
//!
//! The package is not installed: that would start a server of the machine's own, on all of its addresses.
//! Never: an address beyond loopback, or data of another run.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::guarded::{GuardedChild, guarded, guarded_in};
use crate::install::{self, Recipe, cache};
use crate::ports::{self, STARTS};
use crate::wait::{tail, until};
use crate::{PartError, http};

const PART: &str = "Prometheus";

/// It is there within a second, on a busy machine within some.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Both programs.
#[derive(Clone, Debug)]
struct Programs {
    prometheus: PathBuf,
    promtool: PathBuf,
}

impl Programs {
    fn install() -> Result<Programs, PartError> {
        let own = Programs { prometheus: "prometheus".into(), promtool: "promtool".into() };
        if answers(&own.prometheus, "--version") && answers(&own.promtool, "--version") {
            return Ok(own);
        }
        if !answers(Path::new("apt-get"), "--version") || !answers(Path::new("dpkg-deb"), "--version") {
            return Err(PartError::Missing {
                what: "Prometheus with promtool",
                why: "it reads the metrics and the rules",
                how: "Debian, Ubuntu: apt-get install prometheus; Fedora: dnf install golang-github-prometheus; macOS: brew install \
                      prometheus",
            });
        }
        let recipe = Recipe {
            what: "Prometheus",
            from: "Debian's package, 20 MB",
            name: "prometheus-debian".to_owned(),
            pins: "prometheus",
            proof: "usr/bin/promtool",
        };
        let folder = install::install(&cache()?, &recipe, unpack)?;
        let program = |name: &str| folder.join("usr/bin").join(name);
        Ok(Programs { prometheus: program("prometheus"), promtool: program("promtool") })
    }
}

/// Downloads the package, and unpacks it. Where the lists of packages are not there or too old, they are fetched first.
fn unpack(new: &Path) -> Result<(), PartError> {
    let log = new.join("install.log");
    let download = || {
        let mut download = guarded("apt-get");
        download.current_dir(new).args(["download", "prometheus"]);
        install::step("apt-get download prometheus", &mut download, &log)
    };
    if download().is_err() {
        let mut update = guarded("apt-get");
        install::step("apt-get update", update.arg("update"), &log)?;
        download()?;
    }
    let entries = fs::read_dir(new).map_err(PartError::file(new))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "deb");
    let package = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).find(is_package);
    let package = package.unwrap_or_else(|| new.join("prometheus.deb"));
    let mut extract = guarded("dpkg-deb");
    extract.arg("-x").arg(&package).arg(new);
    install::step("dpkg-deb -x prometheus", &mut extract, &log)?;
    fs::remove_file(&package).map_err(PartError::file(&package))
}

/// Whether a program is there and exits with 0.
fn answers(program: &Path, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A promtool that is installed.
#[derive(Clone, Debug)]
pub struct Promtool {
    program: PathBuf,
}

impl Promtool {
    /// Fetches it into the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When it is neither on the path nor to be had from Debian.
    pub fn install() -> Result<Promtool, PartError> {
        Ok(Promtool { program: Programs::install()?.promtool })
    }

    /// Runs it in a folder, with this as its input.
    ///
    /// # Errors
    /// When it cannot be started, or does not read its input.
    pub fn run(&self, folder: &Path, args: &[&str], input: &str) -> Result<Output, PartError> {
        let failed = || PartError::process("promtool");
        let mut command = Command::new(&self.program);
        command.current_dir(folder).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed())?;
        // It reads all of it before it prints anything.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().map_err(failed())?;
        written.map_err(failed())?;
        Ok(output)
    }
}

/// A Prometheus that was started; ended when dropped, and when the process that holds it ends in whatever way.
pub struct Prometheus {
    port: u16,
    _running: GuardedChild,
    /// Dropped after `_running`: fields go in the order in which they stand.
    folder: TempDir,
}

impl Prometheus {
    /// Fetches it if need be, starts it, and waits until it is ready. It scrapes `127.0.0.1:PORT` of each of these ports every second.
    ///
    /// # Errors
    /// When it is neither on the path nor to be had from Debian, or is not ready in time; the error then has the end of its log.
    pub fn start(targets: &[u16]) -> Result<Prometheus, PartError> {
        let program = Programs::install()?.prometheus;
        let mut starts = 0;
        loop {
            starts += 1;
            match Prometheus::start_once(&program, targets) {
                Err(PartError::NotReady { tail, .. }) if tail.contains("address already in use") && starts < STARTS => {
                    eprintln!("somebody took Prometheus' port before it did; it is started on another");
                }
                outcome => return outcome,
            }
        }
    }

    fn start_once(program: &Path, targets: &[u16]) -> Result<Prometheus, PartError> {
        let folder = install::temporary("forebay-prometheus-")?;
        let port = ports::free_port()?;
        let at = |name: &str| folder.path().join(name);
        let targets: Vec<String> = targets.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: forebay\n    static_configs: [{{targets: \
             [{}]}}]\n",
            targets.join(", ")
        );
        fs::write(at("prometheus.yml"), config).map_err(PartError::file(folder.path()))?;
        let log = at("prometheus.log");
        let outputs =
            File::create(&log).and_then(|file| Ok((file.try_clone()?, file))).map_err(PartError::file(&log))?;
        let mut command = guarded_in(folder.path(), program);
        command.current_dir(folder.path()).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.stdout(Stdio::from(outputs.0)).stderr(Stdio::from(outputs.1));
        let mut running = GuardedChild::start(PART, &mut command)?;
        let up = until(READY_LIMIT, || match running.ended()? {
            Some(status) => Ok(Some(Err(format!("ended with {status} instead of starting")))),
            None => Ok(http::get(port, "/-/ready").is_ok().then_some(Ok(()))),
        })?;
        let why = match up {
            Some(Ok(())) => return Ok(Prometheus { port, _running: running, folder }),
            Some(Err(why)) => why,
            None => format!("was not ready within {READY_LIMIT:?}"),
        };
        Err(PartError::NotReady { part: PART, why, tail: tail(&log) })
    }

    /// What PromQL has at an instant, in seconds since 1970: the answer of `/api/v1/query`, JSON.
    ///
    /// # Errors
    /// When it does not answer, or refuses the query.
    pub fn query(&self, promql: &str, at_s: f64) -> Result<String, PartError> {
        let path = format!("/api/v1/query?time={at_s:.3}&query={}", encoded(promql));
        http::get(self.port, &path).map_err(PartError::process("Prometheus: /api/v1/query"))
    }

    /// The last lines of its log, at most forty.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.folder.path().join("prometheus.log"))
    }
}

/// A text as part of an address.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_part_of_an_address() {
        assert_eq!(encoded("sum(a{b=\"c d\"})\n+1"), "sum%28a%7Bb%3D%22c%20d%22%7D%29%0A%2B1");
    }
}
