//! The settings of a source, a sink and a probe, and the librdkafka properties that follow from them.
//!
//! `Debug` output contains no secrets. Properties on which the guarantees rest cannot be overridden.

use crate::error::KafkaError;
use rdkafka::ClientConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The session time-out of the group in ms: a member that is silent for longer is expelled. Brokers accept at least 6 s by default. A second
/// controller with another journal waits for as long.
pub(crate) const SESSION_MS: u64 = 9_000;

/// The interval in ms at which new, deleted and recreated topics are detected.
pub(crate) const METADATA_MS: u64 = 5_000;

/// The largest message in bytes that is received whole: 16 MiB and what a record adds. An event of 10 MiB can be rejected with its bytes.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024 + 64 * 1024;

/// Properties on which the guarantees of the source and the sink rest, with their older names. All others are tuning.
const RESERVED: [&str; 31] = [
    "acks",
    "allow.auto.create.topics",
    "auto.commit.enable",
    "auto.offset.reset",
    "bootstrap.servers",
    "client.id",
    "debug",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "isolation.level",
    "log.queue",
    "message.max.bytes",
    "message.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "request.required.acks",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "transactional.id",
];

/// How a connection to a broker is secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encryption nor authentication.
    #[default]
    Plaintext,
    /// TLS without authentication by a password.
    Ssl,
    /// No encryption, authentication by user and password.
    SaslPlaintext,
    /// TLS, authentication by user and password.
    SaslSsl,
}

impl SecurityProtocol {
    /// The name in librdkafka's properties.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "plaintext",
            SecurityProtocol::Ssl => "ssl",
            SecurityProtocol::SaslPlaintext => "sasl_plaintext",
            SecurityProtocol::SaslSsl => "sasl_ssl",
        }
    }

    fn has_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }
}

/// Encryption and authentication. `Debug` output hides the password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct BrokerSecurity {
    /// Encryption, and whether there is a password.
    pub protocol: SecurityProtocol,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`; required with SASL.
    pub mechanism: Option<String>,
    /// The user; required with SASL.
    pub username: Option<String>,
    /// The password of the user; required with SASL.
    pub password: Option<String>,
    /// A PEM file with the trusted authorities. `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the client's certificate.
    pub certificate: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub key: Option<PathBuf>,
}

impl fmt::Debug for BrokerSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("protocol", &self.protocol)
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .finish()
    }
}

/// A cluster, and what is read from it.
///
/// A source uses up to 64 MiB for messages that are fetched ahead, up to 32 MiB for a response of each broker, and the memory of its permits.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `host:port`; several are separated by commas.
    pub brokers: String,
    /// The consumer group. Each controller needs a group of its own.
    pub group: String,
    /// The static member id, which stays the same after a restart: the UUID of the journal. A restarted controller gets its partitions back at
    /// once, and one that was replaced is fenced. `None`: a new member each time.
    pub instance: Option<String>,
    /// Encryption and authentication.
    pub security: BrokerSecurity,
    /// The topics that are read. The index is [`forebay_source::MessageBatch::channel`].
    pub topics: Vec<String>,
    /// More librdkafka properties, for tuning. `Debug` output hides their values.
    pub extra: BTreeMap<String, String>,
    /// A reader that does not receive waiting messages for this long, without being held back, is restarted.
    pub stall_timeout: Duration,
    /// The interval at which backlogs and topics are checked.
    pub watch_interval: Duration,
}

impl Default for KafkaSettings {
    fn default() -> KafkaSettings {
        KafkaSettings {
            brokers: String::new(),
            group: "forebay".to_owned(),
            instance: None,
            security: BrokerSecurity::default(),
            topics: Vec::new(),
            extra: BTreeMap::new(),
            stall_timeout: Duration::from_secs(30),
            watch_interval: Duration::from_secs(3),
        }
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("instance", &self.instance)
            .field("security", &self.security)
            .field("topics", &self.topics)
            .field("extra", &self.extra.keys().collect::<Vec<_>>())
            .field("stall", &self.stall_timeout)
            .field("watch", &self.watch_interval)
            .finish()
    }
}

impl KafkaSettings {
    /// Validates names, combinations and properties, without a broker. `written` are the topics that sinks write to.
    ///
    /// # Errors
    /// The first setting that is not valid, and what to write instead. A missing certificate is reported by the source and the probe.
    pub fn check<'a>(&self, written: impl IntoIterator<Item = &'a str>) -> Result<(), KafkaError> {
        let config = if self.topics.is_empty() { self.tuned(self.probe_config()?) } else { self.reader_config()? };
        config.create_native_config().map_err(|e| KafkaError::client(&e))?;
        written.into_iter().try_for_each(check_topic)
    }

    /// The properties of every client.
    pub(crate) fn common(&self) -> Result<ClientConfig, KafkaError> {
        if self.brokers.trim().is_empty() {
            return Err(KafkaError::setting("brokers", "is empty; write host:port, several with commas"));
        }
        if let Some(name) = self.extra.keys().find(|name| RESERVED.contains(&name.as_str())) {
            let why = "is set by Forebay, which relies on it; remove it from the extra properties";
            return Err(KafkaError::setting(name, why));
        }
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "forebay")
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.ms", "100")
            // A broker that is back is found within this time.
            .set("reconnect.backoff.max.ms", "2000")
            .set("topic.metadata.refresh.interval.ms", METADATA_MS.to_string());
        self.secure(&mut config)?;
        Ok(config)
    }

    fn secure(&self, config: &mut ClientConfig) -> Result<(), KafkaError> {
        let security = &self.security;
        config.set("security.protocol", security.protocol.name());
        if security.protocol.has_sasl() {
            let required = |name: &str, value: &Option<String>| match value {
                Some(value) if !value.is_empty() => Ok(value.clone()),
                _ => Err(KafkaError::setting(
                    name,
                    "is required with a SASL protocol; write it, or choose ssl or plaintext",
                )),
            };
            let mechanism = required("mechanism", &security.mechanism)?;
            if !["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].contains(&mechanism.as_str()) {
                let why = format!("`{mechanism}` is not supported; write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
                return Err(KafkaError::setting("mechanism", why));
            }
            config
                .set("sasl.mechanism", mechanism)
                .set("sasl.username", required("username", &security.username)?)
                .set("sasl.password", required("password", &security.password)?);
        }
        let paths = [
            ("ssl.ca.location", "ca", &security.ca),
            ("ssl.certificate.location", "certificate", &security.certificate),
            ("ssl.key.location", "key", &security.key),
        ];
        for (property, name, path) in paths {
            let Some(path) = path else { continue };
            let Some(text) = path.to_str() else {
                return Err(KafkaError::setting(name, "its path is not UTF-8; move the file"));
            };
            config.set(property, text);
        }
        Ok(())
    }

    /// The properties of a client that reads single partitions and watermarks without joining the group.
    pub(crate) fn probe_config(&self) -> Result<ClientConfig, KafkaError> {
        let mut config = self.common()?;
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false")
            .set("max.partition.fetch.bytes", MAX_MESSAGE_BYTES.to_string())
            .set("fetch.max.bytes", (2 * 16 * 1024 * 1024).to_string());
        Ok(config)
    }

    /// The properties of a reader.
    pub(crate) fn reader_config(&self) -> Result<ClientConfig, KafkaError> {
        self.check_topics()?;
        if self.group.trim().is_empty() {
            return Err(KafkaError::setting("group", "is empty; write a name that no other controller uses"));
        }
        let mut config = self.probe_config()?;
        config
            .set("session.timeout.ms", SESSION_MS.to_string())
            // A fenced member notices it within this time.
            .set("heartbeat.interval.ms", "2000")
            // One member gets all partitions, so the simplest strategy is enough.
            .set("partition.assignment.strategy", "range")
            // A fetch that finds messages returns at once. This is how long an empty one waits, and so how long a partition that is
            // resumed or new has to wait.
            .set("fetch.wait.max.ms", "10")
            .set("fetch.error.backoff.ms", "100")
            // 64 MiB fetched ahead, over all partitions.
            .set("queued.max.messages.kbytes", "65536")
            .set("queued.min.messages", "100000")
            // For one log line: that the id of a topic has changed. See `context`.
            .set("debug", "topic");
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        Ok(self.tuned(config))
    }

    /// The properties of a sink. `most` is the number of bytes that the topic accepts in one batch.
    pub(crate) fn producer_config(&self, most: usize) -> Result<ClientConfig, KafkaError> {
        let mut config = self.common()?;
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("compression.type", "zstd")
            .set("linger.ms", "5")
            // A topic that does not exist is reported before the time-out.
            .set("topic.metadata.propagation.max.ms", "2000")
            // Shorter than a send waits, so that the result of each message is known by then.
            .set("message.timeout.ms", "8000")
            .set("message.max.bytes", most.clamp(1_000, 1_000_000_000).to_string())
            // No batch is larger than what the topic accepts.
            .set("batch.size", most.clamp(1_000, 1_000_000).to_string());
        Ok(self.tuned(config))
    }

    fn tuned(&self, mut config: ClientConfig) -> ClientConfig {
        for (name, value) in &self.extra {
            config.set(name, value);
        }
        config
    }

    fn check_topics(&self) -> Result<(), KafkaError> {
        if self.topics.is_empty() {
            return Err(KafkaError::setting("topics", "is empty; write at least one"));
        }
        let mut seen = BTreeSet::new();
        for topic in &self.topics {
            check_topic(topic)?;
            if !seen.insert(topic) {
                return Err(KafkaError::setting("topics", format!("`{topic}` is listed twice; write it once")));
            }
        }
        Ok(())
    }
}

/// Validates the name of a topic by Kafka's rules. To librdkafka a name that starts with `^` would be a pattern.
pub(crate) fn check_topic(topic: &str) -> Result<(), KafkaError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || !topic.chars().all(legal) || matches!(topic, "." | "..") {
        let why =
            format!("`{}` is not a name of a topic; 1 to 249 letters, digits, `.`, `_` and `-`", topic.escape_debug());
        return Err(KafkaError::setting("topics", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> KafkaSettings {
        KafkaSettings {
            brokers: "127.0.0.1:9092".to_owned(),
            topics: vec!["jobs".to_owned()],
            ..KafkaSettings::default()
        }
    }

    #[test]
    fn debug_hides_secrets() {
        let mut settings = settings();
        settings.security.password = Some("geheim".to_owned());
        settings.extra.insert("ssl.key.password".to_owned(), "geheim".to_owned());
        let text = format!("{settings:?}");
        assert!(!text.contains("geheim"), "{text}");
        assert!(text.contains("ssl.key.password") && text.contains("(hidden)"), "{text}");
    }

    #[test]
    fn reserved_properties_cannot_be_overridden_and_others_can() {
        let mut settings = settings();
        settings.extra.insert("enable.auto.commit".to_owned(), "true".to_owned());
        let error = settings.reader_config().expect_err("reserved").to_string();
        assert!(error.contains("enable.auto.commit") && error.contains("remove it"), "{error}");
        settings.extra = BTreeMap::from([("fetch.wait.max.ms".to_owned(), "77".to_owned())]);
        assert_eq!(settings.reader_config().expect("tuning").get("fetch.wait.max.ms"), Some("77"));
    }

    #[test]
    fn invalid_settings_are_reported_with_a_remedy() {
        type Invalidate = fn(&mut KafkaSettings);
        let cases: [(Invalidate, &str); 7] = [
            (|s| s.brokers.clear(), "brokers"),
            (|s| s.topics.clear(), "at least one"),
            (|s| s.topics.push("jobs".to_owned()), "listed twice"),
            (|s| s.topics.push("^jobs.*".to_owned()), "not a name of a topic"),
            (|s| s.group.clear(), "group"),
            (|s| s.security.protocol = SecurityProtocol::SaslSsl, "mechanism"),
            (
                |s| {
                    s.security.protocol = SecurityProtocol::SaslPlaintext;
                    s.security.mechanism = Some("GSSAPI".to_owned());
                },
                "SCRAM-SHA-512",
            ),
        ];
        for (invalidate, expected) in cases {
            let mut settings = settings();
            invalidate(&mut settings);
            let error = settings.reader_config().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
