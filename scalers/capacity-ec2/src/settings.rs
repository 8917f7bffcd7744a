//! What an adapter is told once: under which name it buys, and how each pool's instances are launched.
//!
//! Never: a credential.

use forebay_engine::catalog::Offering;
use forebay_engine::units::{Millis, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who buys, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name under which instances are bought: tag `forebay:cluster`. One controller a name.
    pub cluster: String,
    /// The journal that decides: tag `forebay:journal`.
    pub journal: String,
    /// Journals that are no more, whose instances are ended as orphans.
    pub predecessors: BTreeSet<String>,
    /// How instances of each pool are launched.
    pub pools: BTreeMap<String, Launch>,
    /// For pools that `pools` does not name.
    pub other: Launch,
    /// Capacity that is paid for already.
    pub reservations: Vec<Reservation>,
    /// How many network cards of an instance type take an EFA interface, where that is known.
    pub efa: BTreeMap<String, u32>,
    /// Whether an instance takes work as soon as EC2 calls it running. Else something else has to say so.
    pub ready_when_running: bool,
}

/// How instances are launched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The launch template, by id (`lt-...`) or name. Without one, `image`.
    pub template: Option<String>,
    /// Its version. `None`: the default one at the time of the launch.
    pub version: Option<String>,
    /// The image, instead of that of a template.
    pub image: Option<String>,
    /// A subnet a zone. A zone without one is left to the template or to the default network.
    pub subnets: BTreeMap<String, String>,
    /// Security groups by id, instead of those of a template.
    pub security_groups: Vec<String>,
    /// The instance profile by name, instead of that of a template.
    pub instance_profile: Option<String>,
    /// The first boot's script, instead of that of a template.
    pub user_data: Option<String>,
    /// Tags beside Forebay's own.
    pub tags: BTreeMap<String, String>,
}

/// Capacity that is paid for already: an On-Demand Capacity Reservation or a Capacity Block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// `cr-...`.
    pub id: String,
    /// Of what.
    pub instance_type: String,
    /// Where.
    pub zone: String,
    /// Whether it is a Capacity Block: bought for a time, and ended by EC2.
    pub block: bool,
    /// When it begins, if it has not begun long ago.
    pub starts: Option<Millis>,
    /// When it ends, if it does.
    pub ends: Option<Millis>,
}

/// EC2 begins to end the instances of a Capacity Block so long before its end.
pub const BLOCK_CLEARS: Span = Span::mins(30);

/// The end of a Capacity Block is told to the engine so long before its instances are ended.
pub const BLOCK_WARNS: Span = Span::mins(10);

impl Reservation {
    /// Whether a node that is decided on then, and boots for so long, has any use before it has to be left.
    fn is_of_use(&self, decided: Millis, boot: Span) -> bool {
        let before_its_end = if self.block { BLOCK_CLEARS + BLOCK_WARNS + boot } else { Span::ZERO };
        self.starts.is_none_or(|at| at <= decided) && self.ends.is_none_or(|at| decided + before_its_end < at)
    }
}

impl Settings {
    /// For a journal that buys under a name, with one way to launch.
    #[must_use]
    pub fn new(cluster: &str, journal: &str, other: Launch) -> Settings {
        Settings {
            cluster: cluster.to_owned(),
            journal: journal.to_owned(),
            predecessors: BTreeSet::new(),
            pools: BTreeMap::new(),
            other,
            reservations: Vec::new(),
            efa: BTreeMap::new(),
            ready_when_running: true,
        }
    }

    /// How instances of a pool are launched.
    #[must_use]
    pub fn launch(&self, pool: &str) -> &Launch {
        self.pools.get(pool).unwrap_or(&self.other)
    }

    /// The reservations that a purchase may go into, the one that ends first before the others. None: none lasts long enough.
    #[must_use]
    pub fn reservations(&self, offer: &Offering, decided: Millis) -> Vec<&Reservation> {
        let same = |r: &&Reservation| r.instance_type == offer.instance_type && r.zone == offer.zone;
        let open = self.reservations.iter().filter(same).filter(|r| r.is_of_use(decided, offer.boot));
        let mut open: Vec<&Reservation> = open.collect();
        open.sort_by_key(|r| r.ends.unwrap_or(Millis::NEVER));
        open
    }

    /// EFA interfaces for an instance of a type: one a network card. One, where it is not known.
    #[must_use]
    pub fn cards(&self, instance_type: &str) -> u32 {
        self.efa.get(instance_type).copied().unwrap_or(1).max(1)
    }
}

impl Launch {
    /// Whether there is something that only `RunInstances` can say: overrides of a fleet have a type, a place, a price and an image.
    #[must_use]
    pub fn says_more_than_overrides(&self) -> bool {
        !self.security_groups.is_empty() || self.instance_profile.is_some() || self.user_data.is_some()
    }
}
