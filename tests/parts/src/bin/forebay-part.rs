//! Starts one part, prints its address, and holds it until its input closes: what a test kills to see the part go with it.
//!
//! Never: anything that `cargo xtask up` does for people.

use std::io::Read;
use std::process::ExitCode;

use forebay_parts::{
    Kafka, KafkaOptions, Kubernetes, KubernetesOptions, KwokOptions, LocalStack, LocalStackOptions, PartError,
};

fn main() -> ExitCode {
    match hold(std::env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(part: Option<&str>) -> Result<(), PartError> {
    match part {
        Some("kafka") => {
            let mut kafka = Kafka::start(KafkaOptions::default())?;
            println!("{}", kafka.bootstrap());
            wait_for_the_end_of_input();
            kafka.stop()
        }
        Some("kube") => {
            let kwok = Some(KwokOptions::default());
            let mut kubernetes = Kubernetes::start(KubernetesOptions { kwok, ..KubernetesOptions::default() })?;
            println!("{}", kubernetes.url());
            wait_for_the_end_of_input();
            kubernetes.stop()
        }
        Some("localstack") => {
            let mut localstack = LocalStack::start(LocalStackOptions::default())?;
            println!("{}", localstack.endpoint());
            wait_for_the_end_of_input();
            localstack.stop()
        }
        _ => Err(PartError::Missing {
            what: "the name of a part",
            why: "one is started at a time",
            how: "forebay-part kafka, kube or localstack",
        }),
    }
}

fn wait_for_the_end_of_input() {
    // Whatever ends it, there is no more of it.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
