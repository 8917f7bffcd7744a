//! What is asked of EC2 and what it answers, without its wire format.
//!
//! Never: more than one page or one batch a call.

use crate::request::Request;
use crate::trouble::Refusal;
use forebay_engine::catalog::CapacityType;
use forebay_engine::units::Millis;
use std::collections::BTreeMap;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Make a purchase, or ask again what became of it.
    Launch(Box<Request>),
    /// Make a cluster placement group.
    MakeGroup(String),
    /// End instances.
    Terminate(Vec<String>),
    /// List a page of what carries a name.
    List {
        /// The cluster's name.
        cluster: String,
        /// Where the page begins. `None`: the first.
        from: Option<String>,
    },
    /// Describe instances by their ids; those that are unknown are left out of the answer.
    Describe(Vec<String>),
}

impl Call {
    /// Which of EC2's rates it counts against.
    #[must_use]
    pub fn rate(&self) -> RateClass {
        match self {
            Call::Launch(request) => request.rate(),
            Call::MakeGroup(_) => RateClass::Mutate,
            Call::Terminate(_) => RateClass::Terminate,
            Call::List { .. } | Call::Describe(_) => RateClass::Describe,
        }
    }
}

/// Calls that EC2 counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateClass {
    /// Describe and the like.
    Describe,
    /// `CreateFleet` and other changes.
    Mutate,
    /// `RunInstances`.
    Run,
    /// `TerminateInstances`.
    Terminate,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A purchase was made, in part or in whole.
    Launched {
        /// The instances, in EC2's order.
        instances: Vec<String>,
        /// Why there are fewer than asked, as codes with texts.
        errors: Vec<(String, String)>,
    },
    /// It is done.
    Done,
    /// Instances.
    Seen {
        /// On this page.
        instances: Vec<Seen>,
        /// Where the next page begins. `None`: this was the last.
        next: Option<String>,
    },
    /// EC2 said no.
    Refused(Refusal),
    /// Nothing came back, or nothing that can be read: whether it was done is not known.
    Lost(String),
}

/// An instance as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub instance: String,
    /// What it is.
    pub instance_type: String,
    /// Where.
    pub zone: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// How far it is.
    pub state: InstanceState,
    /// The code of why it ended, where EC2 says.
    pub reason: Option<String>,
    /// The same in EC2's words.
    pub words: Option<String>,
    /// The capacity reservation that it runs in.
    pub reservation: Option<String>,
    /// When it was launched.
    pub launched: Option<Millis>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// It starts.
    Pending,
    /// It runs.
    Running,
    /// It is being stopped, or is stopped: nothing runs on it, and it is still there.
    Stopped,
    /// It is being ended.
    ShuttingDown,
    /// It is no more.
    Terminated,
}

impl Seen {
    /// Whether it is still there.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.state != InstanceState::Terminated
    }

    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(String::as_str)
    }
}
