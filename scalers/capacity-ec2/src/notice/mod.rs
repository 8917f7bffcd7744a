//! Decodes EC2's messages about instances, which are EventBridge events in an SQS queue, and converts them into events for the engine.
//!
//! ```text
//! body -> SNS notification, if any -> EventBridge envelope -> detail by its type -> Notice | Foreign | NoticeError
//! Notice + KnownInstances -> NoticeOutcome { events for the engine, what was left out }
//! ```
//!
//! | detail-type | fields | event |
//! | --- | --- | --- |
//! | EC2 Spot Instance Interruption Warning | `instance-id`, `instance-action` | `ReclaimNotice`, 2 min after it was sent; at once for a hibernation |
//! | EC2 Capacity Reservation Instance Interruption Warning | `instance-id`, `instance-termination-time` | `ReclaimNotice` at that time |
//! | Capacity Block Expiration Warning | `capacity-reservation-id`, `end-date` | `ReclaimNotice` for each instance in it, 30 min before the end |
//! | EC2 Instance State-change Notification | `instance-id`, `state` | `stopping`, `stopped`, `shutting-down`: `ReclaimNotice` at once; `terminated`: `NodeGone` |
//! | AWS Health Event, EC2, `scheduledChange` | `affectedEntities`, `startTime` | `ReclaimNotice` at its start, if that is within the hour |
//! | EC2 Instance Rebalance Recommendation | `instance-id` | none, see [`NoticeOutcome`] |
//!
//! The formats are those of AWS's documentation: [spot](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html)
//! (best effort; the ARN in `resources` has the zone in place of the region),
//! [rebalance](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html),
//! [state](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html),
//! [reservations](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitor-interruptible-cr.html),
//! [Capacity Blocks](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html),
//! [health](https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html).
//!
//! No input makes the decoder panic, and texts from messages are shortened. Nothing here calls AWS.

mod detail;
mod envelope;
mod error;
mod events;
#[cfg(test)]
mod tests;
mod timestamp;

pub use envelope::{MAX_MESSAGE_BYTES, decode_message};
pub use error::NoticeError;
pub use events::{ACT_WITHIN, ClaimStatus, FutureChange, KnownInstances, NoticeOutcome, notice_events};

use crate::api_call::Ec2InstanceState;
use forebay_kernel::units::Timestamp;

/// A well-formed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueMessage {
    /// It is about instances, or about a reservation that has instances.
    Notice(InterruptionNotice),
    /// It is about other things, and is only counted.
    Foreign {
        /// The source and detail type, shortened and escaped.
        about: String,
    },
}

/// A message about instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptionNotice {
    /// What happens to the instances.
    pub kind: NoticeKind,
    /// The ids of the instances, each once. It is empty for a Capacity Block, which has a reservation instead.
    pub instances: Vec<String>,
    /// The id of the reservation that ends.
    pub reservation: Option<String>,
    /// When it happens or has happened, on AWS's clock. The time of reception replaces a missing time.
    pub at: Timestamp,
    /// When it was sent, on AWS's clock, if the message says so.
    pub sent: Option<Timestamp>,
    /// EventBridge's id of the event. An event may be received twice.
    pub id: String,
}

/// What happens to instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    /// A spot instance is reclaimed.
    Spot(SpotAction),
    /// A spot instance has a higher risk of being reclaimed.
    Rebalance,
    /// The state of an instance has changed.
    State(Ec2InstanceState),
    /// An instance in an interruptible reservation of another account is reclaimed.
    Reservation,
    /// A Capacity Block ends.
    BlockEnd,
    /// Maintenance or retirement is scheduled.
    ScheduledChange,
}

/// How a spot instance is reclaimed. Its workers die in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpotAction {
    /// It is terminated. Unknown actions count as this one.
    Terminate,
    /// It is stopped until there is capacity again.
    Stop,
    /// It is stopped with its memory on disk, which begins at once.
    Hibernate,
}
