//! SQS by the configuration: the settings of the adapter, its source and its sinks.

use super::adapter::{OpenError, SourceAdapter, SourceContext};
use crate::config::secret::{Secret, SecretError};
use crate::config::sqs::{SqsConfig, short};
use forebay_source::{Diagnostic, Sink, Source};
use forebay_source_sqs::{AccessKey, AwsSettings, SqsSettings, SqsSink, SqsSource, probe};
use forebay_wire::intake::Caller;

impl SourceAdapter for SqsConfig {
    fn name(&self) -> String {
        format!("sqs:{}", self.region.as_deref().or(self.endpoint.as_deref()).unwrap_or("default"))
    }

    fn channels(&self) -> Vec<(String, Caller)> {
        let channel = |q: &crate::config::sqs::SqsQueue| {
            (format!("sqs:{}", short(&q.name)), Caller::named(&q.tenant, &q.principal))
        };
        self.queues.iter().map(channel).collect()
    }

    fn secrets(&self) -> Vec<(String, &Secret)> {
        SqsConfig::secrets(self).collect()
    }

    fn check(&self) -> Result<(), OpenError> {
        let sinks = [&self.status, &self.rejected].into_iter().flatten().map(String::as_str);
        Ok(settings_with(self, None).check_with(sinks)?)
    }

    fn source(&self, context: SourceContext) -> Result<Box<dyn Source>, OpenError> {
        Ok(Box::new(SqsSource::start(settings(self)?, context.source, context.health, context.runtime)?))
    }

    fn sinks(&self, runtime: &tokio::runtime::Handle) -> Result<[Option<Box<dyn Sink>>; 2], OpenError> {
        let sink = |queue: &Option<String>| -> Result<Option<Box<dyn Sink>>, OpenError> {
            let Some(queue) = queue else { return Ok(None) };
            Ok(Some(Box::new(SqsSink::new(settings(self)?, queue, runtime.clone())?)))
        };
        Ok([sink(&self.status)?, sink(&self.rejected)?])
    }

    fn probe(&self, runtime: &tokio::runtime::Handle) -> Vec<Diagnostic> {
        match settings(self) {
            Ok(settings) => probe(&settings, self.status.as_deref(), self.rejected.as_deref(), runtime),
            Err(error) => vec![Diagnostic::error(self.name(), error.to_string())],
        }
    }
}

fn settings(config: &SqsConfig) -> Result<SqsSettings, SecretError> {
    let access_key = config.keys.as_ref().map(|keys| super::adapter::access_key(keys, "sqs")).transpose()?;
    Ok(settings_with(config, access_key))
}

fn settings_with(config: &SqsConfig, access_key: Option<AccessKey>) -> SqsSettings {
    SqsSettings {
        aws: AwsSettings { region: config.region.clone(), endpoint: config.endpoint.clone(), access_key },
        queues: config.queues.iter().map(|q| q.name.clone()).collect(),
        receivers: config.receivers,
        ..SqsSettings::default()
    }
}
