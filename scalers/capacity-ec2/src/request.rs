//! A purchase as it is asked of EC2: everything that the call says, frozen when it is decided. Asked again, it is the same byte for byte.
//!
//! ```text
//! decision + offering + pool's settings -> Request -> the journal, with the decision -> CreateFleet or RunInstances
//! ```
//!
//! Never: changed after it was journaled, whatever becomes of the configuration.

use crate::call::RateClass;
use crate::settings::Settings;
use forebay_engine::catalog::{CapacityType, Offering};
use forebay_engine::effect::{Action, Effect, Terms};
use forebay_engine::ids::{PurchaseId, Seq};
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tag with the name under which an instance was bought.
pub const TAG_CLUSTER: &str = "forebay:cluster";
/// The tag with the journal that decided on it.
pub const TAG_JOURNAL: &str = "forebay:journal";
/// The tag with the purchase that it belongs to.
pub const TAG_PURCHASE: &str = "forebay:purchase";
/// The tag with the pool that it was bought for.
pub const TAG_POOL: &str = "forebay:pool";

/// What is decided, before the configuration is added.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The deciding record.
    pub effect: Seq,
    /// Which purchase.
    pub purchase: PurchaseId,
    /// When it was decided.
    pub decided_at: Millis,
    /// Into which pool.
    pub pool: &'a str,
    /// Of what.
    pub offering: &'a Offering,
    /// How many.
    pub count: u32,
    /// Fewer than this: launch nothing.
    pub at_least: u32,
    /// How.
    pub terms: Terms,
}

/// A purchase as it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The client token: the journal and the deciding record.
    pub token: String,
    /// Which purchase.
    pub purchase: u64,
    /// When it was decided, in ms since 1970: EC2 forgets tokens after a day.
    pub decided_at_ms: u64,
    /// By which call.
    pub via: Via,
    /// Of what.
    pub instance_type: String,
    /// Where.
    pub zone: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// How many.
    pub count: u32,
    /// Fewer than this: launch nothing.
    pub at_least: u32,
    /// Spot: the most that an hour may cost, in USD.
    pub max_price: Option<String>,
    /// The placement group.
    pub group: Option<String>,
    /// With Elastic Fabric Adapters.
    pub efa: bool,
    /// On so many network cards of the instance. Of requests older than this field: on one.
    #[serde(default)]
    pub efa_cards: u32,
    /// The capacity reservation, and whether it is a block. Reserved capacity without one is none that could be had.
    pub reservation: Option<(String, bool)>,
    /// Others that it may go into when that one is full.
    #[serde(default)]
    pub other_reservations: Vec<(String, bool)>,
    /// The launch template.
    pub template: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The image.
    pub image: Option<String>,
    /// The subnet.
    pub subnet: Option<String>,
    /// Security groups.
    pub security_groups: Vec<String>,
    /// The instance profile.
    pub instance_profile: Option<String>,
    /// The first boot's script.
    pub user_data: Option<String>,
    /// Every tag.
    pub tags: BTreeMap<String, String>,
}

/// By which call a purchase is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// `CreateFleet`, type `instant`. It has the larger rate, and needs a launch template that says everything but type, place and image.
    Fleet,
    /// `RunInstances`: without a template or with more beside it than a fleet's overrides can say, and into reservations.
    Run,
}

/// EC2 takes client tokens of 64 characters.
const LONGEST_TOKEN: usize = 64;

/// `MinTargetCapacity` is at most this.
const MOST_IN_A_FLEET: u32 = 1000;

impl Request {
    /// Freezes an order.
    #[must_use]
    pub fn freeze(settings: &Settings, order: &Order<'_>) -> Request {
        let launch = settings.launch(order.pool);
        let offer = order.offering;
        let is_reserved = offer.capacity == CapacityType::Reserved;
        let open = if is_reserved { settings.reservations(offer, order.decided_at) } else { Vec::new() };
        let mut open = open.into_iter().map(|r| (r.id.clone(), r.block));
        let by_fleet = launch.template.is_some()
            && !launch.says_more_than_overrides()
            && !order.terms.efa
            && !is_reserved
            && order.at_least <= MOST_IN_A_FLEET;
        let mut tags = launch.tags.clone();
        let own = [
            ("Name", format!("forebay-{}-{}", settings.cluster, order.pool)),
            (TAG_CLUSTER, settings.cluster.clone()),
            (TAG_JOURNAL, settings.journal.clone()),
            (TAG_PURCHASE, order.purchase.0.to_string()),
            (TAG_POOL, order.pool.to_owned()),
        ];
        tags.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Request {
            token: token(&settings.journal, order.effect),
            purchase: order.purchase.0,
            decided_at_ms: order.decided_at.0,
            via: if by_fleet { Via::Fleet } else { Via::Run },
            instance_type: offer.instance_type.clone(),
            zone: offer.zone.clone(),
            capacity: offer.capacity,
            count: order.count,
            at_least: order.at_least.max(1),
            max_price: (offer.capacity == CapacityType::Spot).then(|| dollars(offer.max_price)),
            group: order.terms.cluster.then(|| group(&settings.cluster, order.pool, &offer.zone)),
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

    /// Turns to the next of its reservations: another request, under a token of its own, to be sent only when the last one is known to have
    /// brought nothing. False: there is none.
    pub fn turn(&mut self) -> bool {
        if self.other_reservations.is_empty() || self.token.len() >= LONGEST_TOKEN {
            return false;
        }
        self.reservation = Some(self.other_reservations.remove(0));
        self.token.push('r');
        true
    }

    /// Everything that a launch will say. `None`: the effect is none, or its purchase is over.
    #[must_use]
    pub fn of(settings: &Settings, effect: &Effect, state: &State) -> Option<Request> {
        let Action::Launch { purchase, offering, count, at_least, terms } = &effect.action else { return None };
        let row = state.purchases().find(|p| p.id == *purchase)?;
        let pool = state.policy().and_then(|p| p.pools.get(row.pool.ix())).map_or("", |p| p.name.as_str());
        let order = Order {
            effect: effect.id,
            purchase: *purchase,
            decided_at: row.decided_at,
            pool,
            offering: &state.offerings().get(offering.ix())?.offer,
            count: *count,
            at_least: *at_least,
            terms: *terms,
        };
        Some(Request::freeze(settings, &order))
    }

    /// As it is journaled.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads it back.
    ///
    /// # Errors
    /// The bytes are not those of a request.
    pub fn decode(bytes: &[u8]) -> Result<Request, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Which purchase it is.
    #[must_use]
    pub fn id(&self) -> PurchaseId {
        PurchaseId(self.purchase)
    }

    /// Which of EC2's rates it counts against.
    #[must_use]
    pub fn rate(&self) -> RateClass {
        match self.via {
            Via::Fleet => RateClass::Mutate,
            Via::Run => RateClass::Run,
        }
    }

    /// What its stock is counted by.
    #[must_use]
    pub fn market(&self) -> (&str, &str, CapacityType) {
        (&self.instance_type, &self.zone, self.capacity)
    }
}

/// The client token of a deciding record: 57 characters at most, EC2 takes 64.
#[must_use]
pub fn token(journal: &str, effect: Seq) -> String {
    format!("{journal}-{}", effect.0)
}

/// A cluster placement group lies in one zone, so each pool has one a zone. It costs nothing and is left there.
#[must_use]
pub fn group(cluster: &str, pool: &str, zone: &str) -> String {
    group_for(cluster, &format!("{pool}-{zone}"))
}

/// The name with which it is tried whether placement groups may be made. None is.
#[must_use]
pub fn tried_group(cluster: &str) -> String {
    group_for(cluster, "dry")
}

/// Every placement group's name begins alike: the policy in `deploy/aws` allows those.
fn group_for(cluster: &str, what: &str) -> String {
    format!("forebay-{cluster}-{what}")
}

/// A price as EC2 takes it: dollars with all six decimals of a micro-dollar.
fn dollars(rate: Rate) -> String {
    format!("{}.{:06}", rate.0 / 1_000_000, rate.0 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Launch;
    use forebay_engine::units::{Mib, MilliCpu, Span};

    fn frozen(launch: Launch, terms: Terms) -> Request {
        let mut settings = Settings::new("test", "journal-1", launch);
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
        let order = Order {
            effect: Seq(7),
            purchase: PurchaseId(3),
            decided_at: Millis(9),
            pool: "p",
            offering: &offering,
            count: 4,
            at_least: 2,
            terms,
        };
        Request::freeze(&settings, &order)
    }

    #[test]
    fn what_a_fleet_cannot_say_is_said_by_run_instances() {
        let template = || Launch { template: Some("gpu".to_owned()), ..Launch::default() };
        let subnets = BTreeMap::from([("us-east-1a".to_owned(), "subnet-1".to_owned())]);
        for (what, launch, via) in [
            ("a template", template(), Via::Fleet),
            ("and an image", Launch { image: Some("ami-1".to_owned()), ..template() }, Via::Fleet),
            ("and a subnet", Launch { subnets, ..template() }, Via::Fleet),
            ("and groups", Launch { security_groups: vec!["sg-1".to_owned()], ..template() }, Via::Run),
            ("and a profile", Launch { instance_profile: Some("nodes".to_owned()), ..template() }, Via::Run),
            ("and a script", Launch { user_data: Some("#!/bin/sh".to_owned()), ..template() }, Via::Run),
            ("an image alone", Launch { image: Some("ami-1".to_owned()), ..Launch::default() }, Via::Run),
        ] {
            assert_eq!(frozen(launch, Terms::default()).via, via, "{what}");
        }
        let efa = Terms { efa: true, ..Terms::default() };
        assert_eq!(frozen(template(), efa).via, Via::Run);
    }

    #[test]
    fn cards_are_frozen_with_the_request_and_older_requests_are_read() {
        let efa = Terms { efa: true, ..Terms::default() };
        let request = frozen(Launch::default(), efa);
        assert_eq!((request.efa, request.efa_cards), (true, 32));
        assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        assert_eq!(frozen(Launch::default(), Terms::default()).efa_cards, 0);
        let older = String::from_utf8(request.encode()).unwrap().replace("\"efa_cards\":32,", "");
        assert!(!older.contains("efa_cards"), "{older}");
        assert_eq!(Request::decode(older.as_bytes()).unwrap(), Request { efa_cards: 0, ..request });
    }

    #[test]
    fn placement_groups_begin_alike() {
        assert_eq!(group("lab", "large", "us-east-1a"), "forebay-lab-large-us-east-1a");
        assert_eq!(tried_group("lab"), "forebay-lab-dry");
    }
}
