//! What `forebay doctor` asks of a cluster: brokers, topics, the group. Reads only.
//!
//! Never: makes a topic, joins the group, or waits longer than a few seconds for each answer.

use crate::client::{Client, Topic};
use crate::settings::Settings;
use forebay_source::Finding;
use std::time::Duration;

/// A broker has so long for each answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Tries the brokers, each topic that is read, the topics of statuses and of rejected events, and the group.
#[must_use]
pub fn probe(settings: &Settings, status_topic: Option<&str>, rejected_topic: Option<&str>) -> Vec<Finding> {
    let what = format!("kafka {}", settings.brokers);
    // The reader's settings have all that can be wrong; a cluster that is only written to has no topics to read.
    let checked = if settings.topics.is_empty() { settings.looking() } else { settings.reading() };
    let client = match checked.and_then(|_| Client::new(settings)) {
        Ok(client) => client,
        Err(error) => return vec![Finding::bad(what, error.to_string())],
    };
    let mut findings = Vec::new();
    match client.brokers(ANSWERS_WITHIN) {
        Ok(brokers) => {
            let all: Vec<String> = brokers.iter().map(|(id, at)| format!("{id} at {at}")).collect();
            let said = format!("{} as {}: brokers {}", security(settings), user(settings), all.join(", "));
            findings.push(Finding::fine(&what, said));
        }
        Err(why) => {
            findings.push(Finding::bad(&what, why));
            findings.push(Finding::bad(format!("{what}: topics"), "not tried: no broker answered"));
            return findings;
        }
    }
    for topic in &settings.topics {
        findings.push(read_topic(&client, &what, topic));
    }
    for (topic, used) in [(status_topic, "statuses"), (rejected_topic, "rejected events")] {
        findings.extend(topic.map(|topic| written_topic(&client, &what, topic, used)));
    }
    if !settings.topics.is_empty() {
        findings.push(group(&client, &what, settings));
    }
    findings
}

fn security(settings: &Settings) -> &'static str {
    settings.security.protocol.name()
}

fn user(settings: &Settings) -> &str {
    settings.security.username.as_deref().unwrap_or("anybody")
}

fn read_topic(client: &Client, what: &str, topic: &str) -> Finding {
    let what = format!("{what}: topic {topic}");
    let numbers = match client.topic(topic, ANSWERS_WITHIN) {
        Ok(Topic::There(numbers)) => numbers,
        Ok(Topic::Missing) => return Finding::bad(what, "is not there: create it, or take it out of the settings"),
        Err(why) => return Finding::bad(what, why),
    };
    let mut ends = Vec::new();
    for number in &numbers {
        match client.ends(topic, *number, ANSWERS_WITHIN) {
            Ok((low, high)) => ends.push(format!("{number}: {low}..{high}")),
            Err(why) => return Finding::bad(format!("{what}, partition {number}"), why),
        }
    }
    Finding::fine(what, format!("{} partitions, offsets {}", numbers.len(), ends.join(", ")))
}

fn written_topic(client: &Client, what: &str, topic: &str, used: &str) -> Finding {
    let what = format!("{what}: topic {topic} for {used}");
    match client.topic(topic, ANSWERS_WITHIN) {
        Ok(Topic::There(numbers)) => {
            Finding::fine(what, format!("{} partitions; whether it may be written to was not tried", numbers.len()))
        }
        Ok(Topic::Missing) => Finding::bad(what, "is not there: create it; until then they wait in their file"),
        Err(why) => Finding::bad(what, why),
    }
}

fn group(client: &Client, what: &str, settings: &Settings) -> Finding {
    let what = format!("{what}: group {}", settings.group);
    match client.members(&settings.group, ANSWERS_WITHIN) {
        Ok((state, members)) if members.is_empty() => Finding::fine(what, format!("nobody has joined it ({state})")),
        Ok((state, members)) if members.len() == 1 => {
            Finding::fine(what, format!("one member, {} ({state}): a controller that runs", members.join(", ")))
        }
        Ok((_, members)) => Finding::warning(
            what,
            format!("{} members ({}): every controller needs its own group", members.len(), members.join(", ")),
        ),
        Err(why) => Finding::warning(what, format!("its members are not known: {why}")),
    }
}
