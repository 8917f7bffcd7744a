//! EC2 by the configuration: the settings of the adapter, the executor of the driver's effects, and the task that runs the adapter's machine.

mod clock;
mod notices;
mod refresh;
mod shapes;
mod task;
mod witness;

pub(super) use shapes::{SavedShapes, at_start};
pub(super) use witness::witness;

use super::check::{foreign_prices, script, some, unused_reservations};
use super::{Cloud, CloudError, OpenedCloud};
use crate::config::Config;
use crate::config::ec2::{Ec2Config, LaunchConfig, Ready};
use crate::driver::{DriverHandle, EffectExecutor, EffectOrigin, EffectRequest, MailboxError, SubmittedItem, wall_ms};
use backon::{ConstantBuilder, Retryable};
use clock::DriverClock;
use forebay_aws::AwsSettings;
use forebay_capacity_ec2::free_hour::left_to_ec2;
use forebay_capacity_ec2::machine::{BuyingMode, PurchaseOrigin};
use forebay_capacity_ec2::{ClockReading, Ec2Settings, LaunchRequest, LaunchSettings, ReservedCapacity, probe, sdk};
use forebay_driver::journal::JournalIdentity;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::Event;
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::Timestamp;
use forebay_source::{Diagnostic, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The delay before events are submitted again to a full mailbox.
const MAILBOX_RETRY: Duration = Duration::from_millis(200);

/// A command of the driver to the task. The engine's limits on claims bound how many wait.
enum TaskCommand {
    /// The driver starts.
    Begin { settings: Arc<Ec2Settings>, claims: BTreeSet<String>, clock: DriverClock },
    /// Make a purchase.
    Launch { request: Box<LaunchRequest>, origin: PurchaseOrigin },
    /// Terminate an instance.
    Terminate { instance: String },
    /// Leave the end of an instance to EC2 until then, on the driver's clock.
    LeaveToEc2 { instance: String, until: Timestamp },
    /// An operator has paused buying, or resumed it.
    Buying(BuyingMode),
}

/// Sends the driver's effects to the task.
struct Ec2Executor {
    settings: Arc<Ec2Settings>,
    commands: UnboundedSender<TaskCommand>,
    /// What the task was told last.
    buying: BuyingMode,
    /// The instances that end, and whose end is left to EC2.
    left_to_ec2: BTreeMap<String, Timestamp>,
}

/// What the task connects to.
struct Connection {
    aws: AwsSettings,
    /// The interruption queues, by name or URL.
    queues: Vec<String>,
}

/// Checks all settings.
pub(super) fn check(config: &Ec2Config) -> Result<(), CloudError> {
    settings(config).and(aws_settings(config)).map(drop)
}

/// Opens the cloud. `efa` has the number of EFA interfaces by instance type.
pub(super) fn open(config: &Ec2Config, efa: &BTreeMap<String, u32>) -> Result<OpenedCloud, CloudError> {
    let settings = Arc::new(Ec2Settings { efa: efa.clone(), ..settings(config)? });
    let connection = Connection { aws: aws_settings(config)?, queues: config.interruptions.clone() };
    let health = Health::default();
    let name = format!("ec2:{}", config.name);
    let (commands, receiver) = unbounded_channel();
    let task_health = health.clone();
    let task = Box::new(move |handle| {
        let work = move || task::run(connection, receiver, handle, task_health);
        std::thread::Builder::new().name("ec2".to_owned()).spawn(work)
    });
    let at_end = commands.clone();
    let terminate = Box::new(move |instance| {
        // The task ends only with the process, and the journal has the effect.
        let _ = at_end.send(TaskCommand::Terminate { instance });
    });
    let executor = Box::new(Ec2Executor { settings, commands, buying: BuyingMode::On, left_to_ec2: BTreeMap::new() });
    Ok(OpenedCloud { cloud: Cloud { health, name, task }, executor, terminate })
}

/// Waits for an answer of EC2 where there is no task yet: at a start.
fn wait_for<T>(limit: Duration, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let answer = runtime.block_on(async { tokio::time::timeout(limit, answer).await });
    answer.unwrap_or_else(|_| Err(format!("no response within {} s", limit.as_secs())))
}

/// Checks everything that buying needs. `whole` is the configuration that `config` is part of.
pub(super) fn probe(whole: &Config, config: &Ec2Config, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    let subject = |part: &str| format!("ec2 {}: {part}", config.name);
    let opened = settings(config).and_then(|settings| Ok((settings, aws_settings(config)?)));
    let (settings, aws) = match opened {
        Ok(opened) => opened,
        Err(e) => return vec![Diagnostic::error(subject("settings"), e.to_string())],
    };
    runtime.block_on(async {
        let clients = match sdk::connect(&aws).await {
            Ok(clients) => clients,
            Err(e) => return vec![Diagnostic::error(subject("region"), e.to_string())],
        };
        let results = probe::probe(&clients, &settings, &config.all_zones(), &config.interruptions).await;
        let diagnostic = |check: probe::ProbeResult| match check.result {
            Ok(text) => Diagnostic::ok(subject(&check.subject), text),
            Err(text) => Diagnostic::error(subject(&check.subject), text),
        };
        let mut diagnostics: Vec<Diagnostic> = results.into_iter().map(diagnostic).collect();
        let foreign = foreign_prices(config, &shapes::region(&clients.ec2));
        diagnostics.extend(foreign.map(|text| Diagnostic::warning(subject("prices"), text)));
        let unused = unused_reservations(whole);
        diagnostics.extend(unused.into_iter().map(|text| Diagnostic::warning(subject("reservations"), text)));
        if config.interruptions.is_empty() {
            let text = "none: spot warnings are reported by the agents on the nodes, and all else is found when it has happened";
            diagnostics.push(Diagnostic::warning(subject("interruptions"), text));
        }
        diagnostics
    })
}

fn aws_settings(config: &Ec2Config) -> Result<AwsSettings, CloudError> {
    let access_key = config.keys.as_ref().map(|keys| crate::sources::adapter::access_key(keys, "ec2")).transpose();
    let access_key = access_key.map_err(|e| CloudError::Setting(e.to_string()))?;
    if let Some(endpoint) = config.endpoint.as_deref().filter(|e| !forebay_aws::is_valid_endpoint(e)) {
        let shown = forebay_aws::printable(endpoint);
        return Err(CloudError::Setting(format!(
            "endpoint `{shown}` is not a URL: write http://HOST:PORT or https://HOST"
        )));
    }
    Ok(AwsSettings { region: config.region.clone(), endpoint: config.endpoint.clone(), access_key })
}

fn settings(config: &Ec2Config) -> Result<Ec2Settings, CloudError> {
    let mut pools = BTreeMap::new();
    for pool in config.pools.keys() {
        pools.insert(pool.clone(), launch(&config.launch_of(pool))?);
    }
    let reservation = |r: &crate::config::ec2::ReservationConfig| ReservedCapacity {
        id: r.id.clone(),
        instance_type: r.instance_type.clone(),
        zone: r.zone.clone(),
        block: r.block,
        starts: r.starts.map(millis),
        ends: r.ends.map(millis),
    };
    Ok(Ec2Settings {
        predecessors: config.predecessors.iter().cloned().collect(),
        pools,
        reservations: config.reservations.iter().map(reservation).collect(),
        ready_when_running: matches!(config.ready, None | Some(Ready::Running)),
        // The journal is set when the driver starts.
        ..Ec2Settings::new(&config.name, "", launch(&config.launch)?)
    })
}

/// Times before 1970 count as 1970.
fn millis(at: jiff::Timestamp) -> Timestamp {
    Timestamp(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

fn launch(config: &LaunchConfig) -> Result<LaunchSettings, CloudError> {
    Ok(LaunchSettings {
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

impl Ec2Executor {
    fn send(&self, command: TaskCommand) {
        // The task ends only with the process, and the journal has the effect.
        let _ = self.commands.send(command);
    }

    /// Sends the task, once for each, the nodes whose end is left to EC2: those that it takes back in their free hour.
    fn leave_to_ec2(&mut self, state: &State) {
        let left = ends_by_ec2(state);
        let new = left.iter().filter(|(instance, _)| !self.left_to_ec2.contains_key(*instance));
        for (instance, until) in new {
            self.send(TaskCommand::LeaveToEc2 { instance: instance.clone(), until: *until });
        }
        self.left_to_ec2 = left;
    }
}

/// The instances of nodes that end, and whose end is left to EC2, with the times until which it is.
fn ends_by_ec2(state: &State) -> BTreeMap<String, Timestamp> {
    let mut left = BTreeMap::new();
    for node in state.bought_nodes().filter(|node| node.phase == NodePhase::Terminating) {
        let Some(offer) = state.offerings().get(node.offering.index()).map(|row| &row.offer) else { continue };
        let until = left_to_ec2(offer.capacity, node.decided_at, node.reclaim_at, state.now());
        left.extend(node.instance.clone().zip(until));
    }
    left
}

impl EffectExecutor for Ec2Executor {
    fn begin(&mut self, journal: &JournalIdentity, state: &State) {
        let settings = Ec2Settings {
            journal: journal.id.to_string(),
            lineage: journal.clone(),
            first_purchase: Some(state.counters().next_purchase),
            ..Ec2Settings::clone(&self.settings)
        };
        self.settings = Arc::new(settings);
        let claims = claimed(state);
        // The driver's clock begins now, however long the task takes to connect.
        let clock = DriverClock::begin(state.now());
        self.send(TaskCommand::Begin { settings: Arc::clone(&self.settings), claims, clock });
    }

    fn observe(&mut self, state: &State) {
        let paused = state.brake(&Brake::Buying).is_some();
        let buying = if paused { BuyingMode::Paused } else { BuyingMode::On };
        if buying != self.buying {
            self.buying = buying;
            self.send(TaskCommand::Buying(buying));
        }
        self.leave_to_ec2(state);
    }

    fn freeze(&mut self, effect: &Effect, state: &State) -> Option<Vec<u8>> {
        // A reservation's times are those of the wall clock.
        let clock = ClockReading { aws: wall_ms(), engine: state.now() };
        let dated = (!self.settings.reservations.is_empty()).then(|| self.settings.on_clock(clock));
        match LaunchRequest::from_effect(dated.as_ref().unwrap_or(&self.settings), effect, state)?.encode() {
            Ok(bytes) => Some(bytes),
            // Without it, EC2 itself refuses a repetition that differs.
            Err(error) => {
                tracing::error!(%error, effect = %effect.id, "a request to EC2 cannot be written to the journal; report it");
                None
            }
        }
    }

    fn execute(&mut self, asked: EffectRequest<'_>) {
        match &asked.effect.action {
            Action::Launch { .. } => {
                // Without the frozen request, EC2 refuses one that differs from it.
                let frozen = asked.frozen.and_then(|bytes| LaunchRequest::decode(bytes).ok());
                let request = frozen.or_else(|| LaunchRequest::from_effect(&self.settings, asked.effect, asked.state));
                let origin = match asked.origin {
                    EffectOrigin::Recovered => PurchaseOrigin::Recovered,
                    EffectOrigin::Decided => PurchaseOrigin::New,
                };
                if let Some(request) = request {
                    self.send(TaskCommand::Launch { request: Box::new(request), origin });
                }
            }
            Action::Terminate { instance, .. } => self.send(TaskCommand::Terminate { instance: instance.clone() }),
            Action::Start { .. } | Action::Stop { .. } | Action::Shrink { .. } => {}
        }
    }
}

/// The instances of all claims.
fn claimed(state: &State) -> BTreeSet<String> {
    state.bought_nodes().filter_map(|node| node.instance.clone()).collect()
}

/// Submits events to the driver, and again while its mailbox is full. They are durable when this returns.
///
/// # Errors
/// The driver has stopped.
async fn submit(handle: &DriverHandle, events: &[Event]) -> Result<(), MailboxError> {
    let retries = ConstantBuilder::new().with_delay(MAILBOX_RETRY).without_max_times();
    let submit = || handle.submit_items(events.iter().cloned().map(SubmittedItem::from).collect());
    submit.retry(retries).when(|error| !matches!(error, MailboxError::Stopped(_))).await.map(drop)
}
