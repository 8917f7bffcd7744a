//! Purchases at the desk: asked, asked again under the same token, settled.
//!
//! Never: a second token for one purchase, or a new purchase while it is not known what became of an older one that it could double.

use super::{ASK_FOR, Desk, Errand, Look, MOST_LAUNCHES, TOKEN_LASTS};
use crate::call::{Answer, Call, RateClass};
use crate::request::{Request, TAG_JOURNAL, TAG_POOL, TAG_PURCHASE};
use crate::trouble::{Class, Refusal, launch_error, of_fleet};
use forebay_engine::event::LaunchError;
use forebay_engine::ids::PurchaseId;
use forebay_engine::reconcile::SETTLED;
use forebay_engine::units::{Millis, Span};
use std::collections::BTreeSet;

/// The first pause after a lost answer, and the longest.
const PAUSE: (Span, Span) = (Span::secs(1), Span::secs(30));

/// What is said when launches are refused for a reason that somebody has to mend.
const LAUNCHING: &str = "launch instances";
/// What is said when a placement group cannot be made.
const GROUPING: &str = "make a placement group";
/// What EC2 calls a placement group that is not there: somebody has removed it, or it was made a moment ago.
pub(super) const NO_GROUP: &str = "InvalidPlacementGroup.Unknown";
/// A launch is asked again so often for its group to come up.
const GROUP_TRIES: u32 = 5;

/// A purchase without an outcome.
#[derive(Clone, Debug)]
pub(super) struct Purchase {
    request: Request,
    /// It may have been made before this desk was set up.
    recovered: bool,
    stage: Stage,
    tries: u32,
    /// Since when its outcome has been unknown.
    unknown_since: Option<Millis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be asked.
    Waits,
    /// A call is under way.
    UnderWay,
    /// The answer was lost: asked again then.
    Unknown { again: Millis },
    /// Not asked any more: a look that is begun after this says what there is.
    Settles { after: Millis, error: LaunchError },
}

impl Purchase {
    pub fn new(request: Request, recovered: bool) -> Purchase {
        Purchase { request, recovered, stage: Stage::Waits, tries: 0, unknown_since: None }
    }

    /// What it buys, and for which pool.
    fn about(&self) -> String {
        let Request { instance_type, zone, capacity, tags, .. } = &self.request;
        let pool = tags.get(TAG_POOL).map_or("", String::as_str);
        format!("{instance_type} {} in {zone} for pool {pool}", capacity.as_str())
    }

    fn unsettled(&self) -> bool {
        self.recovered || self.unknown_since.is_some()
    }

    /// Which rate its next call counts against.
    fn rate(&self, groups: &BTreeSet<String>) -> RateClass {
        match &self.request.group {
            Some(group) if !groups.contains(group) => RateClass::Mutate,
            _ => self.request.rate(),
        }
    }

    fn due(&self, now: Millis) -> bool {
        match self.stage {
            Stage::Waits => true,
            Stage::Unknown { again } => again <= now,
            Stage::UnderWay | Stage::Settles { .. } => false,
        }
    }
}

impl Desk {
    pub(super) fn poll_purchases(&mut self, now: Millis, calls: &mut Vec<(u64, Call)>) {
        self.refuse_contested();
        for id in self.ready_purchases(now) {
            let under_way = self.under_way.values().filter(|(_, e)| matches!(e, Errand::Launch(_))).count();
            if under_way >= MOST_LAUNCHES {
                return;
            }
            let Some(purchase) = self.purchases.get(&id) else { continue };
            // Which of its reservations it had turned to is not known any more, and so not under which token.
            let turned = purchase.recovered && !purchase.request.other_reservations.is_empty();
            if turned || now.since(Millis(purchase.request.decided_at_ms)) >= TOKEN_LASTS {
                self.settle(id, now, LaunchError::Server);
                continue;
            }
            let request = purchase.request.clone();
            if !self.group_is_there(&request, now, calls) {
                continue;
            }
            let call = Call::Launch(Box::new(request));
            if !self.pace.take(call.rate(), now) {
                continue;
            }
            if let Some(purchase) = self.purchases.get_mut(&id) {
                purchase.stage = Stage::UnderWay;
                purchase.tries += 1;
            }
            self.call(call, Errand::Launch(id), calls);
        }
    }

    /// What may be asked now: first what may have been made already, and new ones only when nothing of the kind is left of them.
    fn ready_purchases(&self, now: Millis) -> Vec<PurchaseId> {
        let due = |(_, p): &(&PurchaseId, &Purchase)| p.due(now);
        let id = |(id, _): (&PurchaseId, &Purchase)| *id;
        let unsettled = self.purchases.iter().filter(|(_, p)| p.unsettled());
        let mut ready: Vec<PurchaseId> = unsettled.filter(due).map(id).collect();
        let recovering = self.purchases.values().any(|p| p.recovered);
        if recovering || !self.looks.has_looked() {
            return ready;
        }
        let unsettled = self.purchases.values().filter(|p| p.unsettled());
        let held_back: BTreeSet<_> = unsettled.map(|p| p.request.market()).collect();
        let free = |(_, p): &(&PurchaseId, &Purchase)| !p.unsettled() && !held_back.contains(&p.request.market());
        ready.extend(self.purchases.iter().filter(free).filter(due).map(id));
        ready
    }

    /// Nothing is bought while somebody else buys under our name.
    fn refuse_contested(&mut self) {
        if self.contested.is_empty() {
            return;
        }
        let new = self.purchases.iter().filter(|(_, p)| !p.unsettled() && p.stage == Stage::Waits);
        let new: Vec<PurchaseId> = new.map(|(id, _)| *id).collect();
        for id in new {
            self.outcome(id, Vec::new(), Some(LaunchError::Contested));
        }
    }

    /// Whether a purchase's placement group is there; makes it if not.
    fn group_is_there(&mut self, request: &Request, now: Millis, calls: &mut Vec<(u64, Call)>) -> bool {
        let Some(group) = request.group.as_ref().filter(|g| !self.groups.contains(*g)) else { return true };
        let making = self.making(group);
        let call = Call::MakeGroup(group.clone());
        if !making && self.pace.take(call.rate(), now) {
            self.call(call, Errand::Group(group.clone()), calls);
        }
        false
    }

    fn making(&self, group: &str) -> bool {
        self.under_way.values().any(|(_, errand)| matches!(errand, Errand::Group(name) if name == group))
    }

    pub(super) fn grouped(&mut self, now: Millis, group: String, answer: Answer) {
        match answer {
            Answer::Done | Answer::Refused(Refusal { class: Class::Exists, .. }) => {
                self.over(GROUPING, &group);
                self.groups.insert(group);
            }
            Answer::Refused(refusal) if refusal.class != Class::Throttled && refusal.class != Class::Server => {
                // Without it nothing was launched: those that wait for it are over.
                let waits = |p: &Purchase| p.request.group.as_ref() == Some(&group) && p.due(now);
                let waiting: Vec<_> =
                    self.purchases.iter().filter(|(_, p)| waits(p)).map(|(id, p)| (*id, p.unsettled())).collect();
                let error = launch_error(refusal.class).unwrap_or(LaunchError::Config);
                for (id, unsettled) in waiting {
                    if unsettled {
                        self.settle(id, now, error);
                    } else {
                        self.outcome(id, Vec::new(), Some(error));
                    }
                }
                self.trouble(now, GROUPING, &group, refusal);
            }
            // Made or not: it is made again, and found to be there then.
            _ => self.pace.throttled(RateClass::Mutate, now),
        }
    }

    pub(super) fn launched(&mut self, now: Millis, id: PurchaseId, answer: Answer) {
        let Some(purchase) = self.purchases.get(&id) else { return };
        let (count, unsettled, about) = (purchase.request.count as usize, purchase.unsettled(), purchase.about());
        let (group, tries) = (purchase.request.group.clone(), purchase.tries);
        let no_group = match &answer {
            Answer::Launched { errors, .. } => errors.iter().any(|(code, _)| code == NO_GROUP),
            Answer::Refused(refusal) => refusal.code == NO_GROUP,
            _ => false,
        };
        if let Some(group) = group.filter(|_| no_group) {
            self.groups.remove(&group);
        }
        match answer {
            Answer::Refused(_) if no_group && tries < GROUP_TRIES => self.unknown(now, id),
            Answer::Launched { instances, errors } => {
                let missing = instances.len() < count;
                let error = missing.then(|| if no_group { LaunchError::Server } else { of_fleet(&errors) });
                if !missing {
                    self.over(LAUNCHING, &about);
                }
                if let Some((code, message)) = errors.first().filter(|_| missing) {
                    self.tell(now, &about, error, Refusal::new(code, message, 400));
                }
                match error {
                    // Whether an answer that is given again names what the first call brought is nowhere promised.
                    Some(error) if unsettled => self.settle(id, now, error),
                    _ => self.outcome(id, instances, error),
                }
            }
            Answer::Refused(refusal) => match (launch_error(refusal.class), refusal.class) {
                // An older call of it may have gone through: a refusal of this one says nothing of that.
                (Some(LaunchError::Throttled), _) if unsettled => self.unknown(now, id),
                (Some(error), _) if unsettled => {
                    self.tell(now, &about, Some(error), refusal);
                    self.settle(id, now, error);
                }
                (Some(error), _) => {
                    self.tell(now, &about, Some(error), refusal);
                    let turns = matches!(error, LaunchError::Capacity | LaunchError::Config);
                    if !(turns && self.turn(id)) {
                        self.outcome(id, Vec::new(), Some(error));
                    }
                }
                (None, Class::Mismatch) => self.settle(id, now, LaunchError::Config),
                (None, _) => self.unknown(now, id),
            },
            Answer::Lost(_) | Answer::Done | Answer::Seen { .. } => self.unknown(now, id),
        }
    }

    /// The next of its reservations, now that one has refused it.
    fn turn(&mut self, id: PurchaseId) -> bool {
        let Some(purchase) = self.purchases.get_mut(&id) else { return false };
        let turned = purchase.request.turn();
        if turned {
            purchase.stage = Stage::Waits;
        }
        turned
    }

    /// What somebody has to mend is said. Stock and rates mend themselves.
    fn tell(&mut self, now: Millis, about: &str, error: Option<LaunchError>, why: Refusal) {
        if matches!(error, Some(LaunchError::Auth | LaunchError::Config | LaunchError::Quota)) {
            self.trouble(now, LAUNCHING, about, why);
        }
    }

    /// Nobody knows whether it was made.
    fn unknown(&mut self, now: Millis, id: PurchaseId) {
        let Some(purchase) = self.purchases.get_mut(&id) else { return };
        let since = *purchase.unknown_since.get_or_insert(now);
        let tries = purchase.tries;
        if now.since(since) >= ASK_FOR {
            return self.settle(id, now, LaunchError::Server);
        }
        let again = now + self.pace.pause(PAUSE.0, tries, PAUSE.1);
        if let Some(purchase) = self.purchases.get_mut(&id) {
            purchase.stage = Stage::Unknown { again };
        }
    }

    pub(super) fn settle(&mut self, id: PurchaseId, now: Millis, error: LaunchError) {
        if let Some(purchase) = self.purchases.get_mut(&id) {
            purchase.unknown_since.get_or_insert(now);
            // By then every list has what the last call made.
            purchase.stage = Stage::Settles { after: now + SETTLED, error };
        }
    }

    /// A complete list settles what was not known.
    pub(super) fn settle_by(&mut self, look: &Look) {
        let unsettled = self.purchases.iter().filter(|(_, p)| p.unsettled() && p.stage != Stage::UnderWay);
        let mut settled = Vec::new();
        for (&id, purchase) in unsettled {
            let tag = id.0.to_string();
            let ours = |s: &&crate::call::Seen| {
                s.tag(TAG_PURCHASE) == Some(&tag) && s.tag(TAG_JOURNAL) == Some(&self.settings.journal)
            };
            let found: Vec<String> =
                look.instances.iter().filter(|s| s.exists()).filter(ours).map(|s| s.instance.clone()).collect();
            let all = found.len() >= purchase.request.count as usize;
            match purchase.stage {
                Stage::Settles { after, error } if all || look.at >= after => {
                    settled.push((id, found, (!all).then_some(error)));
                }
                // Every one of them is there: nothing is left to ask.
                Stage::Unknown { .. } if all => settled.push((id, found, None)),
                _ => {}
            }
        }
        for (id, found, error) in settled {
            self.outcome(id, found, error);
        }
    }

    /// Whether some purchase waits for a look.
    pub(super) fn waits_for_look(&self) -> bool {
        self.purchases.values().any(|p| p.unsettled())
    }

    pub(super) fn next_purchase(&mut self, now: Millis) -> Millis {
        let under_way = self.under_way.values().filter(|(_, e)| matches!(e, Errand::Launch(_))).count();
        if under_way >= MOST_LAUNCHES {
            return Millis::NEVER;
        }
        // What is held back by others, by the first look, or by its placement group is woken by their answers.
        let waits = |p: &Purchase| p.request.group.as_ref().is_some_and(|g| !self.groups.contains(g) && self.making(g));
        let again = self.purchases.values().filter_map(|p| match p.stage {
            Stage::Unknown { again } if again > now && !waits(p) => Some((again, p.rate(&self.groups))),
            _ => None,
        });
        let ready = self.ready_purchases(now).into_iter().filter_map(|id| self.purchases.get(&id));
        let ready = ready.filter(|p| !waits(p)).map(|p| (now, p.rate(&self.groups)));
        let moments: BTreeSet<(Millis, RateClass)> = again.chain(ready).collect();
        moments.into_iter().map(|(at, rate)| at.max(self.pace.opens(rate, now))).min().unwrap_or(Millis::NEVER)
    }
}
