//! Kafka as the configuration names it: settings for the adapter, its source and its sinks.
//!
//! Never: a password outside the adapter's settings.

use super::open::{Open, OpenError, Opened};
use crate::config::kafka::{KafkaConfig, KafkaMechanism, KafkaProtocol, KafkaSecurity};
use crate::config::secret::{Secret, SecretError};
use crate::intake::Caller;
use forebay_source::{Finding, Sink, Source};
use forebay_source_kafka::{Kafka, KafkaSink, Protocol, Security, Settings, probe};

impl Open for KafkaConfig {
    fn name(&self) -> String {
        format!("kafka:{}", self.brokers.first().map_or("", String::as_str))
    }

    fn channels(&self) -> Vec<(String, Caller)> {
        let channel = |t: &crate::config::kafka::KafkaTopic| {
            (format!("kafka:{}", t.name), Caller::named(&t.tenant, &t.principal, false))
        };
        self.topics.iter().map(channel).collect()
    }

    fn secrets(&self) -> Vec<(String, &Secret)> {
        KafkaConfig::secrets(self).collect()
    }

    fn check(&self) -> Result<(), OpenError> {
        // A password's text matters to nobody here, only that one is named.
        let named = self.security.as_ref().and_then(|s| s.password.as_ref()).map(|_| "named".to_owned());
        let written = [&self.status, &self.rejected].into_iter().flatten().map(String::as_str);
        Ok(settings_with(self, named).check(written)?)
    }

    fn source(&self, opened: Opened) -> Result<Box<dyn Source>, OpenError> {
        let settings = Settings { instance: Some(opened.journal.to_string()), ..settings(self)? };
        Ok(Box::new(Kafka::start(settings, opened.desk, opened.health)?))
    }

    fn sinks(&self, _: &tokio::runtime::Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError> {
        let sink = |topic: &Option<String>| -> Result<Option<Box<dyn Sink>>, OpenError> {
            let Some(topic) = topic else { return Ok(None) };
            Ok(Some(Box::new(KafkaSink::new(settings(self)?, topic)?)))
        };
        Ok([sink(&self.status)?, sink(&self.rejected)?])
    }

    fn probe(&self, _: &tokio::runtime::Handle) -> Vec<Finding> {
        match settings(self) {
            Ok(settings) => probe(&settings, self.status.as_deref(), self.rejected.as_deref()),
            Err(error) => vec![Finding::bad(self.name(), error.to_string())],
        }
    }
}

fn settings(config: &KafkaConfig) -> Result<Settings, SecretError> {
    let password = match config.secrets().next() {
        Some((whose, secret)) => Some(super::open::read(secret, &whose)?.reveal().to_owned()),
        None => None,
    };
    Ok(settings_with(config, password))
}

fn settings_with(config: &KafkaConfig, password: Option<String>) -> Settings {
    Settings {
        brokers: config.brokers.join(","),
        group: config.group.clone(),
        security: config.security.as_ref().map(|s| security(s, password)).unwrap_or_default(),
        topics: config.topics.iter().map(|t| t.name.clone()).collect(),
        extra: config.properties.clone(),
        ..Settings::default()
    }
}

fn security(config: &KafkaSecurity, password: Option<String>) -> Security {
    let mechanism = match config.mechanism.unwrap_or(KafkaMechanism::ScramSha512) {
        KafkaMechanism::Plain => "PLAIN",
        KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
        KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
    };
    Security {
        protocol: match config.protocol {
            KafkaProtocol::Plaintext => Protocol::Plaintext,
            KafkaProtocol::Ssl => Protocol::Ssl,
            KafkaProtocol::SaslPlaintext => Protocol::SaslPlaintext,
            KafkaProtocol::SaslSsl => Protocol::SaslSsl,
        },
        mechanism: Some(mechanism.to_owned()),
        username: config.username.clone(),
        password,
        ca: config.ca.clone(),
        certificate: config.certificate.clone(),
        key: config.key.clone(),
    }
}
