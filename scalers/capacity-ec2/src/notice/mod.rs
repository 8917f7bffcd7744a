//! What EC2 says about instances of its own accord: EventBridge events as they lie in an SQS queue, read and put in the engine's words.
//!
//! ```text
//! body -> (an SNS notification around it?) -> EventBridge envelope -> detail by its type -> Notice | Foreign | NoticeError
//! Notice + what is known of the instances -> Outcome { events for the engine, what was left out and why }
//! ```
//!
//! | detail-type | read | becomes |
//! | --- | --- | --- |
//! | EC2 Spot Instance Interruption Warning | `instance-id`, `instance-action` | `ReclaimNotice`, 2 min after it was sent; a hibernation begins at once |
//! | EC2 Capacity Reservation Instance Interruption Warning | `instance-id`, `instance-termination-time` | `ReclaimNotice` at that time |
//! | Capacity Block Expiration Warning | `capacity-reservation-id`, `end-date` | `ReclaimNotice` for each instance in it, 30 min before the end |
//! | EC2 Instance State-change Notification | `instance-id`, `state` | `stopping`, `stopped`, `shutting-down`: `ReclaimNotice` at once; `terminated`: `NodeGone` |
//! | AWS Health Event, EC2, `scheduledChange` | `affectedEntities`, `startTime` | `ReclaimNotice` at its start when that is within the hour |
//! | EC2 Instance Rebalance Recommendation | `instance-id` | nothing: see [`Outcome`] |
//!
//! Shapes and promises are those of AWS's pages: [spot](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html)
//! (best effort; the ARN in `resources` has the zone where the region belongs, so it is not read),
//! [rebalance](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html),
//! [state](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html),
//! [reservations](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitor-interruptible-cr.html),
//! [Capacity Blocks](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html),
//! [health](https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html).
//!
//! Never: panics on what a stranger wrote, repeats it without bound, or asks the cloud anything.

mod detail;
mod envelope;
mod error;
mod events;
#[cfg(test)]
mod tests;
mod time;

pub use envelope::{MOST_BYTES, read};
pub use error::NoticeError;
pub use events::{Instances, Later, Outcome, SOON, Standing, events};

use forebay_engine::units::Millis;

/// A well-formed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It is about instances, or about a reservation that has some.
    Notice(Notice),
    /// It is about something else: to be counted, and done with.
    Foreign {
        /// What it is about, cut and escaped.
        about: String,
    },
}

/// What the cloud says about instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What happens to them.
    pub kind: Kind,
    /// Which, by the cloud's ids, each once. None for a Capacity Block, which names its reservation.
    pub instances: Vec<String>,
    /// The reservation that ends.
    pub reservation: Option<String>,
    /// When the cloud acts, or has acted, since 1970. By when it was received where the message has no time.
    pub at: Millis,
    /// When it was sent, since 1970.
    pub sent: Option<Millis>,
    /// EventBridge's id of the event; the same one may come twice.
    pub id: String,
}

/// What happens to instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A spot instance is taken back.
    Spot(Action),
    /// A spot instance is more likely than others to be taken back. Maybe it never is.
    Rebalance,
    /// An instance is in another state.
    State(InstanceState),
    /// An instance in somebody's interruptible reservation is taken back.
    Reservation,
    /// A Capacity Block ends.
    BlockEnd,
    /// Maintenance or retirement at a set time.
    ScheduledChange,
}

/// How a spot instance is taken back. Its workers die in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// For good; also any action that nobody knows yet.
    Terminate,
    /// Until there is capacity again.
    Stop,
    /// The same, with its memory on disk. It begins with the warning.
    Hibernate,
}

/// A state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// Being started.
    Pending,
    /// Started.
    Running,
    /// Being stopped.
    Stopping,
    /// Stopped.
    Stopped,
    /// Being terminated.
    ShuttingDown,
    /// No more.
    Terminated,
}
