//! Errors of the adapter, and the meaning of librdkafka's error codes with what to do about them. Messages never contain a password.

use rdkafka::types::RDKafkaErrorCode as Code;

/// Why a source, a sink or a client could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaError {
    /// A setting is not valid.
    #[error("kafka: {setting}: {why}")]
    Setting {
        /// The name of the setting.
        setting: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// librdkafka could not create the client, because of a missing certificate or an unknown property.
    #[error("kafka: the client could not be created: {why}; check the certificates and the extra properties")]
    ProbeClient {
        /// librdkafka's reason.
        why: String,
    },
    /// The system could not create a thread.
    #[error("kafka: no thread for the source: {why}; raise the limit of processes")]
    Thread {
        /// The system's reason.
        why: String,
    },
}

impl KafkaError {
    pub(crate) fn setting(setting: impl Into<String>, why: impl Into<String>) -> KafkaError {
        KafkaError::Setting { setting: setting.into(), why: why.into() }
    }

    pub(crate) fn client(error: &rdkafka::error::KafkaError) -> KafkaError {
        // The text of a `ClientConfig` error contains the value, which may be a secret. Its name and description suffice.
        let why = match error {
            rdkafka::error::KafkaError::ClientConfig(_, description, name, _) => format!("{name}: {description}"),
            other => other.to_string(),
        };
        KafkaError::ProbeClient { why }
    }
}

/// What an error code means and what to do. `reason` is librdkafka's own text; it may be empty.
pub(crate) fn explain(code: Code, reason: &str, brokers: &str) -> String {
    let reason = if reason.is_empty() { code.to_string() } else { reason.to_owned() };
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed => {
            format!(
                "the broker refused the credentials ({reason}): check the user name, the password and the mechanism"
            )
        }
        Code::SSL => format!(
            "no TLS with the broker ({reason}): check the protocol, the ca file and that the certificate names the host"
        ),
        Code::Resolve => {
            format!("a broker's name cannot be resolved ({reason}): check `brokers` ({brokers}) and the DNS")
        }
        Code::AllBrokersDown | Code::BrokerTransportFailure | Code::OperationTimedOut | Code::RequestTimedOut => {
            format!(
                "no response from {brokers} ({reason}): check that the brokers run, and their address, port and protocol"
            )
        }
        Code::TopicAuthorizationFailed => {
            format!("no permission for a topic ({reason}): grant the user Describe and Read (Write for a sink) on it")
        }
        Code::GroupAuthorizationFailed => format!("no permission for the group ({reason}): grant the user Read on it"),
        Code::ClusterAuthorizationFailed => {
            format!("no permission for the cluster ({reason}): grant the user IdempotentWrite, or Write on the topic")
        }
        // librdkafka has this code for a partition that is there and that no broker leads.
        Code::UnknownPartition | Code::LeaderNotAvailable => {
            format!("a partition has no leader now ({reason}): check that the brokers that have its replicas run")
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic => {
            format!("a topic or partition does not exist ({reason}): create it, or remove it from the settings")
        }
        Code::MessageSizeTooLarge => {
            format!("a message is larger than the topic allows ({reason}): raise its max.message.bytes")
        }
        _ => format!("{reason}; the broker's log may say more"),
    }
}

/// Whether the code means that brokers cannot be reached now, rather than that they refuse something.
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

/// The code of a client's error; `Fail` if it has none.
pub(crate) fn code_of(error: &rdkafka::error::KafkaError) -> Code {
    error.rdkafka_error_code().unwrap_or(Code::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_names_a_remedy() {
        let cases = [
            (Code::Authentication, "SASL authentication error", "check the user name, the password"),
            (Code::AllBrokersDown, "", "no response from b:9092"),
            (Code::SSL, "certificate verify failed", "check the protocol, the ca file"),
            (Code::TopicAuthorizationFailed, "", "grant the user Describe and Read"),
            (Code::UnknownTopicOrPartition, "", "create it"),
            (Code::UnknownPartition, "", "check that the brokers that have its replicas run"),
            (Code::InvalidMessage, "crc", "crc; the broker's log"),
        ];
        for (code, reason, expected) in cases {
            let text = explain(code, reason, "b:9092");
            assert!(text.contains(expected), "{code:?}: {text}");
        }
        assert!(is_unreachable(Code::AllBrokersDown) && !is_unreachable(Code::TopicAuthorizationFailed));
    }
}
