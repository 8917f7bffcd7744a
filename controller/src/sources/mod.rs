//! Where job events come from and statuses go to, beside HTTP: starts what the configuration names, decodes what it hands in, and
//! sends what the controller says.
//!
//! ```text
//! adapter --Posted--> clerk: intake --Post--> driver          status.jsonl, rejected.jsonl --> follower --> sink
//! ```
//!
//! Never: a payload's word on who sent it. That is the topic's or the queue's, by the configuration.

pub mod board;
pub mod clerk;
pub mod figures;
pub mod follower;
#[cfg(feature = "kafka")]
mod kafka;
pub mod lines;
pub mod open;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(test)]
mod tests;

use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::driver::Handle;
use crate::intake::Router;
use board::{Board, Listed};
use clerk::{Channel, Clerk};
use figures::SourceFigures;
use follower::Follower;
use forebay_source::{Health, Sink, Source};
use lines::Kind;
use open::{Open, OpenError, Opened};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// What sources and sinks are started with.
pub struct Start<'a> {
    /// What to start.
    pub config: &'a Config,
    /// The driver.
    pub handle: Handle,
    /// The policy's routes.
    pub routes: Arc<dyn Router>,
    /// The key of attempt tokens.
    pub key: Option<[u8; 32]>,
    /// Looks at checkpoints that are reported.
    pub checkpoints: Checkpoints,
    /// Where adapters run what is asynchronous.
    pub runtime: tokio::runtime::Handle,
}

/// Sources and sinks that run.
#[derive(Default)]
pub struct Sources {
    sources: Vec<Box<dyn Source>>,
    threads: Vec<JoinHandle<()>>,
    board: Board,
}

impl Sources {
    /// Starts everything that is named: sinks first, so that statuses find their way. The cloud that nodes are bought in is listed with them.
    ///
    /// # Errors
    /// A setting that cannot be. What does not answer yet is no error: it is tried again.
    pub fn start(start: &Start<'_>, cloud: Option<Listed>) -> Result<Sources, OpenError> {
        let (mut sources, mut listed) = (Sources::default(), Vec::from_iter(cloud));
        let all = open::all(start.config)?;
        for one in &all {
            for (kind, sink) in [Kind::Statuses, Kind::Rejected].into_iter().zip(one.sinks(&start.runtime)?) {
                if let Some(sink) = sink {
                    listed.push(sources.follow(kind, sink, start)?);
                }
            }
        }
        for one in all {
            if !one.channels().is_empty() {
                listed.push(sources.read(one, start)?);
            }
        }
        sources.board = Board::new(listed);
        Ok(sources)
    }

    /// What they are and how they are.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Nothing is received any more. To be called before the driver is stopped, so that what was received becomes durable or goes back.
    pub fn stop_receiving(&mut self) {
        // Side by side: each may take some seconds.
        let stopping: Vec<_> = self.sources.drain(..).map(|source| std::thread::spawn(move || source.stop())).collect();
        for thread in stopping {
            if thread.join().is_err() {
                tracing::error!(
                    "a source ended by a fault of this program; what it had not handed in stays where it is"
                );
            }
        }
    }

    /// Waits until sinks have sent what is left, as far as they can. To be called when the driver has stopped.
    pub fn finish(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a sink ended by a fault of this program; what it had not sent is in its file");
            }
        }
    }

    fn follow(&mut self, kind: Kind, sink: Box<dyn Sink>, start: &Start<'_>) -> Result<Listed, OpenError> {
        let health = Health::default();
        let name = sink.name().to_owned();
        let cursor = follower::cursor(kind, &name);
        let follower = Follower::new(kind, sink, start.handle.clone(), health.clone());
        let runtime = start.runtime.clone();
        self.thread(format!("{} to {name}", kind.as_str()), move || follower.follow(&runtime))?;
        Ok(Listed::sink(name, kind, health, cursor))
    }

    fn read(&mut self, one: &dyn Open, start: &Start<'_>) -> Result<Listed, OpenError> {
        let (desk, incoming) = start.handle.desk();
        let (health, figures) = (Health::default(), Arc::new(SourceFigures::default()));
        let channels = one.channels().into_iter().map(|(name, caller)| Channel { name: name.into(), caller });
        let channels: Vec<Channel> = channels.collect();
        let names = channels.iter().map(|channel| channel.name.to_string()).collect();
        let clerk = Clerk {
            handle: start.handle.clone(),
            channels,
            routes: Arc::clone(&start.routes),
            key: start.key,
            checkpoints: start.checkpoints.clone(),
            figures: Arc::clone(&figures),
        };
        self.thread(format!("clerk of {}", one.name()), move || clerk.work(incoming))?;
        let journal = start.handle.journal();
        let opened = Opened { journal, desk, health: health.clone(), runtime: start.runtime.clone() };
        self.sources.push(one.source(opened)?);
        Ok(Listed::source(one.name(), names, health, figures))
    }

    fn thread(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let spawned = Builder::new().name(name.chars().take(15).collect()).spawn(work);
        self.threads.push(spawned.map_err(|source| OpenError::Thread { name, source })?);
        Ok(())
    }
}
