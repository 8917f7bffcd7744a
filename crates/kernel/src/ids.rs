//! Identities. Each is its own type, so that a node is never taken for a job; all are counters or indices kept in the state.

use core::fmt;
use serde::{Deserialize, Serialize};

/// An id that a counter gives out, so that it can be the key of a [`crate::state::table::Table`].
pub trait RowId: Copy {
    /// The id with a number.
    fn from_number(number: u64) -> Self;
    /// Its number.
    fn number(self) -> u64;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl $name {
            /// The position of this id's row in its table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl RowId for $name {
            fn from_number(number: u64) -> Self {
                // A counter of that width: it has not run out, or the state would not be in memory.
                Self(number as $inner)
            }

            fn number(self) -> u64 {
                u64::from(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A job, in order of acceptance.
    JobId, u64, "job-"
);
id!(
    /// A claim, which is a node from the decision to buy it until it is gone.
    NodeId, u64, "node-"
);
id!(
    /// One request to the cloud for one or more claims.
    PurchaseId, u64, "purchase-"
);
id!(
    /// Position of a record in the journal. The id of an effect is the journal's UUID and the position of its decision.
    Seq, u64, "#"
);
id!(
    /// One run of a job, counted from 1. 0: never started.
    Attempt, u32, "attempt-"
);
id!(
    /// An equivalence class: jobs that every stage treats alike.
    ClassId, u32, "class-"
);
id!(
    /// A queue by its path, interned.
    QueueId, u32, "queue-"
);
id!(
    /// A GPU model name, lower case, interned.
    ModelId, u32, "model-"
);
id!(
    /// A batch key within a queue, interned.
    BatchId, u32, "batch-"
);
id!(
    /// A rack by the cloud's name, interned.
    RackId, u32, "rack-"
);
id!(
    /// An offering: instance type x zone x capacity type, interned.
    OfferingId, u32, "offering-"
);
id!(
    /// A pool, by its position in the policy.
    PoolId, u16, "pool-"
);
id!(
    /// A tier, by its position in the policy.
    TierId, u16, "tier-"
);
id!(
    /// A node of the quota tree, by its position in the policy.
    QuotaId, u16, "quota-"
);
