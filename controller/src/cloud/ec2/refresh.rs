//! Reads EC2 while the controller runs: spot prices and scheduled events every five minutes, and the shapes of instance types every six hours.
//!
//! ```text
//! EC2 -> spot prices -> those that differ from the state -> PriceChanged -> driver
//! EC2 -> scheduled events -> those of our instances within the hour -> ReclaimNotice -> driver
//! EC2 -> shapes -> offerings.json, and a warning for each that has changed: it is used from the next start
//! ```
//!
//! What could not be read changes nothing. No price exceeds the maximum of its offering, which is the most that is paid.

use super::clock::DriverClock;
use super::shapes::{self, SavedShapes};
use super::submit;
use crate::driver::{DriverHandle, MailboxError, wall_ms};
use forebay_capacity_ec2::ClockReading;
use forebay_capacity_ec2::error_class::ErrorClass;
use forebay_capacity_ec2::notice::{ACT_WITHIN, ClaimStatus};
use forebay_capacity_ec2::offerings::{self, LookupError, SpotMarket};
use forebay_capacity_ec2::scheduled_events::scheduled_events;
use forebay_capacity_ec2::sdk::Client;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::Event;
use forebay_kernel::ids::OfferingId;
use forebay_kernel::state::State;
use forebay_kernel::units::{Rate, Timestamp};
use forebay_source::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

/// The interval of spot prices and scheduled events. Prices change a few times a day.
const INTERVAL: Duration = Duration::from_secs(300);
/// The most jitter on top, so that controllers that start together do not call together.
const JITTER_MS: u64 = 30_000;
/// The intervals between two lookups of shapes, which is six hours.
const SHAPES_EVERY: u32 = 72;
/// The most events of one submission, far below the size of the mailbox.
const MAX_BATCH: usize = 1024;

/// Reads EC2 repeatedly.
pub(super) struct Refresh {
    client: Client,
    handle: DriverHandle,
    health: Health,
    clock: DriverClock,
    seed: u64,
    /// The lookups that fail and were reported.
    failing: BTreeSet<&'static str>,
    /// The scheduled events later than the hour that were logged, with AWS's times.
    announced: BTreeMap<String, Timestamp>,
}

/// The driver has stopped.
struct DriverStopped;

impl Refresh {
    pub fn new(client: Client, handle: DriverHandle, health: Health, clock: DriverClock, seed: u64) -> Refresh {
        Refresh { client, handle, health, clock, seed, failing: BTreeSet::new(), announced: BTreeMap::new() }
    }

    /// Runs until the driver stops.
    pub async fn run(mut self) {
        let mut progress = self.handle.watch();
        tokio::select! {
            Err(DriverStopped) = self.repeat() => {}
            ended = progress.wait_for(|p| p.stopped) => drop(ended),
        }
    }

    async fn repeat(&mut self) -> Result<Infallible, DriverStopped> {
        let mut turn = 0u32;
        loop {
            self.prices().await?;
            self.scheduled_events().await?;
            if turn > 0 && turn.is_multiple_of(SHAPES_EVERY) {
                self.shapes().await?;
            }
            let jitter = self.seed.rotate_left(turn % 64) % JITTER_MS;
            tokio::time::sleep(INTERVAL + Duration::from_millis(jitter)).await;
            turn = turn.wrapping_add(1);
        }
    }

    async fn prices(&mut self) -> Result<(), DriverStopped> {
        let Some((types, zones)) = self.query(spot_markets).await? else { return Ok(()) };
        let found = if types.is_empty() {
            Ok(BTreeMap::new())
        } else {
            offerings::spot_prices(&self.client, wall_ms(), &types, &zones).await
        };
        let Some(found) = self.reported("spot prices", "ec2:DescribeSpotPriceHistory", found) else { return Ok(()) };
        let Some(events) = self.query(move |state| changed_prices(state, &found)).await? else { return Ok(()) };
        for batch in events.chunks(MAX_BATCH) {
            self.send(batch).await?;
        }
        Ok(())
    }

    /// Reads the scheduled events, if there are instances.
    async fn scheduled_events(&mut self) -> Result<(), DriverStopped> {
        let Some(ours) = self.query(wanted_instances).await? else { return Ok(()) };
        if ours.is_empty() {
            return Ok(());
        }
        let found = scheduled_events(&self.client).await;
        let Some(found) = self.reported("scheduled changes", "ec2:DescribeInstanceStatus", found) else {
            return Ok(());
        };
        let clock = self.clock.reading();
        let (now, later) = split(found, &ours, clock);
        for (instance, at) in &later {
            if self.announced.get(instance) != Some(at) {
                let seconds = at.since(clock.aws).0 / 1000;
                tracing::warn!("ec2: {instance} has a scheduled change in {seconds} s: it is drained an hour before");
            }
        }
        self.announced = later;
        self.send(&now).await
    }

    async fn shapes(&mut self) -> Result<(), DriverStopped> {
        let Some(offered) = self.query(all_types).await? else { return Ok(()) };
        let folder = self.handle.folder().to_owned();
        let before = SavedShapes::read(&folder);
        let types: BTreeSet<String> = before.iter().flat_map(SavedShapes::types).chain(offered).collect();
        let found = offerings::instance_shapes(&self.client, &types).await;
        let Some(found) = self.reported("instance types", "ec2:DescribeInstanceTypes", found) else { return Ok(()) };
        let Some(now) = SavedShapes::new(shapes::region(&self.client), &types, found) else { return Ok(()) };
        for difference in before.iter().flat_map(|before| shapes::differences(before, &now)) {
            let text = format!("{difference}: it is used from the next start");
            tracing::warn!("ec2: {text}");
            self.health.add_remark(wall_ms().0, text);
        }
        if let Err(e) = now.write(&folder) {
            tracing::warn!("ec2: the shapes of instance types are not saved in {}: {e}", folder.display());
        }
        Ok(())
    }

    /// Runs a query on the driver's thread. `None`: its mailbox is full.
    async fn query<R: Send + 'static>(
        &self,
        query: impl FnOnce(&State) -> R + Send + 'static,
    ) -> Result<Option<R>, DriverStopped> {
        match self.handle.query_async(move |engine, _| query(engine.state())).await {
            Ok(result) => Ok(Some(result)),
            Err(MailboxError::Full { .. } | MailboxError::TooMany { .. }) => Ok(None),
            Err(MailboxError::Stopped(_)) => Err(DriverStopped),
        }
    }

    async fn send(&self, events: &[Event]) -> Result<(), DriverStopped> {
        submit(&self.handle, events).await.map_err(|_| DriverStopped)
    }

    /// What was looked up; says once that it is unknown, and once that it is known again.
    fn reported<T>(&mut self, subject: &'static str, action: &str, found: Result<T, LookupError>) -> Option<T> {
        match found {
            Ok(_) if self.failing.remove(subject) => tracing::info!("ec2: {subject} are known again"),
            Err(ref why) if self.failing.insert(subject) => {
                let denied = matches!(why, LookupError::Refused(error) if error.class == ErrorClass::Auth);
                let remedy = if denied { format!(": allow {action}") } else { String::new() };
                let text = format!("{subject} are unknown ({why}): the earlier ones are used{remedy}");
                tracing::warn!("ec2: {text}");
                self.health.add_remark(wall_ms().0, text);
                return None;
            }
            _ => {}
        }
        found.ok()
    }
}

/// Our instances that are neither warned nor ending.
fn wanted_instances(state: &State) -> BTreeSet<String> {
    let named = state.bought_nodes().filter_map(|node| node.instance.clone());
    let ours = |instance: &String| {
        matches!(ClaimStatus::from_state(state, instance), Some(ClaimStatus::Booting | ClaimStatus::Ready))
    };
    named.filter(ours).collect()
}

/// Splits the scheduled events of our instances into reclaim notices on the engine's clock for those that begin soon, and the others.
fn split(
    found: BTreeMap<String, Timestamp>,
    ours: &BTreeSet<String>,
    clock: ClockReading,
) -> (Vec<Event>, BTreeMap<String, Timestamp>) {
    let found = found.into_iter().filter(|(instance, _)| ours.contains(instance));
    let (soon, later): (Vec<_>, _) = found.partition(|(_, at)| *at <= clock.aws + ACT_WITHIN);
    (
        soon.into_iter().map(|(instance, at)| Event::ReclaimNotice { instance, at: clock.to_engine(at) }).collect(),
        later.into_iter().collect(),
    )
}

fn all_types(state: &State) -> BTreeSet<String> {
    state.offerings().iter().map(|row| row.offer.instance_type.clone()).collect()
}

/// The types and zones of all spot offerings.
fn spot_markets(state: &State) -> (BTreeSet<String>, BTreeSet<String>) {
    let spot = state.offerings().iter().map(|row| &row.offer).filter(|offer| offer.capacity == CapacityType::Spot);
    spot.map(|offer| (offer.instance_type.clone(), offer.zone.clone())).unzip()
}

/// The spot offerings whose price has changed. An offering without a current price keeps its price.
fn changed_prices(state: &State, found: &BTreeMap<SpotMarket, Rate>) -> Vec<Event> {
    let mut events = Vec::new();
    for (id, row) in (0u32..).map(OfferingId).zip(state.offerings()) {
        let offer = &row.offer;
        if offer.capacity != CapacityType::Spot {
            continue;
        }
        let market = SpotMarket { instance_type: offer.instance_type.clone(), zone: offer.zone.clone() };
        let Some(price) = found.get(&market).map(|price| (*price).min(offer.max_price)) else { continue };
        if price != offer.price {
            events.push(Event::PriceChanged { offering: id, price });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_catalog::Catalogue;
    use forebay_engine::engine::Engine;
    use forebay_kernel::event::Tick;
    use forebay_policy::compile;

    fn engine() -> Engine {
        let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nqueues: {a: {}}\n\
                    pools: {p: {instanceTypes: [g5.xlarge, g6.xlarge], spot: {maxPrice: 80 %}}}\n";
        let rows = forebay_catalog::builtin();
        let catalogue = Catalogue { rows, zones: vec!["za".to_owned(), "zb".to_owned()], ..Catalogue::default() };
        let mut engine = Engine::new();
        let policy = compile("t", text, &catalogue).unwrap().policy;
        take(&mut engine, vec![Event::Configured(Box::new(policy))]);
        engine
    }

    fn take(engine: &mut Engine, events: Vec<Event>) {
        engine.open(Tick { now: Timestamp(1), resumed: false, delivered: 0 });
        events.into_iter().for_each(|event| _ = engine.handle_event(event));
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
    fn only_our_instances_are_reclaimed_and_not_before_the_hour() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
        let found: BTreeMap<String, Timestamp> = [("i-1", 1_000), ("i-2", 4_600_000), ("i-3", 4_600_001), ("i-4", 9)]
            .map(|(i, at)| (i.to_owned(), Timestamp(at)))
            .into();
        // The engine's clock may be ahead of AWS's.
        for ahead in [0, 3_000_000] {
            let clock = ClockReading { aws: Timestamp(1_000_000), engine: Timestamp(1_000_000 + ahead) };
            let (soon, later) = split(found.clone(), &names(&["i-1", "i-2", "i-3", "i-5"]), clock);
            let notice = |i: &str, at| Event::ReclaimNotice { instance: i.to_owned(), at: Timestamp(at + ahead) };
            assert_eq!(soon, [notice("i-1", 1_000), notice("i-2", 4_600_000)]);
            assert_eq!(later, BTreeMap::from([("i-3".to_owned(), Timestamp(4_600_001))]));
        }
    }

    #[test]
    fn only_changed_prices_are_submitted_and_none_above_the_maximum() {
        let mut engine = engine();
        let (types, zones) = spot_markets(engine.state());
        assert_eq!((types.len(), zones.len()), (2, 2));
        let market = |t: &str, z: &str| SpotMarket { instance_type: t.to_owned(), zone: z.to_owned() };
        let same = price(&engine, "g6.xlarge", "za", CapacityType::Spot);
        let found = BTreeMap::from([
            (market("g5.xlarge", "za"), Rate(300_000)),
            (market("g5.xlarge", "zb"), Rate(5_000_000)),
            (market("g6.xlarge", "za"), same),
            // These are not offered here.
            (market("g6.xlarge", "zc"), Rate(1)),
            (market("p5.48xlarge", "za"), Rate(1)),
        ]);
        let events = changed_prices(engine.state(), &found);
        assert_eq!(events.len(), 2, "{events:?}");
        let on_demand = price(&engine, "g5.xlarge", "za", CapacityType::OnDemand);
        take(&mut engine, events);
        assert_eq!(price(&engine, "g5.xlarge", "za", CapacityType::Spot), Rate(300_000));
        assert_eq!(price(&engine, "g5.xlarge", "zb", CapacityType::Spot), Rate(1_006_000 * 8 / 10));
        assert_eq!(price(&engine, "g5.xlarge", "za", CapacityType::OnDemand), on_demand);
        assert_eq!(changed_prices(engine.state(), &found), [], "submitted once");
        assert_eq!(changed_prices(engine.state(), &BTreeMap::new()), [], "unknown prices change nothing");
        assert_eq!(engine.audit(), [""; 0]);
    }
}
