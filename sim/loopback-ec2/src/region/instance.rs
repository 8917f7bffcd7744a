//! Instances: what is true of each, and what each looked like a while ago, for describes that lag behind.
//!
//! Never: a decision about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};

/// Where in its life an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// Launched, not booted.
    Pending,
    /// Booted.
    Running,
    /// Ending.
    ShuttingDown,
    /// Ended; shown for an hour.
    Terminated,
    /// Told to stop.
    Stopping,
    /// Stopped; it could start again.
    Stopped,
}

impl InstanceState {
    /// As EC2 writes it.
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

    /// EC2's number for it.
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

    /// Whether it is on its way to its end, or there.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self, InstanceState::ShuttingDown | InstanceState::Terminated)
    }
}

/// Why an instance ended or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked for it: a call, or a person.
    Asked,
    /// It could not boot.
    NoBoot,
    /// The market, or a test in its place.
    Reclaimed,
    /// Its Capacity Block is over, or its retirement has come.
    Scheduled,
}

impl Why {
    /// EC2's code of the reason, and its words. EC2 documents none for a block's end; a scheduled stop comes nearest.
    #[must_use]
    pub fn reason(self) -> (&'static str, &'static str) {
        match self {
            Why::Asked => ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"),
            Why::NoBoot => ("Client.InternalError", "Client.InternalError: Client error on launch"),
            Why::Reclaimed => {
                ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
            }
            Why::Scheduled => ("Server.ScheduledStop", "Server.ScheduledStop: Stopped due to a scheduled retirement"),
        }
    }
}

/// What is true of an instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// `i-` with 17 hex digits.
    pub id: String,
    /// Its type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// How it is paid for. In a reservation: reserved.
    pub capacity: CapacityType,
    /// Where in its life it is.
    pub state: InstanceState,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The token of the call that launched it; empty where there was none. Describes show another for a fleet's.
    pub client_token: String,
    /// When it was launched.
    pub launched: Millis,
    /// When it ended, if it has.
    pub gone: Option<Millis>,
    /// Why it ended, ends or stopped.
    pub why: Option<Why>,
    /// The placement group that it is in.
    pub placement_group: Option<String>,
    /// The capacity reservation that it runs in.
    pub reservation: Option<String>,
    /// The subnet that was asked for.
    pub subnet: Option<String>,
    /// When the cloud takes it back, if that is settled.
    pub reclaim_at: Option<Millis>,
    /// When it is retired, if that is announced.
    pub retires_at: Option<Millis>,
    /// When moving away was recommended, if it was.
    pub rebalance_at: Option<Millis>,
    /// How many of its interfaces are EFA.
    pub efa_interfaces: u32,
    /// In the order of launches, from 1.
    pub(crate) number: u64,
    /// The launch that it came from, `r-...`.
    pub(crate) launch: String,
    /// What describes show as its client token.
    pub(crate) shown_token: String,
    pub(crate) image: String,
    pub(crate) spot_request: Option<String>,
    /// The most that it may cost, in micro-dollars an hour.
    pub(crate) max_price: u64,
    pub(crate) vcpus: u64,
    /// When its present state began.
    pub(crate) since: Millis,
    /// What it looked like from when on, oldest first; the last is the present.
    pub(crate) history: Vec<(Millis, View)>,
}

/// What may be seen late.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub state: InstanceState,
    pub since: Millis,
    pub why: Option<Why>,
    pub tags: Arc<BTreeMap<String, String>>,
}

impl Instance {
    /// What it looked like then; nothing before it was launched.
    pub(crate) fn seen_at(&self, at: Millis) -> Option<&View> {
        let after = self.history.partition_point(|(from, _)| *from <= at);
        self.history.get(after.checked_sub(1)?).map(|(_, view)| view)
    }

    /// Notes what has changed, and forgets what nobody can be shown any more.
    pub(crate) fn changed(&mut self, at: Millis, stale: Span) {
        let tags = match self.history.last() {
            Some((_, view)) if *view.tags == self.tags => Arc::clone(&view.tags),
            _ => Arc::new(self.tags.clone()),
        };
        self.history.push((at, View { state: self.state, since: self.since, why: self.why, tags }));
        let oldest = Millis(at.0.saturating_sub(stale.0));
        let gone = self.history.partition_point(|(from, _)| *from <= oldest).saturating_sub(1);
        self.history.drain(..gone);
    }
}

/// All instances, by number and by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instances {
    rows: BTreeMap<u64, Instance>,
    by_id: BTreeMap<String, u64>,
    last: u64,
}

impl Instances {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn insert(&mut self, instance: Instance) {
        self.by_id.insert(instance.id.clone(), instance.number);
        self.rows.insert(instance.number, instance);
    }

    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(row) = self.rows.remove(&number) {
            self.by_id.remove(&row.id);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Instance> {
        self.rows.values()
    }

    /// Those launched after this one.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = &Instance> {
        self.rows.range(number.saturating_add(1)..).map(|(_, row)| row)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Instance> {
        self.row(*self.by_id.get(id)?)
    }

    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn row(&self, number: u64) -> Option<&Instance> {
        self.rows.get(&number)
    }

    pub(crate) fn row_mut(&mut self, number: u64) -> Option<&mut Instance> {
        self.rows.get_mut(&number)
    }
}
