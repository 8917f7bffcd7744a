//! Kafka's server.properties: one node, loopback only, and all that a second node would be needed for turned down to one.
//!
//! Never: a default that a test must know of; what differs from Kafka's own is listed here with its why.

use std::path::Path;

use super::USER;
use crate::secure::Secure;
use crate::{KafkaOptions, PartError, ports};

/// Its ports, all on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listeners {
    /// Where clients connect, with TLS and a password if those were asked for.
    pub(super) client: u16,
    /// Where its own tools connect, always without.
    pub(super) internal: u16,
    /// Where the broker reaches its controller.
    controller: u16,
}

impl Listeners {
    pub(super) fn free(client: Option<u16>) -> Result<Self, PartError> {
        let ports = ports::free(3, client)?;
        match ports[..] {
            [client, internal, controller] => Ok(Self { client, internal, controller }),
            _ => Err(PartError::NoPort { tried: ports.len() }),
        }
    }
}

/// What does not depend on anything.
const FIXED: &str = "\
process.roles=broker,controller
node.id=1
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
# One node, one copy.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Fifty of each by default, which a start has to open.
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
# A group of one need not wait for a second member.
group.initial.rebalance.delay.ms=0
# So that a test may see a dead consumer leave its group soon.
group.min.session.timeout.ms=1000
# A topic is trimmed when a test asks for it, not while the test reads it.
log.retention.hours=168
# After a kill the node may have to wait until it has forgotten its former self: 9 s by default. Shorter than this, a
# busy machine would take a node for dead that is only slow.
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
";

/// The whole file.
pub(super) fn text(options: &KafkaOptions, at: &Listeners, data: &Path, secure: Option<&Secure>) -> String {
    let Listeners { client, internal, controller } = at;
    let protocol = if secure.is_some() { "SASL_SSL" } else { "PLAINTEXT" };
    let mut lines = vec![
        format!(
            "listeners=CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal},CONTROLLER://127.0.0.1:{controller}"
        ),
        format!("advertised.listeners=CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}"),
        format!("listener.security.protocol.map=CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        format!("controller.quorum.voters=1@127.0.0.1:{controller}"),
        format!("log.dirs={}", value(&data.to_string_lossy())),
        format!("auto.create.topics.enable={}", options.auto_create_topics),
    ];
    if let Some(secure) = secure {
        let of = "listener.name.client";
        lines.push(format!("{of}.sasl.enabled.mechanisms=PLAIN"));
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        lines.push(format!("{of}.plain.sasl.jaas.config={module} required user_{USER}=\"{}\";", secure.secret));
        lines.push(format!("{of}.ssl.keystore.type=PEM"));
        lines.push(format!("{of}.ssl.keystore.location={}", value(&secure.server.to_string_lossy())));
    }
    // Of two lines with the same key the later one counts.
    lines.extend(options.properties.iter().map(|(key, text)| format!("{key}={}", value(text))));
    format!("{FIXED}{}\n", lines.join("\n"))
}

fn value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_sets_comes_last_and_on_one_line() {
        let properties = vec![("message.max.bytes".into(), "20971520".into()), ("x".into(), "a\\b\nc".into())];
        let options = KafkaOptions { auto_create_topics: true, properties, ..KafkaOptions::default() };
        let at = Listeners { client: 1, internal: 2, controller: 3 };
        let text = text(&options, &at, Path::new("/d"), None);
        assert!(text.contains("\nauto.create.topics.enable=true\n"), "{text}");
        assert!(text.ends_with("\nmessage.max.bytes=20971520\nx=a\\\\b\\nc\n"), "{text}");
        assert!(text.contains("CLIENT:PLAINTEXT"), "{text}");
    }

    #[test]
    fn a_secure_kafka_lets_clients_in_by_tls_and_password_alone() {
        let secure = Secure { secret: "pw".into(), ca: "/ca".into(), server: "/server".into() };
        let at = Listeners { client: 1, internal: 2, controller: 3 };
        let text = text(&KafkaOptions::default(), &at, Path::new("/d"), Some(&secure));
        assert!(text.contains("map=CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n"), "{text}");
        assert!(text.contains("required user_forebay=\"pw\";\n"), "{text}");
    }
}
