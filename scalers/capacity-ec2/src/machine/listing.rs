//! Listings: all instances with our tag, page by page, and those claims that have lost the tag by their ids.
//!
//! ```text
//! list by tag, all pages -> claims that are not in it: described by id -> InstanceListing
//! ```
//!
//! A listing is always complete: after a page that fails it starts again.

use super::{CallId, CallPurpose, Ec2Machine, InstanceListing, MachineReport, REPORT_AFTER};
use crate::api_call::{DescribedInstance, Ec2Call, Ec2InstanceState, Ec2Response, RateClass};
use crate::rate_limiter::RetrySpans;
use crate::request::{TAG_CLUSTER, TAG_JOURNAL, TAG_PURCHASE};
use crate::settings::JournalClaim;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The interval of listings while instances boot or end, or a purchase is unsettled.
const BUSY_INTERVAL: Span = Span::secs(5);
/// The interval of listings otherwise.
const IDLE_INTERVAL: Span = Span::mins(1);
/// The most ids of one call: a filter accepts two hundred values.
const MAX_IDS: usize = 200;
/// The number of listings for which a launched instance counts as booting. At [`BUSY_INTERVAL`] that is a quarter of an hour.
const BOOT_LISTINGS: u16 = 180;

/// The operation in reports about listings.
const LIST: &str = "list instances";

/// The state of listing.
#[derive(Debug, Default)]
pub(super) struct ListingState {
    current: Option<CurrentListing>,
    next: Timestamp,
    failures: u32,
    delays: RetrySpans,
    listed: bool,
    /// Launched instances that were not seen running yet, with the number of listings since.
    booting: BTreeMap<String, u16>,
}

/// A listing that is not complete yet.
#[derive(Debug)]
struct CurrentListing {
    begun: Timestamp,
    instances: BTreeMap<String, DescribedInstance>,
    /// Claims that were not listed and are described by their ids.
    missing: Vec<String>,
    call_running: bool,
    step: Step,
}

#[derive(Debug)]
enum Step {
    List { next_token: Option<String> },
    Describe,
}

impl ListingState {
    pub fn has_listed(&self) -> bool {
        self.listed
    }

    /// Counts launched instances as booting, and lists again soon.
    pub fn expect_boots(&mut self, instances: &[String]) {
        self.booting.extend(instances.iter().map(|i| (i.clone(), 0)));
        if !instances.is_empty() {
            self.next = Timestamp(0);
        }
    }
}

impl Ec2Machine {
    pub(super) fn poll_listing(&mut self, now: Timestamp, calls: &mut Vec<(CallId, Ec2Call)>) {
        if self.listing.current.is_none() && self.listing.next <= now {
            self.listing.current = Some(CurrentListing {
                begun: now,
                instances: BTreeMap::new(),
                missing: Vec::new(),
                call_running: false,
                step: Step::List { next_token: None },
            });
        }
        let cluster = self.settings.cluster.clone();
        let Some(current) = self.listing.current.as_mut().filter(|l| !l.call_running) else { return };
        if !self.rates.take(RateClass::Describe, now) {
            return;
        }
        current.call_running = true;
        let call = match &current.step {
            Step::List { next_token } => Ec2Call::List { cluster, next_token: next_token.clone() },
            Step::Describe => {
                let rest = current.missing.split_off(current.missing.len().min(MAX_IDS));
                Ec2Call::Describe(std::mem::replace(&mut current.missing, rest))
            }
        };
        self.start_call(call, CallPurpose::Listing, calls);
    }

    pub(super) fn listing_response(&mut self, now: Timestamp, response: Ec2Response) {
        let (instances, next) = match response {
            Ec2Response::Described { instances, next_token } => (instances, next_token),
            other => return self.listing_failed(now, other),
        };
        let Some(current) = self.listing.current.as_mut() else { return };
        current.call_running = false;
        current.instances.extend(instances.into_iter().map(|s| (s.instance.clone(), s)));
        if let Step::List { next_token } = &mut current.step {
            if next.is_some() {
                *next_token = next;
                return;
            }
            let listed = &current.instances;
            current.missing = self.claims.iter().filter(|c| !listed.contains_key(*c)).cloned().collect();
            current.step = Step::Describe;
        }
        if current.missing.is_empty() {
            self.listing_complete(now);
        }
    }

    fn listing_failed(&mut self, now: Timestamp, response: Ec2Response) {
        let transient = match &response {
            Ec2Response::Refused(error) => error.class.is_transient(),
            _ => true,
        };
        self.listing.current = None;
        self.listing.failures = self.listing.failures.saturating_add(1);
        self.listing.next = now + self.listing.delays.next_span(&mut self.rates);
        let report = !transient || self.listing.failures >= REPORT_AFTER;
        if let (true, Ec2Response::Refused(error)) = (report, response) {
            self.report_failure(now, LIST, "", error);
        }
    }

    fn listing_complete(&mut self, now: Timestamp) {
        let Some(current) = self.listing.current.take() else { return };
        self.report_recovery(LIST, "");
        let listing = InstanceListing { at: current.begun, instances: current.instances.into_values().collect() };
        self.listing.failures = 0;
        self.listing.delays.reset();
        let first = !std::mem::replace(&mut self.listing.listed, true);
        if first {
            self.find_unrecorded(&listing);
        }
        self.settle_purchases(&listing);
        self.remove_terminated(&listing);
        self.report_stuck(now, &listing);
        self.find_other_journals(&listing);
        if first {
            self.take_over_boots(&listing);
        }
        self.update_booting(&listing);
        self.forget_terminated_claims(&listing);
        let busy = !self.listing.booting.is_empty() || !self.terminations.is_empty() || self.has_unsettled_purchases();
        self.listing.next = now + if busy { BUSY_INTERVAL } else { IDLE_INTERVAL };
        self.reports.push(MachineReport::Listing(listing));
    }

    /// Finds the instances of purchases that the journal had not made when the process started: its folder is an older copy of itself.
    fn find_unrecorded(&mut self, listing: &InstanceListing) {
        let Some(first) = self.settings.first_purchase else { return };
        let later = |seen: &&DescribedInstance| {
            let purchase = seen.tag(TAG_PURCHASE).and_then(|purchase| purchase.parse::<u64>().ok());
            let ours = seen.tag(TAG_JOURNAL) == Some(&self.settings.journal);
            ours && purchase.is_some_and(|purchase| purchase >= first)
        };
        let later = listing.instances.iter().filter(later).filter(|seen| !self.claims.contains(&seen.instance));
        let later = later.map(|seen| seen.instance.clone()).collect();
        self.settings.unrecorded = later;
    }

    /// Counts the instances of other journals that have our tag: another controller buys under our name, or did.
    fn find_other_journals(&mut self, listing: &InstanceListing) {
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for seen in listing.instances.iter().filter(|s| s.exists() && !self.claims.contains(&s.instance)) {
            // An instance without a journal belongs to no known controller, and is left alone.
            let Some(journal) = seen.tag(TAG_JOURNAL).filter(|_| seen.tag(TAG_CLUSTER) == Some(&self.settings.cluster))
            else {
                continue;
            };
            let purchase = seen.tag(TAG_PURCHASE).and_then(|purchase| purchase.parse().ok());
            let unrecorded = self.settings.unrecorded.contains(&seen.instance);
            if unrecorded || self.settings.claim(journal, purchase) == JournalClaim::Other {
                *others.entry(journal.to_owned()).or_default() += 1;
            }
        }
        if others.keys().ne(self.contested.keys()) {
            self.reports.push(MachineReport::Contested(others.clone()));
        }
        self.contested = others;
    }

    /// Claims that boot since before this machine was made are waited for like those that it launches.
    fn take_over_boots(&mut self, listing: &InstanceListing) {
        let boots = |s: &&DescribedInstance| s.state == Ec2InstanceState::Pending && self.claims.contains(&s.instance);
        let boots: Vec<String> = listing.instances.iter().filter(boots).map(|s| s.instance.clone()).collect();
        for instance in boots {
            self.listing.booting.entry(instance).or_insert(0);
        }
    }

    fn update_booting(&mut self, listing: &InstanceListing) {
        let is_pending = |s: &&DescribedInstance| s.state == Ec2InstanceState::Pending;
        let pending: BTreeSet<&str> =
            listing.instances.iter().filter(is_pending).map(|s| s.instance.as_str()).collect();
        let listed: BTreeSet<&str> = listing.instances.iter().map(|s| s.instance.as_str()).collect();
        self.listing.booting.retain(|instance, listings| {
            *listings += 1;
            let boots = pending.contains(instance.as_str()) || !listed.contains(instance.as_str());
            boots && *listings <= BOOT_LISTINGS
        });
    }

    /// Terminated instances are no longer described by id. The engine has got them with this listing.
    fn forget_terminated_claims(&mut self, listing: &InstanceListing) {
        for seen in listing.instances.iter().filter(|s| !s.exists()) {
            self.claims.remove(&seen.instance);
        }
    }

    /// Replaces the claims by those that the engine holds now. Launched instances that still boot are kept.
    pub fn set_claims(&mut self, held: &BTreeSet<String>) {
        let booting = &self.listing.booting;
        self.claims.retain(|claim| held.contains(claim) || booting.contains_key(claim));
        self.claims.extend(held.iter().cloned());
    }

    pub(super) fn next_listing(&mut self, now: Timestamp) -> Timestamp {
        match &self.listing.current {
            Some(current) if current.call_running => Timestamp::NEVER,
            Some(_) => self.rates.next_free(RateClass::Describe, now),
            None => self.listing.next.max(self.rates.next_free(RateClass::Describe, now)),
        }
    }
}
