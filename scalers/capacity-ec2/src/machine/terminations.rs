//! Terminations: requested in batches, and repeated until the instances are gone. An instance that still exists is never forgotten, and one that
//! EC2 takes back is left to it for a while: see [`crate::free_hour`].

use super::{CallId, CallPurpose, Ec2Machine, InstanceListing, REPORT_AFTER};
use crate::api_call::{DescribedInstance, Ec2Call, Ec2InstanceState, Ec2Response, RateClass};
use crate::error_class::{Ec2Error, ErrorClass};
use crate::rate_limiter::RetrySpans;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;

/// The most instances of one call. EC2 accepts a thousand; with fewer, one unknown id affects fewer others.
const MAX_PER_CALL: usize = 100;
/// An accepted termination is requested again after this time, if the instance still exists.
const REPEAT_AFTER: Span = Span::mins(2);
/// An id that EC2 has not known for this long never existed, or has been gone for long.
const UNKNOWN_FOR: Span = Span::mins(10);
/// An instance that is not even shutting down so long after its termination was requested costs money, so that an operator has to look at it.
const STUCK_AFTER: Span = Span::mins(30);

/// The operation in reports about terminations.
const TERMINATE: &str = "terminate instances";
/// The operation in reports about terminations that EC2 has accepted and that change nothing.
const END: &str = "see terminated instances end";

/// Instances that have to end.
#[derive(Debug, Default)]
pub(super) struct Terminations {
    open: BTreeMap<String, Termination>,
    /// The instances whose end is left to EC2, until these times.
    left_until: BTreeMap<String, Timestamp>,
}

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
        let first = self.left_until.get(&instance).map_or(now, |until| now.max(*until));
        self.open.entry(instance).or_insert_with(|| Termination {
            since: first,
            again: first,
            call_running: false,
            alone: false,
            attempts: 0,
            delays: RetrySpans::default(),
        });
    }

    /// Leaves the end of an instance to EC2 until then. What was requested already stays.
    pub fn leave_to_ec2(&mut self, now: Timestamp, instance: String, until: Timestamp) {
        self.left_until.retain(|_, until| *until > now);
        if let Some(waiting) = self.open.get_mut(&instance).filter(|t| t.attempts == 0) {
            (waiting.since, waiting.again) = (waiting.since.max(until), waiting.again.max(until));
        }
        self.left_until.insert(instance, until);
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The instances of the next call.
    fn due(&self, now: Timestamp) -> Vec<String> {
        let due = || self.open.iter().filter(|(_, t)| !t.call_running && t.again <= now);
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
                if let Some(termination) = self.terminations.open.get_mut(instance) {
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
        let attempts = instances.iter().filter_map(|i| self.terminations.open.get(i)).map(|t| t.attempts).max();
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
            let Some(termination) = self.terminations.open.get_mut(instance) else { continue };
            let is_unknown = result.is_unknown(instance, instances);
            if single && is_unknown && now.since(termination.since) >= UNKNOWN_FOR {
                self.terminations.open.remove(instance);
                self.report_recovery(TERMINATE, instance);
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

    /// Reports the instances that EC2 does not end although it has accepted their termination. One that shuts down costs nothing.
    pub(super) fn report_stuck(&mut self, now: Timestamp, listing: &InstanceListing) {
        let goes_on =
            |s: &&DescribedInstance| !matches!(s.state, Ec2InstanceState::ShuttingDown | Ec2InstanceState::Terminated);
        let stuck: Vec<String> = listing
            .instances
            .iter()
            .filter(goes_on)
            .filter(|s| {
                let since = self.terminations.open.get(&s.instance).filter(|t| t.attempts > 0).map(|t| t.since);
                since.is_some_and(|since| now.since(since) >= STUCK_AFTER)
            })
            .map(|s| s.instance.clone())
            .collect();
        for instance in stuck {
            let minutes = STUCK_AFTER.0 / 60_000;
            let message =
                format!("it still exists {minutes} minutes after its termination was requested: end it manually");
            let error = Ec2Error { class: ErrorClass::Server, code: "StillThere".to_owned(), message };
            self.report_failure(now, END, &instance, error);
        }
    }

    /// Removes the instances that are terminated.
    pub(super) fn remove_terminated(&mut self, listing: &InstanceListing) {
        for seen in listing.instances.iter().filter(|s| s.state == Ec2InstanceState::Terminated) {
            self.terminations.open.remove(&seen.instance);
            self.terminations.left_until.remove(&seen.instance);
            self.report_recovery(TERMINATE, &seen.instance);
            self.report_recovery(END, &seen.instance);
        }
    }

    pub(super) fn next_termination(&mut self, now: Timestamp) -> Timestamp {
        let next = self.terminations.open.values().filter(|t| !t.call_running).map(|t| t.again).min();
        next.map_or(Timestamp::NEVER, |at| at.max(self.rates.next_free(RateClass::Terminate, now)))
    }
}
