//! How an event is recognized when it comes again: by who sent it, its own source and id, and its content.
//!
//! An id that is used again for something else names another event: dropping it would lose its content.
//! Never: an id for an event that names none, and never one that another tenant could make.

use super::{Caller, Envelope};
use forebay_kernel::event::Event;

/// A digest of an event's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u128);

impl EventId {
    /// Of an event with an id of its own. `None`: it has none.
    ///
    /// # Errors
    /// The event cannot be encoded: a fault of this program. Without all of its bytes two events could be taken for one.
    pub fn of(caller: &Caller, envelope: &Envelope, event: &Event) -> Result<Option<EventId>, postcard::Error> {
        if envelope.id.is_empty() {
            return Ok(None);
        }
        let mut hash = Parts::default();
        for part in [&caller.tenant, &caller.principal, &envelope.source, &envelope.id, &envelope.kind] {
            hash.part(part.as_bytes());
        }
        match event {
            Event::JobSubmitted(spec) => {
                hash.part(spec.subject.as_bytes());
                hash.part(&spec.digest.to_le_bytes());
                hash.part(&[u8::from(spec.rerun)]);
            }
            // Small and rare beside submissions: all of it.
            other => hash.part(&postcard::to_allocvec(other)?),
        }
        Ok(Some(hash.end()))
    }

    /// Of a message, by its transport's own id.
    #[must_use]
    pub fn of_message(source: &str, id: &str) -> EventId {
        let mut hash = Parts::default();
        hash.part(b"message");
        hash.part(source.as_bytes());
        hash.part(id.as_bytes());
        hash.end()
    }
}

/// BLAKE3 over parts, each with its length before it, so that no two lists of parts are one text.
#[derive(Default)]
struct Parts(blake3::Hasher);

impl Parts {
    fn part(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn end(self) -> EventId {
        let hash = self.0.finalize();
        EventId(hash.as_bytes().iter().take(16).fold(0, |n, byte| n << 8 | u128::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::{Intake, NoRoutes};
    use serde_json::json;

    fn id(change: &[(&str, &str)]) -> Option<EventId> {
        let mut event = json!({"specversion": "1.0", "type": "job.submitted", "source": "//a", "id": "1", "subject": "s",
            "data": {"gang": {"each": {"gpus": 1}}}});
        for (at, to) in change {
            *event.pointer_mut(at).unwrap() = json!(to);
        }
        let caller = Caller::local();
        Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap().id
    }

    #[test]
    fn the_same_event_has_the_same_id_and_another_another() {
        assert_eq!(id(&[]), id(&[]));
        for at in ["/source", "/id", "/subject"] {
            assert_ne!(id(&[]), id(&[(at, "other")]), "{at}");
        }
        let bare = json!({"type": "job.cancelled", "subject": "s"});
        let caller = Caller::local();
        assert_eq!(Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&bare).unwrap().id, None);
        assert_ne!(EventId::of_message("ab", "c"), EventId::of_message("a", "bc"));
    }
}
