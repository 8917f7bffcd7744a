//! The real cloud: what the configuration says of it, the hands that the driver buys with, and the task that talks to it.
//!
//! ```text
//! driver --Hands--> orders --> task: desk, calls, looks --Handle--> driver: outcomes, boots, ends, interruptions
//! ```
//!
//! Never: buys on a policy without limits.

mod check;
#[cfg(feature = "ec2")]
mod ec2;

pub use check::{check_policy, unknown_efa, warnings};

use crate::config::Config;
use crate::driver::{Handle, Hands};
use crate::policy::Catalogue;
use forebay_sim::prices::PriceRow;
use forebay_source::{Finding, Health};
use std::thread::JoinHandle;

/// Why the cloud cannot be had as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// This build has no adapter for it.
    #[error("`ec2` is configured and this build has no EC2: build it with the feature `ec2`, or leave it out")]
    NotBuilt,
    /// The policy would let it cost anything.
    #[error(
        "the policy has no `limits`: a real cloud bills whatever is bought. Write at least one of `limits: {{nodes: 20, gpus: 160, spend: \
         500 USD/h}}`"
    )]
    NoLimits,
    /// A file or a secret of its settings.
    #[error("ec2: {0}")]
    Setting(String),
    /// There is no thread for it.
    #[error("ec2: no thread: {0}")]
    Thread(std::io::Error),
    /// It ended before the driver did.
    #[error(
        "ec2: the task that buys and gives back ended by a fault of this program, so the controller ended too: start it again, and report \
         what the log says"
    )]
    Ended,
}

/// The thread that buys and gives back, as long as the driver runs.
pub type Buying = JoinHandle<Result<(), CloudError>>;

/// A cloud, and the hands that the driver buys with.
pub type Opened = (Cloud, Box<dyn Hands>);

/// A cloud that is about to be bought from.
pub struct Cloud {
    /// How it is, for whoever asks.
    pub health: Health,
    /// Its name: `ec2:research`.
    pub name: String,
    task: Box<dyn FnOnce(Handle) -> std::io::Result<Buying> + Send>,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Cloud {
    /// Begins to carry out what the driver asks, and to tell it what happens. Ends with the driver.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(self, handle: Handle) -> Result<Buying, CloudError> {
        (self.task)(handle).map_err(CloudError::Thread)
    }
}

/// What can be bought: the real cloud's, where one is configured, else what the simulated one has.
///
/// # Errors
/// The price file cannot be read.
pub fn catalogue(config: &Config) -> Result<Catalogue, CloudError> {
    let Some(ec2) = &config.ec2 else { return Ok(Catalogue::builtin()) };
    let (own, elsewhere): (Vec<PriceRow>, Vec<PriceRow>) =
        forebay_sim::prices::builtin().into_iter().partition(|row| row.provider == "aws");
    let rows = match &ec2.prices {
        Some(path) => forebay_sim::prices::read(path).map_err(|e| CloudError::Setting(e.to_string()))?,
        None => own,
    };
    let reserved = ec2.reservations.iter().map(|r| (r.instance_type.clone(), r.zone.clone()));
    let catalogue = Catalogue::new(rows, ec2.all_zones()).with_reserved(reserved.collect());
    Ok(catalogue.with_elsewhere(elsewhere.into_iter().map(|row| row.instance_type).collect()))
}

/// The catalogue with what the real cloud itself says of its types, and what there is to say of that. It is asked for a few seconds, and
/// what it said is kept in `folder`.
#[must_use]
pub fn corrected(config: &Config, folder: &std::path::Path, catalogue: Catalogue) -> (Catalogue, Vec<String>) {
    match &config.ec2 {
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::at_start(ec2, folder, catalogue),
        _ => {
            let _ = folder;
            (catalogue, Vec::new())
        }
    }
}

/// What `forebay doctor` finds of the cloud. Changes nothing.
#[must_use]
pub fn probe(config: &Config, runtime: &tokio::runtime::Handle) -> Vec<Finding> {
    match &config.ec2 {
        None => Vec::new(),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::probe(ec2, runtime),
        #[cfg(not(feature = "ec2"))]
        Some(_) => {
            let _ = runtime;
            vec![Finding::bad("ec2", CloudError::NotBuilt.to_string())]
        }
    }
}

/// Whether the cloud can be opened, before anybody is asked anything.
///
/// # Errors
/// Settings that cannot be.
pub fn check(config: &Config) -> Result<(), CloudError> {
    match &config.ec2 {
        None => Ok(()),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::check(ec2),
        #[cfg(not(feature = "ec2"))]
        Some(_) => Err(CloudError::NotBuilt),
    }
}

/// The configured cloud, and the hands for the driver. `None`: it is simulated.
///
/// # Errors
/// Settings that cannot be.
pub fn open(config: &Config, catalogue: &Catalogue) -> Result<Option<Opened>, CloudError> {
    match &config.ec2 {
        None => Ok(None),
        #[cfg(feature = "ec2")]
        Some(ec2) => ec2::open(ec2, catalogue.efa()).map(Some),
        #[cfg(not(feature = "ec2"))]
        Some(_) => {
            let _ = catalogue;
            Err(CloudError::NotBuilt)
        }
    }
}
