//! What EC2 says of prices, plans and types while the controller runs: spot prices and changes that are planned for instances every five
//! minutes, shapes every six hours.
//!
//! ```text
//! EC2 -> prices of now -> those that the state has otherwise -> PriceChanged -> driver
//! EC2 -> changes -> those of ours that begin within the hour -> ReclaimNotice -> driver
//! EC2 -> shapes -> offerings.json, and word of what is another one: it holds from the next start
//! ```
//!
//! Never: a change on what is not known. Never: a price above the offering's maximum, which is what is paid at most.

use super::shapes::{self, Kept};
use crate::driver::{Busy, Handle, wall_ms};
use forebay_capacity_ec2::changes::changes;
use forebay_capacity_ec2::notice::{SOON, Standing};
use forebay_capacity_ec2::offerings::{self, Unknown};
use forebay_capacity_ec2::trouble::Class;
use forebay_capacity_ec2::wire::Client;
use forebay_engine::catalog::CapacityType;
use forebay_engine::event::Event;
use forebay_engine::ids::OfferingId;
use forebay_engine::state::State;
use forebay_engine::units::{Millis, Rate};
use forebay_source::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Between two looks at spot prices: they move a few times a day.
const PRICES: Duration = Duration::from_secs(300);
/// Up to so much more, so that controllers that start together do not ask together.
const JITTER_MS: u64 = 30_000;
/// Looks at prices and changes between two looks at shapes: six hours.
const SHAPES: u32 = 72;
/// The pause before a full mailbox is tried again.
const FULL: Duration = Duration::from_millis(200);
/// Events of one batch at most, far below what the mailbox holds.
const BATCH: usize = 1024;

/// What asks EC2 again and again.
pub(super) struct Refresh {
    client: Client,
    handle: Handle,
    health: Health,
    seed: u64,
    /// What is not known at present. It was told.
    unknown: BTreeSet<&'static str>,
    /// Changes further away that were told.
    told: BTreeMap<String, Millis>,
}

/// The driver has ended.
struct Over;

impl Refresh {
    pub fn new(client: Client, handle: Handle, health: Health, seed: u64) -> Refresh {
        Refresh { client, handle, health, seed, unknown: BTreeSet::new(), told: BTreeMap::new() }
    }

    /// Works until the driver ends.
    pub async fn run(mut self) {
        let mut progress = self.handle.watch();
        tokio::select! {
            Over = self.again_and_again() => {}
            ended = progress.wait_for(|p| p.stopped) => drop(ended),
        }
    }

    async fn again_and_again(&mut self) -> Over {
        for turn in 0u32.. {
            if let Err(over) = self.prices().await {
                return over;
            }
            if let Err(over) = self.changes().await {
                return over;
            }
            // Those of the start have just been asked for.
            if turn > 0
                && turn.is_multiple_of(SHAPES)
                && let Err(over) = self.shapes().await
            {
                return over;
            }
            let jitter = self.seed.rotate_left(turn % 64) % JITTER_MS;
            tokio::time::sleep(PRICES + Duration::from_millis(jitter)).await;
        }
        Over
    }

    async fn prices(&mut self) -> Result<(), Over> {
        let Some((types, zones)) = self.ask(sold_as_spot).await? else { return Ok(()) };
        let found = if types.is_empty() {
            BTreeMap::new()
        } else {
            match offerings::prices(&self.client, wall_ms(), &types, &zones).await {
                Ok(found) => found,
                Err(why) => {
                    self.fails(("spot prices", "ec2:DescribeSpotPriceHistory"), &why);
                    return Ok(());
                }
            }
        };
        self.works("spot prices");
        let Some(events) = self.ask(move |state| moved(state, &found)).await? else { return Ok(()) };
        for batch in events.chunks(BATCH) {
            self.send(batch).await?;
        }
        Ok(())
    }

    /// What AWS has planned for our instances. Without instances it is not asked.
    async fn changes(&mut self) -> Result<(), Over> {
        let Some(ours) = self.ask(wanted).await? else { return Ok(()) };
        if ours.is_empty() {
            return Ok(());
        }
        let found = match changes(&self.client).await {
            Ok(found) => found,
            Err(why) => {
                self.fails(("scheduled changes", "ec2:DescribeInstanceStatus"), &why);
                return Ok(());
            }
        };
        self.works("scheduled changes");
        let (now, later) = split(found, &ours, wall_ms());
        for (instance, at) in &later {
            if self.told.get(instance) != Some(at) {
                let seconds = at.since(wall_ms()).0 / 1000;
                tracing::warn!("ec2: {instance} has a scheduled change in {seconds} s: it is left an hour before");
            }
        }
        self.told = later;
        self.send(&now).await
    }

    async fn shapes(&mut self) -> Result<(), Over> {
        let Some(named) = self.ask(all_types).await? else { return Ok(()) };
        let folder = self.handle.folder().to_owned();
        let before = Kept::read(&folder);
        let types: BTreeSet<String> = before.iter().flat_map(Kept::types).chain(named).collect();
        let found = match offerings::shapes(&self.client, &types).await {
            Ok(found) => found,
            Err(why) => {
                self.fails(("instance types", "ec2:DescribeInstanceTypes"), &why);
                return Ok(());
            }
        };
        self.works("instance types");
        let Some(now) = Kept::new(shapes::region(&self.client), &types, found) else { return Ok(()) };
        for difference in before.iter().flat_map(|before| shapes::differences(before, &now)) {
            let said = format!("{difference}: it counts from the next start");
            tracing::warn!("ec2: {said}");
            self.health.remark(wall_ms().0, said);
        }
        if let Err(e) = now.write(&folder) {
            tracing::warn!("ec2: what EC2 says of its types is not kept in {}: {e}", folder.display());
        }
        Ok(())
    }

    /// Runs on the driver's thread. `None`: it has no time for it now.
    async fn ask<R: Send + 'static>(&self, ask: impl FnOnce(&State) -> R + Send + 'static) -> Result<Option<R>, Over> {
        match self.handle.query_async(move |engine, _| ask(engine.state())).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Busy::Full { .. } | Busy::TooMany { .. }) => Ok(None),
            Err(Busy::Stopped(_)) => Err(Over),
        }
    }

    async fn send(&self, events: &[Event]) -> Result<(), Over> {
        loop {
            match self.handle.submit_async(events.to_vec()).await {
                Ok(_) => return Ok(()),
                Err(Busy::Full { .. } | Busy::TooMany { .. }) => tokio::time::sleep(FULL).await,
                Err(Busy::Stopped(_)) => return Err(Over),
            }
        }
    }

    /// Told once, until it works again.
    fn fails(&mut self, (what, action): (&'static str, &str), why: &Unknown) {
        if !self.unknown.insert(what) {
            return;
        }
        let denied = matches!(why, Unknown::Refused(refusal) if refusal.class == Class::Auth);
        let remedy = if denied { format!(": allow {action}") } else { String::new() };
        let said = format!("{what} are not known ({why}): what was known of them holds{remedy}");
        tracing::warn!("ec2: {said}");
        self.health.remark(wall_ms().0, said);
    }

    fn works(&mut self, what: &'static str) {
        if self.unknown.remove(what) {
            tracing::info!("ec2: {what} are known again");
        }
    }
}

/// Our instances that nobody takes back so far, and that we want.
fn wanted(state: &State) -> BTreeSet<String> {
    let named = state.nodes().filter_map(|node| node.instance.clone());
    let ours = |instance: &String| matches!(Standing::of(state, instance), Some(Standing::Booting | Standing::Wanted));
    named.filter(ours).collect()
}

/// Changes of our instances: notices of those that begin soon, and the others.
fn split(
    found: BTreeMap<String, Millis>,
    ours: &BTreeSet<String>,
    now: Millis,
) -> (Vec<Event>, BTreeMap<String, Millis>) {
    let found = found.into_iter().filter(|(instance, _)| ours.contains(instance));
    let (soon, later): (Vec<_>, _) = found.partition(|(_, at)| *at <= now + SOON);
    (
        soon.into_iter().map(|(instance, at)| Event::ReclaimNotice { instance, at }).collect(),
        later.into_iter().collect(),
    )
}

fn all_types(state: &State) -> BTreeSet<String> {
    state.offerings().iter().map(|row| row.offer.instance_type.clone()).collect()
}

/// The types and zones of all spot offerings.
fn sold_as_spot(state: &State) -> (BTreeSet<String>, BTreeSet<String>) {
    let spot = state.offerings().iter().map(|row| &row.offer).filter(|offer| offer.capacity == CapacityType::Spot);
    spot.map(|offer| (offer.instance_type.clone(), offer.zone.clone())).unzip()
}

/// The spot offerings whose price is another one now. Of one without a price nothing is known, and nothing changes.
fn moved(state: &State, found: &BTreeMap<(String, String), Rate>) -> Vec<Event> {
    let mut events = Vec::new();
    for (id, row) in (0u32..).map(OfferingId).zip(state.offerings()) {
        let offer = &row.offer;
        if offer.capacity != CapacityType::Spot {
            continue;
        }
        let place = (offer.instance_type.clone(), offer.zone.clone());
        let Some(price) = found.get(&place).map(|price| (*price).min(offer.max_price)) else { continue };
        if price != offer.price {
            events.push(Event::PriceChanged { offering: id, price });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Catalogue, compile};
    use forebay_engine::engine::Engine;
    use forebay_engine::event::Tick;

    fn engine() -> Engine {
        let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nqueues: {a: {}}\n\
                    pools: {p: {instanceTypes: [g5.xlarge, g6.xlarge], spot: {maxPrice: 80 %}}}\n";
        let rows = forebay_sim::prices::builtin();
        let catalogue = Catalogue::new(rows, vec!["za".to_owned(), "zb".to_owned()]);
        let mut engine = Engine::new();
        let policy = compile("t", text, &catalogue).unwrap().policy;
        take(&mut engine, vec![Event::Configured(Box::new(policy))]);
        engine
    }

    fn take(engine: &mut Engine, events: Vec<Event>) {
        engine.open(Tick { now: Millis(1), resumed: false, delivered: 0 });
        events.into_iter().for_each(|event| engine.handle_event(event));
        let _ = engine.plan();
        let _ = engine.close().saved();
    }

    fn price(engine: &Engine, instance_type: &str, zone: &str, capacity: CapacityType) -> Rate {
        let mut rows = engine.state().offerings().iter().map(|row| &row.offer);
        rows.find(|o| (o.instance_type.as_str(), o.zone.as_str(), o.capacity) == (instance_type, zone, capacity))
            .unwrap()
            .price
    }

    #[test]
    fn only_ours_are_left_and_not_before_the_hour() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
        let found: BTreeMap<String, Millis> = [("i-1", 1_000), ("i-2", 4_600_000), ("i-3", 4_600_001), ("i-4", 9)]
            .map(|(i, at)| (i.to_owned(), Millis(at)))
            .into();
        let (soon, later) = split(found, &names(&["i-1", "i-2", "i-3", "i-5"]), Millis(1_000_000));
        let notice = |i: &str, at| Event::ReclaimNotice { instance: i.to_owned(), at: Millis(at) };
        assert_eq!(soon, [notice("i-1", 1_000), notice("i-2", 4_600_000)]);
        assert_eq!(later, BTreeMap::from([("i-3".to_owned(), Millis(4_600_001))]));
    }

    #[test]
    fn only_prices_that_moved_enter_and_none_above_the_bid() {
        let mut engine = engine();
        let (types, zones) = sold_as_spot(engine.state());
        assert_eq!((types.len(), zones.len()), (2, 2));
        let place = |t: &str, z: &str| (t.to_owned(), z.to_owned());
        let same = price(&engine, "g6.xlarge", "za", CapacityType::Spot);
        let found = BTreeMap::from([
            (place("g5.xlarge", "za"), Rate(300_000)),
            (place("g5.xlarge", "zb"), Rate(5_000_000)),
            (place("g6.xlarge", "za"), same),
            // Nobody sells these here.
            (place("g6.xlarge", "zc"), Rate(1)),
            (place("p5.48xlarge", "za"), Rate(1)),
        ]);
        let events = moved(engine.state(), &found);
        assert_eq!(events.len(), 2, "{events:?}");
        let on_demand = price(&engine, "g5.xlarge", "za", CapacityType::OnDemand);
        take(&mut engine, events);
        assert_eq!(price(&engine, "g5.xlarge", "za", CapacityType::Spot), Rate(300_000));
        assert_eq!(price(&engine, "g5.xlarge", "zb", CapacityType::Spot), Rate(1_006_000 * 8 / 10));
        assert_eq!(price(&engine, "g5.xlarge", "za", CapacityType::OnDemand), on_demand);
        assert_eq!(moved(engine.state(), &found), [], "said once");
        assert_eq!(moved(engine.state(), &BTreeMap::new()), [], "nothing is known, nothing changes");
        assert_eq!(engine.audit(), [""; 0]);
    }
}
