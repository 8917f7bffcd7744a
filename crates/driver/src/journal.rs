//! The kernel's traits of a journal, and the ids by which events that come again are recognized.
//!
//! Never: IO of its own.

pub use forebay_kernel::storage::*;

/// By what an event is recognized when it comes again: a digest of who sent it, its own source and id, and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenId(pub u128);

impl From<forebay_wire::intake::EventId> for SeenId {
    fn from(id: forebay_wire::intake::EventId) -> SeenId {
        SeenId(id.0)
    }
}
