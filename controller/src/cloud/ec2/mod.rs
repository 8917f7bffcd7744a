//! EC2 as the configuration names it: settings for the adapter, the driver's hands, and the task that drives the adapter's desk.
//!
//! Never: a key outside the adapter's settings.

mod notices;
mod refresh;
mod shapes;
mod task;

pub(super) use shapes::at_start;

use super::check::{foreign_prices, script};
use super::{Cloud, CloudError};
use crate::config::ec2::{Ec2Config, LaunchConfig, Ready};
use crate::driver::{Act, Hands};
use forebay_aws::Place;
use forebay_capacity_ec2::{Launch, Request, Reservation, Settings, probe, wire};
use forebay_engine::effect::{Action, Effect};
use forebay_engine::state::State;
use forebay_engine::units::Millis;
use forebay_source::{Finding, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use uuid::Uuid;

/// What the driver asks of the task. As many may wait as the engine has claims: its ceilings bound them.
enum Ordered {
    /// The driver is about to start.
    Begin { settings: Arc<Settings>, claims: BTreeSet<String>, now: Millis },
    /// Buy.
    Launch { request: Box<Request>, recovered: bool },
    /// Give back.
    Terminate { instance: String },
}

/// The driver's side.
struct Ec2Hands {
    settings: Arc<Settings>,
    orders: UnboundedSender<Ordered>,
}

/// Everything that can be wrong with the settings is found here.
pub(super) fn check(config: &Ec2Config) -> Result<(), CloudError> {
    settings(config).and(place(config)).map(drop)
}

/// Opens the way. `efa`: how many EFA interfaces types take.
pub(super) fn open(config: &Ec2Config, efa: &BTreeMap<String, u32>) -> Result<(Cloud, Box<dyn Hands>), CloudError> {
    let settings = Arc::new(Settings { efa: efa.clone(), ..settings(config)? });
    let place = (place(config)?, config.interruptions.clone());
    let health = Health::default();
    let name = format!("ec2:{}", config.name);
    let (orders, ordered) = unbounded_channel();
    let hands = Ec2Hands { settings, orders };
    let kept = health.clone();
    let task = Box::new(move |handle| {
        let work = move || task::run(place, ordered, handle, kept);
        std::thread::Builder::new().name("ec2".to_owned()).spawn(work)
    });
    Ok((Cloud { health, name, task }, Box::new(hands)))
}

/// Everything that buying needs, tried.
pub(super) fn probe(config: &Ec2Config, runtime: &tokio::runtime::Handle) -> Vec<Finding> {
    let what = |part: &str| format!("ec2 {}: {part}", config.name);
    let opened = settings(config).and_then(|settings| Ok((settings, place(config)?)));
    let (settings, place) = match opened {
        Ok(opened) => opened,
        Err(e) => return vec![Finding::bad(what("settings"), e.to_string())],
    };
    runtime.block_on(async {
        let ways = match wire::connect(&place).await {
            Ok(ways) => ways,
            Err(e) => return vec![Finding::bad(what("region"), e.to_string())],
        };
        let found = probe::probe(&ways, &settings, &config.all_zones(), &config.interruptions).await;
        let finding = |f: probe::Found| match f.said {
            Ok(said) => Finding::fine(what(&f.what), said),
            Err(said) => Finding::bad(what(&f.what), said),
        };
        let mut findings: Vec<Finding> = found.into_iter().map(finding).collect();
        let foreign = foreign_prices(config, &shapes::region(&ways.ec2));
        findings.extend(foreign.map(|said| Finding::warning(what("prices"), said)));
        if config.interruptions.is_empty() {
            let said = "none: reclaims are heard of by agents on the nodes, or when they have happened";
            findings.push(Finding::warning(what("interruptions"), said));
        }
        findings
    })
}

fn place(config: &Ec2Config) -> Result<Place, CloudError> {
    let keys = config.keys.as_ref().map(|keys| crate::sources::open::keys(keys, "ec2")).transpose();
    let keys = keys.map_err(|e| CloudError::Setting(e.to_string()))?;
    if let Some(endpoint) = config.endpoint.as_deref().filter(|e| !forebay_aws::is_endpoint(e)) {
        let shown = forebay_aws::shown(endpoint);
        return Err(CloudError::Setting(format!("endpoint `{shown}` is none: write http://HOST:PORT or https://HOST")));
    }
    Ok(Place { region: config.region.clone(), endpoint: config.endpoint.clone(), keys })
}

fn settings(config: &Ec2Config) -> Result<Settings, CloudError> {
    let mut pools = BTreeMap::new();
    for pool in config.pools.keys() {
        pools.insert(pool.clone(), launch(&config.launch_of(pool))?);
    }
    let reservation = |r: &crate::config::ec2::ReservationConfig| Reservation {
        id: r.id.clone(),
        instance_type: r.instance_type.clone(),
        zone: r.zone.clone(),
        block: r.block,
        starts: r.starts.map(millis),
        ends: r.ends.map(millis),
    };
    Ok(Settings {
        predecessors: config.predecessors.iter().cloned().collect(),
        pools,
        reservations: config.reservations.iter().map(reservation).collect(),
        ready_when_running: config.ready == Ready::Running,
        // The journal is not known yet.
        ..Settings::new(&config.name, "", launch(&config.launch)?)
    })
}

/// Before 1970 is then.
fn millis(at: jiff::Timestamp) -> Millis {
    Millis(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

fn launch(config: &LaunchConfig) -> Result<Launch, CloudError> {
    Ok(Launch {
        template: config.template.clone(),
        version: config.version.clone(),
        image: config.image.clone(),
        subnets: config.subnets.clone(),
        security_groups: config.security_groups.clone(),
        instance_profile: config.instance_profile.clone(),
        user_data: config.user_data.as_deref().map(script).transpose()?,
        tags: config.tags.clone(),
    })
}

impl Ec2Hands {
    fn order(&self, order: Ordered) {
        // The task is gone only when the process is about to be; the journal knows what was asked.
        let _ = self.orders.send(order);
    }
}

impl Hands for Ec2Hands {
    fn begin(&mut self, journal: Uuid, state: &State) {
        let settings = Settings { journal: journal.to_string(), ..Settings::clone(&self.settings) };
        self.settings = Arc::new(settings);
        let claims = held(state);
        self.order(Ordered::Begin { settings: Arc::clone(&self.settings), claims, now: state.now() });
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        Request::of(&self.settings, effect, state).map(|request| request.encode())
    }

    fn act(&mut self, act: Act<'_>) {
        match &act.effect.action {
            Action::Launch { .. } => {
                // Without what was frozen EC2 itself tells whether this asks for the same.
                let frozen = act.frozen.and_then(|bytes| Request::decode(bytes).ok());
                let request = frozen.or_else(|| Request::of(&self.settings, act.effect, act.state));
                if let Some(request) = request {
                    self.order(Ordered::Launch { request: Box::new(request), recovered: act.recovered });
                }
            }
            Action::Terminate { instance, .. } => self.order(Ordered::Terminate { instance: instance.clone() }),
            Action::Start { .. } | Action::Stop { .. } | Action::Shrink { .. } => {}
        }
    }
}

/// Instances that claims name.
fn held(state: &State) -> BTreeSet<String> {
    state.nodes().filter_map(|node| node.instance.clone()).collect()
}
