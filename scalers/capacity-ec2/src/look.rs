//! What a look at EC2 says that no event has said: boots, ends, orphans, reclaims that nobody warned of.
//!
//! ```text
//! Look + State -> engine events; none where there is no difference
//! ```
//!
//! An instance is known by its id first and by its tags second: tags can be edited by anybody. Never: concludes that something is gone
//! from a list that is not complete, or ends what is not ours.

use crate::call::{InstanceState, Seen};
use crate::desk::Look;
use crate::request::{TAG_CLUSTER, TAG_JOURNAL, TAG_PURCHASE};
use crate::settings::{BLOCK_CLEARS, BLOCK_WARNS, Settings};
use forebay_engine::catalog::CapacityType;
use forebay_engine::event::{Event, GoneWhy};
use forebay_engine::ids::{OfferingId, PurchaseId};
use forebay_engine::reconcile::{Listing, SETTLED, SeenInstance, differences};
use forebay_engine::state::State;
use forebay_engine::state::nodes::{Node, NodePhase};
use forebay_engine::units::Millis;

/// Events that bring the state to what the look says.
#[must_use]
pub fn events(state: &State, settings: &Settings, look: &Look) -> Vec<Event> {
    let mut told = Vec::new();
    let mut listed = Vec::new();
    for seen in &look.instances {
        let node = state.node_of(&seen.instance);
        if !seen.exists() {
            told.extend(node.map(|node| gone(node, seen)));
            continue;
        }
        // Its place keeps it from being missed below, whatever else is to be said.
        if let Some(node) = node {
            told.extend(leaving(node, seen, look.at));
            told.extend(block_ends(settings, node, seen, look.at));
            listed.push(place(settings, seen, node.purchase, node.offering));
            continue;
        }
        let Some(offering) = offering(state, settings, seen) else { continue };
        let orphan = || Event::OrphanSeen { instance: seen.instance.clone(), offering };
        match whose(settings, seen) {
            Whose::Ours(Some(purchase)) => listed.push(place(settings, seen, purchase, offering)),
            // Nobody can say which purchase it is of: it waits until none is open that could be its.
            Whose::Ours(None) if !awaited(state, offering) && settled(seen, look) => told.push(orphan()),
            Whose::Predecessors => told.push(orphan()),
            Whose::Ours(None) | Whose::Foreign => {}
        }
    }
    let listing = Listing { seen_at: look.at, instances: listed, runs: Vec::new() };
    told.extend(differences(state, &listing));
    told
}

/// Instances under our name that the engine cannot be told of: of what it never knew, of a purchase that it has not made, or without a
/// journal. Somebody has to look.
#[must_use]
pub fn strangers<'a>(state: &State, settings: &Settings, look: &'a Look) -> Vec<&'a Seen> {
    let strange = |seen: &&Seen| {
        let known = || offering(state, settings, seen).is_some();
        seen.exists()
            && state.node_of(&seen.instance).is_none()
            && match whose(settings, seen) {
                Whose::Ours(Some(purchase)) => !known() || purchase.0 >= state.counters().next_purchase,
                Whose::Ours(None) | Whose::Predecessors => !known(),
                Whose::Foreign => seen.tag(TAG_CLUSTER) == Some(&settings.cluster) && seen.tag(TAG_JOURNAL).is_none(),
            }
    };
    look.instances.iter().filter(strange).collect()
}

enum Whose {
    /// This journal's, with its purchase where the tag can be read.
    Ours(Option<PurchaseId>),
    /// A journal's that is no more.
    Predecessors,
    /// Somebody else's.
    Foreign,
}

fn whose(settings: &Settings, seen: &Seen) -> Whose {
    if seen.tag(TAG_CLUSTER) != Some(&settings.cluster) {
        return Whose::Foreign;
    }
    match seen.tag(TAG_JOURNAL) {
        Some(journal) if *journal == settings.journal => {
            Whose::Ours(seen.tag(TAG_PURCHASE).and_then(|p| p.parse().ok()).map(PurchaseId))
        }
        Some(journal) if settings.predecessors.contains(journal) => Whose::Predecessors,
        _ => Whose::Foreign,
    }
}

fn offering(state: &State, settings: &Settings, seen: &Seen) -> Option<OfferingId> {
    let reserved = settings.reservations.iter().any(|r| seen.reservation.as_ref() == Some(&r.id));
    let capacity = if reserved { CapacityType::Reserved } else { seen.capacity };
    let key = (seen.instance_type.as_str(), seen.zone.as_str(), capacity);
    let at = state.offerings().iter().position(|row| row.offer.key() == key)?;
    u32::try_from(at).ok().map(OfferingId)
}

fn place(settings: &Settings, seen: &Seen, purchase: PurchaseId, offering: OfferingId) -> SeenInstance {
    let ready = settings.ready_when_running && seen.state == InstanceState::Running;
    SeenInstance { instance: seen.instance.clone(), purchase, offering, ready }
}

/// Why EC2 ended it, by its state's reason.
fn gone(node: &Node, seen: &Seen) -> Event {
    let why = match seen.reason.as_deref() {
        Some("Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown") => GoneWhy::Reclaimed,
        _ if node.phase == NodePhase::Terminating => GoneWhy::Terminated,
        _ if failed_boot(node, seen) => GoneWhy::NeverReady,
        _ => GoneWhy::Lost,
    };
    Event::NodeGone { instance: seen.instance.clone(), why }
}

/// It ended or stopped by itself before it was ready: a key or a volume that it could not have, an image that cannot start.
fn failed_boot(node: &Node, seen: &Seen) -> bool {
    let by_itself = seen.reason.as_deref().is_some_and(|code| code != "Client.UserInitiatedShutdown");
    node.phase.is_coming() && by_itself && !matches!(seen.state, InstanceState::Pending | InstanceState::Running)
}

/// What ended or stopped by itself before it was ready, and why in EC2's words.
#[must_use]
pub fn failed_boots(state: &State, look: &Look) -> Vec<(String, String)> {
    let new = |node: &Node, seen: &Seen| !node.condemned && failed_boot(node, seen);
    let failed = |seen: &&Seen| state.node_of(&seen.instance).is_some_and(|node| new(node, seen));
    let said = |seen: &Seen| {
        let why = seen.words.as_ref().or(seen.reason.as_ref()).cloned().unwrap_or_default();
        (seen.instance.clone(), why)
    };
    look.instances.iter().filter(failed).map(said).collect()
}

/// It is on its way out, and not because the engine asked.
fn leaving(node: &Node, seen: &Seen, at: Millis) -> Option<Event> {
    let out = matches!(seen.state, InstanceState::ShuttingDown | InstanceState::Stopped);
    let asked = node.phase == NodePhase::Terminating || node.reclaim_at.is_some() || node.condemned;
    let instance = seen.instance.clone();
    let said =
        if failed_boot(node, seen) { Event::BootFailed { instance } } else { Event::ReclaimNotice { instance, at } };
    (out && !asked).then_some(said)
}

/// It runs in a Capacity Block that is about to end. The date is known from the start: no message has to arrive for it.
fn block_ends(settings: &Settings, node: &Node, seen: &Seen, now: Millis) -> Option<Event> {
    let block = settings.reservations.iter().find(|r| r.block && seen.reservation.as_ref() == Some(&r.id))?;
    let at = Millis(block.ends?.0.saturating_sub(BLOCK_CLEARS.0));
    let due = now + BLOCK_WARNS >= at && node.reclaim_at.is_none() && node.phase != NodePhase::Terminating;
    due.then(|| Event::ReclaimNotice { instance: seen.instance.clone(), at })
}

/// A purchase is open that it could be of.
fn awaited(state: &State, offering: OfferingId) -> bool {
    state.purchases().any(|p| p.offering == offering)
}

fn settled(seen: &Seen, look: &Look) -> bool {
    seen.launched.is_none_or(|at| at + SETTLED <= look.at)
}
