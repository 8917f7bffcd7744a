//! Another policy for a controller that runs: compiled and checked as at a start, put in force between two batches, or refused whole.
//!
//! ```text
//! watched file, or API -> PolicyControl::take -> compile, check -> driver (durable) -> routes -> audit log
//!                                             '-> refused: the policy in force goes on; log, /v1/policy, metrics
//! ```
//!
//! One owner: the file that the controller was started with, or the API where there is none. Never: half of a policy, or one that a start would refuse.

pub mod history;
pub mod watch;

use crate::audit_log::{AuditLog, Author};
use crate::clock::now_ms;
use crate::config::Config;
use crate::driver::{DriverHandle, DriverStopped, MailboxError};
use crate::intake::PolicyRoutes;
use forebay_catalog::Catalogue;
use forebay_driver::live::{PolicyOutcome, PolicySource};
use forebay_kernel::ids::Seq;
use forebay_policy::{Compiled, compile_bytes};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Differences that are written out in a line of a log.
const MOST_SAID: usize = 20;

/// What a policy is compiled with and checked against: as the start has it.
#[derive(Clone, Debug)]
pub struct PolicyBasis {
    /// The configuration: a real cloud asks more of a policy.
    pub config: Config,
    /// What can be bought.
    pub catalogue: Catalogue,
}

impl PolicyBasis {
    /// Compiles a policy and checks it for this configuration.
    ///
    /// # Errors
    /// What `forebay check` says of it, or why the configured cloud cannot have it.
    pub fn compiled(&self, name: &str, bytes: &[u8]) -> Result<Compiled, String> {
        let compiled = compile_bytes(name, bytes, &self.catalogue).map_err(|e| e.to_string())?;
        crate::cloud::check_policy(&self.config, &compiled.policy, &self.catalogue).map_err(|e| e.to_string())?;
        Ok(compiled)
    }
}

/// A policy that was refused, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedPolicy {
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// What `forebay check` says of it.
    pub message: String,
}

/// How changes have gone since this process started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyChanges {
    /// Policies that were put in force.
    pub taken: u64,
    /// Policies that were refused.
    pub refused: u64,
    /// The last one that was offered, if that was refused.
    pub standing: Option<RefusedPolicy>,
}

/// What became of a policy that was offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyTaken {
    /// It is in force.
    InForce {
        /// Position of its batch in the journal.
        seq: Seq,
        /// The BLAKE3 hash of its text.
        hash: String,
        /// What is different, in words.
        changes: String,
    },
    /// It was in force already.
    Same,
}

impl PolicyTaken {
    /// What the audit log says of it. `None`: nothing was done.
    #[must_use]
    pub fn act(&self, from: String) -> Option<serde_json::Value> {
        let PolicyTaken::InForce { seq, hash, changes } = self else { return None };
        Some(json!({ "policy": hash, "policyFrom": from, "seq": seq.0, "changes": changes }))
    }
}

/// Why a policy was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyNotTaken {
    /// It is invalid here.
    #[error("{0}")]
    Refused(String),
    /// It was not tried.
    #[error(transparent)]
    Driver(#[from] MailboxError),
}

/// Changes the policy of a running controller. Its copies are one.
#[derive(Clone)]
pub struct PolicyControl {
    inner: Arc<Inner>,
}

struct Inner {
    handle: DriverHandle,
    routes: Arc<PolicyRoutes>,
    basis: PolicyBasis,
    /// The file that owns the policy.
    file: Option<PathBuf>,
    audit: Option<AuditLog>,
    /// One change after the other.
    turn: tokio::sync::Mutex<()>,
    changes: Mutex<PolicyChanges>,
}

impl PolicyControl {
    /// For a driver whose decoders ask these routes.
    #[must_use]
    pub fn new(
        handle: DriverHandle,
        routes: Arc<PolicyRoutes>,
        basis: PolicyBasis,
        audit: Option<AuditLog>,
    ) -> PolicyControl {
        let (turn, changes) = (tokio::sync::Mutex::default(), Mutex::default());
        // What comes from a pipe can be read once.
        let is_pipe = |path: &Path| std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let file = basis.config.policy.clone().filter(|path| path.as_os_str() != "-" && !is_pipe(path));
        PolicyControl { inner: Arc::new(Inner { handle, routes, basis, file, audit, turn, changes }) }
    }

    /// The file that owns the policy. `None`: the start had the journal's own policy, the built-in one, or one from a pipe.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.inner.file.as_deref()
    }

    /// What can be bought, as the start has read it.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.basis.catalogue
    }

    /// How changes have gone.
    #[must_use]
    pub fn changes(&self) -> PolicyChanges {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, PolicyChanges> {
        self.inner.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a policy in force, or refuses it whole. `name` is what its errors call it. It comes to its end although whoever asked goes away.
    ///
    /// # Errors
    /// It is invalid here, another one is on its way, or the driver has stopped.
    pub async fn take(&self, name: &str, bytes: &[u8]) -> Result<PolicyTaken, PolicyNotTaken> {
        let (this, name, bytes) = (self.clone(), name.to_owned(), bytes.to_vec());
        // Once the driver has it, its routes have to follow.
        match tokio::spawn(async move { this.take_whole(&name, &bytes).await }).await {
            Ok(taken) => taken,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process ends.
                Err(_) => Err(MailboxError::from(DriverStopped).into()),
            },
        }
    }

    async fn take_whole(&self, name: &str, bytes: &[u8]) -> Result<PolicyTaken, PolicyNotTaken> {
        let _turn = self.inner.turn.lock().await;
        let compiled = match self.inner.basis.compiled(name, bytes) {
            Ok(compiled) => compiled,
            Err(message) => {
                self.refuse(message.clone());
                return Err(PolicyNotTaken::Refused(message));
            }
        };
        let before = self.in_force().await?;
        // What was compiled is text, so it is UTF-8.
        let text = String::from_utf8_lossy(bytes).into_owned();
        let hash = hash(&text);
        let source = PolicySource { text, compiled: compiled.policy.clone() };
        let outcome = self.inner.handle.change_policy(source).await?;
        self.lock().standing = None;
        let changes = before.map(|before| forebay_policy::difference(&before, &compiled)).unwrap_or_default();
        self.inner.routes.replace(compiled.routes);
        let PolicyOutcome::InForce { seq, .. } = outcome else { return Ok(PolicyTaken::Same) };
        self.lock().taken += 1;
        let changes = in_words(&changes);
        tracing::warn!("the policy of {name} is in force: {changes}");
        Ok(PolicyTaken::InForce { seq, hash, changes })
    }

    /// The policy of the watched file was taken: that is an act of whoever runs this process.
    fn note(&self, taken: &PolicyTaken, from: &Path) {
        if let (Some(audit), Some(what)) = (&self.inner.audit, taken.act(from.display().to_string())) {
            audit.act("policy", Author::of_process(), what);
        }
    }

    /// The policy in force, compiled as it is here. `None`: its text is not journaled, or does not compile with what can be bought now.
    async fn in_force(&self) -> Result<Option<Compiled>, MailboxError> {
        let text = self.inner.handle.query_async(|_, context| context.policy_source.clone()).await?;
        Ok(text.and_then(|text| compiled_or_none(&text, &self.inner.basis.catalogue)))
    }

    /// A policy is refused, or its file cannot be read: said once for each text.
    fn refuse(&self, message: String) {
        tracing::error!("a new policy is refused whole, and the one in force goes on:\n{message}");
        let mut changes = self.lock();
        changes.refused += 1;
        changes.standing = Some(RefusedPolicy { at_ms: now_ms(), message });
    }
}

/// A policy of before, as it is meant now. `None`: what can be bought is not what it names any more.
fn compiled_or_none(text: &str, catalogue: &Catalogue) -> Option<Compiled> {
    compile_bytes("before", text.as_bytes(), catalogue).ok()
}

/// The name of a policy's text: its BLAKE3 hash.
#[must_use]
pub fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The first differences, and how many more there are.
#[must_use]
pub fn in_words(changes: &[String]) -> String {
    let more = changes.len().saturating_sub(MOST_SAID);
    match more {
        0 if changes.is_empty() => "only its wording is different".to_owned(),
        0 => changes.join("; "),
        more => format!("{}; and {more} more", changes[..MOST_SAID].join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::world;
    use crate::driver::{Settings, start};
    use forebay_wire::intake::Router as _;
    use std::task::Poll;
    use std::time::{Duration, Instant};

    #[test]
    fn routes_follow_a_policy_whose_sender_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(format!("../policies/{name}.yaml")).unwrap();
        let (first, second) = (read("teams"), read("deadline"));
        let catalogue = Catalogue::builtin();
        let compiled = forebay_policy::compile("first", &first, &catalogue).unwrap();
        let (before, policy) = (compiled.routes.clone(), compiled.policy.clone());
        let settings = Settings { policy: Some((first, policy)), ..Settings::new(folder.path().join("data"), world()) };
        let running = start(settings).unwrap();
        let routes = Arc::new(PolicyRoutes::new(before.clone()));
        assert!(routes.is_trivial());
        let basis = PolicyBasis { config: Config::default(), catalogue };
        let control = PolicyControl::new(running.handle.clone(), Arc::clone(&routes), basis, None);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut taking = std::pin::pin!(control.take("second", second.as_bytes()));
            // It is begun, and then nobody waits for it any more.
            let begun = std::future::poll_fn(|context| Poll::Ready(taking.as_mut().poll(context).is_pending())).await;
            assert!(begun);
        });
        let end = Instant::now() + Duration::from_secs(60);
        while control.changes().taken == 0 {
            assert!(Instant::now() < end, "it is not in force");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert!(!routes.is_trivial());
        // Offered again, it is in force already, and its routes are put in their place all the same.
        routes.replace(before);
        assert_eq!(runtime.block_on(control.take("second", second.as_bytes())), Ok(PolicyTaken::Same));
        assert!(!routes.is_trivial());
        running.handle.stop();
        running.join().unwrap();
    }
}
