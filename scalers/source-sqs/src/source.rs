//! The source: its receivers, restarted when one breaks, and its end.
//!
//! Never: a receiver that is gone without anybody knowing.

use crate::backlog;
use crate::board::Board;
use crate::context::Context;
use crate::queue::Queue;
use crate::receive::Receiver;
use crate::settings::{Settings, SqsError};
use forebay_source::{Desk, Health, Source};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinHandle, JoinSet};

/// For all of the end: a poll's rest, what is given back, deletions that are under way.
const END: Duration = Duration::from_secs(9);
/// Before a broken task is started again: a fault that repeats must not use up the processor.
const RESTART: Duration = Duration::from_secs(1);

/// Job events from SQS queues.
#[derive(Debug)]
pub struct Sqs {
    context: Arc<Context>,
    runtime: Handle,
    task: Option<JoinHandle<()>>,
}

impl Sqs {
    /// Checks the settings and starts to receive. Whether the queues can be reached shows in `health`.
    ///
    /// The desk's room must be larger than ten letters a receiver, over all sources: each reserves ten while it polls.
    ///
    /// # Errors
    /// The settings cannot be.
    pub fn start(settings: Settings, desk: Desk, health: Health, runtime: Handle) -> Result<Sqs, SqsError> {
        let queues = Queue::all(&settings, settings.check()?);
        let context = Arc::new(Context::new(settings, desk, Board::new(health)));
        let task = runtime.spawn(run(Arc::clone(&context), queues));
        Ok(Sqs { context, runtime, task: Some(task) })
    }
}

impl Source for Sqs {
    /// Blocks for at most 9 s, in most cases for the rest of a poll. Not to be called from a task of the runtime.
    fn stop(mut self: Box<Self>) {
        self.context.end();
        if let Some(mut task) = self.task.take() {
            let ended = self.runtime.block_on(async { tokio::time::timeout(END, &mut task).await });
            if ended.is_err() {
                task.abort();
                self.context.end_held();
            }
        }
        self.context.board.stopped();
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        self.context.end();
    }
}

async fn run(context: Arc<Context>, queues: Vec<Arc<Queue>>) {
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    for queue in &queues {
        for number in 1..=context.settings.receivers {
            let part = format!("{} {number}", queue.name);
            let (context, queue, alive) = (Arc::clone(&context), Arc::clone(queue), alive.clone());
            let receiver = Receiver { context, queue, part: part.clone(), alive };
            tasks.insert(part, Box::new(move || Box::pin(receiver.clone().run())));
        }
        let name = format!("{} backlog", queue.name);
        let (context, queue) = (Arc::clone(&context), Arc::clone(queue));
        let watch = move || Box::pin(backlog::watch(Arc::clone(&context), Arc::clone(&queue))) as Running;
        tasks.insert(name, Box::new(watch));
    }
    supervise(&context, &tasks).await;
    context.end_held();
    // The receivers' ends; what they hold has its own.
    drop((tasks, alive));
    let _ = gone.recv().await;
    context.board.stopped();
}

type Running = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
type Task = Box<dyn Fn() -> Running + Send + Sync>;

/// Runs the tasks until the source ends. One that panics or returns before that is started again.
async fn supervise(context: &Context, tasks: &BTreeMap<String, Task>) {
    let mut running = JoinSet::new();
    let mut names: BTreeMap<Id, &str> = BTreeMap::new();
    for (name, task) in tasks {
        names.insert(running.spawn(task()).id(), name);
    }
    while let Some(ended) = running.join_next_with_id().await {
        let (id, how) = match ended {
            Ok((id, ())) => (id, "ended"),
            Err(error) => (error.id(), "panicked"),
        };
        let name = names.remove(&id);
        if context.ends() {
            continue;
        }
        let (Some(name), true) = (name, context.pause(RESTART).await.is_ok()) else {
            continue;
        };
        if let Some(task) = tasks.get(name) {
            context.board.health.restarted();
            context.board.remark(format!("sqs: the task `{name}` {how} and was started again"));
            names.insert(running.spawn(task()).id(), name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_source::{Durable, desk};
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn what_panics_or_ends_is_started_again_and_told() {
        let (desk, _other) = desk(Arc::new(Semaphore::new(10)), Durable::default());
        let health = Health::default();
        let context = Arc::new(Context::new(Settings::default(), desk, Board::new(health.clone())));
        let starts = Arc::new(AtomicU32::new(0));
        let (inside, counted) = (Arc::clone(&context), Arc::clone(&starts));
        let task: Task = Box::new(move || {
            let (context, start) = (Arc::clone(&inside), counted.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move {
                match start {
                    0 => panic!("a fault of the test's own"),
                    1 => {}
                    _ => context.end(),
                }
            })
        });
        supervise(&context, &BTreeMap::from([("jobs 1".to_owned(), task)])).await;
        let seen = health.seen();
        assert_eq!((starts.load(Ordering::Relaxed), seen.restarts), (3, 2));
        let remarks: Vec<_> = seen.remarks.iter().map(|(_, text)| text.as_str()).collect();
        assert!(remarks[0].contains("`jobs 1` panicked") && remarks[1].contains("`jobs 1` ended"), "{remarks:?}");
    }
}
