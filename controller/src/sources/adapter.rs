//! The trait of the adapters that the configuration can name: a source, sinks for statuses and rejected events, and a check for `doctor`. Each
//! adapter has its own file and its own cargo feature.

use crate::config::Config;
#[cfg(any(feature = "ec2", feature = "s3", feature = "sqs"))]
use crate::config::aws::AwsKeys;
use crate::config::secret::{Secret, SecretError, SecretText};
use crate::journal::JournalId;
use forebay_source::{Diagnostic, Health, Sink, Source, SourceHandle};
use forebay_wire::intake::Caller;
use tokio::runtime::Handle;

/// Why a configured source or sink cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A password or key cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// An invalid Kafka setting.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] forebay_source_kafka::KafkaError),
    /// An invalid SQS setting.
    #[cfg(feature = "sqs")]
    #[error(transparent)]
    Sqs(#[from] forebay_source_sqs::SqsError),
    /// This binary was built without the adapter.
    #[error("`{name}:` is configured, and this binary was built without it: build with `--features {name}`")]
    NotBuilt {
        /// The cargo feature.
        name: &'static str,
    },
    /// A thread could not be started.
    #[error("no thread for {name}: {source}; check the limits of the process")]
    Thread {
        /// The name of the thread.
        name: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// What a source gets from the controller.
pub struct SourceContext {
    /// The id of the journal, which identifies the controller to the transport across restarts.
    pub journal: JournalId,
    /// Where it submits messages.
    pub source: SourceHandle,
    /// Where it reports its condition.
    pub health: Health,
    /// The runtime for async code.
    pub runtime: Handle,
}

/// A configured adapter.
pub trait SourceAdapter {
    /// The name for people: `kafka:` and the first broker, or `sqs:` and the region.
    fn name(&self) -> String;

    /// The topics or queues with their callers, in the order of the settings. Empty: nothing is read.
    fn channels(&self) -> Vec<(String, Caller)>;

    /// The passwords and keys, each with the setting that it belongs to.
    fn secrets(&self) -> Vec<(String, &Secret)>;

    /// Checks the settings, without secrets and without the network.
    ///
    /// # Errors
    /// The first invalid setting, with a remedy.
    fn check(&self) -> Result<(), OpenError>;

    /// Starts to read.
    ///
    /// # Errors
    /// A setting is invalid. A broker that does not respond is no error.
    fn source(&self, context: SourceContext) -> Result<Box<dyn Source>, OpenError>;

    /// The sinks for statuses and for rejected events.
    ///
    /// # Errors
    /// As for [`SourceAdapter::source`].
    fn sinks(&self, runtime: &Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError>;

    /// Checks everything that is configured, without changes. It blocks, so it must not be called from async code.
    fn probe(&self, runtime: &Handle) -> Vec<Diagnostic>;
}

/// All adapters of a configuration.
///
/// # Errors
/// This binary was built without one of them.
pub fn adapters(config: &Config) -> Result<Vec<&dyn SourceAdapter>, OpenError> {
    #[cfg(feature = "kafka")]
    let kafka = config.kafka.iter().map(|kafka| kafka as &dyn SourceAdapter);
    #[cfg(not(feature = "kafka"))]
    let kafka = std::iter::empty::<&dyn SourceAdapter>();
    #[cfg(feature = "sqs")]
    let sqs = config.sqs.iter().map(|sqs| sqs as &dyn SourceAdapter);
    #[cfg(not(feature = "sqs"))]
    let sqs = std::iter::empty::<&dyn SourceAdapter>();
    if cfg!(not(feature = "kafka")) && !config.kafka.is_empty() {
        return Err(OpenError::NotBuilt { name: "kafka" });
    }
    if cfg!(not(feature = "sqs")) && !config.sqs.is_empty() {
        return Err(OpenError::NotBuilt { name: "sqs" });
    }
    Ok(kafka.chain(sqs).collect())
}

/// The access key of a section of the configuration.
///
/// # Errors
/// One of its secrets cannot be read.
#[cfg(any(feature = "ec2", feature = "s3", feature = "sqs"))]
pub fn access_key(keys: &AwsKeys, section: &str) -> Result<forebay_aws::AccessKey, SecretError> {
    let [id, secret] = keys.secrets(section).map(|(setting, secret)| read_secret(secret, &setting));
    Ok(forebay_aws::AccessKey {
        access_key_id: id?.reveal().to_owned(),
        secret_access_key: secret?.reveal().to_owned(),
        session_token: None,
    })
}

/// Reads a secret, and logs warnings about it. `setting` is the setting that it belongs to.
///
/// # Errors
/// It cannot be read.
pub fn read_secret(secret: &Secret, setting: &str) -> Result<SecretText, SecretError> {
    let mut warnings = Vec::new();
    let text = secret.read(setting, &mut warnings);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    text
}
