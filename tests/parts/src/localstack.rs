//! A real LocalStack: SQS, EC2 and S3 as AWS speaks them, in one Python process with its data in a temporary folder.
//!
//! It keeps nothing over a restart. Never: a licence, a container engine, a service that was not asked for, a call to the
//! network beyond loopback.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use crate::guarded::{GuardedChild, guarded, guarded_in};
use crate::install::{self, Recipe, run};
use crate::ports::{self, STARTS};
use crate::venv::environment;
use crate::wait::{tail, until};
use crate::{PartError, http};

const PART: &str = "LocalStack";

const REQUIREMENTS: &str = include_str!("../../../localstack/requirements.txt");
const SEED: &str = include_str!("../../../localstack/seed.py");

/// Three seconds on two idle cores, many times that where others build.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// What it holds is gone either way.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A dozen calls to a server on the same machine.
const SEED_LIMIT: Duration = Duration::from_secs(60);

/// How a LocalStack is to be started. The default: on a free port.
#[derive(Clone, Debug, Default)]
pub struct LocalStackOptions {
    /// Where clients connect; a free port where it is not given.
    pub port: Option<u16>,
}

/// A LocalStack that was started; ended when dropped, and when the process that holds it ends in whatever way.
#[derive(Debug)]
pub struct LocalStack {
    python: PathBuf,
    port: u16,
    endpoint: String,
    running: Option<GuardedChild>,
    /// Dropped after `running`: fields go in the order in which they stand.
    folder: TempDir,
}

impl LocalStack {
    /// Installs it into an environment of its own in the cache where it is not there yet, and prints that it does. Its Python.
    ///
    /// # Errors
    /// When there is no Python that it runs on, or its packages cannot be fetched.
    pub fn install() -> Result<PathBuf, PartError> {
        let recipe = Recipe {
            what: "LocalStack 4.14.0",
            from: "pip, 120 packages, 500 MB on disk",
            name: "localstack-4.14.0".to_owned(),
            pins: REQUIREMENTS,
            proof: "bin/python",
        };
        let folder = environment(&recipe)?;
        Ok(folder.join("bin/python"))
    }

    /// Installs it if need be, starts it, and waits until SQS, EC2 and S3 are there.
    ///
    /// # Errors
    /// When something that it needs is missing, when the port that is asked for is taken, or when it does not answer
    /// within two minutes; the error then has the end of its log.
    pub fn start(options: LocalStackOptions) -> Result<Self, PartError> {
        let python = Self::install()?;
        let mut starts = 0;
        loop {
            starts += 1;
            let folder = install::temporary("forebay-localstack-")?;
            let port = ports::free(1, options.port)?.first().copied().ok_or(PartError::NoPort { tried: 1 })?;
            let endpoint = format!("http://127.0.0.1:{port}");
            let mut new = Self { python: python.clone(), port, endpoint, running: None, folder };
            match new.run() {
                Ok(()) => return Ok(new),
                Err(PartError::NotReady { tail, .. }) if tail.contains("in use") && starts < STARTS => {
                    eprintln!("somebody took LocalStack's port before it did; it is started on another");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One for all tests of a process that run at once; what each keeps in it has a name of its own. The last one ends it: what is in a
    /// static would never remove its folder.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static RUNNING: Mutex<Weak<LocalStack>> = Mutex::new(Weak::new());
        // A test that failed in here did not get one; the next may.
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.upgrade().unwrap_or_else(|| {
            let new =
                Arc::new(Self::start(LocalStackOptions::default()).unwrap_or_else(|e| panic!("a LocalStack: {e}")));
            *running = Arc::downgrade(&new);
            new
        })
    }

    fn run(&mut self) -> Result<(), PartError> {
        let data = self.folder.path().join("data");
        // What it held is gone with its process; what it left in files must not be taken for what it holds now.
        if data.exists() {
            fs::remove_dir_all(&data).map_err(PartError::file(&data))?;
        }
        fs::create_dir(&data).map_err(PartError::file(&data))?;
        let log = self.log_path();
        let outputs =
            File::create(&log).and_then(|file| Ok((file.try_clone()?, file))).map_err(PartError::file(&log))?;
        let mut command = guarded_in(self.folder.path(), &self.python);
        command.args(["-m", "localstack.runtime.main"]).current_dir(&data).env_clear();
        // Nothing of the caller's settings for Python, AWS or LocalStack reaches it; what it writes stays in its folder.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        command.envs([("HOME", &data), ("TMPDIR", &data), ("LOCALSTACK_VOLUME_DIR", &data)]);
        let address = format!("127.0.0.1:{}", self.port);
        command.env("GATEWAY_LISTEN", &address);
        // Otherwise the URLs of queues name a host that has to be looked up in public DNS.
        command.env("LOCALSTACK_HOST", &address).env("SQS_ENDPOINT_STRATEGY", "path");
        command.envs([("SERVICES", "sqs,ec2,s3"), ("DISABLE_EVENTS", "1"), ("SKIP_SSL_CERT_DOWNLOAD", "1")]);
        command.envs([("DNS_ADDRESS", "0"), ("PYTHONUNBUFFERED", "1")]);
        command.stdout(Stdio::from(outputs.0)).stderr(Stdio::from(outputs.1));
        let running = self.running.insert(GuardedChild::start(PART, &mut command)?);
        let up = until(READY_LIMIT, || match running.ended()? {
            Some(status) => Ok(Some(Err(format!("ended with {status} instead of starting")))),
            None => Ok(is_healthy(self.port).then_some(Ok(()))),
        })?;
        let why = match up {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why,
            None => format!("did not start within {READY_LIMIT:?}"),
        };
        self.running = None;
        Err(PartError::NotReady { part: PART, why, tail: tail(&log) })
    }

    /// Where clients connect, `http://127.0.0.1:PORT`; the same after a restart. Any key id and secret will do.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The Python of its environment, which has boto3: AWS's own client for a test to read with.
    #[must_use]
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Its log, to read after a failure.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join("localstack.log")
    }

    /// The last lines of its log, at most forty.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log_path())
    }

    /// Whether its process is there.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.ended(), Ok(None)))
    }

    /// Makes the queues and the bucket of `localstack/seed.py` where they are not there yet: what it printed, a line each.
    ///
    /// # Errors
    /// When it does not answer as AWS does.
    pub fn seed(&self) -> Result<String, PartError> {
        if self.running.is_none() {
            return Err(PartError::NotRunning { part: PART });
        }
        let mut command = guarded(&self.python);
        command.args(["-c", SEED]).env("AWS_ENDPOINT_URL", &self.endpoint);
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_SESSION_TOKEN"] {
            command.env_remove(name);
        }
        let log = self.folder.path().join("seed.log");
        run("seed.py", &mut command, &log, SEED_LIMIT)?;
        fs::read_to_string(&log).map_err(PartError::file(&log))
    }

    /// Ends it in order, by force after 10 s. All that it held is lost.
    ///
    /// # Errors
    /// When its process cannot be ended.
    pub fn stop(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), |running| running.stop(STOP_LIMIT))
    }

    /// Ends it at once, as a crash would. All that it held is lost.
    ///
    /// # Errors
    /// When its process cannot be ended.
    pub fn kill(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), GuardedChild::kill)
    }

    /// Starts it again at the same address, empty; stops it first where it runs.
    ///
    /// # Errors
    /// When it does not answer within two minutes.
    pub fn restart(&mut self) -> Result<(), PartError> {
        self.stop()?;
        if !ports::is_free(self.port) {
            return Err(PartError::PortTaken { port: self.port });
        }
        self.run()
    }
}

/// Whether it reports each of its services as there.
fn is_healthy(port: u16) -> bool {
    let available = |answer: String| {
        let has = |service: &str| {
            ["available", "running"].iter().any(|state| answer.contains(&format!("\"{service}\": \"{state}\"")))
        };
        ["sqs", "ec2", "s3"].into_iter().all(has)
    };
    http::get(port, "/_localstack/health").is_ok_and(available)
}
