//! Kafka by the configuration: the settings of the adapter, its source and its sinks.

use super::adapter::{OpenError, SourceAdapter, SourceContext};
use crate::config::kafka::{KafkaConfig, KafkaMechanism, KafkaProtocol, KafkaSecurity};
use crate::config::secret::{Secret, SecretError};
use forebay_source::{Diagnostic, Sink, Source};
use forebay_source_kafka::{BrokerSecurity, KafkaSettings, KafkaSink, KafkaSource, SecurityProtocol, probe};
use forebay_wire::intake::Caller;

impl SourceAdapter for KafkaConfig {
    fn name(&self) -> String {
        format!("kafka:{}", self.brokers.first().map_or("", String::as_str))
    }

    fn channels(&self) -> Vec<(String, Caller)> {
        let channel = |t: &crate::config::kafka::KafkaTopic| {
            (format!("kafka:{}", t.name), Caller::named(&t.tenant, &t.principal))
        };
        self.topics.iter().map(channel).collect()
    }

    fn secrets(&self) -> Vec<(String, &Secret)> {
        KafkaConfig::secrets(self).collect()
    }

    fn check(&self) -> Result<(), OpenError> {
        // Only the presence of a password is checked, not its text.
        let password = self.security.as_ref().and_then(|s| s.password.as_ref()).map(|_| "configured".to_owned());
        let sinks = [&self.status, &self.rejected].into_iter().flatten().map(String::as_str);
        Ok(settings_with(self, password).check(sinks)?)
    }

    fn source(&self, context: SourceContext) -> Result<Box<dyn Source>, OpenError> {
        let settings = KafkaSettings { instance: Some(context.journal.to_string()), ..settings(self)? };
        Ok(Box::new(KafkaSource::start(settings, context.source, context.health)?))
    }

    fn sinks(&self, _: &tokio::runtime::Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError> {
        let sink = |topic: &Option<String>| -> Result<Option<Box<dyn Sink>>, OpenError> {
            let Some(topic) = topic else { return Ok(None) };
            Ok(Some(Box::new(KafkaSink::new(settings(self)?, topic)?)))
        };
        Ok([sink(&self.status)?, sink(&self.rejected)?])
    }

    fn probe(&self, _: &tokio::runtime::Handle) -> Vec<Diagnostic> {
        match settings(self) {
            Ok(settings) => probe(&settings, self.status.as_deref(), self.rejected.as_deref()),
            Err(error) => vec![Diagnostic::error(self.name(), error.to_string())],
        }
    }
}

fn settings(config: &KafkaConfig) -> Result<KafkaSettings, SecretError> {
    let password = match config.secrets().next() {
        Some((setting, secret)) => Some(super::adapter::read_secret(secret, &setting)?.reveal().to_owned()),
        None => None,
    };
    Ok(settings_with(config, password))
}

fn settings_with(config: &KafkaConfig, password: Option<String>) -> KafkaSettings {
    KafkaSettings {
        brokers: config.brokers.join(","),
        group: config.group.clone(),
        security: config.security.as_ref().map(|s| security(s, password)).unwrap_or_default(),
        topics: config.topics.iter().map(|t| t.name.clone()).collect(),
        extra: config.properties.clone(),
        ..KafkaSettings::default()
    }
}

fn security(config: &KafkaSecurity, password: Option<String>) -> BrokerSecurity {
    let mechanism = match config.mechanism.unwrap_or(KafkaMechanism::ScramSha512) {
        KafkaMechanism::Plain => "PLAIN",
        KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
        KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
    };
    BrokerSecurity {
        protocol: match config.protocol {
            KafkaProtocol::Plaintext => SecurityProtocol::Plaintext,
            KafkaProtocol::Ssl => SecurityProtocol::Ssl,
            KafkaProtocol::SaslPlaintext => SecurityProtocol::SaslPlaintext,
            KafkaProtocol::SaslSsl => SecurityProtocol::SaslSsl,
        },
        mechanism: Some(mechanism.to_owned()),
        username: config.username.clone(),
        password,
        ca: config.ca.clone(),
        certificate: config.certificate.clone(),
        key: config.key.clone(),
    }
}
