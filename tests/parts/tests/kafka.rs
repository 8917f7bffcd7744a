//! A real Kafka, started, asked, restarted and ended.
//!
//! Never: a stand-in; each test here waits for a broker.

mod starter;

use std::net::{Ipv4Addr, TcpListener};

use forebay_parts::{Edge, Kafka, KafkaOptions, PartError};

#[test]
fn real_kafka_keeps_its_topics_and_its_address_over_restarts() {
    let mut kafka = Kafka::start(KafkaOptions::default()).unwrap();
    let address = kafka.bootstrap().to_owned();
    kafka.create_topic("jobs", 1).unwrap();
    kafka.send_lines("jobs", "one\ntwo\nthree\n").unwrap();

    kafka.stop().unwrap();
    assert!(!kafka.is_running());
    assert!(matches!(kafka.topics(), Err(PartError::NotRunning { .. })), "nobody waits for a stopped broker");
    kafka.restart().unwrap();
    assert!(kafka.is_running());
    assert_eq!(kafka.bootstrap(), address);
    assert_eq!(kafka.topics().unwrap(), ["jobs"]);
    kafka.delete_records("jobs", 0, 2).unwrap();
    assert_eq!(kafka.offsets("jobs", Edge::First).unwrap(), [2]);

    kafka.kill().unwrap();
    kafka.restart().unwrap();
    assert_eq!(kafka.bootstrap(), address);
    assert_eq!(kafka.offsets("jobs", Edge::End).unwrap(), [3]);
    kafka.delete_topic("jobs").unwrap();
    assert!(kafka.delete_topic("jobs").is_err(), "it is gone");
}

#[test]
fn real_kafka_with_tls_and_a_password_lets_nobody_else_in() {
    let kafka = Kafka::start(KafkaOptions { secure: true, ..KafkaOptions::default() }).unwrap();
    kafka.create_topic("jobs", 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (user, password) = (kafka.username().unwrap(), kafka.password().unwrap());
    let list = |user: &str, password: &str, ca: bool| {
        let path = folder.path().join("client.properties");
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        let trust =
            format!("ssl.truststore.type=PEM\nssl.truststore.location={}\n", kafka.ca_path().unwrap().display());
        let text = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{}request.timeout.ms=30000\ndefault.api.timeout.ms=30000\n\
             sasl.jaas.config={module} required username=\"{user}\" password=\"{password}\";\n",
            if ca { &trust } else { "" }
        );
        std::fs::write(&path, text).unwrap();
        let config = path.to_string_lossy().into_owned();
        kafka.tool(
            "TopicCommand",
            &["--bootstrap-server", kafka.bootstrap(), "--command-config", &config, "--list"],
            "",
        )
    };
    assert_eq!(list(user, password, true).unwrap().trim(), "jobs");
    let error = list(user, "guessed", true).unwrap_err().to_string();
    assert!(error.contains("Authentication failed"), "{error}");
    assert!(
        list(user, password, false).unwrap_err().to_string().contains("SSL handshake failed"),
        "who signed it counts"
    );
    assert!(!format!("{kafka:?}").contains(password));
}

#[test]
fn real_kafka_dies_with_its_starter() {
    starter::dies_with_it("kafka");
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_starts() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Kafka::start(KafkaOptions { port: Some(port), ..KafkaOptions::default() }).unwrap_err();
    assert!(matches!(error, PartError::PortTaken { port: named } if named == port), "{error}");
}

#[test]
fn a_setting_that_kafka_refuses_is_in_the_error() {
    let properties = vec![("num.io.threads".to_owned(), "none".to_owned())];
    let error = Kafka::start(KafkaOptions { properties, ..KafkaOptions::default() }).unwrap_err().to_string();
    assert!(error.contains("num.io.threads"), "{error}");
}
