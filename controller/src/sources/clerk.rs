//! The clerk behind a source's desk: decodes what was handed in, on a thread of its own, and posts it to the driver. A report of a
//! checkpoint is kept aside until the store has been asked, so that nothing waits behind it.
//!
//! Never: drops a letter. What cannot be decoded goes on as such, with its bytes, and the driver keeps it among the rejected.

use super::figures::SourceFigures;
use crate::checkpoints::{Checkpoints, Letter as KeptLetter, Report};
use crate::driver::{Answer, Content, Handle, Original, Post, PostItem};
use crate::intake::{Caller, Decoded, EventId, Intake, MOST_BYTES, Rejected, Router, from_headers};
use forebay_engine::event::Event;
use forebay_source::{Incoming, Letter, Parcel, Posted};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Different warnings that are logged of one source. Beyond, they are only counted: a stranger must not fill the log.
const MOST_WARNINGS: usize = 64;

/// A topic or a queue, and whose it is.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its name, such as `kafka:jobs`.
    pub name: Arc<str>,
    /// Who everything is from that comes through it.
    pub caller: Caller,
}

/// What a clerk needs to decode.
pub struct Clerk {
    /// Where to post.
    pub handle: Handle,
    /// The source's channels, in the order of its settings.
    pub channels: Vec<Channel>,
    /// The policy's routes.
    pub routes: Arc<dyn Router>,
    /// The key of attempt tokens.
    pub key: Option<[u8; 32]>,
    /// Looks at checkpoints that are reported.
    pub checkpoints: Checkpoints,
    /// What is counted.
    pub figures: Arc<SourceFigures>,
}

impl Clerk {
    /// Works until the source has gone or the driver has stopped.
    pub fn work(self, mut incoming: Incoming) {
        let mut warned = BTreeSet::new();
        while let Some(Posted { parcel, slot, answer }) = incoming.from.blocking_recv() {
            let Parcel { channel, stream, letters } = parcel;
            let Some(channel) = self.channels.get(channel) else {
                tracing::error!("a parcel of a channel that is not configured: it stays with its transport");
                continue;
            };
            let place = stream.as_ref().map_or(&channel.name, |stream| &stream.key);
            let items =
                letters.into_iter().filter_map(|letter| self.item(channel, place, letter, &mut warned)).collect();
            let answer = Answer::Source(answer, Arc::clone(&self.figures));
            if self.handle.post(Post { items, stream, slot, answer }).is_err() {
                return;
            }
        }
    }

    fn item(
        &self,
        channel: &Channel,
        place: &Arc<str>,
        letter: Letter,
        warned: &mut BTreeSet<String>,
    ) -> Option<PostItem> {
        let intake = Intake { caller: &channel.caller, routes: self.routes.as_ref(), key: self.key.as_ref() };
        let transport_id = letter.id.as_deref().map(|id| EventId::of_message(&channel.name, id));
        let (content, id, manifest) = match decode(&intake, &letter) {
            Ok(Decoded { event, id, warnings, manifest, .. }) => {
                self.warn(channel, warnings, warned);
                (Content::Event(event), id, manifest)
            }
            Err(why) => {
                tracing::debug!(source = %place, position = letter.offset, code = why.code.as_str(), "rejected: {why}");
                (Content::Unreadable(why), None, None)
            }
        };
        let original = Box::new(Original {
            source: Arc::clone(place),
            position: letter.offset,
            message: letter.id,
            attributes: letter.attributes,
            bytes: letter.bytes,
            sent_ms: letter.sent_ms,
        });
        if let Content::Event(Event::RunCheckpointed { job, attempt, .. }) = content
            && self.checkpoints.looks()
        {
            let letter = KeptLetter { id, transport_id, original, figures: Arc::clone(&self.figures) };
            self.checkpoints.keep(Report { job, attempt, manifest }, letter);
            return None;
        }
        Some(PostItem { content, id, transport_id, original: Some(original) })
    }

    fn warn(&self, channel: &Channel, warnings: Vec<String>, warned: &mut BTreeSet<String>) {
        self.figures.warned(warnings.len());
        for warning in warnings {
            if warned.len() < MOST_WARNINGS && !warned.contains(&warning) {
                tracing::warn!(source = %channel.name, "{warning} (said once)");
                warned.insert(warning);
            }
        }
    }
}

/// Structured, bare, or in binary mode: attributes beside the body.
pub fn decode(intake: &Intake<'_>, letter: &Letter) -> Result<Decoded, Rejected> {
    let binary = letter.attributes.iter().any(|(name, _)| matches!(name.as_str(), "ce_type" | "ce-type"));
    if !binary || letter.bytes.len() > MOST_BYTES {
        return intake.decode(&letter.bytes);
    }
    let attributes = letter.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    intake.decode_value(&from_headers(attributes, &letter.bytes)?)
}
