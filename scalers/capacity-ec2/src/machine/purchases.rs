//! Purchases: requested, requested again under the same token, and settled.
//!
//! A purchase never gets a second token for the same reservation. No new purchase is made while an older one, which it could duplicate, is
//! unsettled.

use super::{
    BuyingMode, CallId, CallPurpose, Ec2Machine, InstanceListing, MAX_LAUNCHES, PurchaseOrigin, RETRY_FOR, TOKEN_LASTS,
};
use crate::api_call::{DescribedInstance, Ec2Call, Ec2Response, RateClass};
use crate::error_class::{Ec2Error, ErrorClass, fleet_error, launch_error, needs_operator};
use crate::rate_limiter::RetrySpans;
use crate::request::{LaunchRequest, TAG_JOURNAL, TAG_POOL, TAG_PURCHASE};
use crate::settings::JournalClaim;
use forebay_kernel::event::LaunchError;
use forebay_kernel::ids::PurchaseId;
use forebay_kernel::reconcile::SETTLED;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeSet;

/// The operation in reports about launches.
const LAUNCH: &str = "launch instances";
/// The operation in reports about placement groups.
const CREATE_GROUP: &str = "create a placement group";
/// EC2's code for a placement group that does not exist: it was deleted, or created a moment ago.
pub(super) const NO_GROUP: &str = "InvalidPlacementGroup.Unknown";
/// How often a launch is requested until its placement group is found.
const GROUP_ATTEMPTS: u32 = 5;

/// A purchase without an outcome.
#[derive(Debug)]
pub(super) struct OpenPurchase {
    request: LaunchRequest,
    origin: PurchaseOrigin,
    stage: Stage,
    attempts: u32,
    delays: RetrySpans,
    /// Since when its outcome has been unknown.
    unknown_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its call can be made.
    Ready,
    /// Its call is running.
    Running,
    /// The response was lost; the call is repeated at this time.
    Unknown { again: Timestamp },
    /// The call is not repeated. A listing that begins after this time decides.
    Settling { after: Timestamp, error: LaunchError },
}

impl OpenPurchase {
    pub fn new(request: LaunchRequest, origin: PurchaseOrigin) -> OpenPurchase {
        let (delays, unknown_since) = (RetrySpans::default(), None);
        OpenPurchase { request, origin, stage: Stage::Ready, attempts: 0, delays, unknown_since }
    }

    /// What it buys and for which pool, for reports.
    fn subject(&self) -> String {
        let LaunchRequest { instance_type, zone, capacity, tags, .. } = &self.request;
        let pool = tags.get(TAG_POOL).map_or("", String::as_str);
        format!("{instance_type} {} in {zone} for pool {pool}", capacity.as_str())
    }

    /// Whether it may have been made without our knowledge.
    fn is_unsettled(&self) -> bool {
        self.origin == PurchaseOrigin::Recovered || self.unknown_since.is_some()
    }

    /// The rate that its next call counts against.
    fn rate(&self, groups: &BTreeSet<String>) -> RateClass {
        match &self.request.group {
            Some(group) if !groups.contains(group) => RateClass::Mutate,
            _ => self.request.rate(),
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        match self.stage {
            Stage::Ready => true,
            Stage::Unknown { again } => again <= now,
            Stage::Running | Stage::Settling { .. } => false,
        }
    }
}

impl Ec2Machine {
    pub(super) fn poll_purchases(&mut self, now: Timestamp, calls: &mut Vec<(CallId, Ec2Call)>) {
        self.refuse_contested(now);
        if self.buying == BuyingMode::Paused {
            return self.settle_unknown_by_listing(now);
        }
        for id in self.ready_purchases(now) {
            if self.running_launches() >= MAX_LAUNCHES {
                return;
            }
            let Some(purchase) = self.purchases.get(&id) else { continue };
            // An earlier process may have moved on to another reservation, so its last token is unknown.
            let unknown_token =
                purchase.origin == PurchaseOrigin::Recovered && !purchase.request.other_reservations.is_empty();
            if unknown_token || now.since(Timestamp(purchase.request.decided_at_ms)) >= TOKEN_LASTS {
                self.settle_by_listing(id, now, LaunchError::Server);
                continue;
            }
            let request = purchase.request.clone();
            if !self.ensure_group(&request, now, calls) {
                continue;
            }
            let call = Ec2Call::Launch(Box::new(request));
            if !self.rates.take(call.rate(), now) {
                continue;
            }
            if let Some(purchase) = self.purchases.get_mut(&id) {
                purchase.stage = Stage::Running;
                purchase.attempts += 1;
            }
            self.start_call(call, CallPurpose::Launch(id), calls);
        }
    }

    /// No call is repeated: what may have been launched is looked for.
    fn settle_unknown_by_listing(&mut self, now: Timestamp) {
        let repeats = |p: &OpenPurchase| matches!(p.stage, Stage::Ready | Stage::Unknown { .. });
        let unknown = self.purchases.iter().filter(|(_, p)| p.is_unsettled() && repeats(p));
        for id in unknown.map(|(id, _)| *id).collect::<Vec<PurchaseId>>() {
            self.settle_by_listing(id, now, LaunchError::Server);
        }
    }

    fn running_launches(&self) -> usize {
        self.running.values().filter(|(_, purpose)| matches!(purpose, CallPurpose::Launch(_))).count()
    }

    /// The purchases that may be requested now: none before the first listing, which shows whether somebody else buys under our name. Unsettled
    /// ones come first; new ones only if no unsettled one could be duplicated.
    fn ready_purchases(&self, now: Timestamp) -> Vec<PurchaseId> {
        if !self.listing.has_listed() {
            return Vec::new();
        }
        let due = |(_, p): &(&PurchaseId, &OpenPurchase)| p.is_due(now);
        let id = |(id, _): (&PurchaseId, &OpenPurchase)| *id;
        let unsettled = self.purchases.iter().filter(|(_, p)| p.is_unsettled());
        let mut ready: Vec<PurchaseId> = unsettled.filter(due).map(id).collect();
        let recovering = self.purchases.values().any(|p| p.origin == PurchaseOrigin::Recovered);
        if recovering {
            return ready;
        }
        let unsettled = self.purchases.values().filter(|p| p.is_unsettled());
        let blocked: BTreeSet<_> = unsettled.map(|p| p.request.market()).collect();
        let free = |(_, p): &(&PurchaseId, &OpenPurchase)| !p.is_unsettled() && !blocked.contains(&p.request.market());
        ready.extend(self.purchases.iter().filter(free).filter(due).map(id));
        ready
    }

    /// While another controller buys under our name no launch leaves: new purchases are refused, and those whose outcome is unknown are settled
    /// by a listing.
    fn refuse_contested(&mut self, now: Timestamp) {
        if self.contested.is_empty() {
            return;
        }
        let new = self.purchases.iter().filter(|(_, p)| !p.is_unsettled() && p.stage == Stage::Ready);
        let new: Vec<PurchaseId> = new.map(|(id, _)| *id).collect();
        for id in new {
            self.finish(id, Vec::new(), Some(LaunchError::Contested));
        }
        self.settle_unknown_by_listing(now);
    }

    /// Whether the placement group of a purchase exists. If not, it is created.
    fn ensure_group(&mut self, request: &LaunchRequest, now: Timestamp, calls: &mut Vec<(CallId, Ec2Call)>) -> bool {
        let Some(group) = request.group.as_ref().filter(|g| !self.groups.contains(*g)) else { return true };
        let call = Ec2Call::CreateGroup(group.clone());
        if !self.is_creating(group) && self.rates.take(call.rate(), now) {
            self.start_call(call, CallPurpose::Group(group.clone()), calls);
        }
        false
    }

    fn is_creating(&self, group: &str) -> bool {
        self.running.values().any(|(_, purpose)| matches!(purpose, CallPurpose::Group(name) if name == group))
    }

    pub(super) fn group_response(&mut self, now: Timestamp, group: String, response: Ec2Response) {
        match response {
            Ec2Response::Done | Ec2Response::Refused(Ec2Error { class: ErrorClass::Exists, .. }) => {
                self.report_recovery(CREATE_GROUP, &group);
                self.groups.insert(group);
            }
            Ec2Response::Refused(error) if !error.class.is_transient() => {
                // Nothing was launched without the group, so new purchases that wait for it end here.
                let launch_error = launch_error(error.class).unwrap_or(LaunchError::Config);
                for (id, is_unsettled) in self.waiting_for(&group, now) {
                    if is_unsettled {
                        self.settle_by_listing(id, now, launch_error);
                    } else {
                        self.finish(id, Vec::new(), Some(launch_error));
                    }
                }
                self.report_failure(now, CREATE_GROUP, &group, error);
            }
            // It may have been created: the next attempt finds out. What waits for this group waits, and no longer than for a launch.
            _ => self.waiting_for(&group, now).into_iter().for_each(|(id, _)| self.retry_later(now, id)),
        }
    }

    /// Purchases that would be requested if their group existed, and whether each may have been made before.
    fn waiting_for(&self, group: &str, now: Timestamp) -> Vec<(PurchaseId, bool)> {
        let waits = |p: &OpenPurchase| p.request.group.as_deref() == Some(group) && p.is_due(now);
        self.purchases.iter().filter(|(_, p)| waits(p)).map(|(id, p)| (*id, p.is_unsettled())).collect()
    }

    pub(super) fn launch_response(&mut self, now: Timestamp, id: PurchaseId, response: Ec2Response) {
        let Some(purchase) = self.purchases.get(&id) else { return };
        let is_unsettled = purchase.is_unsettled();
        let no_group = match &response {
            Ec2Response::Launched { errors, .. } => errors.iter().any(|error| error.code == NO_GROUP),
            Ec2Response::Refused(error) => error.code == NO_GROUP,
            _ => false,
        };
        let attempts = purchase.attempts;
        if let Some(group) = purchase.request.group.as_ref().filter(|_| no_group) {
            self.groups.remove(group);
        }
        match response {
            Ec2Response::Refused(_) if no_group && attempts < GROUP_ATTEMPTS => self.retry_later(now, id),
            Ec2Response::Launched { instances, errors } => {
                let (count, subject) = (purchase.request.count as usize, purchase.subject());
                let incomplete = instances.len() < count;
                let error = incomplete.then(|| if no_group { LaunchError::Server } else { fleet_error(&errors) });
                if !incomplete {
                    self.report_recovery(LAUNCH, &subject);
                }
                // What is reported is what decides, and not an error beside it that passes by itself.
                let decisive =
                    errors.into_iter().find(|e| incomplete && launch_error(e.class) == error && needs_operator(e));
                if let Some(decisive) = decisive {
                    self.report_failure(now, LAUNCH, &subject, decisive);
                }
                match error {
                    // EC2 does not promise that a repeated call returns the instances of the first one.
                    Some(error) if is_unsettled => self.settle_by_listing(id, now, error),
                    _ => self.finish(id, instances, error),
                }
            }
            Ec2Response::Refused(error) => self.launch_refused(now, id, error),
            Ec2Response::Done | Ec2Response::Described { .. } => self.retry_later(now, id),
        }
    }

    fn launch_refused(&mut self, now: Timestamp, id: PurchaseId, error: Ec2Error) {
        let Some(purchase) = self.purchases.get(&id) else { return };
        let (is_unsettled, subject) = (purchase.is_unsettled(), purchase.subject());
        match (launch_error(error.class), error.class) {
            // An earlier call may have succeeded: the refusal of this one says nothing about that.
            (Some(LaunchError::Throttled), _) if is_unsettled => self.retry_later(now, id),
            (Some(launch_error), _) => {
                if needs_operator(&error) {
                    self.report_failure(now, LAUNCH, &subject, error);
                }
                let other_may_help = matches!(launch_error, LaunchError::Capacity | LaunchError::Config);
                if is_unsettled {
                    self.settle_by_listing(id, now, launch_error);
                } else if !(other_may_help && self.try_next_reservation(id)) {
                    self.finish(id, Vec::new(), Some(launch_error));
                }
            }
            (None, ErrorClass::Mismatch) => {
                if needs_operator(&error) {
                    self.report_failure(now, LAUNCH, &subject, error);
                }
                self.settle_by_listing(id, now, LaunchError::Config);
            }
            (None, _) => self.retry_later(now, id),
        }
    }

    /// Moves on to the next reservation after one was refused. Returns whether there is one.
    fn try_next_reservation(&mut self, id: PurchaseId) -> bool {
        let Some(purchase) = self.purchases.get_mut(&id) else { return false };
        let moved = purchase.request.use_next_reservation();
        if moved {
            purchase.stage = Stage::Ready;
        }
        moved
    }

    /// The outcome is unknown: the call is repeated after a delay, or settled by a listing in the end.
    fn retry_later(&mut self, now: Timestamp, id: PurchaseId) {
        let Some(purchase) = self.purchases.get_mut(&id) else { return };
        let since = *purchase.unknown_since.get_or_insert(now);
        if now.since(since) >= RETRY_FOR {
            return self.settle_by_listing(id, now, LaunchError::Server);
        }
        let again = now + purchase.delays.next_span(&mut self.rates);
        purchase.stage = Stage::Unknown { again };
    }

    /// Leaves the decision to a listing: what it shows is the outcome, and `error` explains what is missing.
    pub(super) fn settle_by_listing(&mut self, id: PurchaseId, now: Timestamp, error: LaunchError) {
        if let Some(purchase) = self.purchases.get_mut(&id) {
            purchase.unknown_since.get_or_insert(now);
            // Listings that begin later contain what the last call launched.
            purchase.stage = Stage::Settling { after: now + SETTLED, error };
        }
    }

    /// Settles purchases by a complete listing.
    pub(super) fn settle_purchases(&mut self, listing: &InstanceListing) {
        let unsettled = self.purchases.iter().filter(|(_, p)| p.is_unsettled() && p.stage != Stage::Running);
        let mut settled = Vec::new();
        for (&id, purchase) in unsettled {
            let tag = id.0.to_string();
            let of_purchase = |s: &&DescribedInstance| {
                let ours = |journal: &str| self.settings.claim(journal, Some(id.0)) == JournalClaim::Ours;
                s.tag(TAG_PURCHASE) == Some(&tag) && s.tag(TAG_JOURNAL).is_some_and(ours)
            };
            let existing = listing.instances.iter().filter(|s| s.exists());
            let found: Vec<String> = existing.filter(of_purchase).map(|s| s.instance.clone()).collect();
            let complete = found.len() >= purchase.request.count as usize;
            match purchase.stage {
                Stage::Settling { after, error } if complete || listing.at >= after => {
                    settled.push((id, found, (!complete).then_some(error)));
                }
                Stage::Unknown { .. } if complete => settled.push((id, found, None)),
                _ => {}
            }
        }
        for (id, found, error) in settled {
            self.finish(id, found, error);
        }
    }

    /// Whether a purchase waits for a listing.
    pub(super) fn has_unsettled_purchases(&self) -> bool {
        self.purchases.values().any(OpenPurchase::is_unsettled)
    }

    pub(super) fn next_purchase(&mut self, now: Timestamp) -> Timestamp {
        if self.running_launches() >= MAX_LAUNCHES || self.buying == BuyingMode::Paused {
            return Timestamp::NEVER;
        }
        // Purchases that wait for others, for the first listing or for their group are resumed by a response.
        let waits = |p: &OpenPurchase| {
            p.request.group.as_ref().is_some_and(|g| !self.groups.contains(g) && self.is_creating(g))
        };
        let repeated = self.purchases.values().filter_map(|p| match p.stage {
            Stage::Unknown { again } if again > now && !waits(p) => Some((again, p.rate(&self.groups))),
            _ => None,
        });
        let ready = self.ready_purchases(now).into_iter().filter_map(|id| self.purchases.get(&id));
        let ready = ready.filter(|p| !waits(p)).map(|p| (now, p.rate(&self.groups)));
        let times: BTreeSet<(Timestamp, RateClass)> = repeated.chain(ready).collect();
        times.into_iter().map(|(at, rate)| at.max(self.rates.next_free(rate, now))).min().unwrap_or(Timestamp::NEVER)
    }
}
