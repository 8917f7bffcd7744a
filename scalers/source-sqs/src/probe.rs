//! What `forebay doctor` wants to know of SQS.
//!
//! Never: changes anything. Receiving, deleting and sending are not tried, since each would; what is missing there shows in the
//! source's health with the permission's name.

use crate::client::{self, Way};
use crate::queue::Queue;
use crate::settings::Settings;
use crate::trouble::within;
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_source::{Finding, Outcome};
use std::collections::BTreeMap;
use tokio::runtime::Handle;

/// Fewer receives than this before a message goes to the dead-letter queue, and a few crashes or restarts send work there.
const FEWEST_RECEIVES: u64 = 5;
/// A shorter timeout makes every pause of the controller cost calls.
const SHORTEST_VISIBILITY_S: u64 = 30;

/// Tries what can be tried without changing anything: credentials, endpoint, each queue and its attributes. `status` and `rejected` are the
/// queues of the sinks. Blocks; not to be called from a task of the runtime.
#[must_use]
pub fn probe(settings: &Settings, status: Option<&str>, rejected: Option<&str>, runtime: &Handle) -> Vec<Finding> {
    runtime.block_on(probe_all(settings, [status, rejected].into_iter().flatten()))
}

async fn probe_all(settings: &Settings, sinks: impl Iterator<Item = &str>) -> Vec<Finding> {
    let sources = settings.queues.iter().map(String::as_str);
    let named: Vec<(bool, &str)> =
        sources.map(|queue| (true, queue)).chain(sinks.map(|queue| (false, queue))).collect();
    let mut all = settings.clone();
    all.queues = named.iter().map(|(_, queue)| (*queue).to_owned()).collect();
    if let Err(error) = all.check_place() {
        return vec![Finding::bad("sqs", error.to_string())];
    }
    let way = match client::find(&all).await {
        Ok(way) => way,
        Err(trouble) => return vec![Finding::bad("sqs", trouble.why)],
    };
    let at = settings.endpoint.as_deref().unwrap_or("AWS");
    let place = format!("sqs {at} ({})", way.aws.region);
    let mut findings = vec![credentials(&way, &place).await];
    if findings.iter().any(|finding| finding.outcome == Outcome::Bad) {
        findings.push(Finding::bad(format!("{place}: queues"), "not tried: there are no credentials"));
        return findings;
    }
    for (received, queue) in named {
        let what = format!("{place}: queue {queue}");
        match Queue::one(queue) {
            Ok(queue) => findings.extend(probe_queue(settings, &way, &queue, &what, received).await),
            Err(error) => findings.push(Finding::bad(what, error.to_string())),
        }
    }
    findings
}

async fn credentials(way: &Way, place: &str) -> Finding {
    let what = format!("{place}: credentials");
    match forebay_aws::describe(&way.aws).await {
        Ok(said) => Finding::fine(what, said),
        Err(said) => Finding::bad(what, said),
    }
}

async fn probe_queue(settings: &Settings, way: &Way, queue: &Queue, what: &str, received: bool) -> Vec<Finding> {
    let patience = settings.pace.patience;
    let url = match queue.url(way, patience).await {
        Ok(url) => url,
        Err(trouble) => return vec![Finding::bad(what, trouble.why)],
    };
    let attributes = match queue.attributes(way, &url, patience, &[QueueAttributeName::All]).await {
        Ok(attributes) => attributes,
        Err(trouble) => {
            let lost = "the backlog will be unknown, and a visibility timeout of 30 s is assumed";
            return vec![Finding::warning(what, format!("{}; without it {lost}", trouble.why))];
        }
    };
    let mut findings = vec![Finding::fine(what, shown(queue, &attributes, received))];
    if received {
        findings.extend(hidden_too_shortly(what, &attributes));
        findings.extend(dead_letters(way, &attributes, what, patience).await);
    }
    findings
}

fn shown(queue: &Queue, attributes: &BTreeMap<String, String>, received: bool) -> String {
    let of = |name: &str| attributes.get(name).map_or("unknown", String::as_str);
    let kind = if queue.is_fifo() { "FIFO" } else { "standard" };
    let (waiting, hidden) = (of("ApproximateNumberOfMessages"), of("ApproximateNumberOfMessagesNotVisible"));
    let (timeout, most) = (of("VisibilityTimeout"), of("MaximumMessageSize"));
    let untried = if received { "receiving and deleting" } else { "sending" };
    format!(
        "{kind}, {waiting} messages wait and {hidden} are held, visibility timeout {timeout} s, at most {most} bytes a message; {untried} not \
         tried, it would change the queue"
    )
}

fn hidden_too_shortly(what: &str, attributes: &BTreeMap<String, String>) -> Option<Finding> {
    let seconds: u64 = attributes.get("VisibilityTimeout")?.parse().ok()?;
    (seconds < SHORTEST_VISIBILITY_S).then(|| {
        let why = format!("its visibility timeout is {seconds} s: every pause costs calls, and a short outage shows messages again; set 30 s or more");
        Finding::warning(what, why)
    })
}

/// Where messages go that were received too often, and after how often.
async fn dead_letters(
    way: &Way,
    attributes: &BTreeMap<String, String>,
    what: &str,
    patience: std::time::Duration,
) -> Vec<Finding> {
    let Some(policy) = attributes.get("RedrivePolicy") else {
        return vec![Finding::fine(what, "no dead-letter queue: what cannot be taken is among the rejected events")];
    };
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
    let arn = policy["deadLetterTargetArn"].as_str().unwrap_or("unknown").to_owned();
    let most = &policy["maxReceiveCount"];
    let most = most.as_u64().or_else(|| most.as_str()?.parse().ok());
    let mut findings = Vec::new();
    match most {
        Some(most) if most >= FEWEST_RECEIVES => {
            findings.push(Finding::fine(what, format!("dead-letter queue {arn} after {most} receives")));
        }
        Some(most) => findings.push(Finding::warning(what, format!(
            "messages go to {arn} after {most} receives: as many restarts send work there; set maxReceiveCount to {FEWEST_RECEIVES} or more"
        ))),
        None => findings.push(Finding::warning(what, "its RedrivePolicy cannot be read; check maxReceiveCount")),
    }
    let name = arn.rsplit(':').next().unwrap_or_default();
    let call = way.client.get_queue_url().queue_name(name).send();
    if let Err(trouble) = within(patience, "GetQueueUrl", name, call).await {
        findings.push(Finding::warning(what, format!("its dead-letter queue could not be seen: {}", trouble.why)));
    }
    findings
}
