//! `kafka:` in `forebay.yaml`: clusters, the topics that are read and whose they are, and where statuses and rejected events go.
//!
//! Never: a connection, or a password in the file.

use super::channel::{Channel, default_tenant};
use super::secret::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A Kafka cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where to find it: `host:port`, at least one.
    pub brokers: Vec<String>,
    /// The consumer group. No other controller may use it. Default: `forebay`.
    #[serde(default = "default_group")]
    pub group: String,
    /// How to connect. Default: in the clear, without a user.
    pub security: Option<KafkaSecurity>,
    /// Topics with job events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<KafkaTopic>,
    /// The topic for statuses. Default: none.
    pub status: Option<String>,
    /// The topic for events that were not taken. Default: none; they are in the folder `rejected` in any case.
    pub rejected: Option<String>,
    /// Further properties of librdkafka, such as `client.rack`. Those that Forebay relies on are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// A topic that is read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaTopic {
    /// Its name.
    pub name: String,
    /// Who everything in it is from: queues name it in their `submitters`. Let only that team write to it.
    pub principal: String,
    /// Whose namespace of subjects it is in. Default: `default`.
    #[serde(default = "default_tenant")]
    pub tenant: String,
}

/// How to connect to a cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaSecurity {
    /// In the clear or not, with a user or not.
    pub protocol: KafkaProtocol,
    /// With a user: how the password is sent. Default: `SCRAM-SHA-512`.
    pub mechanism: Option<KafkaMechanism>,
    /// The user.
    pub username: Option<String>,
    /// Where the user's password is.
    pub password: Option<Secret>,
    /// Certificates to trust, PEM, from this file's folder on. Default: the system's.
    pub ca: Option<PathBuf>,
    /// Our own certificate, PEM, for brokers that ask for one.
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
}

/// How bytes go to a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KafkaProtocol {
    /// In the clear.
    #[default]
    Plaintext,
    /// TLS.
    Ssl,
    /// In the clear, with a user. The password can be read on its way: for loopback only.
    SaslPlaintext,
    /// TLS, with a user.
    SaslSsl,
}

/// How a password is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum KafkaMechanism {
    /// As it is.
    #[serde(rename = "PLAIN")]
    Plain,
    /// Proven, not sent.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// Proven, not sent.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

fn default_group() -> String {
    "forebay".to_owned()
}

impl KafkaConfig {
    /// Writes the defaults of its security down.
    pub(super) fn fill(&mut self) {
        let security = self.security.get_or_insert_default();
        if matches!(security.protocol, KafkaProtocol::SaslPlaintext | KafkaProtocol::SaslSsl) {
            security.mechanism.get_or_insert(KafkaMechanism::ScramSha512);
        }
    }

    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        let Some(security) = &mut self.security else { return };
        for path in [&mut security.ca, &mut security.certificate, &mut security.key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        security.password.iter_mut().for_each(|secret| secret.start_at(folder));
    }

    /// Passwords, each with whose it is.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        let password = self.security.as_ref().and_then(|security| security.password.as_ref());
        let user = self.security.as_ref().and_then(|security| security.username.as_deref()).unwrap_or_default();
        password
            .map(|secret| (format!("the kafka user `{}`", crate::show::figures::short(user, 60)), secret))
            .into_iter()
    }

    /// What is read, and what is written, by name.
    pub(super) fn channels(&self) -> impl Iterator<Item = Channel<'_>> {
        let read = self.topics.iter().map(|t| Channel::read("kafka", &t.name, &t.principal, &t.tenant));
        let written = [&self.status, &self.rejected].into_iter().flatten();
        read.chain(written.map(|name| Channel::written("kafka", name)))
    }
}
