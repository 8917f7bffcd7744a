//! The usual chain of credentials, in a process of its own: it reads the environment, which all tests of this one share.

use crate::support::{runtime, settings};
use forebay_parts::sqs_stub::Stub;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

const ENDPOINT: &str = "FOREBAY_TEST_CHAIN";

/// The findings of a doctor that runs with this environment and no other.
fn look_up(environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "chain::the_chain_is_looked_up_within_bounds", "--nocapture"]).env_clear();
    command.envs([("HOME", "/nowhere"), ("AWS_CONFIG_FILE", "/nowhere/config"), ("AWS_EC2_METADATA_DISABLED", "true")]);
    let output = command.envs(environment.iter().copied()).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_chain_is_looked_up_within_bounds() {
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        let mut settings = settings(&endpoint, &["jobs"]);
        (settings.aws.access_key, settings.aws.region) = (None, None);
        let runtime = runtime();
        let diagnostics = forebay_source_sqs::probe(&settings, None, None, runtime.handle());
        return diagnostics.iter().for_each(|diagnostic| println!("{diagnostic:?}"));
    }
    let stub = Stub::start(|_, _| None);
    // A machine's metadata that takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let metadata = format!("http://{}", silent.local_addr().expect("an address"));
    let (stub, region) = ((ENDPOINT, stub.endpoint.as_str()), ("AWS_REGION", "eu-central-1"));
    let silent = [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str())];

    let found = look_up(&[stub, region, ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "hush")]);
    assert!(found.contains("(eu-central-1)") && found.contains("found, from the environment"), "{found}");
    assert!(!found.contains("hush") && !found.contains("AKIAEXAMPLE"), "{found}");

    let began = Instant::now();
    let none = look_up(&[stub, region, silent[0], silent[1]]);
    assert!(none.contains("none were found"), "{none}");
    assert!(none.contains("set AWS_ACCESS_KEY_ID") && none.contains("not checked: there are no credentials"), "{none}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());

    let began = Instant::now();
    let nowhere = look_up(&[stub, silent[0], silent[1]]);
    assert!(nowhere.contains("no region is known; give `region`"), "{nowhere}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
