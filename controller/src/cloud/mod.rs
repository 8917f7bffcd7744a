//! The real cloud: its configuration, the executor of the driver's effects, and the task that calls its API.
//!
//! ```text
//! driver --EffectExecutor--> commands --> task: machine, calls, listings --DriverHandle--> driver: outcomes, boots, ends, interruptions
//! ```
//!
//! A policy without limits is refused.

mod check;
#[cfg(feature = "ec2")]
mod ec2;

pub use check::{check_policy, unknown_efa, warnings};

use crate::clock::OutsideClock;
use crate::cluster::Terminate;
use crate::config::Config;
use crate::driver::{DriverHandle, EffectExecutor, Witness};
use forebay_catalog::Catalogue;
use forebay_catalog::PriceRow;
use forebay_source::{Diagnostic, Health};
use std::path::Path;
use std::thread::JoinHandle;

/// Why the configured cloud cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// This binary was built without the adapter.
    #[error("`ec2` is configured and this build has no EC2: build it with the feature `ec2`, or leave it out")]
    NotBuilt,
    /// The policy does not bound the cost.
    #[error(
        "the policy has no `limits`: a real cloud bills whatever is bought. Write at least one of `limits: {{nodes: 20, gpus: 160, spend: \
         500 USD/h}}`"
    )]
    NoLimits,
    /// A setting, file or secret is invalid.
    #[error("ec2: {0}")]
    Setting(String),
    /// The thread could not be started.
    #[error("ec2: no thread: {0}")]
    Thread(std::io::Error),
    /// The task ended before the driver did.
    #[error(
        "ec2: the task that buys and terminates nodes ended by a bug of this program, so the controller stopped too: start it again, and \
         report the log"
    )]
    Ended,
}

/// The thread of the cloud's task. It runs as long as the driver.
pub type CloudThread = JoinHandle<Result<(), CloudError>>;

/// A cloud with its executor, for the driver.
pub struct OpenedCloud {
    /// The cloud, whose task is not started yet.
    pub cloud: Cloud,
    /// Executes the driver's effects.
    pub executor: Box<dyn EffectExecutor>,
    /// Ends an instance, for a cluster that empties its node first.
    pub terminate: Terminate,
}

/// A cloud whose task is not started yet.
pub struct Cloud {
    /// The condition of its task.
    pub health: Health,
    /// The name, such as `ec2:research`.
    pub name: String,
    task: Box<dyn FnOnce(DriverHandle) -> std::io::Result<CloudThread> + Send>,
}

impl Cloud {
    /// Starts the task, which ends with the driver.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(self, handle: DriverHandle) -> Result<CloudThread, CloudError> {
        (self.task)(handle).map_err(CloudError::Thread)
    }
}

/// The catalog of the configured cloud, or of the simulated one.
///
/// # Errors
/// The price file cannot be read.
pub fn catalogue(config: &Config) -> Result<Catalogue, CloudError> {
    let Some(ec2) = &config.ec2 else { return Ok(Catalogue::builtin()) };
    let (own, elsewhere): (Vec<PriceRow>, Vec<PriceRow>) =
        forebay_catalog::builtin().into_iter().partition(|row| row.provider == "aws");
    let rows = match &ec2.prices {
        Some(path) => forebay_catalog::read(path).map_err(|e| CloudError::Setting(e.to_string()))?,
        None => own,
    };
    let reserved = ec2.reservations.iter().map(|r| (r.instance_type.clone(), r.zone.clone())).collect();
    let elsewhere = elsewhere.into_iter().map(|row| row.instance_type).collect();
    Ok(Catalogue { rows, zones: ec2.all_zones(), reserved, elsewhere, ..Catalogue::default() })
}

/// The catalog with the cloud's own figures of its types.
#[derive(Debug)]
pub struct Corrected {
    /// What can be bought.
    pub catalogue: Catalogue,
    /// Remarks for the log.
    pub remarks: Vec<String>,
    /// What the cloud said, which the folder does not have yet.
    #[cfg(feature = "ec2")]
    unsaved: Option<ec2::SavedShapes>,
}

impl Corrected {
    /// Saves what the cloud said for a start at which it does not answer, in the folder of a driver that has started. `Some`: why it is not saved.
    #[must_use]
    pub fn save(&self, folder: &Path) -> Option<String> {
        #[cfg(feature = "ec2")]
        let failed = self.unsaved.as_ref().and_then(|shapes| shapes.write(folder).err());
        #[cfg(not(feature = "ec2"))]
        let failed: Option<std::io::Error> = None;
        failed.map(|e| format!("{}: the shapes of instance types are not saved: {e}", folder.display()))
    }
}

/// The catalog with the cloud's own figures of its types, or with those that `folder` has. It takes at most a few seconds, and writes nothing.
#[must_use]
pub fn corrected(config: &Config, folder: &Path, catalogue: Catalogue) -> Corrected {
    match &config.ec2 {
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::at_start(ec2, folder, catalogue),
        _ => {
            let _ = folder;
            Corrected {
                catalogue,
                remarks: Vec::new(),
                #[cfg(feature = "ec2")]
                unsaved: None,
            }
        }
    }
}

/// The checks of `forebay doctor`, without changes.
#[must_use]
pub fn probe(config: &Config, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
    match &config.ec2 {
        None => Vec::new(),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::probe(config, ec2, runtime),
        #[cfg(not(feature = "ec2"))]
        Some(_) => {
            let _ = runtime;
            vec![Diagnostic::error("ec2", CloudError::NotBuilt.to_string())]
        }
    }
}

/// Checks the settings, without using the network.
///
/// # Errors
/// A setting is invalid.
pub fn check(config: &Config) -> Result<(), CloudError> {
    match &config.ec2 {
        None => Ok(()),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::check(ec2),
        #[cfg(not(feature = "ec2"))]
        Some(_) => Err(CloudError::NotBuilt),
    }
}

/// The clocks of AWS that can confirm a time. The `Date` of an answer needs no credentials.
#[must_use]
pub fn outside_clocks(config: &Config) -> Vec<OutsideClock> {
    let clock = |service: &str, name: String, region: &Option<String>, endpoint: &Option<String>| {
        let url = match endpoint {
            Some(endpoint) if endpoint.starts_with("http://") => endpoint.clone(),
            Some(_) => return None,
            None => {
                let region = region.clone().or_else(|| std::env::var("AWS_REGION").ok())?;
                format!("http://{service}.{region}.amazonaws.com/ping")
            }
        };
        Some(OutsideClock::over_http(name, url))
    };
    let ec2 = config.ec2.iter().filter_map(|ec2| clock("ec2", format!("ec2:{}", ec2.name), &ec2.region, &ec2.endpoint));
    let sqs = config.sqs.iter().filter_map(|sqs| clock("sqs", "sqs".to_owned(), &sqs.region, &sqs.endpoint));
    ec2.chain(sqs).collect()
}

/// What outside can tell how far a journal had gone: EC2, by the tags of instances.
#[must_use]
pub fn witness(config: &Config) -> Option<Witness> {
    match &config.ec2 {
        #[cfg(feature = "ec2")]
        Some(ec2) => Some(ec2::witness(ec2)),
        _ => None,
    }
}

/// Opens the configured cloud. `None`: it is simulated.
///
/// # Errors
/// A setting is invalid.
pub fn open(config: &Config, catalogue: &Catalogue) -> Result<Option<OpenedCloud>, CloudError> {
    match &config.ec2 {
        None => Ok(None),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::open(ec2, &catalogue.efa).map(Some),
        #[cfg(not(feature = "ec2"))]
        Some(_) => {
            let _ = catalogue;
            Err(CloudError::NotBuilt)
        }
    }
}
