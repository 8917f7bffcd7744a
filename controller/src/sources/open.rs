//! What the configuration names is opened through this: a source, sinks for statuses and rejected events, and a look for `doctor`.
//!
//! Never: a kind of transport. Each has its own file beside this one, and its own cargo feature.

use crate::config::Config;
#[cfg(any(feature = "ec2", feature = "s3", feature = "sqs"))]
use crate::config::aws::AwsKeys;
use crate::config::secret::{Secret, SecretError, SecretText};
use crate::intake::Caller;
use forebay_source::{Desk, Finding, Health, Sink, Source};
use tokio::runtime::Handle;
use uuid::Uuid;

/// Why something that the configuration names cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A password or key.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Kafka.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] forebay_source_kafka::KafkaError),
    /// SQS.
    #[cfg(feature = "sqs")]
    #[error(transparent)]
    Sqs(#[from] forebay_source_sqs::SqsError),
    /// This binary was built without it.
    #[error("`{name}:` is configured, and this binary was built without it: build with `--features {name}`")]
    NotBuilt {
        /// The feature.
        name: &'static str,
    },
    /// The system has no thread left.
    #[error("no thread for {name}: {source}; check the limits of the process")]
    Thread {
        /// What for.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What a source is opened with.
pub struct Opened {
    /// Who we are to the transport, the same after a restart.
    pub journal: Uuid,
    /// Where it hands in.
    pub desk: Desk,
    /// Where it tells how it is.
    pub health: Health,
    /// For sources that need one.
    pub runtime: Handle,
}

/// One entry of the configuration that can be opened.
pub trait Open {
    /// For people: `kafka:` and the first broker, `sqs:` and the region.
    fn name(&self) -> String;

    /// What is read and whose it is, in the order of the settings. None: nothing is read.
    fn channels(&self) -> Vec<(String, Caller)>;

    /// Passwords and keys, each with whose it is.
    fn secrets(&self) -> Vec<(String, &Secret)>;

    /// Whether it can work, as far as that can be told without a secret or a network.
    ///
    /// # Errors
    /// The first setting that cannot be, and what to write.
    fn check(&self) -> Result<(), OpenError>;

    /// Starts to read.
    ///
    /// # Errors
    /// A setting that cannot be; what does not answer yet is no error.
    fn source(&self, opened: Opened) -> Result<Box<dyn Source>, OpenError>;

    /// Where statuses and rejected events go.
    ///
    /// # Errors
    /// As [`Open::source`].
    fn sinks(&self, runtime: &Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError>;

    /// Looks at everything that is named, read-only. Blocks; not for async code.
    fn probe(&self, runtime: &Handle) -> Vec<Finding>;
}

/// Everything that a configuration names.
///
/// # Errors
/// This binary lacks what is named.
pub fn all(config: &Config) -> Result<Vec<&dyn Open>, OpenError> {
    #[cfg(feature = "kafka")]
    let kafka = config.kafka.iter().map(|kafka| kafka as &dyn Open);
    #[cfg(not(feature = "kafka"))]
    let kafka = std::iter::empty::<&dyn Open>();
    #[cfg(feature = "sqs")]
    let sqs = config.sqs.iter().map(|sqs| sqs as &dyn Open);
    #[cfg(not(feature = "sqs"))]
    let sqs = std::iter::empty::<&dyn Open>();
    if cfg!(not(feature = "kafka")) && !config.kafka.is_empty() {
        return Err(OpenError::NotBuilt { name: "kafka" });
    }
    if cfg!(not(feature = "sqs")) && !config.sqs.is_empty() {
        return Err(OpenError::NotBuilt { name: "sqs" });
    }
    Ok(kafka.chain(sqs).collect())
}

/// An access key as the configuration refers to it; `section` is where that stands.
///
/// # Errors
/// One of its secrets is not there.
#[cfg(any(feature = "ec2", feature = "s3", feature = "sqs"))]
pub fn keys(keys: &AwsKeys, section: &str) -> Result<forebay_aws::Keys, SecretError> {
    let [id, secret] = keys.secrets(section).map(|(whose, secret)| read(secret, &whose));
    Ok(forebay_aws::Keys {
        access_key_id: id?.reveal().to_owned(),
        secret_access_key: secret?.reveal().to_owned(),
        session_token: None,
    })
}

/// Reads a secret; what is unwise about it is logged.
///
/// # Errors
/// There is none.
pub fn read(secret: &Secret, whose: &str) -> Result<SecretText, SecretError> {
    let mut warnings = Vec::new();
    let text = secret.read(whose, &mut warnings);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    text
}
