//! What goes wrong with brokers, in words that say what to do.
//!
//! Never: a password, or a broker's message without its meaning.

use rdkafka::types::RDKafkaErrorCode as Code;

/// Why a source, a sink or a client could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaError {
    /// A setting is not usable.
    #[error("kafka: {setting}: {why}")]
    Setting {
        /// Which.
        setting: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// The client was not made: a certificate that is not there, a property that librdkafka does not know.
    #[error("kafka: the client was not made: {why}; check the certificates and the extra properties")]
    Client {
        /// What librdkafka said.
        why: String,
    },
    /// No thread was to be had.
    #[error("kafka: no thread for the source: {why}; raise the limit of processes")]
    Thread {
        /// What the system said.
        why: String,
    },
}

impl KafkaError {
    pub(crate) fn setting(setting: impl Into<String>, why: impl Into<String>) -> KafkaError {
        KafkaError::Setting { setting: setting.into(), why: why.into() }
    }

    pub(crate) fn client(error: &rdkafka::error::KafkaError) -> KafkaError {
        // A `ClientConfig` error would repeat the value, which may be a secret: name and description suffice.
        let why = match error {
            rdkafka::error::KafkaError::ClientConfig(_, said, name, _) => format!("{name}: {said}"),
            other => other.to_string(),
        };
        KafkaError::Client { why }
    }
}

/// What the code means for whoever runs this, and what to do. `said`: librdkafka's own words, may be empty.
pub(crate) fn explain(code: Code, said: &str, brokers: &str) -> String {
    let said = if said.is_empty() { code.to_string() } else { said.to_owned() };
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed => {
            format!("the broker refused the credentials ({said}): check the user name, the password and the mechanism")
        }
        Code::SSL => format!(
            "no TLS with the broker ({said}): check the protocol, the ca file and that the certificate names the host"
        ),
        Code::Resolve => format!("a broker's name is not known ({said}): check `brokers` ({brokers}) and the DNS"),
        Code::AllBrokersDown | Code::BrokerTransportFailure | Code::OperationTimedOut | Code::RequestTimedOut => {
            format!(
                "no answer from {brokers} ({said}): check that the brokers run, and their address, port and protocol"
            )
        }
        Code::TopicAuthorizationFailed => {
            format!("no right to a topic ({said}): grant the user Describe and Read (Write for a sink) on it")
        }
        Code::GroupAuthorizationFailed => format!("no right to the group ({said}): grant the user Read on it"),
        Code::ClusterAuthorizationFailed => {
            format!("no right on the cluster ({said}): grant the user IdempotentWrite, or Write on the topic")
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            format!("a topic or partition is not there ({said}): create it, or take it out of the settings")
        }
        Code::MessageSizeTooLarge => {
            format!("a message is larger than the topic allows ({said}): raise its max.message.bytes")
        }
        _ => format!("{said}; the broker's log may say more"),
    }
}

/// Whether the code says that brokers cannot be reached now, rather than that they refuse something.
pub(crate) fn is_unreachable(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::Resolve
            | Code::SSL
            | Code::Authentication
            | Code::SaslAuthenticationFailed
    )
}

/// The code of an error of a client; `Fail` where it has none.
pub(crate) fn code_of(error: &rdkafka::error::KafkaError) -> Code {
    error.rdkafka_error_code().unwrap_or(Code::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_says_what_to_do() {
        let cases = [
            (Code::Authentication, "SASL authentication error", "check the user name, the password"),
            (Code::AllBrokersDown, "", "no answer from b:9092"),
            (Code::SSL, "certificate verify failed", "check the protocol, the ca file"),
            (Code::TopicAuthorizationFailed, "", "grant the user Describe and Read"),
            (Code::UnknownTopicOrPartition, "", "create it"),
            (Code::InvalidMessage, "crc", "crc; the broker's log"),
        ];
        for (code, said, expected) in cases {
            let text = explain(code, said, "b:9092");
            assert!(text.contains(expected), "{code:?}: {text}");
        }
        assert!(is_unreachable(Code::AllBrokersDown) && !is_unreachable(Code::TopicAuthorizationFailed));
    }
}
