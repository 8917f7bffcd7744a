//! The real servers that tests run against: Apache Kafka, LocalStack and Kubernetes' control plane. Installed once into a cache, started on
//! free loopback ports, restarted where they were, and ended with whoever started them. Beside them Prometheus, cfn-lint, focus-validator, cargo-deny, cargo-cyclonedx,
//! Helm and promtool, which are commands, and stand-ins for NVIDIA's library, for machines without a GPU, and for an SQS that
//! fails as a test wants.
//!
//! ```text
//! pins (pom.xml, requirements.txt, go.mod) -> install -> cache folder -> start -> a port on 127.0.0.1 -> stop | kill | restart
//!                                             once, under a lock          a data folder of its own, removed at the end
//! ```
//!
//! ```no_run
//! use forebay_parts::{Kafka, KafkaOptions};
//!
//! let mut kafka = Kafka::start(KafkaOptions::default())?;
//! kafka.create_topic("jobs", 4)?;
//! println!("{}", kafka.bootstrap());
//! kafka.kill()?;
//! kafka.restart()?; // the same address, and the topic is there
//! # Ok::<(), forebay_parts::PartError>(())
//! ```
//!
//! Every wait has a limit. A part may stand in a static that is never dropped: it goes with the process, and its folder too.
//! Never: a server that outlives its starter, a container engine, an address beyond loopback, a
//! stand-in that passes for the real thing without its name saying so.

mod cargo_tools;
mod cfn_lint;
mod chromium;
mod error;
mod focus_validator;
mod go_module;
mod guarded;
mod helm;
mod http;
mod install;
mod kafka;
mod kubernetes;
mod localstack;
mod nvml;
mod ports;
mod prometheus;
mod random;
mod repeating;
mod secure;
pub mod sqs_stub;
pub mod tools;
mod venv;
mod wait;

pub use cargo_tools::{CargoCyclonedx, CargoDeny};
pub use cfn_lint::CfnLint;
pub use chromium::Chromium;
pub use error::PartError;
pub use focus_validator::FocusValidator;
pub use guarded::{GuardedChild, guarded};
pub use helm::Helm;
pub use install::cache;
pub use kafka::{Edge, Kafka, KafkaOptions};
pub use kubernetes::{KWOK_STAGES, Kubernetes, KubernetesOptions, KwokOptions, NodeBridge, NodeBridgeOptions};
pub use localstack::{LocalStack, LocalStackOptions};
pub use nvml::NvmlStub;
pub use ports::free_port;
pub use prometheus::{Prometheus, Promtool};
pub use repeating::RepeatingThread;
pub use secure::Secure;
