//! What a source, a sink and a probe need to know, and what librdkafka is told.
//!
//! Never: a secret in Debug output, or a property that breaks what the source promises.

use crate::error::KafkaError;
use rdkafka::ClientConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a member that is silent so long is taken for dead, in ms. The least that brokers accept by default is 6 s; a second controller
/// with another journal waits as long.
pub(crate) const SESSION_MS: u64 = 9_000;

/// How often new, deleted and recreated topics are looked for, in ms.
pub(crate) const METADATA_MS: u64 = 5_000;

/// Messages of this size come through whole, in bytes: 16 MiB and what a record adds. So a 10 MiB event can be rejected with its bytes.
const MOST_MESSAGE: usize = 16 * 1024 * 1024 + 64 * 1024;

/// Properties that what the source and the sink promise rests on, with their older names. The rest is tuning.
const RELIED_ON: [&str; 31] = [
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

/// How bytes go to a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// In the clear, nobody asked who it is.
    #[default]
    Plaintext,
    /// TLS.
    Ssl,
    /// In the clear, with a user and a password.
    SaslPlaintext,
    /// TLS, with a user and a password.
    SaslSsl,
}

impl Protocol {
    /// As librdkafka writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Plaintext => "plaintext",
            Protocol::Ssl => "ssl",
            Protocol::SaslPlaintext => "sasl_plaintext",
            Protocol::SaslSsl => "sasl_ssl",
        }
    }

    fn has_sasl(self) -> bool {
        matches!(self, Protocol::SaslPlaintext | Protocol::SaslSsl)
    }
}

/// Who we are to the broker, and who it is to us. Its Debug output hides the password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Security {
    /// How bytes go.
    pub protocol: Protocol,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`; needed with SASL.
    pub mechanism: Option<String>,
    /// The user; needed with SASL.
    pub username: Option<String>,
    /// The user's password; needed with SASL.
    pub password: Option<String>,
    /// A PEM file of the authorities that are trusted. `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Our own certificate, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
}

impl fmt::Debug for Security {
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

/// Everything about a cluster and what is read from it.
///
/// Memory of a source: up to 64 MiB of messages fetched ahead, an answer of up to 32 MiB a broker, and what the desk has room for.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// The consumer group. One controller alone; each needs its own.
    pub group: String,
    /// Who we are in the group, the same after a restart: the journal's UUID. A restarted leader gets its partitions back at once, and
    /// one that was taken for dead is shut out. `None`: a new member each time.
    pub instance: Option<String>,
    /// Who we are.
    pub security: Security,
    /// What is read; the index is the parcel's channel.
    pub topics: Vec<String>,
    /// Further librdkafka properties, for tuning. Their values are hidden in Debug output.
    pub extra: BTreeMap<String, String>,
    /// A reader that leaves messages lying so long, with room for them, is made anew.
    pub stall: Duration,
    /// How often backlog and topics are looked at.
    pub watch: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            brokers: String::new(),
            group: "forebay".to_owned(),
            instance: None,
            security: Security::default(),
            topics: Vec::new(),
            extra: BTreeMap::new(),
            stall: Duration::from_secs(30),
            watch: Duration::from_secs(3),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("instance", &self.instance)
            .field("security", &self.security)
            .field("topics", &self.topics)
            .field("extra", &self.extra.keys().collect::<Vec<_>>())
            .field("stall", &self.stall)
            .field("watch", &self.watch)
            .finish()
    }
}

impl Settings {
    /// Whether it can work, as far as that can be told without a broker: names, what is needed with what, properties. `written`: topics
    /// that sinks write to.
    ///
    /// # Errors
    /// The first setting that cannot be, and what to write. A certificate that is not there is told by the source and the probe.
    pub fn check<'a>(&self, written: impl IntoIterator<Item = &'a str>) -> Result<(), KafkaError> {
        let config = if self.topics.is_empty() { self.tuned(self.looking()?) } else { self.reading()? };
        config.create_native_config().map_err(|e| KafkaError::client(&e))?;
        written.into_iter().try_for_each(check_topic)
    }

    /// What every client is told.
    pub(crate) fn common(&self) -> Result<ClientConfig, KafkaError> {
        if self.brokers.trim().is_empty() {
            return Err(KafkaError::setting("brokers", "is empty; write host:port, several with commas"));
        }
        if let Some(name) = self.extra.keys().find(|name| RELIED_ON.contains(&name.as_str())) {
            let why = "is set by Forebay, which relies on it; take it out of the extra properties";
            return Err(KafkaError::setting(name, why));
        }
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "forebay")
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.ms", "100")
            // A broker that is back is found within that time.
            .set("reconnect.backoff.max.ms", "2000")
            .set("topic.metadata.refresh.interval.ms", METADATA_MS.to_string());
        self.secure(&mut config)?;
        Ok(config)
    }

    fn secure(&self, config: &mut ClientConfig) -> Result<(), KafkaError> {
        let security = &self.security;
        config.set("security.protocol", security.protocol.name());
        if security.protocol.has_sasl() {
            let needed = |name: &str, value: &Option<String>| match value {
                Some(value) if !value.is_empty() => Ok(value.clone()),
                _ => Err(KafkaError::setting(
                    name,
                    "is needed with a SASL protocol; write it, or choose ssl or plaintext",
                )),
            };
            let mechanism = needed("mechanism", &security.mechanism)?;
            if !["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].contains(&mechanism.as_str()) {
                let why = format!("`{mechanism}` is not offered; write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
                return Err(KafkaError::setting("mechanism", why));
            }
            config
                .set("sasl.mechanism", mechanism)
                .set("sasl.username", needed("username", &security.username)?)
                .set("sasl.password", needed("password", &security.password)?);
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

    /// What a client is told that reads one partition or asks for watermarks, outside the group's assignments.
    pub(crate) fn looking(&self) -> Result<ClientConfig, KafkaError> {
        let mut config = self.common()?;
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false")
            .set("max.partition.fetch.bytes", MOST_MESSAGE.to_string())
            .set("fetch.max.bytes", (2 * 16 * 1024 * 1024).to_string());
        Ok(config)
    }

    /// What the reader is told.
    pub(crate) fn reading(&self) -> Result<ClientConfig, KafkaError> {
        self.check_topics()?;
        if self.group.trim().is_empty() {
            return Err(KafkaError::setting("group", "is empty; write a name that no other controller has"));
        }
        let mut config = self.looking()?;
        config
            .set("session.timeout.ms", SESSION_MS.to_string())
            // A fenced member learns of it within that time.
            .set("heartbeat.interval.ms", "2000")
            // One member holds all; the simplest there is.
            .set("partition.assignment.strategy", "range")
            // A fetch that finds something comes back at once; this is how long one may wait that finds nothing, and so how long a
            // partition waits that is resumed or new.
            .set("fetch.wait.max.ms", "10")
            .set("fetch.error.backoff.ms", "100")
            // 64 MiB fetched ahead, over all partitions.
            .set("queued.max.messages.kbytes", "65536")
            .set("queued.min.messages", "100000")
            // For one line: that a topic's id has changed. See the context.
            .set("debug", "topic");
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        Ok(self.tuned(config))
    }

    /// What a sink is told. `most`: bytes that the topic takes in one batch.
    pub(crate) fn writing(&self, most: usize) -> Result<ClientConfig, KafkaError> {
        let mut config = self.common()?;
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("compression.type", "zstd")
            .set("linger.ms", "5")
            // A topic that is not there is said sooner than a time-out would.
            .set("topic.metadata.propagation.max.ms", "2000")
            // Less than a send waits, so that each message's outcome is known by then.
            .set("message.timeout.ms", "8000")
            .set("message.max.bytes", most.clamp(1_000, 1_000_000_000).to_string())
            // No batch that the topic refuses because of its sum.
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
            return Err(KafkaError::setting("topics", "names none; write at least one"));
        }
        let mut seen = BTreeSet::new();
        for topic in &self.topics {
            check_topic(topic)?;
            if !seen.insert(topic) {
                return Err(KafkaError::setting("topics", format!("`{topic}` is there twice; write it once")));
            }
        }
        Ok(())
    }
}

/// A topic's name as Kafka allows it. A name from `^` on would be a pattern to librdkafka.
pub(crate) fn check_topic(topic: &str) -> Result<(), KafkaError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || !topic.chars().all(legal) || matches!(topic, "." | "..") {
        let why = format!("`{}` is no topic's name; 1 to 249 letters, digits, `.`, `_` and `-`", topic.escape_debug());
        return Err(KafkaError::setting("topics", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { brokers: "127.0.0.1:9092".to_owned(), topics: vec!["jobs".to_owned()], ..Settings::default() }
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
    fn what_the_promises_rest_on_cannot_be_overridden_and_the_rest_can() {
        let mut settings = settings();
        settings.extra.insert("enable.auto.commit".to_owned(), "true".to_owned());
        let said = settings.reading().expect_err("relied on").to_string();
        assert!(said.contains("enable.auto.commit") && said.contains("take it out"), "{said}");
        settings.extra = BTreeMap::from([("fetch.wait.max.ms".to_owned(), "77".to_owned())]);
        assert_eq!(settings.reading().expect("tuning").get("fetch.wait.max.ms"), Some("77"));
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_write() {
        type Spoil = fn(&mut Settings);
        let cases: [(Spoil, &str); 7] = [
            (|s| s.brokers.clear(), "brokers"),
            (|s| s.topics.clear(), "at least one"),
            (|s| s.topics.push("jobs".to_owned()), "there twice"),
            (|s| s.topics.push("^jobs.*".to_owned()), "no topic's name"),
            (|s| s.group.clear(), "group"),
            (|s| s.security.protocol = Protocol::SaslSsl, "mechanism"),
            (
                |s| {
                    s.security.protocol = Protocol::SaslPlaintext;
                    s.security.mechanism = Some("GSSAPI".to_owned());
                },
                "SCRAM-SHA-512",
            ),
        ];
        for (spoil, expected) in cases {
            let mut settings = settings();
            spoil(&mut settings);
            let said = settings.reading().expect_err(expected).to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}
