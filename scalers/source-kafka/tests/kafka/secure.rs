//! TLS and a password: who has them gets in, who has not is told what to mend; and what the doctor finds.
//!
//! Never: a password in what is said.

use crate::broker::{create, numbers, send, settings, shared, start, unique};
use crate::controller::{TestController, wait_until};
use forebay_parts::KafkaOptions;
use forebay_source::{Condition, Health, Severity, Source};
use forebay_source_kafka::{BrokerSecurity, KafkaSettings, KafkaSource, SecurityProtocol, probe};
use std::time::Duration;

#[test]
fn with_tls_and_a_password_it_reads_and_without_it_says_what_to_mend() {
    let kafka = start(KafkaOptions { secure: true, ..KafkaOptions::default() });
    kafka.create_topic("jobs", 1).expect("a topic");
    kafka.send_lines("jobs", "000000\n000001\n000002\n").expect("sent");
    let good = KafkaSettings {
        brokers: kafka.bootstrap().to_owned(),
        topics: vec!["jobs".to_owned()],
        security: BrokerSecurity {
            protocol: SecurityProtocol::SaslSsl,
            mechanism: Some("PLAIN".to_owned()),
            username: kafka.username().map(str::to_owned),
            password: kafka.password().map(str::to_owned),
            ca: kafka.ca_path().map(Into::into),
            ..BrokerSecurity::default()
        },
        watch_interval: Duration::from_millis(500),
        ..KafkaSettings::default()
    };
    let controller = TestController::new();
    let source = KafkaSource::start(good.clone(), controller.handle.clone(), Health::default()).expect("started");
    controller.wait_for(3);
    assert_eq!(controller.journal.lock().unwrap().all(), numbers(0..3));
    Box::new(source).stop();
    let diagnostics = probe(&good, Some("jobs"), Some("rejected"));
    let of = |what: &str| {
        diagnostics.iter().find(|one| one.subject.contains(what)).unwrap_or_else(|| panic!("{diagnostics:?}"))
    };
    assert_eq!(diagnostics[0].severity, Severity::Ok, "{diagnostics:?}");
    assert!(of("topic jobs").message.contains("0: 0..3"), "{diagnostics:?}");
    assert_eq!(of("topic jobs for statuses").severity, Severity::Ok);
    assert_eq!(of("topic rejected for rejected events").severity, Severity::Error);
    assert!(of("group forebay").severity <= Severity::Warning, "{diagnostics:?}");

    let mut wrong = good.clone();
    wrong.security.password = Some("guessed".to_owned());
    refused(&wrong, "check the user name, the password");
    let mut stranger = good.clone();
    stranger.security.ca = None;
    refused(&stranger, "check the protocol, the ca file");
    let mut clear = good;
    clear.security = BrokerSecurity::default();
    refused(&clear, "and protocol");
}

fn refused(settings: &KafkaSettings, remedy: &str) {
    let (controller, health) = (TestController::new(), Health::default());
    let source = KafkaSource::start(settings.clone(), controller.handle.clone(), health.clone()).expect("started");
    wait_until(remedy, || {
        let seen = health.snapshot();
        let said =
            matches!(&seen.condition, Condition::Failing { why } if why.contains(remedy) && !why.contains("guessed"));
        said.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    Box::new(source).stop();
    // It gives each answer 5 s, which a busy broker may not keep.
    wait_until("the probe to say the same", || {
        let diagnostics = probe(settings, None, None);
        let said = diagnostics[0].severity == Severity::Error && diagnostics[0].message.contains(remedy);
        said.then_some(()).ok_or_else(|| format!("{diagnostics:?}"))
    });
}

#[test]
fn the_doctor_finds_topics_that_are_not_there_and_brokers_that_do_not_answer() {
    let topic = unique("doctor");
    create(shared(), &topic, 2);
    send(shared(), &topic, 2, 0..7);
    let mut settings = settings(&topic);
    settings.topics.push("nowhere".to_owned());
    let diagnostics = probe(&settings, None, None);
    let outcomes: Vec<_> = diagnostics.iter().map(|one| one.severity).collect();
    assert_eq!(outcomes, [Severity::Ok, Severity::Ok, Severity::Error, Severity::Ok], "{diagnostics:?}");
    assert!(diagnostics[1].message.contains("2 partitions, offsets 0: 0..4, 1: 0..3"), "{diagnostics:?}");
    assert!(diagnostics[2].message.contains("create it"), "{diagnostics:?}");
    settings.brokers = "127.0.0.1:1".to_owned();
    let diagnostics = probe(&settings, None, None);
    assert!(
        diagnostics[0].severity == Severity::Error && diagnostics[0].message.contains("127.0.0.1:1"),
        "{diagnostics:?}"
    );
    assert!(diagnostics[1].message.contains("not checked"), "{diagnostics:?}");
}
