//! The source: it runs its receivers, restarts one that panics or ends, and stops all of them.

use crate::backlog;
use crate::conditions::Conditions;
use crate::context::Context;
use crate::queue::Queue;
use crate::receiver::Receiver;
use crate::settings::{SqsError, SqsSettings};
use forebay_source::{Health, Source, SourceHandle};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinHandle, JoinSet};

/// The time limit for stopping: the rest of a poll, releases, and deletions that are running.
const STOP_WITHIN: Duration = Duration::from_secs(9);
/// The delay before a broken task is restarted, so that a fault that repeats does not use up the processor.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Job events from SQS queues.
#[derive(Debug)]
pub struct SqsSource {
    context: Arc<Context>,
    runtime: Handle,
    task: Option<JoinHandle<()>>,
}

impl SqsSource {
    /// Validates the settings and starts to receive. Whether the queues can be reached is reported in `health`.
    ///
    /// The handle needs more than ten permits per receiver, over all sources, because each receiver reserves ten while it polls.
    ///
    /// # Errors
    /// The settings are not valid.
    pub fn start(
        settings: SqsSettings,
        handle: SourceHandle,
        health: Health,
        runtime: Handle,
    ) -> Result<SqsSource, SqsError> {
        let queues = Queue::all(&settings, settings.check()?);
        let context = Arc::new(Context::new(settings, handle, Conditions::new(health)));
        let task = runtime.spawn(run(Arc::clone(&context), queues));
        Ok(SqsSource { context, runtime, task: Some(task) })
    }
}

impl Source for SqsSource {
    /// Blocks for at most 9 s, usually for the rest of a poll. It must not be called from a task of the runtime.
    fn stop(mut self: Box<Self>) {
        self.context.stop();
        if let Some(mut task) = self.task.take() {
            let ended = self.runtime.block_on(async { tokio::time::timeout(STOP_WITHIN, &mut task).await });
            if ended.is_err() {
                task.abort();
                self.context.stop_in_flight();
            }
        }
        self.context.conditions.stopped();
    }
}

impl Drop for SqsSource {
    fn drop(&mut self) {
        self.context.stop();
    }
}

async fn run(context: Arc<Context>, queues: Vec<Arc<Queue>>) {
    let (alive, mut all_gone) = mpsc::channel::<Infallible>(1);
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    for queue in &queues {
        for number in 1..=context.settings.receivers {
            let label = format!("{} {number}", queue.name);
            let (context, queue, alive) = (Arc::clone(&context), Arc::clone(queue), alive.clone());
            let receiver = Receiver { context, queue, label: label.clone(), alive };
            tasks.insert(label, Box::new(move || Box::pin(receiver.clone().run())));
        }
        let name = format!("{} backlog", queue.name);
        let (context, queue) = (Arc::clone(&context), Arc::clone(queue));
        let watch = move || Box::pin(backlog::watch(Arc::clone(&context), Arc::clone(&queue))) as Running;
        tasks.insert(name, Box::new(watch));
    }
    supervise(&context, &tasks).await;
    context.stop_in_flight();
    // Batches in flight have clones of their own: the channel closes when the last of them is settled.
    drop((tasks, alive));
    let _ = all_gone.recv().await;
    context.conditions.stopped();
}

type Running = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
type Task = Box<dyn Fn() -> Running + Send + Sync>;

/// Runs the tasks until the source stops. A task that panics or returns before that is restarted.
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
        if context.is_stopping() {
            continue;
        }
        let (Some(name), true) = (name, context.sleep(RESTART_DELAY).await.is_ok()) else {
            continue;
        };
        if let Some(task) = tasks.get(name) {
            context.conditions.health.count_restart();
            context.conditions.add_remark(format!("sqs: the task `{name}` {how} and was restarted"));
            names.insert(running.spawn(task()).id(), name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_source::DurablePositions;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_restarted_and_reported() {
        let (handle, _incoming) = SourceHandle::new(Arc::new(Semaphore::new(10)), DurablePositions::default());
        let health = Health::default();
        let context = Arc::new(Context::new(SqsSettings::default(), handle, Conditions::new(health.clone())));
        let starts = Arc::new(AtomicU32::new(0));
        let (shared, counted) = (Arc::clone(&context), Arc::clone(&starts));
        let task: Task = Box::new(move || {
            let (context, start) = (Arc::clone(&shared), counted.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move {
                match start {
                    0 => panic!("a fault of the test's own"),
                    1 => {}
                    _ => context.stop(),
                }
            })
        });
        supervise(&context, &BTreeMap::from([("jobs 1".to_owned(), task)])).await;
        let health = health.snapshot();
        assert_eq!((starts.load(Ordering::Relaxed), health.restarts), (3, 2));
        let remarks: Vec<_> = health.remarks.iter().map(|remark| remark.text.as_str()).collect();
        assert!(remarks[0].contains("`jobs 1` panicked") && remarks[1].contains("`jobs 1` ended"), "{remarks:?}");
    }
}
