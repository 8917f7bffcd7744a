//! The state machine between the engine and EC2: which calls are made, when, and what their responses mean. It makes no calls and reads no
//! clock; its driver does both.
//!
//! ```text
//! LaunchRequest --launch-->     +------------+ --poll-------------> calls to make now --> EC2
//! instance      --terminate-->  | Ec2Machine | <--handle_response-- their responses
//!                               +------------+ --take_reports-----> outcomes, listings, failures
//! ```
//!
//! 1. After a start, all instances with our tags are listed first, and every purchase that was open is requested again under its token.
//!    Nothing new is bought before all of that is known.
//! 2. A purchase whose response was lost is requested again with the same token. Until it is settled, no other purchase of its type, zone
//!    and capacity type is made. After [`RETRY_FOR`], or when EC2 has forgotten the token, a listing that is later than its last call
//!    settles it.
//! 3. While instances of another journal have our tag, nothing is bought. Nor is it while there are instances that this journal bought and does not
//!    know: its folder is an older copy of itself. These are never ended.
//! 4. While an operator has paused buying, no launch leaves: a purchase whose outcome is unknown is settled by a listing.
//!
//! Memory is bounded by the claims and the open purchases.

mod listing;
mod purchases;
mod terminations;
#[cfg(test)]
mod tests;

use crate::api_call::{DescribedInstance, Ec2Call, Ec2Response};
use crate::clock::ClockReading;
use crate::error_class::{Ec2Error, ErrorClass};
use crate::rate_limiter::RateLimiter;
use crate::request::LaunchRequest;
use crate::settings::Ec2Settings;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::ids::PurchaseId;
use forebay_kernel::units::{Span, Timestamp};
use listing::ListingState;
use purchases::OpenPurchase;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use terminations::Terminations;

/// A purchase without a response is requested again for this long, and settled by a listing afterwards.
pub const RETRY_FOR: Span = Span::mins(5);
/// How long a client token is used. EC2 keeps tokens for a day; one hour is a margin for differences of the clocks.
pub const TOKEN_LASTS: Span = Span::mins(23 * 60);
/// The most launches that run concurrently.
const MAX_LAUNCHES: usize = 8;
/// A failure that does not occur again for this long is over. It is longer than any pause of the engine after refused launches.
const FAILURE_LASTS: Span = Span::mins(60);
/// After this many failures in a row it is reported that EC2 does not respond.
const REPORT_AFTER: u32 = 5;
/// The most outcomes that are remembered for launches that are requested again before the engine has taken their outcome.
const MAX_RECENT_OUTCOMES: usize = 64;

/// The number of a call, by which its response is handed back. Numbers start at 1 and are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Whether a purchase may have been made before this machine was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurchaseOrigin {
    /// It was decided since.
    New,
    /// It was decided by an earlier process, which may have sent it.
    Recovered,
}

/// Whether new launches may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuyingMode {
    /// They may.
    #[default]
    On,
    /// None leaves. What may have been launched already is settled by listings, and what has not left waits.
    Paused,
}

/// What the machine reports to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineReport {
    /// The outcome of a purchase, for the engine.
    Outcome(Event),
    /// A complete listing of our instances.
    Listing(InstanceListing),
    /// Something fails that an operator may have to fix. It is reported once for each error code, until it works again.
    Failing {
        /// What fails, such as `launch instances`.
        operation: &'static str,
        /// What it fails for: a pool and what it buys, an instance, or a placement group. Empty: for everything.
        subject: String,
        /// EC2's error.
        error: Ec2Error,
    },
    /// Something that failed works again, or is no longer requested.
    Recovered {
        /// What failed.
        operation: &'static str,
        /// What it failed for.
        subject: String,
    },
    /// How many instances of each other journal have our tag; under our own journal's id those that it bought after its last record. While there
    /// are any, nothing is bought.
    Contested(BTreeMap<String, usize>),
}

/// A complete listing of the instances with our tag, and of the claims that have lost it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceListing {
    /// When the first page was requested.
    pub at: Timestamp,
    /// All instances in the order of their ids. Terminated ones are included for as long as EC2 returns them.
    pub instances: Vec<DescribedInstance>,
}

impl InstanceListing {
    /// The listing with the times of EC2 on the engine's clock, as `at` is.
    #[must_use]
    pub fn on_clock(mut self, clock: ClockReading) -> InstanceListing {
        for instance in &mut self.instances {
            instance.launched = instance.launched.map(|at| clock.to_engine(at));
        }
        self
    }
}

/// What a running call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallPurpose {
    Launch(PurchaseId),
    Group(String),
    Terminate(Vec<String>),
    Listing,
}

/// Which errors an operation meets, and when it met the last one.
#[derive(Debug)]
struct OngoingFailure {
    codes: BTreeSet<String>,
    last_seen: Timestamp,
}

/// The state machine of one EC2 account and region.
#[derive(Debug)]
pub struct Ec2Machine {
    settings: Ec2Settings,
    rates: RateLimiter,
    calls: u64,
    running: BTreeMap<CallId, (Ec2Call, CallPurpose)>,
    purchases: BTreeMap<PurchaseId, OpenPurchase>,
    buying: BuyingMode,
    recent_outcomes: VecDeque<(PurchaseId, Event)>,
    /// Placement groups that exist.
    groups: BTreeSet<String>,
    terminations: Terminations,
    listing: ListingState,
    /// Instances that the engine holds, whatever their tags are.
    claims: BTreeSet<String>,
    contested: BTreeMap<String, usize>,
    /// By operation and subject.
    failures: BTreeMap<(&'static str, String), OngoingFailure>,
    reports: Vec<MachineReport>,
}

impl Ec2Machine {
    /// A machine for a process that has just started. `claims` are the instances that the engine knows; `seed` only determines jitter.
    #[must_use]
    pub fn new(settings: Ec2Settings, claims: BTreeSet<String>, seed: u64) -> Ec2Machine {
        Ec2Machine {
            settings,
            rates: RateLimiter::new(seed),
            calls: 0,
            running: BTreeMap::new(),
            purchases: BTreeMap::new(),
            buying: BuyingMode::On,
            recent_outcomes: VecDeque::new(),
            groups: BTreeSet::new(),
            terminations: Terminations::default(),
            listing: ListingState::default(),
            claims,
            contested: BTreeMap::new(),
            failures: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// The settings that it was created with, and the instances that the first listing has found the journal to have bought after its last record.
    #[must_use]
    pub fn settings(&self) -> &Ec2Settings {
        &self.settings
    }

    /// Says whether new launches may leave from now on.
    pub fn set_buying(&mut self, buying: BuyingMode) {
        self.buying = buying;
    }

    /// Requests a purchase.
    pub fn launch(&mut self, request: LaunchRequest, origin: PurchaseOrigin) {
        let id = request.id();
        if let Some((_, outcome)) = self.recent_outcomes.iter().find(|(known, _)| *known == id) {
            self.reports.push(MachineReport::Outcome(outcome.clone()));
            return;
        }
        // Without its reservation, EC2 would launch it on demand.
        let out_of_stock = request.capacity == CapacityType::Reserved && request.reservation.is_none();
        if out_of_stock && origin == PurchaseOrigin::New {
            return self.finish(id, Vec::new(), Some(LaunchError::Capacity));
        }
        self.purchases.entry(id).or_insert_with(|| OpenPurchase::new(request, origin));
        if out_of_stock {
            self.settle_by_listing(id, Timestamp(0), LaunchError::Capacity);
        }
    }

    /// Requests the end of an instance. The request is repeated until a listing shows that the instance is terminated.
    pub fn terminate(&mut self, now: Timestamp, instance: String) {
        self.terminations.add(now, instance);
    }

    /// Leaves the end of an instance to EC2 until then, because EC2 takes it back and charges nothing for it. A termination that was requested
    /// already is not called back.
    pub fn leave_to_ec2(&mut self, now: Timestamp, instance: String, until: Timestamp) {
        self.terminations.leave_to_ec2(now, instance, until);
    }

    /// The calls to make now. Each needs one [`Ec2Machine::handle_response`] with its number.
    pub fn poll(&mut self, now: Timestamp) -> Vec<(CallId, Ec2Call)> {
        let mut calls = Vec::new();
        self.poll_listing(now, &mut calls);
        self.poll_terminations(now, &mut calls);
        self.poll_purchases(now, &mut calls);
        self.expire_failures(now);
        calls
    }

    /// Takes the response to a call.
    pub fn handle_response(&mut self, now: Timestamp, call: CallId, response: Ec2Response) {
        let Some((call, purpose)) = self.running.remove(&call) else { return };
        let rate = call.rate();
        match &response {
            Ec2Response::Refused(error) if error.class == ErrorClass::Throttled => self.rates.throttled(rate, now),
            // A lost response says nothing about the rate.
            Ec2Response::Refused(error) if error.class == ErrorClass::NoResponse => {}
            _ => self.rates.accepted(rate, now),
        }
        match purpose {
            CallPurpose::Launch(id) => self.launch_response(now, id, response),
            CallPurpose::Group(name) => self.group_response(now, name, response),
            CallPurpose::Terminate(instances) => self.terminate_response(now, &instances, response),
            CallPurpose::Listing => self.listing_response(now, response),
        }
    }

    /// Counts all running calls as lost, after their driver has lost track of them.
    pub fn lose_running_calls(&mut self, now: Timestamp) {
        for call in self.running.keys().copied().collect::<Vec<_>>() {
            self.handle_response(
                now,
                call,
                Ec2Response::Refused(Ec2Error::no_response("its call ended without a response")),
            );
        }
    }

    /// Takes the reports since the last call, in their order.
    pub fn take_reports(&mut self) -> Vec<MachineReport> {
        std::mem::take(&mut self.reports)
    }

    /// When [`Ec2Machine::poll`] may return calls next, unless a response comes first.
    pub fn next_poll_at(&mut self, now: Timestamp) -> Timestamp {
        let listing = self.next_listing(now);
        let termination = self.next_termination(now);
        let purchase = self.next_purchase(now);
        listing.min(termination).min(purchase)
    }

    /// The number of purchases without an outcome.
    #[must_use]
    pub fn open_purchases(&self) -> usize {
        self.purchases.len()
    }

    /// Whether no purchase and no termination is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.purchases.is_empty() && self.terminations.is_empty()
    }

    /// Whether there was a complete listing since the start.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        self.listing.has_listed()
    }

    /// How many instances of each other journal have our tag, by the last listing; and of our own those that it bought after its last record.
    #[must_use]
    pub fn contested(&self) -> &BTreeMap<String, usize> {
        &self.contested
    }

    fn start_call(&mut self, call: Ec2Call, purpose: CallPurpose, calls: &mut Vec<(CallId, Ec2Call)>) {
        self.calls += 1;
        let id = CallId(self.calls);
        self.running.insert(id, (call.clone(), purpose));
        calls.push((id, call));
    }

    /// Ends a purchase with its outcome.
    fn finish(&mut self, id: PurchaseId, instances: Vec<String>, error: Option<LaunchError>) {
        self.purchases.remove(&id);
        self.claims.extend(instances.iter().cloned());
        self.listing.expect_boots(&instances);
        let outcome = Event::LaunchOutcome { purchase: id, instances, error };
        self.recent_outcomes.push_back((id, outcome.clone()));
        if self.recent_outcomes.len() > MAX_RECENT_OUTCOMES {
            self.recent_outcomes.pop_front();
        }
        self.reports.push(MachineReport::Outcome(outcome));
    }

    /// Reports a failure, once for each error code.
    fn report_failure(&mut self, now: Timestamp, operation: &'static str, subject: &str, error: Ec2Error) {
        let subject = subject.to_owned();
        let new = || OngoingFailure { codes: BTreeSet::new(), last_seen: now };
        let failure = self.failures.entry((operation, subject.clone())).or_insert_with(new);
        failure.last_seen = now;
        if failure.codes.insert(error.code.clone()) {
            self.reports.push(MachineReport::Failing { operation, subject, error });
        }
    }

    /// Reports, once, that something works again.
    fn report_recovery(&mut self, operation: &'static str, subject: &str) {
        let subject = subject.to_owned();
        if self.failures.remove(&(operation, subject.clone())).is_some() {
            self.reports.push(MachineReport::Recovered { operation, subject });
        }
    }

    fn expire_failures(&mut self, now: Timestamp) {
        let old = self.failures.iter().filter(|(_, failure)| now.since(failure.last_seen) >= FAILURE_LASTS);
        for (operation, subject) in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.report_recovery(operation, &subject);
        }
    }
}
