//! A region of EC2 in memory: instances, stock, prices, and scheduled changes. The time is a parameter of each call.
//!
//! ```text
//! call(now, params) -> process_due(now) -> rate limits, faults -> one of `calls` -> ApiReply
//! process_due(now): boots, terminations, the market's changes, ends of Capacity Blocks -> messages, returned by advance(now)
//! ```
//!
//! There is no clock and no IO, and all random draws are seeded: the same options and calls give the same bytes.

mod call_log;
mod changes;
mod instance;
mod launch;
mod messages;
mod metadata;
mod stock;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_catalog::PriceRow;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::world::Agenda;
use forebay_sim::world::hash::{Draw, below, chance, draw};

use crate::calls;
use crate::fault::Ec2Fault;
use crate::options::{RegionOptions, ReservationKind};
use crate::params::Params;
use crate::xml;

pub use call_log::CallCount;
use call_log::{CallLog, RateBucket};
use changes::TimedChange;
pub use instance::{EndReason, InstanceState, LoopbackInstance};
pub(crate) use instance::{Instances, View};
pub(crate) use launch::LaunchSpec;
pub use messages::EventMessage;
pub(crate) use messages::{millis, seconds, spaced};
pub(crate) use stock::StockPool;

/// How long a terminated instance is described.
const DESCRIBED_AFTER_END: Span = Span::mins(60);
/// The most client tokens. Beyond it the oldest are removed.
const MAX_TOKENS: usize = 20_000;
/// The most messages that wait for [`Region::advance`]. Beyond it the oldest are dropped.
const MAX_MESSAGES: usize = 100_000;

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiReply {
    /// An HTTP response.
    Response {
        /// The HTTP status.
        status: u16,
        /// The XML.
        body: String,
    },
    /// The connection is closed without a response.
    Dropped,
}

/// The response to a client token.
#[derive(Clone, Debug)]
struct RememberedResponse {
    /// The number of the call.
    nth: u64,
    digest: blake3::Hash,
    at: Timestamp,
    body: String,
}

/// A region of EC2.
#[derive(Clone, Debug)]
pub struct Region {
    pub(crate) options: RegionOptions,
    pub(crate) types: BTreeMap<String, PriceRow>,
    /// The pairs of the market by (type, zone).
    pairs: BTreeMap<(String, String), usize>,
    now: Timestamp,
    schedule: Agenda<TimedChange>,
    pub(crate) instances: Instances,
    /// The number of existing instances by stock pool.
    existing: BTreeMap<StockPool, u32>,
    vcpus: BTreeMap<CapacityType, u64>,
    /// Limits set by [`Region::set_stock`], which replace `options.stock`.
    stock_overrides: BTreeMap<StockPool, Option<u32>>,
    addresses: BTreeMap<String, u32>,
    in_reservation: BTreeMap<String, u32>,
    pub(crate) groups: BTreeSet<String>,
    tokens: BTreeMap<(String, String), RememberedResponse>,
    /// The client tokens in the order of their calls.
    token_order: BTreeMap<u64, (String, String)>,
    /// The pairs of the market whose next change is scheduled.
    watched: BTreeSet<usize>,
    log: CallLog,
    outbox: VecDeque<EventMessage>,
    /// The number of calls. Random draws for a call use its number.
    calls: u64,
    ids: u64,
}

impl Region {
    /// An empty region at its origin.
    #[must_use]
    pub fn new(options: RegionOptions) -> Region {
        let types = options.types.iter().map(|row| (row.instance_type.clone(), row.clone())).collect();
        let pair = |ix| {
            let (instance_type, zone) = options.market.pair(ix)?;
            Some(((instance_type.to_owned(), zone.to_owned()), ix))
        };
        let pairs = (0..options.market.len()).filter_map(pair).collect();
        let mut schedule = Agenda::default();
        for reservation in &options.reservations {
            if let ReservationKind::Block { ends } = reservation.kind {
                let id = &reservation.id;
                schedule.at(before(ends, changes::BLOCK_WARNING_LEAD), TimedChange::WarnOfBlockEnd(id.clone()));
                schedule.at(before(ends, changes::BLOCK_RECLAIM_LEAD), TimedChange::EndBlockInstances(id.clone()));
            }
        }
        Region {
            types,
            pairs,
            now: options.origin,
            schedule,
            instances: Instances::default(),
            existing: BTreeMap::new(),
            vcpus: BTreeMap::new(),
            stock_overrides: BTreeMap::new(),
            addresses: BTreeMap::new(),
            in_reservation: BTreeMap::new(),
            groups: BTreeSet::new(),
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

    /// Handles a call. An earlier time than the last one counts as the last one.
    pub fn call(&mut self, now: Timestamp, params: &Params) -> ApiReply {
        self.process_due(now);
        self.calls += 1;
        let action = params.action().to_owned();
        let request_id = self.request_id();
        if self.chance(Draw::LostBefore, self.options.lost_before_permille) {
            return ApiReply::Dropped;
        }
        let response = self.admit(&action).and_then(|()| calls::respond(self, &action, params, &request_id));
        if self.chance(Draw::LostAfter, self.options.lost_after_permille) {
            return ApiReply::Dropped;
        }
        match response {
            Ok(body) => ApiReply::Response { status: 200, body },
            Err(fault) => ApiReply::Response { status: fault.status, body: xml::fault(&fault, &request_id) },
        }
    }

    /// When the next scheduled change is due.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        self.schedule.next()
    }

    /// Applies all changes that are due, and returns the new messages in their order.
    pub fn advance(&mut self, now: Timestamp) -> Vec<EventMessage> {
        self.process_due(now);
        std::mem::take(&mut self.outbox).into()
    }

    /// The latest time of any call.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The options that it was created with.
    #[must_use]
    pub fn options(&self) -> &RegionOptions {
        &self.options
    }

    /// All instances in the order of their launches, including those terminated within the last hour.
    pub fn instances(&self) -> impl Iterator<Item = &LoopbackInstance> {
        self.instances.all()
    }

    /// An instance by its id.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<&LoopbackInstance> {
        self.instances.by_id(id)
    }

    /// The number of calls by action.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<String, CallCount> {
        self.log.counts()
    }

    /// Checks rate limits, outages and permissions.
    fn admit(&mut self, action: &str) -> Result<(), Ec2Fault> {
        let (at, rate_limits) = (self.now, self.options.rate_limits);
        let shut = self.options.throttled.iter().any(|(from, to)| *from <= at && at < *to);
        if !self.log.note(at, action, RateBucket::of(action), rate_limits, shut) {
            return Err(Ec2Fault::throttled());
        }
        if self.chance(Draw::ServerError, self.options.server_error_permille) {
            let internal = draw(self.options.seed, Draw::ServerError, self.calls, 1).is_multiple_of(2);
            return Err(if internal {
                Ec2Fault::new(500, "InternalError", "An internal error has occurred")
            } else {
                Ec2Fault::new(503, "Unavailable", "The service is unavailable. Please try again shortly.")
            });
        }
        if self.options.denied.contains(action) {
            let message = "You are not authorized to perform this operation.";
            return Err(Ec2Fault::new(403, "UnauthorizedOperation", message));
        }
        Ok(())
    }

    /// The earlier response to the same request with the same client token. Another request with this token is refused.
    pub(crate) fn response(&self, action: &str, params: &Params) -> Result<Option<String>, Ec2Fault> {
        let Some(token) = params.text("ClientToken") else { return Ok(None) };
        let Some(before) = self.tokens.get(&(action.to_owned(), token.to_owned())) else { return Ok(None) };
        if before.at + TOKEN_LASTS <= self.now {
            return Ok(None);
        }
        if before.digest != digest(params) {
            let message =
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).";
            return Err(Ec2Fault::new(400, "IdempotentParameterMismatch", message));
        }
        Ok(Some(before.body.clone()))
    }

    /// Stores the response under the client token of the request.
    pub(crate) fn remember(&mut self, action: &str, params: &Params, body: &str) {
        let Some(token) = params.text("ClientToken") else { return };
        let key = (action.to_owned(), token.to_owned());
        let nth = self.calls;
        let response = RememberedResponse { nth, digest: digest(params), at: self.now, body: body.to_owned() };
        self.tokens.insert(key.clone(), response);
        self.token_order.insert(nth, key);
        loop {
            let many = self.token_order.len() > MAX_TOKENS;
            let Some(oldest) = self.token_order.first_entry() else { break };
            // A token that was used again after a day is in the order twice, and the later place counts.
            let current = self.tokens.get(oldest.get()).filter(|response| response.nth == *oldest.key());
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

    /// A unique id of 17 hex digits.
    pub(crate) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        let hash = draw(self.options.seed, Draw::Instance, self.ids, 0);
        format!("{:01x}{hash:016x}", self.ids & 0xf)
    }

    /// True for this share of the calls.
    fn chance(&self, what: Draw, permille: u16) -> bool {
        chance(draw(self.options.seed, what, self.calls, 0), permille)
    }

    fn request_id(&self) -> String {
        uuid(draw(self.options.seed, Draw::Id, self.calls, 0), draw(self.options.seed, Draw::Id, self.calls, 1))
    }

    /// How stale the present call describes an instance.
    pub(crate) fn age_shown(&self, number: u64) -> Span {
        Span(below(
            draw(self.options.seed, Draw::Stale, self.calls, number),
            self.options.max_staleness.0.saturating_add(1),
        ))
    }
}

/// How long a client token is valid.
const TOKEN_LASTS: Span = Span::mins(24 * 60);

fn digest(params: &Params) -> blake3::Hash {
    blake3::hash(params.canonical().as_bytes())
}

fn before(at: Timestamp, span: Span) -> Timestamp {
    Timestamp(at.0.saturating_sub(span.0))
}

/// Formats 128 bits as the id of a call or message.
fn uuid(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}", 0x8000 | (low >> 48 & 0x3fff), low & 0xffff_ffff_ffff)
}
