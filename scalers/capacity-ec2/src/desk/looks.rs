//! Looks: everything that carries our name, page by page, and by their ids the claims that do not carry it any more.
//!
//! ```text
//! list by tag, all pages -> claims that are not on it: described by id -> Look
//! ```
//!
//! Never: a look that is not complete. A page that fails begins it again.

use super::{Desk, Errand, Look, Report, SAID_AFTER};
use crate::call::{Answer, Call, InstanceState, RateClass, Seen};
use crate::request::{TAG_CLUSTER, TAG_JOURNAL};
use crate::trouble::Class;
use forebay_engine::units::{Millis, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Between two looks while something is about to change: boots and ends are seen within it.
const BUSY: Span = Span::secs(5);
/// Between two looks else: what others do is seen within it.
const CALM: Span = Span::mins(1);
/// The first pause after a page that failed, and the longest.
const PAUSE: (Span, Span) = (Span::secs(1), Span::secs(30));
/// Ids of one call: filters take two hundred values.
const MOST_IDS: usize = 200;
/// An instance that is launched is looked for so often: at [`BUSY`] it is a quarter of an hour.
const LOOKS_FOR_A_BOOT: u16 = 180;

/// What is said when nothing can be listed.
const LOOKING: &str = "list instances";

/// Where looking is.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    under_way: Option<Pages>,
    next: Millis,
    failures: u32,
    looked: bool,
    /// Instances that were launched and not seen running yet, with how often they have been looked for.
    booting: BTreeMap<String, u16>,
}

/// A look that is under way.
#[derive(Clone, Debug)]
struct Pages {
    begun: Millis,
    seen: BTreeMap<String, Seen>,
    /// Claims that the list did not have, to be described.
    missing: Vec<String>,
    asked: bool,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    List { from: Option<String> },
    Describe,
}

impl Looks {
    pub fn has_looked(&self) -> bool {
        self.looked
    }

    pub fn expect(&mut self, instances: &[String]) {
        self.booting.extend(instances.iter().map(|i| (i.clone(), 0)));
        if !instances.is_empty() {
            self.next = Millis(0);
        }
    }
}

impl Desk {
    pub(super) fn poll_look(&mut self, now: Millis, calls: &mut Vec<(u64, Call)>) {
        if self.looks.under_way.is_none() && self.looks.next <= now {
            let step = Step::List { from: None };
            self.looks.under_way =
                Some(Pages { begun: now, seen: BTreeMap::new(), missing: Vec::new(), asked: false, step });
        }
        let cluster = self.settings.cluster.clone();
        let Some(pages) = self.looks.under_way.as_mut().filter(|p| !p.asked) else { return };
        if !self.pace.take(RateClass::Describe, now) {
            return;
        }
        pages.asked = true;
        let call = match &pages.step {
            Step::List { from } => Call::List { cluster, from: from.clone() },
            Step::Describe => {
                let rest = pages.missing.split_off(pages.missing.len().min(MOST_IDS));
                Call::Describe(std::mem::replace(&mut pages.missing, rest))
            }
        };
        self.call(call, Errand::Look, calls);
    }

    pub(super) fn looked(&mut self, now: Millis, answer: Answer) {
        let (instances, next) = match answer {
            Answer::Seen { instances, next } => (instances, next),
            other => return self.look_failed(now, other),
        };
        let Some(pages) = self.looks.under_way.as_mut() else { return };
        pages.asked = false;
        pages.seen.extend(instances.into_iter().map(|s| (s.instance.clone(), s)));
        if let Step::List { from } = &mut pages.step {
            if next.is_some() {
                *from = next;
                return;
            }
            let seen = &pages.seen;
            pages.missing = self.claims.iter().filter(|c| !seen.contains_key(*c)).cloned().collect();
            pages.step = Step::Describe;
        }
        if pages.missing.is_empty() {
            self.look_done(now);
        }
    }

    fn look_failed(&mut self, now: Millis, answer: Answer) {
        self.looks.under_way = None;
        self.looks.failures = self.looks.failures.saturating_add(1);
        self.looks.next = now + self.pace.pause(PAUSE.0, self.looks.failures, PAUSE.1);
        let passing = match &answer {
            Answer::Refused(refusal) => matches!(refusal.class, Class::Throttled | Class::Server),
            _ => true,
        };
        let said = !passing || self.looks.failures >= SAID_AFTER;
        if let Some(refusal) = Desk::no_answer(answer).filter(|_| said) {
            self.trouble(now, LOOKING, "", refusal);
        }
    }

    fn look_done(&mut self, now: Millis) {
        let Some(pages) = self.looks.under_way.take() else { return };
        self.over(LOOKING, "");
        let look = Look { at: pages.begun, instances: pages.seen.into_values().collect() };
        self.looks.failures = 0;
        self.looks.looked = true;
        self.settle_by(&look);
        self.endings_seen(&look);
        self.contest(&look);
        self.booted(&look);
        self.forget(&look);
        let busy = !self.looks.booting.is_empty() || !self.endings.is_empty() || self.waits_for_look();
        self.looks.next = now + if busy { BUSY } else { CALM };
        self.reports.push(Report::Look(look));
    }

    /// Instances of other journals under our name: somebody else buys for it, or did.
    fn contest(&mut self, look: &Look) {
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for seen in look.instances.iter().filter(|s| s.exists() && !self.claims.contains(&s.instance)) {
            // One without a journal is nobody's that we know of, and stays.
            let Some(journal) = seen.tag(TAG_JOURNAL).filter(|_| seen.tag(TAG_CLUSTER) == Some(&self.settings.cluster))
            else {
                continue;
            };
            if journal != self.settings.journal && !self.settings.predecessors.contains(journal) {
                *others.entry(journal.to_owned()).or_default() += 1;
            }
        }
        if others.keys().ne(self.contested.keys()) {
            self.reports.push(Report::Contested(others.clone()));
        }
        self.contested = others;
    }

    fn booted(&mut self, look: &Look) {
        let starts = |s: &&Seen| s.state == InstanceState::Pending;
        let starting: BTreeSet<&str> = look.instances.iter().filter(starts).map(|s| s.instance.as_str()).collect();
        let known: BTreeSet<&str> = look.instances.iter().map(|s| s.instance.as_str()).collect();
        self.looks.booting.retain(|instance, looks| {
            *looks += 1;
            let waits = starting.contains(instance.as_str()) || !known.contains(instance.as_str());
            waits && *looks <= LOOKS_FOR_A_BOOT
        });
    }

    /// Claims that are over. One that EC2 does not know any more has been told of: the engine judges when that is the end of it.
    fn forget(&mut self, look: &Look) {
        for seen in look.instances.iter().filter(|s| !s.exists()) {
            self.claims.remove(&seen.instance);
        }
    }

    /// The engine holds these now: what it does not hold any more is not asked about any more.
    pub fn claims(&mut self, held: &BTreeSet<String>) {
        let booting = &self.looks.booting;
        self.claims.retain(|claim| held.contains(claim) || booting.contains_key(claim));
        self.claims.extend(held.iter().cloned());
    }

    pub(super) fn next_look(&mut self, now: Millis) -> Millis {
        match &self.looks.under_way {
            Some(pages) if pages.asked => Millis::NEVER,
            Some(_) => self.pace.opens(RateClass::Describe, now),
            None => self.looks.next.max(self.pace.opens(RateClass::Describe, now)),
        }
    }
}
