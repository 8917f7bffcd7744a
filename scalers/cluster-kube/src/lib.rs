//! Runs gangs as pods of a Kubernetes cluster, and drains its nodes.
//!
//! ```text
//! effect -> GangStart (frozen, journaled) -> KubeMachine -> KubeCall -> client -> API server
//! engine events <- KubeReport <------------- KubeMachine <- KubeResponse, WatchEvent <-'
//! template files -> template::TemplateSet -> GangStart
//! ```
//!
//! The engine decides what runs where. Here is which calls that needs, in which order, and what the responses mean. Nothing outside of
//! `client`, which makes the calls, does IO or links a client of Kubernetes: bodies are JSON, and the objects that are read are plain structs.
//!
//! ```
//! use forebay_cluster_kube::{EngineView, KubeCall, KubeMachine, KubeSettings};
//! use forebay_kernel::units::Timestamp;
//!
//! let mut machine = KubeMachine::new(KubeSettings::new("jobs", "registry.example.com/forebay:1"), "journal-1");
//! machine.begin(EngineView::default());
//! let calls = machine.poll(Timestamp(1_800_000_000_000));
//! assert!(calls.iter().all(|(_, call)| matches!(call, KubeCall::List { .. })), "nothing is done before all is listed");
//! ```

pub mod adopted_jobs;
pub mod adoption;
pub mod api_call;
#[cfg(feature = "client")]
pub mod client;
pub mod kube_error;
pub mod machine;
pub mod names;
pub mod objects;
mod pod_body;
mod rates;
pub mod request;
pub mod settings;
pub mod template;
pub mod trial;
pub mod view;

pub use adopted_jobs::{AdoptedJobs, WaitingScope};
pub use api_call::{
    KubeCall, KubeCallId, KubeObject, KubeResponse, ObjectSelector, Resource, SecretBody, WatchChange, WatchEvent,
};
pub use kube_error::{KubeError, KubeErrorClass};
pub use machine::{KubeMachine, KubeReport};
pub use names::{RunId, WorkerId, journal_label};
pub use request::{GangRequest, GangStart, RunToken};
pub use settings::{KubeRateSettings, KubeSettings};
pub use trial::TrialPod;
pub use view::{AdoptedWait, EngineView};
