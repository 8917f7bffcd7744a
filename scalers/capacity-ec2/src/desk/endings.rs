//! Instances that are to end, asked for in batches until they are gone.
//!
//! Never: forgets one that still runs.

use super::{Desk, Errand, Look, SAID_AFTER};
use crate::call::{Answer, Call, InstanceState, RateClass};
use crate::trouble::Class;
use forebay_engine::units::{Millis, Span};
use std::collections::BTreeMap;

/// Instances of one call. EC2 takes a thousand; fewer lose less to one id that it does not know.
const MOST_AT_ONCE: usize = 100;
/// What EC2 has agreed to end is asked for again after so long, should it still be there.
const AGAIN: Span = Span::mins(2);
/// The first pause after trouble, and the longest.
const PAUSE: (Span, Span) = (Span::secs(1), Span::secs(30));
/// An id that EC2 has not known for so long never was, or has long been gone.
const UNKNOWN_FOR: Span = Span::mins(10);

/// What is said when instances cannot be ended.
const ENDING: &str = "terminate instances";

/// Instances that are to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<String, Ending>);

#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Millis,
    again: Millis,
    under_way: bool,
    /// EC2 did not know it, or refused a call that named it: not in one call with others.
    alone: bool,
    tries: u32,
}

impl Endings {
    pub fn add(&mut self, now: Millis, instance: String) {
        let new = Ending { since: now, again: now, under_way: false, alone: false, tries: 0 };
        self.0.entry(instance).or_insert(new);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn due(&self, now: Millis) -> Vec<String> {
        let due = || self.0.iter().filter(|(_, e)| !e.under_way && e.again <= now);
        let together: Vec<String> =
            due().filter(|(_, e)| !e.alone).map(|(i, _)| i.clone()).take(MOST_AT_ONCE).collect();
        if !together.is_empty() {
            return together;
        }
        // Whoever has waited longest: many that may not be ended must not keep the rate to themselves.
        let longest = due().min_by_key(|(instance, e)| (e.again, *instance));
        longest.map(|(instance, _)| vec![instance.clone()]).unwrap_or_default()
    }
}

impl Desk {
    pub(super) fn poll_endings(&mut self, now: Millis, calls: &mut Vec<(u64, Call)>) {
        loop {
            let due = self.endings.due(now);
            if due.is_empty() || !self.pace.take(RateClass::Terminate, now) {
                return;
            }
            for instance in &due {
                if let Some(ending) = self.endings.0.get_mut(instance) {
                    ending.under_way = true;
                    ending.tries += 1;
                }
            }
            self.call(Call::Terminate(due.clone()), Errand::Terminate(due), calls);
        }
    }

    pub(super) fn ended(&mut self, now: Millis, instances: Vec<String>, answer: Answer) {
        let (mut agreed, mut refused, mut unknown) = (false, false, None);
        let one = instances.len() == 1;
        match &answer {
            Answer::Done => {
                agreed = true;
                instances.iter().for_each(|instance| self.over(ENDING, instance));
            }
            Answer::Refused(refusal) if refusal.class == Class::NotFound => unknown = Some(refusal.message.clone()),
            Answer::Refused(refusal) if !matches!(refusal.class, Class::Throttled | Class::Server) => refused = true,
            _ => {}
        }
        let tries = instances.iter().filter_map(|i| self.endings.0.get(i)).map(|e| e.tries).max().unwrap_or(0);
        // Whose refusal it is comes out when each is asked for by itself.
        let said = (refused && one) || (!refused && unknown.is_none() && tries >= SAID_AFTER);
        if let (true, Some(instance), Some(refusal)) = (said, instances.first(), Desk::no_answer(answer)) {
            self.trouble(now, ENDING, instance, refusal);
        }
        // EC2 names the ones that it does not know. If it does not, each is asked for by itself.
        let named = |instance: &String| {
            unknown.as_ref().is_some_and(|text| {
                text.contains(instance.as_str()) || !instances.iter().any(|i| text.contains(i.as_str()))
            })
        };
        for instance in &instances {
            let Some(ending) = self.endings.0.get_mut(instance) else { continue };
            ending.under_way = false;
            ending.alone |= named(instance) || refused;
            let (tries, gone) = (ending.tries, one && named(instance) && now.since(ending.since) >= UNKNOWN_FOR);
            if gone {
                self.endings.0.remove(instance);
                continue;
            }
            let again = match (agreed, unknown.is_some() && !named(instance)) {
                (true, _) => AGAIN,
                (_, true) => Span::ZERO,
                _ if refused && !one => Span::ZERO,
                _ => self.pace.pause(PAUSE.0, tries, PAUSE.1),
            };
            if let Some(ending) = self.endings.0.get_mut(instance) {
                ending.again = now + again;
            }
        }
    }

    /// What has ended needs no more asking.
    pub(super) fn endings_seen(&mut self, look: &Look) {
        for seen in look.instances.iter().filter(|s| s.state == InstanceState::Terminated) {
            self.endings.0.remove(&seen.instance);
            self.over(ENDING, &seen.instance);
        }
    }

    pub(super) fn next_ending(&mut self, now: Millis) -> Millis {
        let next = self.endings.0.values().filter(|e| !e.under_way).map(|e| e.again).min();
        next.map_or(Millis::NEVER, |at| at.max(self.pace.opens(RateClass::Terminate, now)))
    }
}
