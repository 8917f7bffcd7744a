//! The checks of `forebay doctor` for SQS. They change nothing, so receiving, deleting and sending are not tried; a permission that is
//! missing for these is named in the source's health.

use crate::call_failure::with_timeout;
use crate::client::{self, SqsConnection};
use crate::queue::Queue;
use crate::settings::SqsSettings;
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_source::{Diagnostic, Severity};
use std::collections::BTreeMap;
use tokio::runtime::Handle;

/// With a smaller `maxReceiveCount`, a few crashes or restarts send work to the dead-letter queue.
const MIN_RECEIVES: u64 = 5;
/// With a shorter visibility timeout, every pause of the controller costs calls.
const MIN_VISIBILITY_S: u64 = 30;

/// Checks the credentials, the endpoint, and each queue with its attributes, without changing anything. `status` and `rejected` are the
/// queues of the sinks. Blocks; it must not be called from a task of the runtime.
#[must_use]
pub fn probe(
    settings: &SqsSettings,
    status: Option<&str>,
    rejected: Option<&str>,
    runtime: &Handle,
) -> Vec<Diagnostic> {
    runtime.block_on(probe_all(settings, [status, rejected].into_iter().flatten()))
}

async fn probe_all(settings: &SqsSettings, sinks: impl Iterator<Item = &str>) -> Vec<Diagnostic> {
    let sources = settings.queues.iter().map(String::as_str);
    let named: Vec<(bool, &str)> =
        sources.map(|queue| (true, queue)).chain(sinks.map(|queue| (false, queue))).collect();
    let mut all = settings.clone();
    all.queues = named.iter().map(|(_, queue)| (*queue).to_owned()).collect();
    if let Err(error) = all.check_common() {
        return vec![Diagnostic::error("sqs", error.to_string())];
    }
    let connection = match client::connect(&all).await {
        Ok(connection) => connection,
        Err(failure) => return vec![Diagnostic::error("sqs", failure.why)],
    };
    let at = settings.aws.endpoint.as_deref().unwrap_or("AWS");
    let place = format!("sqs {at} ({})", connection.aws.region);
    let mut diagnostics = vec![credentials(&connection, &place).await];
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        diagnostics.push(Diagnostic::error(format!("{place}: queues"), "not checked: there are no credentials"));
        return diagnostics;
    }
    for (received, queue) in named {
        let what = format!("{place}: queue {queue}");
        match Queue::one(queue) {
            Ok(queue) => diagnostics.extend(probe_queue(settings, &connection, &queue, &what, received).await),
            Err(error) => diagnostics.push(Diagnostic::error(what, error.to_string())),
        }
    }
    diagnostics
}

async fn credentials(connection: &SqsConnection, place: &str) -> Diagnostic {
    let what = format!("{place}: credentials");
    match forebay_aws::describe_credentials(&connection.aws).await {
        Ok(found) => Diagnostic::ok(what, found),
        Err(why) => Diagnostic::error(what, why),
    }
}

async fn probe_queue(
    settings: &SqsSettings,
    connection: &SqsConnection,
    queue: &Queue,
    what: &str,
    received: bool,
) -> Vec<Diagnostic> {
    let response_timeout = settings.timings.response_timeout;
    let url = match queue.url(connection, response_timeout).await {
        Ok(url) => url,
        Err(failure) => return vec![Diagnostic::error(what, failure.why)],
    };
    let attributes = match queue.attributes(connection, &url, response_timeout, &[QueueAttributeName::All]).await {
        Ok(attributes) => attributes,
        Err(failure) => {
            let effect = "the backlog will be unknown, and a visibility timeout of 30 s is assumed";
            return vec![Diagnostic::warning(what, format!("{}; without it {effect}", failure.why))];
        }
    };
    let mut diagnostics = vec![Diagnostic::ok(what, describe(queue, &attributes, received))];
    if received {
        diagnostics.extend(short_visibility(what, &attributes));
        diagnostics.extend(dead_letters(connection, &attributes, what, response_timeout).await);
    }
    diagnostics
}

fn describe(queue: &Queue, attributes: &BTreeMap<String, String>, received: bool) -> String {
    let of = |name: &str| attributes.get(name).map_or("unknown", String::as_str);
    let kind = if queue.is_fifo() { "FIFO" } else { "standard" };
    let (waiting, hidden) = (of("ApproximateNumberOfMessages"), of("ApproximateNumberOfMessagesNotVisible"));
    let (timeout, most) = (of("VisibilityTimeout"), of("MaximumMessageSize"));
    let unchecked = if received { "receiving and deleting" } else { "sending" };
    format!(
        "{kind}, {waiting} messages wait and {hidden} are in flight, visibility timeout {timeout} s, at most {most} bytes per message; {unchecked} was \
         not tried because it would change the queue"
    )
}

fn short_visibility(what: &str, attributes: &BTreeMap<String, String>) -> Option<Diagnostic> {
    let seconds: u64 = attributes.get("VisibilityTimeout")?.parse().ok()?;
    (seconds < MIN_VISIBILITY_S).then(|| {
        let why = format!("its visibility timeout is {seconds} s: every pause costs calls, and messages are received again after a short outage; set 30 s or more");
        Diagnostic::warning(what, why)
    })
}

/// The dead-letter queue, and after how many receives a message goes there.
async fn dead_letters(
    connection: &SqsConnection,
    attributes: &BTreeMap<String, String>,
    what: &str,
    response_timeout: std::time::Duration,
) -> Vec<Diagnostic> {
    let Some(policy) = attributes.get("RedrivePolicy") else {
        return vec![Diagnostic::ok(what, "no dead-letter queue: events that are refused are among the rejected ones")];
    };
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
    let arn = policy["deadLetterTargetArn"].as_str().unwrap_or("unknown").to_owned();
    let most = &policy["maxReceiveCount"];
    let most = most.as_u64().or_else(|| most.as_str()?.parse().ok());
    let mut diagnostics = Vec::new();
    match most {
        Some(most) if most >= MIN_RECEIVES => {
            diagnostics.push(Diagnostic::ok(what, format!("dead-letter queue {arn} after {most} receives")));
        }
        Some(most) => diagnostics.push(Diagnostic::warning(what, format!(
            "messages go to {arn} after {most} receives: that many restarts send work there; set maxReceiveCount to {MIN_RECEIVES} or more"
        ))),
        None => diagnostics.push(Diagnostic::warning(what, "its RedrivePolicy cannot be read; check maxReceiveCount")),
    }
    let name = arn.rsplit(':').next().unwrap_or_default();
    let call = connection.client.get_queue_url().queue_name(name).send();
    if let Err(failure) = with_timeout(response_timeout, "GetQueueUrl", name, call).await {
        diagnostics.push(Diagnostic::warning(what, format!("its dead-letter queue was not found: {}", failure.why)));
    }
    diagnostics
}
