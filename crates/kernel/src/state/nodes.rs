//! The claim table: a node from the decision to buy it until it is gone, what is free on it, and the purchases that bring claims.
//!
//! Never: decides, or indexes itself. A claim that is gone leaves the table; the ledger keeps its time and cost.

use super::billing::HeldPart;
use super::jobs::OpenEffect;
use super::node_reserves::NodeRoom;
use super::owned::Owned;
use crate::catalog::Offering;
use crate::decision::DrainWhy;
use crate::effect::Terms;
use crate::event::LaunchError;
use crate::ids::{JobId, ModelId, NodeId, OfferingId, PoolId, PurchaseId, RackId};
use crate::policy::Layout;
use crate::units::{Mib, MilliCpu, MilliGpu, Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its key.
    pub id: NodeId,
    /// What brought it.
    pub purchase: PurchaseId,
    /// What it is.
    pub offering: OfferingId,
    /// Whose ceiling it counts against.
    pub pool: PoolId,
    /// Where in its life it is.
    pub phase: NodePhase,
    /// Since when.
    pub since: Timestamp,
    /// When it was decided on.
    pub decided_at: Timestamp,
    /// The cloud's id, once it exists.
    pub instance: Option<String>,
    /// What is free on each GPU.
    pub slots: Vec<Slot>,
    /// How its GPUs are partitioned. `None`: they are whole.
    pub partition: Option<Partition>,
    /// Where it stands, once the cloud has said so.
    pub rack: Option<RackId>,
    /// Bought with the other nodes of its purchase into one placement group, which is as near as one rack.
    pub cluster: bool,
    /// CPU not promised to workers.
    pub cpu_free: MilliCpu,
    /// Memory not promised to workers.
    pub mem_free: Mib,
    /// Jobs with workers booked or running here, one entry a worker.
    pub holds: Vec<JobId>,
    /// Since when it has been ready with nothing on it.
    pub idle_since: Option<Timestamp>,
    /// What it frees is kept for these jobs, for each until then. Snapshots of version 2 had one at most, as an option: none and one have the
    /// same bytes in a list.
    pub reserved: Vec<(JobId, Timestamp)>,
    /// The cloud takes it back then.
    pub reclaim_at: Option<Timestamp>,
    /// GPU share held by started runs.
    pub allocated: MilliGpu,
    /// GPU share held by booked jobs.
    pub booked: MilliGpu,
    /// While booting: given up then. While idle: drained then.
    pub due: Timestamp,
    /// To be given back whatever is on it: quarantined, or nobody's.
    pub condemned: bool,
    /// Faults that runs blamed on it.
    pub faults: u32,
    /// What it costs now.
    pub price: Rate,
    /// What the ceilings count it at.
    pub booked_price: Rate,
    /// The ledger has counted its time up to here.
    pub accrued_to: Timestamp,
    /// The termination without an outcome yet.
    pub effect: Option<OpenEffect>,
    /// It was not bought, and others use it too. Such a node is ready as long as it is here.
    #[serde(skip)]
    pub owned: Option<Box<Owned>>,
    /// It takes no work: an operator drains it, or its pool.
    #[serde(skip)]
    pub cordoned: bool,
    /// What of it is not for work.
    #[serde(skip)]
    pub reserve: NodeRoom,
    /// What each job holds of it, in order of jobs. Made from the rows of the jobs.
    #[serde(skip)]
    pub parts: Vec<HeldPart>,
    /// Workers of each service booked or running here, in order of services. Made from what it holds.
    #[serde(skip)]
    pub replicas: Vec<(JobId, u32)>,
}

/// One GPU of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// Free share in thousandths.
    pub free: u16,
    /// Free memory.
    pub mem_free: Mib,
    /// Workers on it.
    pub workers: u16,
    /// Free slices, a bit each by position. 0 where the GPU is whole.
    pub slices: u8,
}

/// How the GPUs of a node are partitioned, from the purchase on until it is gone, whatever becomes of the policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Which of the pool's layouts it was then.
    pub layout: u8,
    /// The slices of each GPU.
    pub slices: Vec<Cut>,
}

/// One slice of a partitioned GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// Compute as its profile states it, rounded up: what an ask is compared with.
    pub share: u16,
    /// What a worker on it holds. Rounded down where the stated shares of a GPU add up to more than it has.
    pub held: u16,
    /// Its memory.
    pub mem: Mib,
}

impl Partition {
    /// A layout cut into GPUs of so much memory. `None`: the layout has no slices, so the GPUs are whole.
    #[must_use]
    pub fn of(at: u8, layout: &Layout, gpu_mem: Mib) -> Option<Partition> {
        let stated: u32 = layout.slices.iter().map(|s| u32::from(s.share)).sum();
        let over = u16::from(stated > 1000);
        let (mut share_left, mut mem_left) = (1000u16, gpu_mem.0);
        let mut slices = Vec::new();
        for slice in layout.slices.iter().take(8) {
            // Profiles round up: 7 x 143 is 1,001. The fraction is nobody's.
            let held = slice.share.saturating_sub(over).min(share_left);
            let mem = slice.mem.0.min(mem_left);
            share_left -= held;
            mem_left -= mem;
            slices.push(Cut { share: slice.share, held, mem: Mib(mem) });
        }
        (!slices.is_empty()).then_some(Partition { layout: at, slices })
    }

    /// All slices free.
    #[must_use]
    pub fn all_free(&self) -> u8 {
        self.slices.iter().enumerate().fold(0, |mask, (at, _)| mask | (1 << at))
    }
}

/// Where in its life a claim is. A claim whose instance is gone leaves the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum NodePhase {
    /// Decided on; the cloud has not answered yet.
    Requested,
    /// The instance exists.
    Booting,
    /// It can take work.
    Ready,
    /// It takes no new work and is checked again.
    Draining {
        /// Why.
        why: DrainWhy,
        /// Then.
        check_at: Timestamp,
    },
    /// The termination is out.
    Terminating,
}

impl NodePhase {
    /// Whether it is bought and was never ready.
    #[must_use]
    pub fn is_coming(self) -> bool {
        matches!(self, NodePhase::Requested | NodePhase::Booting)
    }

    /// As tables and the API name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NodePhase::Requested => "requested",
            NodePhase::Booting => "booting",
            NodePhase::Ready => "ready",
            NodePhase::Draining { .. } => "draining",
            NodePhase::Terminating => "terminating",
        }
    }
}

impl Node {
    /// Whether new work may be booked on it.
    #[must_use]
    pub fn open(&self) -> bool {
        self.reclaim_at.is_none()
            && !self.condemned
            && !self.cordoned
            && self.owned.as_ref().is_none_or(|owned| owned.open && !owned.leaves)
            && matches!(self.phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready)
    }

    /// GPUs with nothing on them that are not partitioned.
    #[must_use]
    pub fn whole_free(&self) -> u16 {
        if self.partition.is_some() {
            return 0;
        }
        self.slots_free() - self.foreign_gpus()
    }

    /// Those that are left to us, as a mask: what others hold is taken to be the last of them, for nobody says which they are.
    #[must_use]
    #[inline]
    pub fn whole_mask(&self) -> u64 {
        if self.partition.is_some() {
            return 0;
        }
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.workers == 0).map(|(at, _)| at);
        free.take(usize::from(self.whole_free())).fold(0, |mask, at| mask | (1 << at))
    }

    /// GPUs without a worker of ours, whoever else holds them.
    fn slots_free(&self) -> u16 {
        self.slots.iter().filter(|slot| slot.workers == 0).count() as u16
    }

    /// The share that no worker of ours holds, in thousandths of a GPU.
    #[must_use]
    pub fn free_share(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.free)).sum()
    }

    /// GPUs that others hold, as far as no worker of ours does: more cannot be.
    #[must_use]
    pub fn foreign_gpus(&self) -> u16 {
        self.owned.as_ref().map_or(0, |owned| owned.foreign.gpus.min(self.slots_free()))
    }

    /// CPU that neither workers nor others hold, and that is for work.
    #[must_use]
    #[inline]
    pub fn cpu_left(&self) -> MilliCpu {
        let foreign = self.owned.as_ref().map_or(0, |owned| owned.foreign.cpu.0);
        MilliCpu(self.cpu_free.0.saturating_sub(foreign).saturating_sub(self.reserve.cpu.0))
    }

    /// Memory that neither workers nor others hold, and that is for work.
    #[must_use]
    #[inline]
    pub fn mem_left(&self) -> Mib {
        let foreign = self.owned.as_ref().map_or(0, |owned| owned.foreign.mem.0);
        Mib(self.mem_free.0.saturating_sub(foreign).saturating_sub(self.reserve.mem.0))
    }
}

/// GPUs from which on a node is worth keeping whole.
pub const LARGE: u16 = 8;

impl Node {
    /// Whether these GPUs would leave a large node with nothing on its GPUs in two parts.
    pub(crate) fn split_by(&self, gpus: u64) -> bool {
        let (all, taken) = (self.slots.len(), gpus.count_ones() as usize);
        all >= usize::from(LARGE) && taken > 0 && taken < all && usize::from(self.whole_free()) == all
    }
}

/// How many nodes of an offering may be in flight at once where nothing is known against its stock.
pub const WIDE_OPEN: u32 = 16_384;

impl OfferingRow {
    /// Whether it was out of stock, and is being tried with more and more nodes.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        self.window < WIDE_OPEN
    }

    /// Since when launches of it have failed, if each was tried again as soon as it might. `None`: the last one has not.
    #[must_use]
    pub fn refused_since(&self) -> Option<Timestamp> {
        /// From here on each pause is the longest.
        const GROWS: u32 = 16;
        let (first, cap) = pauses_after(self.blocked_by?);
        let growing = (0..self.failures.min(GROWS)).map(|n| first.doubled(n, cap).0).sum::<u64>();
        let rest = cap.0.saturating_mul(u64::from(self.failures.saturating_sub(GROWS)));
        Some(Timestamp(self.blocked_until.0.saturating_sub(growing.saturating_add(rest))))
    }
}

/// The pause after the first failure of a kind, and the longest: it doubles.
pub(crate) fn pauses_after(error: LaunchError) -> (Span, Span) {
    match error {
        LaunchError::Capacity => (Span::mins(1), Span::mins(10)),
        LaunchError::Boot => (Span::mins(1), Span::mins(30)),
        LaunchError::Throttled | LaunchError::Server => (Span::secs(5), Span::mins(2)),
        LaunchError::Quota | LaunchError::Auth | LaunchError::Config | LaunchError::Contested => {
            (Span::mins(5), Span::mins(30))
        }
    }
}

/// A purchase whose outcome is not known yet. It holds its ceilings until it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Purchase {
    /// Its key.
    pub id: PurchaseId,
    /// Into which pool.
    pub pool: PoolId,
    /// Of what.
    pub offering: OfferingId,
    /// Its claims.
    pub nodes: Vec<NodeId>,
    /// Fewer than this are of no use.
    pub at_least: u32,
    /// How they were asked for.
    pub terms: Terms,
    /// When it was decided on.
    pub decided_at: Timestamp,
    /// The launch.
    pub effect: OpenEffect,
}

/// An offering and what is known of its stock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OfferingRow {
    /// What it is. The price moves.
    pub offer: Offering,
    /// Its models, interned.
    pub models: Vec<ModelId>,
    /// Whether the policy in force names it.
    pub listed: bool,
    /// Nothing is asked of it before then.
    pub blocked_until: Timestamp,
    /// Why nothing is asked of it.
    pub blocked_by: Option<LaunchError>,
    /// While out of stock: the smallest request that failed, lately or in this row of refusals. Smaller ones may still be met.
    pub refused_size: u32,
    /// Failed windows in a row.
    pub failures: u32,
    /// Nodes that may be in flight at once: 1 after a stock-out, doubling on success. 0: one boots to see whether any does.
    pub window: u32,
    /// Nodes in flight now.
    pub in_flight: u32,
    /// What of each of its nodes is not for work.
    #[serde(skip)]
    pub reserve: NodeRoom,
}
