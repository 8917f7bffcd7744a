//! Instances: the actual state of each, and its earlier states for describe calls with stale results.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// It was launched and has not booted.
    Pending,
    /// It has booted.
    Running,
    /// It is terminating.
    ShuttingDown,
    /// It is terminated. It is described for another hour.
    Terminated,
    /// It is stopping.
    Stopping,
    /// It is stopped.
    Stopped,
}

impl InstanceState {
    /// EC2's name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            InstanceState::Pending => "pending",
            InstanceState::Running => "running",
            InstanceState::ShuttingDown => "shutting-down",
            InstanceState::Terminated => "terminated",
            InstanceState::Stopping => "stopping",
            InstanceState::Stopped => "stopped",
        }
    }

    /// EC2's code of the state.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            InstanceState::Pending => 0,
            InstanceState::Running => 16,
            InstanceState::ShuttingDown => 32,
            InstanceState::Terminated => 48,
            InstanceState::Stopping => 64,
            InstanceState::Stopped => 80,
        }
    }

    /// Whether it is terminating or terminated.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self, InstanceState::ShuttingDown | InstanceState::Terminated)
    }
}

/// Why an instance was terminated or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By a call or a user.
    Requested,
    /// It failed to boot.
    BootFailed,
    /// By the market, or by a test in its place.
    Reclaimed,
    /// By the end of its Capacity Block, or by its retirement.
    Scheduled,
}

impl EndReason {
    /// EC2's code and message. EC2 documents none for the end of a Capacity Block, so that of a scheduled stop is used.
    #[must_use]
    pub fn reason(self) -> (&'static str, &'static str) {
        match self {
            EndReason::Requested => {
                ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
            }
            EndReason::BootFailed => ("Client.InternalError", "Client.InternalError: Client error on launch"),
            EndReason::Reclaimed => {
                ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
            }
            EndReason::Scheduled => {
                ("Server.ScheduledStop", "Server.ScheduledStop: Stopped due to a scheduled retirement")
            }
        }
    }
}

/// An instance in its actual state.
#[derive(Clone, Debug)]
pub struct LoopbackInstance {
    /// `i-` with 17 hex digits.
    pub id: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// How it is paid for. It is `Reserved` in a reservation.
    pub capacity: CapacityType,
    /// The state.
    pub state: InstanceState,
    /// All tags.
    pub tags: BTreeMap<String, String>,
    /// The client token of its launch, or an empty text. Describe calls return another token for a fleet.
    pub client_token: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// When it was terminated.
    pub terminated_at: Option<Timestamp>,
    /// Why it was terminated or stopped.
    pub end_reason: Option<EndReason>,
    /// The name of its placement group.
    pub placement_group: Option<String>,
    /// The id of its capacity reservation.
    pub reservation: Option<String>,
    /// The requested subnet.
    pub subnet: Option<String>,
    /// When it is reclaimed, after a warning.
    pub reclaim_at: Option<Timestamp>,
    /// When it is retired, after an announcement.
    pub retires_at: Option<Timestamp>,
    /// When a rebalance recommendation was sent.
    pub rebalance_at: Option<Timestamp>,
    /// The number of its EFA interfaces.
    pub efa_interfaces: u32,
    /// The number in the order of launches, from 1.
    pub(crate) number: u64,
    /// The id of its launch, `r-...`.
    pub(crate) launch: String,
    /// The client token in describe calls.
    pub(crate) shown_token: String,
    pub(crate) image: String,
    pub(crate) spot_request: Option<String>,
    /// The highest price, in micro-dollars per hour.
    pub(crate) max_price: u64,
    pub(crate) vcpus: u64,
    /// When its state began.
    pub(crate) since: Timestamp,
    /// Its views with the times from which they are valid, oldest first. The last one is valid now.
    pub(crate) history: Vec<(Timestamp, View)>,
}

/// The part of an instance that may be described stale.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub state: InstanceState,
    pub since: Timestamp,
    pub end_reason: Option<EndReason>,
    pub tags: Arc<BTreeMap<String, String>>,
}

impl LoopbackInstance {
    /// The view at a time. `None`: before its launch.
    pub(crate) fn seen_at(&self, at: Timestamp) -> Option<&View> {
        let after = self.history.partition_point(|(from, _)| *from <= at);
        self.history.get(after.checked_sub(1)?).map(|(_, view)| view)
    }

    /// Records a change, and removes the views that are too old to be described.
    pub(crate) fn changed(&mut self, at: Timestamp, max_staleness: Span) {
        let tags = match self.history.last() {
            Some((_, view)) if *view.tags == self.tags => Arc::clone(&view.tags),
            _ => Arc::new(self.tags.clone()),
        };
        self.history.push((at, View { state: self.state, since: self.since, end_reason: self.end_reason, tags }));
        let oldest = Timestamp(at.0.saturating_sub(max_staleness.0));
        let terminated_at = self.history.partition_point(|(from, _)| *from <= oldest).saturating_sub(1);
        self.history.drain(..terminated_at);
    }
}

/// All instances by number and by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instances {
    rows: BTreeMap<u64, LoopbackInstance>,
    by_id: BTreeMap<String, u64>,
    last: u64,
}

impl Instances {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn insert(&mut self, instance: LoopbackInstance) {
        self.by_id.insert(instance.id.clone(), instance.number);
        self.rows.insert(instance.number, instance);
    }

    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(row) = self.rows.remove(&number) {
            self.by_id.remove(&row.id);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &LoopbackInstance> {
        self.rows.values()
    }

    /// The instances after a number.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = &LoopbackInstance> {
        self.rows.range(number.saturating_add(1)..).map(|(_, row)| row)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&LoopbackInstance> {
        self.row(*self.by_id.get(id)?)
    }

    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn row(&self, number: u64) -> Option<&LoopbackInstance> {
        self.rows.get(&number)
    }

    pub(crate) fn row_mut(&mut self, number: u64) -> Option<&mut LoopbackInstance> {
        self.rows.get_mut(&number)
    }
}
