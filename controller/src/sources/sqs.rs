//! SQS as the configuration names it: settings for the adapter, its source and its sinks.
//!
//! Never: a key outside the adapter's settings.

use super::open::{Open, OpenError, Opened};
use crate::config::secret::{Secret, SecretError};
use crate::config::sqs::{SqsConfig, short};
use crate::intake::Caller;
use forebay_source::{Finding, Sink, Source};
use forebay_source_sqs::{Keys, Settings, Sqs, SqsSink, probe};

impl Open for SqsConfig {
    fn name(&self) -> String {
        format!("sqs:{}", self.region.as_deref().or(self.endpoint.as_deref()).unwrap_or("default"))
    }

    fn channels(&self) -> Vec<(String, Caller)> {
        let channel = |q: &crate::config::sqs::SqsQueue| {
            (format!("sqs:{}", short(&q.name)), Caller::named(&q.tenant, &q.principal, false))
        };
        self.queues.iter().map(channel).collect()
    }

    fn secrets(&self) -> Vec<(String, &Secret)> {
        SqsConfig::secrets(self).collect()
    }

    fn check(&self) -> Result<(), OpenError> {
        let written = [&self.status, &self.rejected].into_iter().flatten().map(String::as_str);
        Ok(settings_with(self, None).check_with(written)?)
    }

    fn source(&self, opened: Opened) -> Result<Box<dyn Source>, OpenError> {
        Ok(Box::new(Sqs::start(settings(self)?, opened.desk, opened.health, opened.runtime)?))
    }

    fn sinks(&self, runtime: &tokio::runtime::Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError> {
        let sink = |queue: &Option<String>| -> Result<Option<Box<dyn Sink>>, OpenError> {
            let Some(queue) = queue else { return Ok(None) };
            Ok(Some(Box::new(SqsSink::new(settings(self)?, queue, runtime.clone())?)))
        };
        Ok([sink(&self.status)?, sink(&self.rejected)?])
    }

    fn probe(&self, runtime: &tokio::runtime::Handle) -> Vec<Finding> {
        match settings(self) {
            Ok(settings) => probe(&settings, self.status.as_deref(), self.rejected.as_deref(), runtime),
            Err(error) => vec![Finding::bad(self.name(), error.to_string())],
        }
    }
}

fn settings(config: &SqsConfig) -> Result<Settings, SecretError> {
    let keys = config.keys.as_ref().map(|keys| super::open::keys(keys, "sqs")).transpose()?;
    Ok(settings_with(config, keys))
}

fn settings_with(config: &SqsConfig, keys: Option<Keys>) -> Settings {
    Settings {
        region: config.region.clone(),
        endpoint: config.endpoint.clone(),
        queues: config.queues.iter().map(|q| q.name.clone()).collect(),
        receivers: config.receivers,
        keys,
        ..Settings::default()
    }
}
