//! The configuration of the adapter: under which name it buys, and how the instances of each pool are launched. It has no credentials.

use crate::clock::ClockReading;
use forebay_kernel::catalog::Offering;
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::{ForeignId, JournalId, JournalIdentity};
use forebay_kernel::units::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The name that instances are bought under, and how they are launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Settings {
    /// The name that instances are bought under, as the tag `forebay:cluster`. Each controller has its own.
    pub cluster: String,
    /// The id of the deciding journal, as the tag `forebay:journal`.
    pub journal: String,
    /// The journal's incarnations, where it is known: instances of earlier ones are its own as far as it knows what they are.
    pub lineage: JournalIdentity,
    /// The number of the first purchase that the journal had not made when the process started. `None`: it is not known.
    pub first_purchase: Option<u64>,
    /// Instances that the journal bought after its last record, as the first listing after a start shows. Nothing may end them.
    pub unrecorded: BTreeSet<String>,
    /// Earlier journals whose instances are terminated as orphans.
    pub predecessors: BTreeSet<String>,
    /// How the instances of each pool are launched.
    pub pools: BTreeMap<String, LaunchSettings>,
    /// How those of every other pool are launched.
    pub other: LaunchSettings,
    /// Capacity that is already paid for.
    pub reservations: Vec<ReservedCapacity>,
    /// By instance type, the number of network cards that take an EFA interface.
    pub efa: BTreeMap<String, u32>,
    /// Whether an instance is ready as soon as EC2 calls it running. Otherwise something else reports it ready.
    pub ready_when_running: bool,
}

/// Whose an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalClaim {
    /// This journal's.
    Ours,
    /// This journal's, bought after the backup that it goes on from: nobody knows what runs there, so that nothing may end it.
    Lost,
    /// An earlier journal's, whose instances are terminated.
    Predecessor,
    /// Anybody else's.
    Other,
}

/// How instances are launched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSettings {
    /// The id (`lt-...`) or name of the launch template. Without one, `image` is required.
    pub template: Option<String>,
    /// The template's version. `None`: the default version at the time of the launch.
    pub version: Option<String>,
    /// The AMI, which replaces the template's.
    pub image: Option<String>,
    /// Subnets by zone. In other zones the template or the default network determines the subnet.
    pub subnets: BTreeMap<String, String>,
    /// Ids of security groups, which replace the template's.
    pub security_groups: Vec<String>,
    /// The name of the instance profile, which replaces the template's.
    pub instance_profile: Option<String>,
    /// The script of the first boot, which replaces the template's.
    pub user_data: Option<String>,
    /// Tags in addition to Forebay's own.
    pub tags: BTreeMap<String, String>,
}

/// Capacity that is already paid for: an On-Demand Capacity Reservation or a Capacity Block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedCapacity {
    /// `cr-...`.
    pub id: String,
    /// The reserved instance type.
    pub instance_type: String,
    /// The reserved availability zone.
    pub zone: String,
    /// Whether it is a Capacity Block, which is bought for a fixed time and ended by EC2.
    pub block: bool,
    /// When it begins, on AWS's clock. `None`: it has begun.
    pub starts: Option<Timestamp>,
    /// When it ends, on AWS's clock. `None`: it has no end.
    pub ends: Option<Timestamp>,
}

/// EC2 starts to terminate the instances of a Capacity Block this long before the block ends.
pub const BLOCK_RECLAIM_LEAD: Span = Span::mins(30);

/// The engine gets the reclaim notice of a Capacity Block this long before EC2 starts to terminate its instances.
pub const BLOCK_WARNING_LEAD: Span = Span::mins(10);

impl ReservedCapacity {
    /// Whether a node that is decided on at this time, and boots for so long, can run work before it is reclaimed.
    fn is_usable(&self, decided: Timestamp, boot: Span) -> bool {
        let lead = if self.block { BLOCK_RECLAIM_LEAD + BLOCK_WARNING_LEAD + boot } else { Span::ZERO };
        self.starts.is_none_or(|at| at <= decided) && self.ends.is_none_or(|at| decided + lead < at)
    }
}

impl Ec2Settings {
    /// Settings with one way to launch for all pools, and without reservations.
    #[must_use]
    pub fn new(cluster: &str, journal: &str, other: LaunchSettings) -> Ec2Settings {
        Ec2Settings {
            cluster: cluster.to_owned(),
            journal: journal.to_owned(),
            lineage: JournalIdentity::default(),
            first_purchase: None,
            unrecorded: BTreeSet::new(),
            predecessors: BTreeSet::new(),
            pools: BTreeMap::new(),
            other,
            reservations: Vec::new(),
            efa: BTreeMap::new(),
            ready_when_running: true,
        }
    }

    /// The id under which an effect leaves, and has left: that of the incarnation that decided it.
    #[must_use]
    pub fn journal_of(&self, effect: Seq) -> String {
        if self.lineage.id.uuid == 0 { self.journal.clone() } else { self.lineage.of_effect(effect).to_string() }
    }

    /// Whose an instance is by its tags. `purchase`: its number, where that can be read.
    #[must_use]
    pub fn claim(&self, journal: &str, purchase: Option<u64>) -> JournalClaim {
        if journal == self.journal {
            return JournalClaim::Ours;
        }
        let known = journal.parse::<JournalId>().ok().filter(|id| id.uuid == self.lineage.id.uuid && id.uuid != 0);
        let meaning =
            known.map(|id| purchase.map_or(ForeignId::Lost, |purchase| self.lineage.purchase_of(id, purchase)));
        match meaning {
            Some(ForeignId::Known) => JournalClaim::Ours,
            Some(ForeignId::Lost) => JournalClaim::Lost,
            Some(ForeignId::Stranger) | None if self.predecessors.contains(journal) => JournalClaim::Predecessor,
            Some(ForeignId::Stranger) | None => JournalClaim::Other,
        }
    }

    /// These settings with the times of reservations, which are AWS's, on the engine's clock.
    #[must_use]
    pub fn on_clock(&self, clock: ClockReading) -> Ec2Settings {
        let mut settings = self.clone();
        for reservation in &mut settings.reservations {
            reservation.starts = reservation.starts.map(|at| clock.to_engine(at));
            reservation.ends = reservation.ends.map(|at| clock.to_engine(at));
        }
        settings
    }

    /// How the instances of a pool are launched.
    #[must_use]
    pub fn launch(&self, pool: &str) -> &LaunchSettings {
        self.pools.get(pool).unwrap_or(&self.other)
    }

    /// The reservations that a purchase may use, in the order in which they end.
    #[must_use]
    pub fn reservations(&self, offer: &Offering, decided: Timestamp) -> Vec<&ReservedCapacity> {
        let same = |r: &&ReservedCapacity| r.instance_type == offer.instance_type && r.zone == offer.zone;
        let open = self.reservations.iter().filter(same).filter(|r| r.is_usable(decided, offer.boot));
        let mut open: Vec<&ReservedCapacity> = open.collect();
        open.sort_by_key(|r| r.ends.unwrap_or(Timestamp::NEVER));
        open
    }

    /// The number of EFA interfaces of an instance type, one for each network card. It is 1 for an unknown type.
    #[must_use]
    pub fn cards(&self, instance_type: &str) -> u32 {
        self.efa.get(instance_type).copied().unwrap_or(1).max(1)
    }
}

impl LaunchSettings {
    /// Whether a setting is used that only `RunInstances` takes: the overrides of a fleet have a type, a location, a price and an image.
    #[must_use]
    pub fn needs_run_instances(&self) -> bool {
        !self.security_groups.is_empty() || self.instance_profile.is_some() || self.user_data.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::catalog::CapacityType;
    use forebay_kernel::units::{Mib, MilliCpu, Rate};

    #[test]
    fn a_block_is_used_in_its_time_whatever_the_engines_clock_says() {
        let starts = Timestamp(1_800_000_000_000);
        let block = ReservedCapacity {
            id: "cr-1".to_owned(),
            instance_type: "p5.48xlarge".to_owned(),
            zone: "za".to_owned(),
            block: true,
            starts: Some(starts),
            ends: Some(starts + Span::mins(60)),
        };
        let offer = Offering {
            instance_type: block.instance_type.clone(),
            zone: block.zone.clone(),
            capacity: CapacityType::Reserved,
            gpus: 8,
            gpu_mem: Mib(81_920),
            models: Vec::new(),
            cpu: MilliCpu(192_000),
            mem: Mib(2_097_152),
            price: Rate(0),
            max_price: Rate(0),
            on_demand: Rate(0),
            boot: Span::mins(5),
            nvlink: 8,
            numa: 2,
        };
        let settings = Ec2Settings {
            reservations: vec![block],
            ..Ec2Settings::new("test", "journal-1", LaunchSettings::default())
        };
        // Its instances are drained 40 minutes before its end, and boot for five.
        for (aws, usable) in [
            (starts - Span::mins(1), false),
            (starts, true),
            (starts + Span::mins(10), true),
            (starts + Span::mins(20), false),
        ] {
            for engine in [aws, aws + Span::mins(50), aws - Span::mins(50)] {
                let settings = settings.on_clock(ClockReading { aws, engine });
                assert_eq!(settings.reservations(&offer, engine).len(), usize::from(usable), "{aws:?} {engine:?}");
            }
        }
    }
}
