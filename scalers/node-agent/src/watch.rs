//! Polls the metadata until the agent stops. A response that did not come is never taken for "there is no notice".

use crate::metadata::{InstanceMetadata, MetadataError};
use crate::outbox::{Outbox, Stopping};
use crate::report::AgentReport;
use crate::{AgentTimings, LogLine};

pub(crate) fn run(mut metadata: InstanceMetadata, outbox: &Outbox, timings: AgentTimings, log: &LogLine) {
    let mut failure = MetadataFailure { current: None, log };
    // Stopping is no failure.
    let _ = watch(&mut metadata, outbox, timings, &mut failure);
}

fn watch(
    metadata: &mut InstanceMetadata,
    outbox: &Outbox,
    timings: AgentTimings,
    failure: &mut MetadataFailure<'_>,
) -> Result<std::convert::Infallible, Stopping> {
    let instance = loop {
        let response = metadata.instance();
        failure.set(response.as_ref().err());
        match response {
            Ok(instance) => break instance,
            Err(_) => outbox.sleep(timings.poll_interval)?,
        }
    };
    (failure.log)(&format!("watching {instance}"));
    outbox.set_instance(&instance);
    outbox.put(AgentReport::hello());
    loop {
        let (notices, error) = metadata.notices();
        failure.set(error.as_ref());
        for report in notices {
            let text = report.describe();
            if outbox.put(report) {
                (failure.log)(&text);
            }
        }
        outbox.sleep(timings.poll_interval)?;
    }
}

/// The current failure of the metadata. It is logged when it begins and when it ends, not at every poll.
struct MetadataFailure<'a> {
    current: Option<MetadataError>,
    log: &'a LogLine,
}

impl MetadataFailure<'_> {
    fn set(&mut self, error: Option<&MetadataError>) {
        match (&self.current, error) {
            (None, Some(error)) => (self.log)(&format!("the metadata does not respond and is polled again: {error}")),
            (Some(_), None) => (self.log)("the metadata responds again"),
            _ => return,
        }
        self.current = error.cloned();
    }
}
