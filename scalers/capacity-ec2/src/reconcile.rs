//! Compares a listing of EC2 with the engine's state: boots, ends, orphans, and reclaims without a notice.
//!
//! ```text
//! InstanceListing + State -> engine events; none where they agree
//! ```
//!
//! An instance is identified by its id first and by its tags second, because anybody can edit tags. Absence counts only in a complete
//! listing, and instances of others are never terminated.

use crate::api_call::{DescribedInstance, Ec2InstanceState};
use crate::machine::InstanceListing;
use crate::request::{TAG_CLUSTER, TAG_JOURNAL, TAG_PURCHASE};
use crate::settings::{BLOCK_RECLAIM_LEAD, BLOCK_WARNING_LEAD, Ec2Settings, JournalClaim};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::reconcile::{Listing, SETTLED, SeenInstance, differences};
use forebay_kernel::state::State;
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::units::Timestamp;

/// The events that bring the state into agreement with the listing.
#[must_use]
pub fn listing_events(state: &State, settings: &Ec2Settings, listing: &InstanceListing) -> Vec<Event> {
    let mut events = Vec::new();
    let mut listed = Vec::new();
    for instance in &listing.instances {
        let node = state.node_of(&instance.instance);
        if !instance.exists() {
            events.extend(node.map(|node| gone(node, instance)));
            continue;
        }
        // A node in the list is never reported missing below.
        if let Some(node) = node {
            events.extend(leaving(node, instance, listing.at));
            events.extend(block_ends(settings, node, instance, listing.at));
            listed.push(seen(settings, instance, node.purchase, node.offering));
            continue;
        }
        let Some(offering) = offering(state, settings, instance) else { continue };
        let orphan = || Event::OrphanSeen { instance: instance.instance.clone(), offering };
        match owner(settings, instance) {
            Owner::Ours(Some(purchase)) => listed.push(seen(settings, instance, purchase, offering)),
            // Without its purchase, it is no orphan while any purchase is open that it could belong to.
            Owner::Ours(None) if !has_open_purchase(state, offering) && is_settled(instance, listing) => {
                events.push(orphan());
            }
            Owner::Predecessor => events.push(orphan()),
            // What was bought after the backup is an operator's to look at: work may run there that somebody pays for.
            Owner::Ours(None) | Owner::Lost | Owner::Other => {}
        }
    }
    let listing = Listing { seen_at: listing.at, instances: listed, runs: Vec::new() };
    events.extend(differences(state, &listing));
    events
}

/// Instances with our tag that no event can describe, so that an operator has to look at them: of an unknown offering, of a purchase that
/// this journal has not made or does not know any more, or without a journal.
#[must_use]
pub fn unaccounted<'a>(
    state: &State,
    settings: &Ec2Settings,
    listing: &'a InstanceListing,
) -> Vec<&'a DescribedInstance> {
    let is_unaccounted = |instance: &&DescribedInstance| {
        let known = || offering(state, settings, instance).is_some();
        instance.exists()
            && state.node_of(&instance.instance).is_none()
            && match owner(settings, instance) {
                Owner::Ours(Some(purchase)) => !known() || purchase.0 >= state.counters().next_purchase,
                Owner::Lost => true,
                Owner::Ours(None) | Owner::Predecessor => !known(),
                Owner::Other => {
                    instance.tag(TAG_CLUSTER) == Some(&settings.cluster) && instance.tag(TAG_JOURNAL).is_none()
                }
            }
    };
    listing.instances.iter().filter(is_unaccounted).collect()
}

enum Owner {
    /// This journal, with the purchase if the tag is readable.
    Ours(Option<PurchaseId>),
    /// This journal, after the backup or the copy that it goes on from.
    Lost,
    /// An earlier journal.
    Predecessor,
    /// Anybody else.
    Other,
}

fn owner(settings: &Ec2Settings, instance: &DescribedInstance) -> Owner {
    if instance.tag(TAG_CLUSTER) != Some(&settings.cluster) {
        return Owner::Other;
    }
    if settings.unrecorded.contains(&instance.instance) {
        return Owner::Lost;
    }
    let purchase = instance.tag(TAG_PURCHASE).and_then(|p| p.parse().ok());
    match instance.tag(TAG_JOURNAL).map(|journal| settings.claim(journal, purchase)) {
        Some(JournalClaim::Ours) => Owner::Ours(purchase.map(PurchaseId)),
        Some(JournalClaim::Lost) => Owner::Lost,
        Some(JournalClaim::Predecessor) => Owner::Predecessor,
        Some(JournalClaim::Other) | None => Owner::Other,
    }
}

fn offering(state: &State, settings: &Ec2Settings, instance: &DescribedInstance) -> Option<OfferingId> {
    let reserved = settings.reservations.iter().any(|r| instance.reservation.as_ref() == Some(&r.id));
    let capacity = if reserved { CapacityType::Reserved } else { instance.capacity };
    let key = (instance.instance_type.as_str(), instance.zone.as_str(), capacity);
    let at = state.offerings().iter().position(|row| row.offer.key() == key)?;
    u32::try_from(at).ok().map(OfferingId)
}

fn seen(
    settings: &Ec2Settings,
    instance: &DescribedInstance,
    purchase: PurchaseId,
    offering: OfferingId,
) -> SeenInstance {
    let ready = settings.ready_when_running && instance.state == Ec2InstanceState::Running;
    SeenInstance { instance: instance.instance.clone(), purchase, offering, ready }
}

fn gone(node: &Node, instance: &DescribedInstance) -> Event {
    let why = if was_taken_back(instance) {
        GoneWhy::Reclaimed
    } else if node.phase == NodePhase::Terminating {
        GoneWhy::Terminated
    } else if failed_boot(node, instance) {
        GoneWhy::NeverReady
    } else {
        GoneWhy::Lost
    };
    Event::NodeGone { instance: instance.instance.clone(), why }
}

/// Whether EC2 took back a spot instance.
fn was_taken_back(instance: &DescribedInstance) -> bool {
    matches!(instance.reason.as_deref(), Some("Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown"))
}

/// Whether it ended or stopped before it was ready, and nobody asked for it: EC2 could not use a key or a volume, or the image cannot start.
fn failed_boot(node: &Node, instance: &DescribedInstance) -> bool {
    let by_itself = instance.reason.as_deref().is_some_and(|code| code != "Client.UserInitiatedShutdown");
    let by_itself = by_itself && !was_taken_back(instance);
    let up = matches!(instance.state, Ec2InstanceState::Pending | Ec2InstanceState::Running);
    node.phase.is_coming() && by_itself && !up
}

/// An instance that ended or stopped by itself before it was ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedBoot {
    /// The instance's id.
    pub instance: String,
    /// EC2's text or code for the reason. It may be empty.
    pub reason: String,
}

/// The failed boots in a listing that the engine does not know about yet.
#[must_use]
pub fn failed_boots(state: &State, listing: &InstanceListing) -> Vec<FailedBoot> {
    let is_new = |node: &Node, instance: &DescribedInstance| !node.condemned && failed_boot(node, instance);
    let failed = |i: &&DescribedInstance| state.node_of(&i.instance).is_some_and(|node| is_new(node, i));
    let boot = |i: &DescribedInstance| {
        let reason = i.reason_text.as_ref().or(i.reason.as_ref()).cloned().unwrap_or_default();
        FailedBoot { instance: i.instance.clone(), reason }
    };
    listing.instances.iter().filter(failed).map(boot).collect()
}

/// The event for a node that is ending although the engine did not request it.
fn leaving(node: &Node, seen: &DescribedInstance, at: Timestamp) -> Option<Event> {
    let ending =
        matches!(seen.state, Ec2InstanceState::ShuttingDown | Ec2InstanceState::Stopping | Ec2InstanceState::Stopped);
    let expected = node.phase == NodePhase::Terminating || node.reclaim_at.is_some() || node.condemned;
    let instance = seen.instance.clone();
    let event =
        if failed_boot(node, seen) { Event::BootFailed { instance } } else { Event::ReclaimNotice { instance, at } };
    (ending && !expected).then_some(event)
}

/// The reclaim notice for a node in a Capacity Block that is about to end. The date is in the settings, so no message is needed.
fn block_ends(settings: &Ec2Settings, node: &Node, instance: &DescribedInstance, now: Timestamp) -> Option<Event> {
    let block = settings.reservations.iter().find(|r| r.block && instance.reservation.as_ref() == Some(&r.id))?;
    let at = Timestamp(block.ends?.0.saturating_sub(BLOCK_RECLAIM_LEAD.0));
    let due = now + BLOCK_WARNING_LEAD >= at && node.reclaim_at.is_none() && node.phase != NodePhase::Terminating;
    due.then(|| Event::ReclaimNotice { instance: instance.instance.clone(), at })
}

fn has_open_purchase(state: &State, offering: OfferingId) -> bool {
    state.purchases().any(|p| p.offering == offering)
}

fn is_settled(instance: &DescribedInstance, listing: &InstanceListing) -> bool {
    instance.launched.is_none_or(|at| at + SETTLED <= listing.at)
}
