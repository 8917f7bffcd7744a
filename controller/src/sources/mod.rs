//! Sources of job events and sinks for statuses, in addition to HTTP: starts the configured adapters, decodes their messages, and sends statuses
//! and rejected events.
//!
//! ```text
//! adapter --SubmittedBatch--> decode worker: intake --Submission--> driver          statuses, rejected events --> follower --> sink
//! ```
//!
//! The caller of a message is configured for its topic or queue, and never taken from its content.

pub mod adapter;
pub mod decode_worker;
pub mod follower;
#[cfg(feature = "kafka")]
mod kafka;
pub mod lines;
pub mod metrics;
pub mod registry;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(test)]
mod tests;

use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::driver::DriverHandle;
use adapter::{OpenError, SourceAdapter, SourceContext};
use decode_worker::{DecodeWorker, SourceChannel};
use follower::Follower;
use forebay_source::{Health, Sink, Source};
use forebay_wire::intake::AttemptKeys;
use forebay_wire::intake::Router;
use lines::LogKind;
use metrics::SourceMetrics;
use registry::{RegisteredSource, SourceRegistry};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// What the sources and sinks are started with.
pub struct SourcesStart<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The driver.
    pub handle: DriverHandle,
    /// The policy's routes.
    pub routes: Arc<dyn Router>,
    /// The key of attempt tokens.
    pub key: Option<AttemptKeys>,
    /// Verifies reported checkpoints.
    pub checkpoints: Checkpoints,
    /// The runtime of the adapters.
    pub runtime: tokio::runtime::Handle,
}

/// The running sources and sinks.
#[derive(Default)]
pub struct Sources {
    sources: Vec<Box<dyn Source>>,
    threads: Vec<JoinHandle<()>>,
    registry: SourceRegistry,
}

impl Sources {
    /// Starts everything that is configured, sinks first. Cloud and cluster, if any, are only registered.
    ///
    /// # Errors
    /// A setting is invalid. A broker that does not respond is no error, and is tried again.
    pub fn start(start: &SourcesStart<'_>, adapters: Vec<RegisteredSource>) -> Result<Sources, OpenError> {
        let (mut sources, mut registered) = (Sources::default(), adapters);
        let mut cursors = Vec::new();
        let adapters = adapter::adapters(start.config)?;
        for adapter in &adapters {
            for (kind, sink) in [LogKind::Statuses, LogKind::Rejected].into_iter().zip(adapter.sinks(&start.runtime)?) {
                if let Some(sink) = sink {
                    cursors.push(follower::cursor(kind, sink.name()));
                    registered.push(sources.follow(kind, sink, start)?);
                }
            }
        }
        start.handle.set_log_readers(cursors);
        for adapter in adapters {
            if !adapter.channels().is_empty() {
                registered.push(sources.read(adapter, start)?);
            }
        }
        sources.registry = SourceRegistry::new(registered);
        Ok(sources)
    }

    /// All sources and sinks with their conditions.
    #[must_use]
    pub fn registry(&self) -> &SourceRegistry {
        &self.registry
    }

    /// Stops the sources. It is called before the driver stops, so that received messages become durable or return to their broker.
    pub fn stop_receiving(&mut self) {
        // In parallel, because each may take some seconds.
        let stopping: Vec<_> = self.sources.drain(..).map(|source| std::thread::spawn(move || source.stop())).collect();
        for thread in stopping {
            if thread.join().is_err() {
                tracing::error!(
                    "a source ended by a bug of this program; messages that it had not submitted stay with the broker"
                );
            }
        }
    }

    /// Waits until the sinks have sent what is left, up to their time limit. It is called after the driver has stopped.
    pub fn finish(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a sink ended by a bug of this program; what it had not sent is in its file");
            }
        }
    }

    fn follow(
        &mut self,
        kind: LogKind,
        sink: Box<dyn Sink>,
        start: &SourcesStart<'_>,
    ) -> Result<RegisteredSource, OpenError> {
        let health = Health::default();
        let name = sink.name().to_owned();
        let follower = Follower::new(kind, sink, start.handle.clone(), health.clone());
        let progress = follower.progress();
        let runtime = start.runtime.clone();
        self.thread(format!("{} to {name}", kind.as_str()), move || follower.follow(&runtime))?;
        Ok(RegisteredSource::sink(name, kind, health, progress))
    }

    fn read(&mut self, adapter: &dyn SourceAdapter, start: &SourcesStart<'_>) -> Result<RegisteredSource, OpenError> {
        let (source, incoming) = start.handle.source();
        let (health, metrics) = (Health::default(), Arc::new(SourceMetrics::default()));
        let channels = adapter.channels().into_iter().map(|(name, caller)| SourceChannel { name: name.into(), caller });
        let channels: Vec<SourceChannel> = channels.collect();
        let names = channels.iter().map(|channel| channel.name.to_string()).collect();
        let worker = DecodeWorker {
            handle: start.handle.clone(),
            channels,
            routes: Arc::clone(&start.routes),
            key: start.key.clone(),
            checkpoints: start.checkpoints.clone(),
            metrics: Arc::clone(&metrics),
        };
        self.thread(format!("decode {}", adapter.name()), move || worker.run(incoming))?;
        let journal = start.handle.journal();
        let context = SourceContext { journal, source, health: health.clone(), runtime: start.runtime.clone() };
        self.sources.push(adapter.source(context)?);
        Ok(RegisteredSource::source(adapter.name(), names, health, metrics))
    }

    fn thread(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let spawned = Builder::new().name(name.chars().take(15).collect()).spawn(work);
        self.threads.push(spawned.map_err(|source| OpenError::Thread { name, source })?);
        Ok(())
    }
}
