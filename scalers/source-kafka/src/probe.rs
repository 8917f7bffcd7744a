//! The checks of `forebay doctor` for a Kafka cluster: brokers, topics and the group. They change nothing and have a time limit each.

use crate::probe_client::{ProbeClient, TopicState};
use crate::settings::KafkaSettings;
use forebay_source::Diagnostic;
use std::time::Duration;

/// The time limit for each response of a broker.
const RESPONSE_WITHIN: Duration = Duration::from_secs(5);

/// Checks the brokers, each topic that is read, the topics of statuses and rejected events, and the group.
#[must_use]
pub fn probe(settings: &KafkaSettings, status_topic: Option<&str>, rejected_topic: Option<&str>) -> Vec<Diagnostic> {
    let what = format!("kafka {}", settings.brokers);
    // The reader's configuration validates most. A cluster that is only written to has no topics to read.
    let checked = if settings.topics.is_empty() { settings.probe_config() } else { settings.reader_config() };
    let client = match checked.and_then(|_| ProbeClient::new(settings)) {
        Ok(client) => client,
        Err(error) => return vec![Diagnostic::error(what, error.to_string())],
    };
    let mut diagnostics = Vec::new();
    match client.brokers(RESPONSE_WITHIN) {
        Ok(brokers) => {
            let all: Vec<String> = brokers.iter().map(|(id, at)| format!("{id} at {at}")).collect();
            let said = format!("{} as {}: brokers {}", security(settings), user(settings), all.join(", "));
            diagnostics.push(Diagnostic::ok(&what, said));
        }
        Err(why) => {
            diagnostics.push(Diagnostic::error(&what, why));
            diagnostics.push(Diagnostic::error(format!("{what}: topics"), "not checked: no broker responded"));
            return diagnostics;
        }
    }
    for topic in &settings.topics {
        diagnostics.push(read_topic(&client, &what, topic));
    }
    for (topic, used) in [(status_topic, "statuses"), (rejected_topic, "rejected events")] {
        diagnostics.extend(topic.map(|topic| written_topic(&client, &what, topic, used)));
    }
    if !settings.topics.is_empty() {
        diagnostics.push(group(&client, &what, settings));
    }
    diagnostics
}

fn security(settings: &KafkaSettings) -> &'static str {
    settings.security.protocol.name()
}

fn user(settings: &KafkaSettings) -> &str {
    settings.security.username.as_deref().unwrap_or("anybody")
}

fn read_topic(client: &ProbeClient, what: &str, topic: &str) -> Diagnostic {
    let what = format!("{what}: topic {topic}");
    let partitions = match client.topic(topic, RESPONSE_WITHIN) {
        Ok(TopicState::Exists(partitions)) => partitions,
        Ok(TopicState::Missing) => {
            return Diagnostic::error(what, "does not exist: create it, or remove it from the settings");
        }
        Err(failure) => return Diagnostic::error(what, failure.into_words()),
    };
    let mut ends = Vec::new();
    for number in partitions.iter().map(|one| one.number) {
        match client.offsets(topic, number, RESPONSE_WITHIN) {
            Ok((low, high)) => ends.push(format!("{number}: {low}..{high}")),
            Err(failure) => return Diagnostic::error(format!("{what}, partition {number}"), failure.into_words()),
        }
    }
    Diagnostic::ok(what, format!("{} partitions, offsets {}", partitions.len(), ends.join(", ")))
}

fn written_topic(client: &ProbeClient, what: &str, topic: &str, used: &str) -> Diagnostic {
    let what = format!("{what}: topic {topic} for {used}");
    match client.topic(topic, RESPONSE_WITHIN) {
        Ok(TopicState::Exists(partitions)) => {
            let words = format!("{} partitions; whether it may be written to was not checked", partitions.len());
            Diagnostic::ok(what, words)
        }
        Ok(TopicState::Missing) => {
            Diagnostic::error(what, "does not exist: create it; until then they wait in their file")
        }
        Err(failure) => Diagnostic::error(what, failure.into_words()),
    }
}

fn group(client: &ProbeClient, what: &str, settings: &KafkaSettings) -> Diagnostic {
    let what = format!("{what}: group {}", settings.group);
    match client.members(&settings.group, RESPONSE_WITHIN) {
        Ok((state, members)) if members.is_empty() => Diagnostic::ok(what, format!("nobody has joined it ({state})")),
        Ok((state, members)) if members.len() == 1 => {
            Diagnostic::ok(what, format!("one member, {} ({state}): a running controller", members.join(", ")))
        }
        Ok((_, members)) => Diagnostic::warning(
            what,
            format!("{} members ({}): every controller needs its own group", members.len(), members.join(", ")),
        ),
        Err(why) => Diagnostic::warning(what, format!("its members are unknown: {why}")),
    }
}
