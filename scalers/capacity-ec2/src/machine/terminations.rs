//! Terminations: requested in batches, and repeated until the instances are gone. An instance that still exists is never forgotten.

use super::{CallId, CallPurpose, Ec2Machine, InstanceListing, REPORT_AFTER};
use crate::api_call::{Ec2Call, Ec2InstanceState, Ec2Response, RateClass};
use crate::error_class::ErrorClass;
use crate::rate_limiter::RetrySpans;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;

/// The most instances of one call. EC2 accepts a thousand; with fewer, one unknown id affects fewer others.
const MAX_PER_CALL: usize = 100;
/// An accepted termination is requested again after this time, if the instance still exists.
const REPEAT_AFTER: Span = Span::mins(2);
/// An id that EC2 has not known for this long never existed, or has been gone for long.
const UNKNOWN_FOR: Span = Span::mins(10);

/// The operation in reports about terminations.
const TERMINATE: &str = "terminate instances";

/// Instances that have to end.
#[derive(Debug, Default)]
pub(super) struct Terminations(BTreeMap<String, Termination>);

#[derive(Debug)]
struct Termination {
    since: Timestamp,
    again: Timestamp,
    call_running: bool,
    /// EC2 did not know the instance, or refused a call with it: it gets a call of its own.
    alone: bool,
    attempts: u32,
    delays: RetrySpans,
}

/// What a response means for the instances of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TerminateResult {
    Accepted,
    /// EC2 refused the call for a reason that waiting does not fix.
    Refused,
    /// EC2 does not know some of the ids. The text is its message.
    UnknownId(String),
    /// Throttling, a failure of EC2, or a lost response.
    Transient,
}

impl TerminateResult {
    fn of(response: &Ec2Response) -> TerminateResult {
        match response {
            Ec2Response::Done => TerminateResult::Accepted,
            Ec2Response::Refused(error) => match error.class {
                ErrorClass::NotFound => TerminateResult::UnknownId(error.message.clone()),
                class if class.is_transient() => TerminateResult::Transient,
                _ => TerminateResult::Refused,
            },
            _ => TerminateResult::Transient,
        }
    }

    /// Whether EC2 means this instance by an unknown id. If its message names no id of the call, it may mean any of them.
    fn is_unknown(&self, instance: &str, all: &[String]) -> bool {
        let TerminateResult::UnknownId(message) = self else { return false };
        message.contains(instance) || !all.iter().any(|i| message.contains(i.as_str()))
    }
}

impl Terminations {
    pub fn add(&mut self, now: Timestamp, instance: String) {
        self.0.entry(instance).or_insert_with(|| Termination {
            since: now,
            again: now,
            call_running: false,
            alone: false,
            attempts: 0,
            delays: RetrySpans::default(),
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The instances of the next call.
    fn due(&self, now: Timestamp) -> Vec<String> {
        let due = || self.0.iter().filter(|(_, t)| !t.call_running && t.again <= now);
        let together: Vec<String> =
            due().filter(|(_, t)| !t.alone).map(|(i, _)| i.clone()).take(MAX_PER_CALL).collect();
        if !together.is_empty() {
            return together;
        }
        // The one that has waited longest, so that instances which may not be terminated do not use up the rate.
        let longest = due().min_by_key(|(instance, t)| (t.again, *instance));
        longest.map(|(instance, _)| vec![instance.clone()]).unwrap_or_default()
    }
}

impl Ec2Machine {
    pub(super) fn poll_terminations(&mut self, now: Timestamp, calls: &mut Vec<(CallId, Ec2Call)>) {
        loop {
            let due = self.terminations.due(now);
            if due.is_empty() || !self.rates.take(RateClass::Terminate, now) {
                return;
            }
            for instance in &due {
                if let Some(termination) = self.terminations.0.get_mut(instance) {
                    termination.call_running = true;
                    termination.attempts += 1;
                }
            }
            self.start_call(Ec2Call::Terminate(due.clone()), CallPurpose::Terminate(due), calls);
        }
    }

    pub(super) fn terminate_response(&mut self, now: Timestamp, instances: &[String], response: Ec2Response) {
        let (result, single) = (TerminateResult::of(&response), instances.len() == 1);
        if result == TerminateResult::Accepted {
            instances.iter().for_each(|instance| self.report_recovery(TERMINATE, instance));
        }
        let attempts = instances.iter().filter_map(|i| self.terminations.0.get(i)).map(|t| t.attempts).max();
        // After a refusal each instance gets a call of its own, which shows the instance that it is about.
        let report = match result {
            TerminateResult::Refused => single,
            TerminateResult::Transient => attempts.unwrap_or(0) >= REPORT_AFTER,
            TerminateResult::Accepted | TerminateResult::UnknownId(_) => false,
        };
        if let (true, Some(instance), Ec2Response::Refused(error)) = (report, instances.first(), response) {
            self.report_failure(now, TERMINATE, instance, error);
        }
        for instance in instances {
            let Some(termination) = self.terminations.0.get_mut(instance) else { continue };
            let is_unknown = result.is_unknown(instance, instances);
            if single && is_unknown && now.since(termination.since) >= UNKNOWN_FOR {
                self.terminations.0.remove(instance);
                continue;
            }
            termination.call_running = false;
            termination.alone |= is_unknown || result == TerminateResult::Refused;
            let delay = match result {
                TerminateResult::Accepted => REPEAT_AFTER,
                // The other instances of the call are requested again at once.
                TerminateResult::UnknownId(_) if !is_unknown => Span::ZERO,
                TerminateResult::Refused if !single => Span::ZERO,
                _ => termination.delays.next_span(&mut self.rates),
            };
            termination.again = now + delay;
        }
    }

    /// Removes the instances that are terminated.
    pub(super) fn remove_terminated(&mut self, listing: &InstanceListing) {
        for seen in listing.instances.iter().filter(|s| s.state == Ec2InstanceState::Terminated) {
            self.terminations.0.remove(&seen.instance);
            self.report_recovery(TERMINATE, &seen.instance);
        }
    }

    pub(super) fn next_termination(&mut self, now: Timestamp) -> Timestamp {
        let next = self.terminations.0.values().filter(|t| !t.call_running).map(|t| t.again).min();
        next.map_or(Timestamp::NEVER, |at| at.max(self.rates.next_free(RateClass::Terminate, now)))
    }
}
