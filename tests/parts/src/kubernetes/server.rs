//! One server of a Kubernetes: its program, its flags, its log, and its process while it runs.
//!
//! Never: a flag of its own; what each gets stands in `settings.rs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::PartError;
use crate::guarded::{GuardedChild, guarded_in};
use crate::wait::{tail, until};

/// A server that is asked to end closes its connections first; what it holds is in etcd, or lost either way.
const STOP_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Server {
    name: &'static str,
    program: PathBuf,
    flags: Vec<String>,
    folder: PathBuf,
    log: PathBuf,
    running: Option<GuardedChild>,
}

impl Server {
    pub(super) fn new(name: &'static str, program: PathBuf, flags: Vec<String>, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, program, flags, folder: folder.to_owned(), log, running: None }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Starts its process. A log of an earlier one stays, and is added to.
    pub(super) fn start(&mut self) -> Result<(), PartError> {
        let log = File::options().create(true).append(true).open(&self.log);
        let outputs = log.and_then(|file| Ok((file.try_clone()?, file))).map_err(PartError::file(&self.log))?;
        let mut command = guarded_in(&self.folder, &self.program);
        // Nothing of the caller's settings reaches it, and what it writes stays in the folder.
        command.args(&self.flags).current_dir(&self.folder).env_clear().env("HOME", &self.folder);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        command.stdout(Stdio::from(outputs.0)).stderr(Stdio::from(outputs.1));
        self.running = Some(GuardedChild::start(self.name, &mut command)?);
        Ok(())
    }

    /// Waits until it says that it is ready. One that ends instead, or is not ready in time, is an error with the end of its log.
    pub(super) fn ready(&mut self, limit: Duration, mut is_ready: impl FnMut() -> bool) -> Result<(), PartError> {
        let Some(running) = &mut self.running else {
            return Err(PartError::NotRunning { part: self.name });
        };
        let up = until(limit, || match running.ended()? {
            Some(status) => Ok(Some(Err(format!("ended with {status} instead of starting")))),
            None => Ok(is_ready().then_some(Ok(()))),
        })?;
        let why = match up {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why,
            None => format!("was not ready within {limit:?}"),
        };
        self.running = None;
        Err(PartError::NotReady { part: self.name, why, tail: tail(&self.log) })
    }

    /// Whether it was started and not ended by its owner.
    pub(super) fn is_started(&self) -> bool {
        self.running.is_some()
    }

    /// Whether its process is there.
    pub(super) fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.ended(), Ok(None)))
    }

    /// Ends it in order, by force after ten seconds.
    pub(super) fn stop(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), |running| running.stop(STOP_LIMIT))
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), GuardedChild::kill)
    }
}
