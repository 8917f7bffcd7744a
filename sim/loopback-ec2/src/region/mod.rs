//! A region of EC2 in memory: instances, stock, prices, what is due when, and the hands of a test. Time enters with each call.
//!
//! ```text
//! call(now, params) -> settle(now) -> rates, faults -> one of `calls` -> Reply
//! settle(now): boots, ends, the market's falls, blocks' ends -> messages, handed out by advance(now)
//! ```
//!
//! Never: a clock, IO, an unseeded draw. The same options and calls give the same bytes.

mod agenda;
mod instance;
mod launch;
mod log;
mod messages;
mod metadata;
mod reclaim;
mod stock;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};
use forebay_sim::prices::PriceRow;
use forebay_sim::world::hash::{Draw, below, chance, draw};

use crate::calls;
use crate::options::{RegionOptions, ReservationKind};
use crate::params::Params;
use crate::refusal::Refusal;
use crate::xml;

use agenda::{Agenda, Due};
pub use instance::{Instance, InstanceState, Why};
pub(crate) use instance::{Instances, View};
pub(crate) use launch::{Bid, Planned, Room};
pub use log::CallCount;
use log::{CallLog, Kind};
pub use messages::Message;
pub(crate) use messages::{millis, seconds, spaced};
pub(crate) use stock::Pool;

/// A terminated instance is shown for so long after its end.
const SHOWN_AFTER_END: Span = Span::mins(60);
/// The most client tokens that are remembered; the oldest are forgotten beyond it.
const MOST_TOKENS: usize = 20_000;
/// The most messages that wait for [`Region::advance`]; the oldest are dropped beyond it, as nobody takes them.
const MOST_MESSAGES: usize = 100_000;

/// What comes back from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer over HTTP.
    Answer {
        /// The HTTP status.
        status: u16,
        /// XML.
        body: String,
    },
    /// The connection closes without an answer.
    Dropped,
}

/// A placement group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub id: String,
    pub strategy: String,
}

/// What was answered under a client token.
#[derive(Clone, Debug)]
struct Answered {
    /// The number of its call.
    nth: u64,
    digest: blake3::Hash,
    at: Millis,
    body: String,
}

/// A region of EC2.
#[derive(Clone, Debug)]
pub struct Region {
    pub(crate) options: RegionOptions,
    pub(crate) types: BTreeMap<String, PriceRow>,
    /// Pairs of the market by (type, zone).
    pairs: BTreeMap<(String, String), usize>,
    now: Millis,
    agenda: Agenda,
    pub(crate) instances: Instances,
    /// Instances that exist, by what bounds them.
    existing: BTreeMap<Pool, u32>,
    vcpus: BTreeMap<CapacityType, u64>,
    /// Bounds set by hand, above `options.stock`.
    set_by_hand: BTreeMap<Pool, Option<u32>>,
    addresses: BTreeMap<String, u32>,
    in_reservation: BTreeMap<String, u32>,
    pub(crate) groups: BTreeMap<String, Group>,
    tokens: BTreeMap<(String, String), Answered>,
    /// Tokens in the order in which they came.
    token_order: BTreeMap<u64, (String, String)>,
    /// Pairs of the market whose next change is on the agenda.
    watched: BTreeSet<usize>,
    log: CallLog,
    outbox: VecDeque<Message>,
    /// Every call has a number; what is drawn for a call is drawn for its number.
    calls: u64,
    ids: u64,
}

impl Region {
    /// A region in which nothing exists yet, at its origin.
    #[must_use]
    pub fn new(options: RegionOptions) -> Region {
        let types = options.types.iter().map(|row| (row.instance_type.clone(), row.clone())).collect();
        let pair = |ix| {
            let (instance_type, zone) = options.market.pair(ix)?;
            Some(((instance_type.to_owned(), zone.to_owned()), ix))
        };
        let pairs = (0..options.market.len()).filter_map(pair).collect();
        let mut agenda = Agenda::default();
        for reservation in &options.reservations {
            if let ReservationKind::Block { ends } = reservation.kind {
                agenda.at(before(ends, reclaim::BLOCK_WARNS), Due::BlockWarns(reservation.id.clone()));
                agenda.at(before(ends, reclaim::BLOCK_CLEARS), Due::BlockClears(reservation.id.clone()));
            }
        }
        Region {
            types,
            pairs,
            now: options.origin,
            agenda,
            instances: Instances::default(),
            existing: BTreeMap::new(),
            vcpus: BTreeMap::new(),
            set_by_hand: BTreeMap::new(),
            addresses: BTreeMap::new(),
            in_reservation: BTreeMap::new(),
            groups: BTreeMap::new(),
            tokens: BTreeMap::new(),
            token_order: BTreeMap::new(),
            watched: BTreeSet::new(),
            log: CallLog::new(options.origin),
            outbox: VecDeque::new(),
            calls: 0,
            ids: 0,
            options,
        }
    }

    /// Answers a call. A `now` before the last one counts as the last one.
    pub fn call(&mut self, now: Millis, params: &Params) -> Reply {
        self.settle(now);
        self.calls += 1;
        let action = params.action().to_owned();
        let request_id = self.request_id();
        if self.chance(Draw::LostBefore, self.options.lost_before_permille) {
            return Reply::Dropped;
        }
        let answered = self.admit(&action).and_then(|()| calls::answer(self, &action, params, &request_id));
        if self.chance(Draw::LostAfter, self.options.lost_after_permille) {
            return Reply::Dropped;
        }
        match answered {
            Ok(body) => Reply::Answer { status: 200, body },
            Err(refusal) => Reply::Answer { status: refusal.status, body: xml::refusal(&refusal, &request_id) },
        }
    }

    /// When something happens next by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Millis> {
        self.agenda.next()
    }

    /// Lets everything happen that is due up to `now`, and hands out the messages that it and the calls since made, in order.
    pub fn advance(&mut self, now: Millis) -> Vec<Message> {
        self.settle(now);
        std::mem::take(&mut self.outbox).into()
    }

    /// The latest time that it has heard of.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The options that it was made with.
    #[must_use]
    pub fn options(&self) -> &RegionOptions {
        &self.options
    }

    /// The truth about every instance that exists, or ended within the last hour, in the order in which they were launched.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.all()
    }

    /// The truth about one.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<&Instance> {
        self.instances.by_id(id)
    }

    /// How often each action was called.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<String, CallCount> {
        self.log.counts()
    }

    /// Rates, outages and permissions: what a call meets before it is looked at.
    fn admit(&mut self, action: &str) -> Result<(), Refusal> {
        let (at, rates) = (self.now, self.options.rates);
        let shut = self.options.throttled.iter().any(|(from, to)| *from <= at && at < *to);
        if !self.log.note(at, action, Kind::of(action), rates, shut) {
            return Err(Refusal::throttled());
        }
        if self.chance(Draw::ServerError, self.options.server_error_permille) {
            let internal = draw(self.options.seed, Draw::ServerError, self.calls, 1).is_multiple_of(2);
            return Err(if internal {
                Refusal::new(500, "InternalError", "An internal error has occurred")
            } else {
                Refusal::new(503, "Unavailable", "The service is unavailable. Please try again shortly.")
            });
        }
        if self.options.denied.contains(action) {
            let message = "You are not authorized to perform this operation.";
            return Err(Refusal::new(403, "UnauthorizedOperation", message));
        }
        Ok(())
    }

    /// What was answered to this very request under its client token; the token with another request is refused.
    pub(crate) fn answered(&self, action: &str, params: &Params) -> Result<Option<String>, Refusal> {
        let Some(token) = params.text("ClientToken") else { return Ok(None) };
        let Some(before) = self.tokens.get(&(action.to_owned(), token.to_owned())) else { return Ok(None) };
        if before.at + TOKEN_LASTS <= self.now {
            return Ok(None);
        }
        if before.digest != digest(params) {
            let message =
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).";
            return Err(Refusal::new(400, "IdempotentParameterMismatch", message));
        }
        Ok(Some(before.body.clone()))
    }

    /// Remembers an answer under the request's client token.
    pub(crate) fn remember(&mut self, action: &str, params: &Params, body: &str) {
        let Some(token) = params.text("ClientToken") else { return };
        let key = (action.to_owned(), token.to_owned());
        let nth = self.calls;
        let answered = Answered { nth, digest: digest(params), at: self.now, body: body.to_owned() };
        self.tokens.insert(key.clone(), answered);
        self.token_order.insert(nth, key);
        loop {
            let many = self.token_order.len() > MOST_TOKENS;
            let Some(oldest) = self.token_order.first_entry() else { break };
            // A token that came again after its day is in the order twice: its later place counts.
            let current = self.tokens.get(oldest.get()).filter(|answered| answered.nth == *oldest.key());
            let (stands, over) = (current.is_some(), current.is_none_or(|a| a.at + TOKEN_LASTS <= self.now));
            if !over && !many {
                break;
            }
            let key = oldest.remove();
            if stands {
                self.tokens.remove(&key);
            }
        }
    }

    /// 17 hex digits that no other resource has.
    pub(crate) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        let hash = draw(self.options.seed, Draw::Instance, self.ids, 0);
        format!("{:01x}{hash:016x}", self.ids & 0xf)
    }

    /// True in so many of 1000 calls.
    fn chance(&self, what: Draw, permille: u16) -> bool {
        chance(draw(self.options.seed, what, self.calls, 0), permille)
    }

    fn request_id(&self) -> String {
        uuid(draw(self.options.seed, Draw::Id, self.calls, 0), draw(self.options.seed, Draw::Id, self.calls, 1))
    }

    /// How old what the present call shows of an instance is.
    pub(crate) fn age_shown(&self, number: u64) -> Span {
        Span(below(draw(self.options.seed, Draw::Stale, self.calls, number), self.options.stale.0.saturating_add(1)))
    }
}

/// A client token counts for a day.
const TOKEN_LASTS: Span = Span::mins(24 * 60);

fn digest(params: &Params) -> blake3::Hash {
    blake3::hash(params.canonical().as_bytes())
}

fn before(at: Millis, span: Span) -> Millis {
    Millis(at.0.saturating_sub(span.0))
}

/// 128 bits as ids of calls and messages are written.
fn uuid(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}", 0x8000 | (low >> 48 & 0x3fff), low & 0xffff_ffff_ffff)
}
