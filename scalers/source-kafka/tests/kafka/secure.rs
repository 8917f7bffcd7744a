//! TLS and a password: who has them gets in, who has not is told what to mend; and what the doctor finds.
//!
//! Never: a password in what is said.

use crate::broker::{create, numbers, send, settings, shared, start, unique};
use crate::controller::{Controller, wait_until};
use forebay_parts::KafkaOptions;
use forebay_source::{Condition, Health, Outcome, Source};
use forebay_source_kafka::{Kafka, Protocol, Security, Settings, probe};
use std::time::Duration;

#[test]
fn with_tls_and_a_password_it_reads_and_without_it_says_what_to_mend() {
    let kafka = start(KafkaOptions { secure: true, ..KafkaOptions::default() });
    kafka.create_topic("jobs", 1).expect("a topic");
    kafka.send_lines("jobs", "000000\n000001\n000002\n").expect("sent");
    let good = Settings {
        brokers: kafka.bootstrap().to_owned(),
        topics: vec!["jobs".to_owned()],
        security: Security {
            protocol: Protocol::SaslSsl,
            mechanism: Some("PLAIN".to_owned()),
            username: kafka.username().map(str::to_owned),
            password: kafka.password().map(str::to_owned),
            ca: kafka.ca_path().map(Into::into),
            ..Security::default()
        },
        watch: Duration::from_millis(500),
        ..Settings::default()
    };
    let controller = Controller::new();
    let source = Kafka::start(good.clone(), controller.desk.clone(), Health::default()).expect("started");
    controller.wait_for(3);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..3));
    Box::new(source).stop();
    let findings = probe(&good, Some("jobs"), Some("rejected"));
    let of = |what: &str| findings.iter().find(|one| one.what.contains(what)).unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(findings[0].outcome, Outcome::Fine, "{findings:?}");
    assert!(of("topic jobs").said.contains("0: 0..3"), "{findings:?}");
    assert_eq!(of("topic jobs for statuses").outcome, Outcome::Fine);
    assert_eq!(of("topic rejected for rejected events").outcome, Outcome::Bad);
    assert!(of("group forebay").outcome <= Outcome::Warning, "{findings:?}");

    let mut wrong = good.clone();
    wrong.security.password = Some("guessed".to_owned());
    refused(&wrong, "check the user name, the password");
    let mut stranger = good.clone();
    stranger.security.ca = None;
    refused(&stranger, "check the protocol, the ca file");
    let mut clear = good;
    clear.security = Security::default();
    refused(&clear, "and protocol");
}

fn refused(settings: &Settings, remedy: &str) {
    let (controller, health) = (Controller::new(), Health::default());
    let source = Kafka::start(settings.clone(), controller.desk.clone(), health.clone()).expect("started");
    wait_until(remedy, || {
        let seen = health.seen();
        let said =
            matches!(&seen.condition, Condition::Failing { why } if why.contains(remedy) && !why.contains("guessed"));
        said.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(source).stop();
    // It gives each answer 5 s, which a busy broker may not keep.
    wait_until("the probe to say the same", || {
        let findings = probe(settings, None, None);
        let said = findings[0].outcome == Outcome::Bad && findings[0].said.contains(remedy);
        said.then_some(()).ok_or_else(|| format!("{findings:?}"))
    });
}

#[test]
fn the_doctor_finds_topics_that_are_not_there_and_brokers_that_do_not_answer() {
    let topic = unique("doctor");
    create(shared(), &topic, 2);
    send(shared(), &topic, 2, 0..7);
    let mut settings = settings(&topic);
    settings.topics.push("nowhere".to_owned());
    let findings = probe(&settings, None, None);
    let outcomes: Vec<_> = findings.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Outcome::Fine, Outcome::Fine, Outcome::Bad, Outcome::Fine], "{findings:?}");
    assert!(findings[1].said.contains("2 partitions, offsets 0: 0..4, 1: 0..3"), "{findings:?}");
    assert!(findings[2].said.contains("create it"), "{findings:?}");
    settings.brokers = "127.0.0.1:1".to_owned();
    let findings = probe(&settings, None, None);
    assert!(findings[0].outcome == Outcome::Bad && findings[0].said.contains("127.0.0.1:1"), "{findings:?}");
    assert!(findings[1].said.contains("not tried"), "{findings:?}");
}
