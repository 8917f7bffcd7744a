//! Calls to EC2 and their responses, without the SDK's types. A call is at most one page or one batch.

use crate::error_class::Ec2Error;
use crate::request::LaunchRequest;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ec2Call {
    /// Makes a purchase. Sent again, it finds out what became of it.
    Launch(Box<LaunchRequest>),
    /// Creates a cluster placement group with this name.
    CreateGroup(String),
    /// Terminates these instances.
    Terminate(Vec<String>),
    /// Lists one page of the instances with the tag of a cluster.
    List {
        /// The value of the tag.
        cluster: String,
        /// The token of the page. `None`: the first page.
        next_token: Option<String>,
    },
    /// Describes instances by their ids. The response leaves unknown ids out.
    Describe(Vec<String>),
}

impl Ec2Call {
    /// The rate that the call counts against.
    #[must_use]
    pub fn rate(&self) -> RateClass {
        match self {
            Ec2Call::Launch(request) => request.rate(),
            Ec2Call::CreateGroup(_) => RateClass::Mutate,
            Ec2Call::Terminate(_) => RateClass::Terminate,
            Ec2Call::List { .. } | Ec2Call::Describe(_) => RateClass::Describe,
        }
    }
}

/// Calls that EC2 throttles together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateClass {
    /// All `Describe` calls.
    Describe,
    /// `CreateFleet` and other changes.
    Mutate,
    /// `RunInstances`.
    Run,
    /// `TerminateInstances`.
    Terminate,
}

/// The response to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ec2Response {
    /// A purchase was made, completely or in part.
    Launched {
        /// The ids of the instances, in EC2's order.
        instances: Vec<String>,
        /// Why there are fewer than requested.
        errors: Vec<Ec2Error>,
    },
    /// The call succeeded.
    Done,
    /// A page of instances.
    Described {
        /// The instances of the page.
        instances: Vec<DescribedInstance>,
        /// The token of the next page. `None`: this was the last one.
        next_token: Option<String>,
    },
    /// EC2 refused the call, or there was no usable response.
    Refused(Ec2Error),
}

/// An instance as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedInstance {
    /// The id, such as `i-1234567890abcdef0`.
    pub instance: String,
    /// The type, such as `g5.xlarge`.
    pub instance_type: String,
    /// The availability zone.
    pub zone: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// The state of the instance.
    pub state: Ec2InstanceState,
    /// EC2's code for why it ended or stopped, if there is one.
    pub reason: Option<String>,
    /// EC2's text for the same, at most 200 characters.
    pub reason_text: Option<String>,
    /// The capacity reservation that it runs in.
    pub reservation: Option<String>,
    /// When it was launched, on EC2's clock.
    pub launched: Option<Timestamp>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ec2InstanceState {
    /// It is starting.
    Pending,
    /// It is running.
    Running,
    /// It is being stopped.
    Stopping,
    /// It is stopped: nothing runs on it, and it still exists.
    Stopped,
    /// It is being terminated.
    ShuttingDown,
    /// It is terminated.
    Terminated,
}

impl DescribedInstance {
    /// Whether it is not terminated.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.state != Ec2InstanceState::Terminated
    }

    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(String::as_str)
    }
}
