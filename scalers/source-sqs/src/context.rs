//! What the tasks of one source share.
//!
//! Never: waits without an ear for the end.

use crate::board::Board;
use crate::client::{self, Way};
use crate::settings::Settings;
use crate::trouble::Trouble;
use forebay_source::{Condition, Desk};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{OnceCell, watch};

/// A wait for room or for receipts that is shorter is no news.
const HELD_BACK_AFTER: Duration = Duration::from_secs(1);

/// What the tasks of one source share.
#[derive(Debug)]
pub(crate) struct Context {
    pub settings: Settings,
    pub desk: Desk,
    pub board: Board,
    way: OnceCell<Way>,
    stage: watch::Sender<Stage>,
}

/// How far the end is. First the polls end: one that is left would receive what is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Ending,
    PollsEnded,
}

/// The source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending;

impl Context {
    pub fn new(settings: Settings, desk: Desk, board: Board) -> Context {
        Context { settings, desk, board, way: OnceCell::new(), stage: watch::Sender::new(Stage::Running) }
    }

    /// The way to SQS, found once.
    pub async fn way(&self) -> Result<&Way, Trouble> {
        self.way.get_or_try_init(|| client::find(&self.settings)).await
    }

    /// Everybody ends.
    pub fn end(&self) {
        self.reach(Stage::Ending);
    }

    /// No poll is left: what is not durable may be given back.
    pub fn end_held(&self) {
        self.reach(Stage::PollsEnded);
    }

    fn reach(&self, stage: Stage) {
        self.stage.send_if_modified(|at| {
            let further = *at < stage;
            *at = stage.max(*at);
            further
        });
    }

    /// Whether everybody ends.
    pub fn ends(&self) -> bool {
        *self.stage.borrow() >= Stage::Ending
    }

    /// Resolves when everybody ends.
    pub async fn ended(&self) {
        self.reached(Stage::Ending).await;
    }

    /// Resolves when everybody ends and no poll is left.
    pub async fn polls_ended(&self) {
        self.reached(Stage::PollsEnded).await;
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives in this very context, so that waiting for it cannot fail.
        let _ = self.stage.subscribe().wait_for(|at| *at >= stage).await;
    }

    /// Waits for something, or for the end.
    pub async fn or_end<T>(&self, wait: impl Future<Output = T>) -> Result<T, Ending> {
        tokio::select! {
            biased;
            () = self.ended() => Err(Ending),
            got = wait => Ok(got),
        }
    }

    /// The same, and after a second of it says that the part is held back.
    pub async fn held_back<T>(&self, part: &str, wait: impl Future<Output = T>) -> Result<T, Ending> {
        let mut wait = std::pin::pin!(wait);
        if let Ok(got) = tokio::time::timeout(HELD_BACK_AFTER, self.or_end(&mut wait)).await {
            return got;
        }
        self.board.is(part, Condition::HeldBack);
        self.or_end(wait).await
    }

    /// Pauses. An error: the source ends.
    pub async fn pause(&self, pause: Duration) -> Result<(), Ending> {
        self.or_end(tokio::time::sleep(pause)).await
    }
}
