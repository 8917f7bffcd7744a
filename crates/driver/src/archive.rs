//! What the archive knows, given to the engine: a job that is over leaves the state, and the engine cannot ask for it.
//!
//! ```text
//! event -> identity -> not in the state -> the archive has it? -> the same event, with the earlier job
//! ```
//!
//! Never: reads an archive. Whoever drives the engine asks its own.

use forebay_kernel::event::{EarlierJob, Event};

/// The identity of a job that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventIdentity<'a> {
    /// Whose job.
    pub tenant: &'a str,
    /// Its name among those of its tenant.
    pub subject: &'a str,
}

/// The identity that an event of a pipeline names. `None`: it is about something else.
#[must_use]
pub fn identity_of(event: &Event) -> Option<EventIdentity<'_>> {
    match event {
        Event::JobSubmitted(spec) => Some(EventIdentity { tenant: &spec.tenant, subject: &spec.subject }),
        Event::JobCancelled { tenant, subject, .. } | Event::ServiceDemand { tenant, subject, .. } => {
            Some(EventIdentity { tenant, subject })
        }
        _ => None,
    }
}

/// The event with what the archive knows of its identity. To be used only where the state does not know the identity.
#[must_use]
pub fn with_earlier_job(event: Event, earlier: EarlierJob) -> Event {
    match event {
        Event::JobSubmitted(spec) => Event::JobSubmittedAgain { spec, earlier },
        Event::JobCancelled { tenant, subject, by, sent } => Event::FinishedJobCancelled { tenant, subject, by, sent },
        other => other,
    }
}
