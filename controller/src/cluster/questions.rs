//! Questions to the cluster's task: bounded, each with a budget, a few answered at a time.
//!
//! ```text
//! API --Question (bounded)--> the cluster's task: some at a time -> answer, unless whoever asked has gone
//! ```
//!
//! Never: the machine's task waits for one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

/// What is asked, and where the answer goes.
pub struct Question<Q, A> {
    /// What.
    pub asked: Q,
    /// An answer, or why there is none.
    pub answer: oneshot::Sender<Result<A, String>>,
}

/// Where questions of a kind are asked. Its copies share it.
#[derive(Debug)]
pub struct Questions<Q, A> {
    sender: mpsc::Sender<Question<Q, A>>,
    budget: Duration,
    busy: &'static str,
}

impl<Q, A> Clone for Questions<Q, A> {
    fn clone(&self) -> Questions<Q, A> {
        Questions { sender: self.sender.clone(), budget: self.budget, busy: self.busy }
    }
}

impl<Q, A> Questions<Q, A> {
    /// So many may wait, each for so long. `busy`: what is said to whoever comes beyond them. And where the questions come out.
    #[must_use]
    pub fn new(
        waiting: usize,
        budget: Duration,
        busy: &'static str,
    ) -> (Questions<Q, A>, mpsc::Receiver<Question<Q, A>>) {
        let (sender, receiver) = mpsc::channel(waiting);
        (Questions { sender, budget, busy }, receiver)
    }

    /// Asks the cluster.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, asked: Q) -> Result<A, String> {
        let (answer, answered) = oneshot::channel();
        self.sender.try_send(Question { asked, answer }).map_err(|_| self.busy.to_owned())?;
        match tokio::time::timeout(self.budget, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the cluster's task has ended".to_owned()),
            Err(_) => Err(format!("no answer of the cluster within {} s", self.budget.as_secs())),
        }
    }
}

/// Answers questions, so many at a time, until nobody asks any more.
pub async fn serve<Q, A, F>(mut questions: mpsc::Receiver<Question<Q, A>>, at_once: usize, answer_to: impl Fn(Q) -> F)
where
    A: Send + 'static,
    F: Future<Output = Result<A, String>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(at_once));
    let mut tasks = JoinSet::new();
    while let Some(Question { asked, mut answer }) = questions.recv().await {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        while tasks.try_join_next().is_some() {}
        let found = answer_to(asked);
        tasks.spawn(async move {
            // Whoever asked may have gone: then nothing more is looked for.
            let found = tokio::select! {
                found = found => Some(found),
                () = answer.closed() => None,
            };
            if let Some(found) = found {
                let _ = answer.send(found);
            }
            drop(place);
        });
    }
}
