//! A purchase as it is requested from EC2: all parameters of the call, frozen when it is decided. A repeated request has the same bytes.
//!
//! ```text
//! decision + offering + settings of the pool -> LaunchRequest -> journal, with the decision -> CreateFleet or RunInstances
//! ```
//!
//! A journaled request does not change when the configuration does.

use crate::api_call::RateClass;
use crate::settings::Ec2Settings;
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::effect::{Action, Effect, Terms};
use forebay_kernel::ids::{PurchaseId, Seq};
use forebay_kernel::state::State;
use forebay_kernel::units::{Rate, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tag with the name that an instance was bought under.
pub const TAG_CLUSTER: &str = "forebay:cluster";
/// The tag with the id of the journal that decided it.
pub const TAG_JOURNAL: &str = "forebay:journal";
/// The tag with the number of the purchase.
pub const TAG_PURCHASE: &str = "forebay:purchase";
/// The tag with the pool.
pub const TAG_POOL: &str = "forebay:pool";

/// A decided purchase, before the configuration is added.
#[derive(Clone, Debug)]
pub struct PurchaseOrder<'a> {
    /// The sequence number of the deciding record.
    pub effect: Seq,
    /// The number of the purchase.
    pub purchase: PurchaseId,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// The pool.
    pub pool: &'a str,
    /// What is bought.
    pub offering: &'a Offering,
    /// How many instances.
    pub count: u32,
    /// Nothing is launched if EC2 has fewer than this.
    pub at_least: u32,
    /// Placement group and EFA.
    pub terms: Terms,
}

/// A purchase as it is requested. Its JSON is part of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// The client token: the journal and the deciding record, see [`client_token`].
    pub token: String,
    /// The number of the purchase.
    pub purchase: u64,
    /// When it was decided, in ms since 1970. EC2 forgets tokens after a day.
    pub decided_at_ms: u64,
    /// The EC2 action that makes it.
    pub via: LaunchApi,
    /// The instance type.
    pub instance_type: String,
    /// The availability zone.
    pub zone: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// How many instances.
    pub count: u32,
    /// Nothing is launched if EC2 has fewer than this.
    pub at_least: u32,
    /// The highest spot price, in USD per hour.
    pub max_price: Option<String>,
    /// The placement group.
    pub group: Option<String>,
    /// Whether it has Elastic Fabric Adapters.
    pub efa: bool,
    /// The number of network cards with an EFA interface. Requests from before this field have one.
    #[serde(default)]
    pub efa_cards: u32,
    /// The capacity reservation. Reserved capacity without one cannot be bought.
    pub reservation: Option<ReservationTarget>,
    /// The reservations to use next, when that one is full.
    #[serde(default)]
    pub other_reservations: Vec<ReservationTarget>,
    /// The id or name of the launch template.
    pub template: Option<String>,
    /// The template's version.
    pub version: Option<String>,
    /// The AMI.
    pub image: Option<String>,
    /// The subnet.
    pub subnet: Option<String>,
    /// The ids of the security groups.
    pub security_groups: Vec<String>,
    /// The name of the instance profile.
    pub instance_profile: Option<String>,
    /// The script of the first boot, not encoded.
    pub user_data: Option<String>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// A capacity reservation that a purchase uses. Its JSON is the array `[id, block]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, bool)", into = "(String, bool)")]
pub struct ReservationTarget {
    /// `cr-...`.
    pub id: String,
    /// Whether it is a Capacity Block.
    pub block: bool,
}

impl From<(String, bool)> for ReservationTarget {
    fn from((id, block): (String, bool)) -> ReservationTarget {
        ReservationTarget { id, block }
    }
}

impl From<ReservationTarget> for (String, bool) {
    fn from(target: ReservationTarget) -> (String, bool) {
        (target.id, target.block)
    }
}

/// The EC2 action that makes a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchApi {
    /// `CreateFleet` of type `instant`. It has the higher rate limit, and needs a launch template with everything except type, zone and
    /// image.
    Fleet,
    /// `RunInstances`: without a template, with settings that the overrides of a fleet do not have, and for reservations.
    Run,
}

/// EC2 takes client tokens of 64 characters.
const MAX_TOKEN_CHARS: usize = 64;

/// `MinTargetCapacity` is at most this.
const MAX_FLEET_MINIMUM: u32 = 1000;

impl LaunchRequest {
    /// Adds the configuration to an order.
    #[must_use]
    pub fn freeze(settings: &Ec2Settings, order: &PurchaseOrder<'_>) -> LaunchRequest {
        let launch = settings.launch(order.pool);
        let offer = order.offering;
        let is_reserved = offer.capacity == CapacityType::Reserved;
        let open = if is_reserved { settings.reservations(offer, order.decided_at) } else { Vec::new() };
        let mut open = open.into_iter().map(|r| ReservationTarget { id: r.id.clone(), block: r.block });
        let by_fleet = launch.template.is_some()
            && !launch.needs_run_instances()
            && !order.terms.efa
            && !is_reserved
            && order.at_least <= MAX_FLEET_MINIMUM;
        let mut tags = launch.tags.clone();
        let journal = settings.journal_of(order.effect);
        let own = [
            ("Name", format!("forebay-{}-{}", settings.cluster, order.pool)),
            (TAG_CLUSTER, settings.cluster.clone()),
            (TAG_JOURNAL, journal.clone()),
            (TAG_PURCHASE, order.purchase.0.to_string()),
            (TAG_POOL, order.pool.to_owned()),
        ];
        tags.extend(own.map(|(key, value)| (key.to_owned(), value)));
        LaunchRequest {
            token: client_token(&journal, order.effect),
            purchase: order.purchase.0,
            decided_at_ms: order.decided_at.0,
            via: if by_fleet { LaunchApi::Fleet } else { LaunchApi::Run },
            instance_type: offer.instance_type.clone(),
            zone: offer.zone.clone(),
            capacity: offer.capacity,
            count: order.count,
            at_least: order.at_least.max(1),
            max_price: (offer.capacity == CapacityType::Spot).then(|| dollars(offer.max_price)),
            group: order.terms.cluster.then(|| placement_group(&settings.cluster, order.pool, &offer.zone)),
            efa: order.terms.efa,
            efa_cards: if order.terms.efa { settings.cards(&offer.instance_type) } else { 0 },
            reservation: open.next(),
            other_reservations: open.collect(),
            template: launch.template.clone(),
            version: launch.version.clone(),
            image: launch.image.clone(),
            subnet: launch.subnets.get(&offer.zone).cloned(),
            security_groups: launch.security_groups.clone(),
            instance_profile: launch.instance_profile.clone(),
            user_data: launch.user_data.clone(),
            tags,
        }
    }

    /// Changes the request to its next reservation, with a token of its own. It may be sent only when the previous request is known to have
    /// launched nothing. Returns false if there is no other reservation.
    pub fn use_next_reservation(&mut self) -> bool {
        if self.other_reservations.is_empty() || self.token.len() >= MAX_TOKEN_CHARS {
            return false;
        }
        self.reservation = Some(self.other_reservations.remove(0));
        self.token.push('r');
        true
    }

    /// The request for a launch effect. `None`: the effect is not a launch, or its purchase is over.
    #[must_use]
    pub fn from_effect(settings: &Ec2Settings, effect: &Effect, state: &State) -> Option<LaunchRequest> {
        let Action::Launch { purchase, offering, count, at_least, terms } = &effect.action else { return None };
        let row = state.purchases().find(|p| p.id == *purchase)?;
        let pool = state.policy().and_then(|p| p.pools.get(row.pool.index())).map_or("", |p| p.name.as_str());
        let order = PurchaseOrder {
            effect: effect.id,
            purchase: *purchase,
            decided_at: row.decided_at,
            pool,
            offering: &state.offerings().get(offering.index())?.offer,
            count: *count,
            at_least: *at_least,
            terms: *terms,
        };
        Some(LaunchRequest::freeze(settings, &order))
    }

    /// The bytes for the journal, in JSON.
    ///
    /// # Errors
    /// The request cannot be written as JSON: a fault of this program.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The inverse of [`LaunchRequest::encode`].
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn decode(bytes: &[u8]) -> Result<LaunchRequest, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The number of the purchase.
    #[must_use]
    pub fn id(&self) -> PurchaseId {
        PurchaseId(self.purchase)
    }

    /// The rate limit that it counts against.
    #[must_use]
    pub fn rate(&self) -> RateClass {
        match self.via {
            LaunchApi::Fleet => RateClass::Mutate,
            LaunchApi::Run => RateClass::Run,
        }
    }

    /// The type, zone and capacity type, which share one stock.
    #[must_use]
    pub fn market(&self) -> (&str, &str, CapacityType) {
        (&self.instance_type, &self.zone, self.capacity)
    }
}

/// The client token of a deciding record, at most 57 characters. EC2 takes 64.
#[must_use]
pub fn client_token(journal: &str, effect: Seq) -> String {
    format!("{journal}-{}", effect.0)
}

/// The placement group of a pool in a zone, because a cluster placement group is in one zone. It costs nothing and is never deleted.
#[must_use]
pub fn placement_group(cluster: &str, pool: &str, zone: &str) -> String {
    prefixed(cluster, &format!("{pool}-{zone}"))
}

/// The name for the dry run of creating a placement group.
#[must_use]
pub fn dry_run_group(cluster: &str) -> String {
    prefixed(cluster, "dry")
}

/// All placement groups have this prefix, which the policy in `deploy/aws` allows.
fn prefixed(cluster: &str, name: &str) -> String {
    format!("forebay-{cluster}-{name}")
}

/// A price as EC2 takes it: dollars with six decimals.
fn dollars(rate: Rate) -> String {
    format!("{}.{:06}", rate.0 / 1_000_000, rate.0 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LaunchSettings;
    use forebay_kernel::units::{Mib, MilliCpu, Span};

    fn frozen(launch: LaunchSettings, terms: Terms) -> LaunchRequest {
        let mut settings = Ec2Settings::new("test", "journal-1", launch);
        settings.efa.insert("p5.48xlarge".to_owned(), 32);
        let offering = Offering {
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity: CapacityType::Spot,
            gpus: 8,
            gpu_mem: Mib(81_920),
            models: Vec::new(),
            cpu: MilliCpu(192_000),
            mem: Mib(2_097_152),
            price: Rate(1_000_000),
            max_price: Rate(2_000_000),
            on_demand: Rate(2_000_000),
            boot: Span::secs(60),
            nvlink: 8,
            numa: 4,
        };
        let order = PurchaseOrder {
            effect: Seq(7),
            purchase: PurchaseId(3),
            decided_at: Timestamp(9),
            pool: "p",
            offering: &offering,
            count: 4,
            at_least: 2,
            terms,
        };
        LaunchRequest::freeze(&settings, &order)
    }

    #[test]
    fn settings_that_a_fleet_lacks_use_run_instances() {
        let template = || LaunchSettings { template: Some("gpu".to_owned()), ..LaunchSettings::default() };
        let subnets = BTreeMap::from([("us-east-1a".to_owned(), "subnet-1".to_owned())]);
        for (case, launch, via) in [
            ("a template", template(), LaunchApi::Fleet),
            ("and an image", LaunchSettings { image: Some("ami-1".to_owned()), ..template() }, LaunchApi::Fleet),
            ("and a subnet", LaunchSettings { subnets, ..template() }, LaunchApi::Fleet),
            ("and groups", LaunchSettings { security_groups: vec!["sg-1".to_owned()], ..template() }, LaunchApi::Run),
            (
                "and a profile",
                LaunchSettings { instance_profile: Some("nodes".to_owned()), ..template() },
                LaunchApi::Run,
            ),
            ("and a script", LaunchSettings { user_data: Some("#!/bin/sh".to_owned()), ..template() }, LaunchApi::Run),
            (
                "an image alone",
                LaunchSettings { image: Some("ami-1".to_owned()), ..LaunchSettings::default() },
                LaunchApi::Run,
            ),
        ] {
            assert_eq!(frozen(launch, Terms::default()).via, via, "{case}");
        }
        let efa = Terms { efa: true, ..Terms::default() };
        assert_eq!(frozen(template(), efa).via, LaunchApi::Run);
    }

    #[test]
    fn cards_are_frozen_and_older_requests_are_read() {
        let efa = Terms { efa: true, ..Terms::default() };
        let request = frozen(LaunchSettings::default(), efa);
        assert_eq!((request.efa, request.efa_cards), (true, 32));
        assert_eq!(LaunchRequest::decode(&request.encode().unwrap()).unwrap(), request);
        assert_eq!(frozen(LaunchSettings::default(), Terms::default()).efa_cards, 0);
        let older = String::from_utf8(request.encode().unwrap()).unwrap().replace("\"efa_cards\":32,", "");
        assert!(!older.contains("efa_cards"), "{older}");
        assert_eq!(LaunchRequest::decode(older.as_bytes()).unwrap(), LaunchRequest { efa_cards: 0, ..request });
    }

    #[test]
    fn placement_groups_share_a_prefix() {
        assert_eq!(placement_group("lab", "large", "us-east-1a"), "forebay-lab-large-us-east-1a");
        assert_eq!(dry_run_group("lab"), "forebay-lab-dry");
    }
}
