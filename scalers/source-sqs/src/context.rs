//! What the tasks of one source share. Every wait in here ends when the source stops.

use crate::call_failure::CallFailure;
use crate::client::{self, SqsConnection};
use crate::conditions::Conditions;
use crate::settings::SqsSettings;
use forebay_source::{Condition, SourceHandle};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{OnceCell, watch};

/// A shorter wait for memory or receipts is not reported.
const HELD_BACK_AFTER: Duration = Duration::from_secs(1);

/// What the tasks of one source share.
#[derive(Debug)]
pub(crate) struct Context {
    pub settings: SqsSettings,
    pub handle: SourceHandle,
    pub conditions: Conditions,
    connection: OnceCell<SqsConnection>,
    stage: watch::Sender<Stage>,
}

/// How far stopping has come. Polls end first, because a running poll would receive messages that are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Stopping,
    PollsEnded,
}

/// The source is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

impl Context {
    pub fn new(settings: SqsSettings, handle: SourceHandle, conditions: Conditions) -> Context {
        Context { settings, handle, conditions, connection: OnceCell::new(), stage: watch::Sender::new(Stage::Running) }
    }

    /// The connection to SQS, which is set up once.
    pub async fn connection(&self) -> Result<&SqsConnection, CallFailure> {
        self.connection.get_or_try_init(|| client::connect(&self.settings)).await
    }

    /// Begins to stop: no further poll is started.
    pub fn stop(&self) {
        self.reach(Stage::Stopping);
    }

    /// Records that no poll is running, so that messages which are not durable may be released.
    pub fn stop_in_flight(&self) {
        self.reach(Stage::PollsEnded);
    }

    fn reach(&self, stage: Stage) {
        self.stage.send_if_modified(|at| {
            let further = *at < stage;
            *at = stage.max(*at);
            further
        });
    }

    /// Whether the source is stopping.
    pub fn is_stopping(&self) -> bool {
        *self.stage.borrow() >= Stage::Stopping
    }

    /// Resolves when the source begins to stop.
    pub async fn stopping(&self) {
        self.reached(Stage::Stopping).await;
    }

    /// Resolves when the source is stopping and no poll is running.
    pub async fn polls_ended(&self) {
        self.reached(Stage::PollsEnded).await;
    }

    async fn reached(&self, stage: Stage) {
        // The sender is in this context, so that waiting for it cannot fail.
        let _ = self.stage.subscribe().wait_for(|at| *at >= stage).await;
    }

    /// Waits for something, but not longer than until the source begins to stop.
    pub async fn unless_stopping<T>(&self, wait: impl Future<Output = T>) -> Result<T, Stopping> {
        tokio::select! {
            biased;
            () = self.stopping() => Err(Stopping),
            got = wait => Ok(got),
        }
    }

    /// Waits like [`Context::unless_stopping`], and after one second records that the task is held back.
    pub async fn wait_for_capacity<T>(&self, label: &str, wait: impl Future<Output = T>) -> Result<T, Stopping> {
        let mut wait = std::pin::pin!(wait);
        if let Ok(got) = tokio::time::timeout(HELD_BACK_AFTER, self.unless_stopping(&mut wait)).await {
            return got;
        }
        self.conditions.set(label, Condition::HeldBack);
        self.unless_stopping(wait).await
    }

    /// Sleeps, but not longer than until the source begins to stop.
    pub async fn sleep(&self, delay: Duration) -> Result<(), Stopping> {
        self.unless_stopping(tokio::time::sleep(delay)).await
    }
}
