//! The desk between the engine and EC2: what is asked of EC2, when, and what its answers mean. Pure: who drives it makes the calls and
//! says what time it is.
//!
//! ```text
//! Request --launch-->  +------+ --poll--> calls to make now --> EC2
//! instance --terminate-> | Desk | <--answer-- what came back
//!                      +------+ --reports--> outcomes, looks, troubles
//! ```
//!
//! 1. After a start the first thing is a look at everything that carries our name, and every purchase that was under way is asked again
//!    under its token. Nothing new is bought before all of that is known.
//! 2. A purchase whose answer was lost is asked again with the same token, and holds back others of its type, zone and capacity type
//!    until it is settled; past [`ASK_FOR`], or when EC2 does not know the token any more, by a look that is later than its last call.
//! 3. While instances of another journal carry our name, nothing is bought.
//!
//! Never: makes a call, reads a clock, or keeps more than claims and open purchases need.

mod endings;
mod looks;
mod purchases;
#[cfg(test)]
mod tests;

use crate::call::{Answer, Call, Seen};
use crate::pace::Pace;
use crate::request::Request;
use crate::settings::Settings;
use crate::trouble::{Class, Refusal};
use endings::Endings;
use forebay_engine::catalog::CapacityType;
use forebay_engine::event::{Event, LaunchError};
use forebay_engine::ids::PurchaseId;
use forebay_engine::units::{Millis, Span};
use looks::Looks;
use purchases::Purchase;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A purchase without an answer is asked again for so long, then settled by a look.
pub const ASK_FOR: Span = Span::mins(5);
/// EC2 keeps a client token for a day; an hour is left for the clocks.
pub const TOKEN_LASTS: Span = Span::mins(23 * 60);
/// Launches under way at once.
const MOST_LAUNCHES: usize = 8;
/// A trouble that is not met again for so long is over: whatever met it is not wanted any more. Refused launches pause for half of it.
const TROUBLE_LASTS: Span = Span::mins(60);
/// Looks or tries that fail in a row before it is said that there is no answer.
const SAID_AFTER: u32 = 5;
/// Outcomes that are remembered for a launch that is asked again before the engine has taken its outcome in.
const MOST_ANSWERED: usize = 64;

/// What the desk says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The outcome of a purchase.
    Outcome(Event),
    /// Everything that carries our name, and every claim that does not any more.
    Look(Look),
    /// Something went wrong that a person may have to mend. Told once a cause until it is over.
    Trouble {
        /// What was to be done.
        what: &'static str,
        /// With what: a pool and what it buys, an instance, a placement group. Empty: with everything.
        about: String,
        /// What EC2 said.
        why: Refusal,
    },
    /// What went wrong works again, or is not asked for any more.
    Over {
        /// What was to be done.
        what: &'static str,
        /// With what.
        about: String,
    },
    /// Instances of other journals carry our name: how many of each. Nothing is bought. Empty: no longer.
    Contested(BTreeMap<String, usize>),
}

/// A complete list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When it was begun.
    pub at: Millis,
    /// What there is, by id; what has ended as long as EC2 tells of it.
    pub instances: Vec<Seen>,
}

/// What a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Errand {
    Launch(PurchaseId),
    Group(String),
    Terminate(Vec<String>),
    Look,
}

/// The desk.
#[derive(Clone, Debug)]
pub struct Desk {
    settings: Settings,
    pace: Pace,
    calls: u64,
    under_way: BTreeMap<u64, (Call, Errand)>,
    purchases: BTreeMap<PurchaseId, Purchase>,
    answered: VecDeque<(PurchaseId, Event)>,
    groups: BTreeSet<String>,
    endings: Endings,
    looks: Looks,
    /// Instances that are ours whatever their tags say.
    claims: BTreeSet<String>,
    contested: BTreeMap<String, usize>,
    /// What does not work, with what, by which codes so far, and when that was met last.
    troubled: BTreeMap<(&'static str, String), (BTreeSet<String>, Millis)>,
    reports: Vec<Report>,
}

impl Desk {
    /// A desk that has just been set up. `claims`: instances that the engine knows.
    #[must_use]
    pub fn new(settings: Settings, claims: BTreeSet<String>, seed: u64) -> Desk {
        Desk {
            settings,
            pace: Pace::new(seed),
            calls: 0,
            under_way: BTreeMap::new(),
            purchases: BTreeMap::new(),
            answered: VecDeque::new(),
            groups: BTreeSet::new(),
            endings: Endings::default(),
            looks: Looks::default(),
            claims,
            contested: BTreeMap::new(),
            troubled: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// How it was set up.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Asks for a purchase. `recovered`: it was decided before this desk was set up, and may have been made.
    pub fn launch(&mut self, request: Request, recovered: bool) {
        let id = request.id();
        if let Some((_, outcome)) = self.answered.iter().find(|(known, _)| *known == id) {
            self.reports.push(Report::Outcome(outcome.clone()));
            return;
        }
        // Asked for without its reservation it would be on demand.
        let cannot_be = request.capacity == CapacityType::Reserved && request.reservation.is_none();
        if cannot_be && !recovered {
            return self.outcome(id, Vec::new(), Some(LaunchError::Capacity));
        }
        self.purchases.entry(id).or_insert_with(|| Purchase::new(request, recovered));
        if cannot_be {
            self.settle(id, Millis(0), LaunchError::Capacity);
        }
    }

    /// Asks for the end of an instance. It is asked for until a look says that it is gone.
    pub fn terminate(&mut self, now: Millis, instance: String) {
        self.endings.add(now, instance);
    }

    /// Calls to make now. Each has to be answered once, by its number.
    pub fn poll(&mut self, now: Millis) -> Vec<(u64, Call)> {
        let mut calls = Vec::new();
        self.poll_look(now, &mut calls);
        self.poll_endings(now, &mut calls);
        self.poll_purchases(now, &mut calls);
        self.forget_troubles(now);
        calls
    }

    /// A call has been answered, or will never be.
    pub fn answer(&mut self, now: Millis, number: u64, answer: Answer) {
        let Some((call, errand)) = self.under_way.remove(&number) else { return };
        let rate = call.rate();
        match &answer {
            Answer::Refused(refusal) if refusal.class == Class::Throttled => self.pace.throttled(rate, now),
            // What was lost says nothing about the rate.
            Answer::Lost(_) => {}
            _ => self.pace.went_through(rate, now),
        }
        match errand {
            Errand::Launch(id) => self.launched(now, id, answer),
            Errand::Group(name) => self.grouped(now, name, answer),
            Errand::Terminate(instances) => self.ended(now, instances, answer),
            Errand::Look => self.looked(now, answer),
        }
    }

    /// Nobody knows any more which calls are under way: none of them will be answered.
    pub fn lost_all(&mut self, now: Millis) {
        for number in self.under_way.keys().copied().collect::<Vec<_>>() {
            self.answer(now, number, Answer::Lost("its call ended without an answer".to_owned()));
        }
    }

    /// What there is to say, in order.
    pub fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// When [`Desk::poll`] may have something new, if nothing is answered before. Calls under way are not waited for here.
    pub fn next(&mut self, now: Millis) -> Millis {
        let look = self.next_look(now);
        let ending = self.next_ending(now);
        let purchase = self.next_purchase(now);
        look.min(ending).min(purchase)
    }

    /// Purchases without an outcome.
    #[must_use]
    pub fn open_purchases(&self) -> usize {
        self.purchases.len()
    }

    /// Whether anything is left to be done or to be heard of, beside looking.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.purchases.is_empty() && self.endings.is_empty()
    }

    /// Whether it is known what there is.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        self.looks.has_looked()
    }

    /// Who else buys under our name.
    #[must_use]
    pub fn contested(&self) -> &BTreeMap<String, usize> {
        &self.contested
    }

    fn call(&mut self, call: Call, errand: Errand, calls: &mut Vec<(u64, Call)>) {
        self.calls += 1;
        self.under_way.insert(self.calls, (call.clone(), errand));
        calls.push((self.calls, call));
    }

    fn outcome(&mut self, id: PurchaseId, instances: Vec<String>, error: Option<LaunchError>) {
        self.purchases.remove(&id);
        self.claims.extend(instances.iter().cloned());
        self.looks.expect(&instances);
        let outcome = Event::LaunchOutcome { purchase: id, instances, error };
        self.answered.push_back((id, outcome.clone()));
        if self.answered.len() > MOST_ANSWERED {
            self.answered.pop_front();
        }
        self.reports.push(Report::Outcome(outcome));
    }

    /// Says once that something does not work, and why.
    fn trouble(&mut self, now: Millis, what: &'static str, about: &str, why: Refusal) {
        let about = about.to_owned();
        let (codes, met) = self.troubled.entry((what, about.clone())).or_insert((BTreeSet::new(), now));
        *met = now;
        if codes.insert(why.code.clone()) {
            self.reports.push(Report::Trouble { what, about, why });
        }
    }

    /// Says once that it works again.
    fn over(&mut self, what: &'static str, about: &str) {
        let about = about.to_owned();
        if self.troubled.remove(&(what, about.clone())).is_some() {
            self.reports.push(Report::Over { what, about });
        }
    }

    fn forget_troubles(&mut self, now: Millis) {
        let old = self.troubled.iter().filter(|(_, (_, met))| now.since(*met) >= TROUBLE_LASTS);
        for (what, about) in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.over(what, &about);
        }
    }

    /// What was tried in vain for a while, though EC2 has refused nothing.
    fn no_answer(answer: Answer) -> Option<Refusal> {
        match answer {
            Answer::Refused(refusal) => Some(refusal),
            Answer::Lost(message) => Some(Refusal { class: Class::Server, code: "NoAnswer".to_owned(), message }),
            Answer::Launched { .. } | Answer::Done | Answer::Seen { .. } => None,
        }
    }
}
