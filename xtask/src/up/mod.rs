//! Starts one server in the foreground, for people, as the tests have them: Kafka, LocalStack, Kubernetes or the loopback EC2; or the whole chain.
//!
//! It prints what it installs, where the server listens and how Forebay is pointed at it; Ctrl-C ends it.
//! Never: a server in the background, or one that listens beyond 127.0.0.1.

mod all;

use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use forebay_parts::{Kafka, KafkaOptions, Kubernetes, KubernetesOptions, KwokOptions, LocalStack, LocalStackOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask up` takes.
#[derive(clap::Args)]
pub struct UpArgs {
    /// Which server
    #[arg(value_enum)]
    part: Part,
    /// Where it listens on 127.0.0.1; a free port where it is not given
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Apache Kafka, one node
    Kafka,
    /// SQS, EC2 and S3
    Localstack,
    /// Kubernetes' control plane, with kwok in the place of kubelets
    Kube,
    /// EC2 with stock-outs, prices that move, and reclaims
    Ec2,
    /// Kafka, Kubernetes, an EC2 whose instances become its nodes, and Forebay between them
    All,
}

/// How long Ctrl-C waits at most before it is seen.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the server and holds it until Ctrl-C.
pub fn run(workspace: &Workspace, args: &UpArgs) -> Result<(), ChoreFailure> {
    match args.part {
        Part::Kafka => {
            // For a person, a topic that comes into being when it is named saves a command; tests have none that they did not create.
            let options = KafkaOptions { auto_create_topics: true, port: args.port, ..KafkaOptions::default() };
            let mut kafka = Kafka::start(options)?;
            println!("{}", about_kafka(kafka.bootstrap()));
            if hold(|| kafka.is_running())? == End::ByItself {
                return Err(gone("Kafka", &kafka.log_tail()));
            }
            Ok(kafka.stop()?)
        }
        Part::Localstack => {
            let mut localstack = LocalStack::start(LocalStackOptions { port: args.port })?;
            println!("{}", about_localstack(localstack.endpoint()));
            if hold(|| localstack.is_running())? == End::ByItself {
                return Err(gone("LocalStack", &localstack.log_tail()));
            }
            Ok(localstack.stop()?)
        }
        Part::Kube => {
            let mut kubernetes = Kubernetes::start(KubernetesOptions {
                port: args.port,
                controller_manager: true,
                scheduler: true,
                kwok: Some(KwokOptions::default()),
                jobset: true,
                ..KubernetesOptions::default()
            })?;
            println!("{}", about_kube(&kubernetes));
            if hold(|| kubernetes.is_running())? == End::ByItself {
                return Err(gone("Kubernetes", &kubernetes.log_tail()));
            }
            Ok(kubernetes.stop()?)
        }
        Part::Ec2 => ec2(workspace, args.port),
        Part::All => all::run(workspace, args.port),
    }
}

/// Builds and runs the loopback EC2; it prints how it is used, and a Ctrl-C reaches it as well.
fn ec2(workspace: &Workspace, port: Option<u16>) -> Result<(), ChoreFailure> {
    let mut build = cargo(workspace.root());
    run_command(build.args(["build", "--package", "forebay-loopback-ec2"]))?;
    let mut server = Command::new(workspace.debug("forebay-loopback-ec2"));
    if let Some(port) = port {
        server.args(["--port", &port.to_string()]);
    }
    let mut server = server.spawn().map_err(|e| ChoreFailure::new(format!("the loopback EC2 does not start: {e}")))?;
    let mut ended = None;
    let end = hold(|| {
        ended = server.try_wait().ok().flatten();
        ended.is_none()
    })?;
    if end == End::Asked {
        // It may be gone already, by the same Ctrl-C.
        let _ = server.kill();
        let _ = server.wait();
        return Ok(());
    }
    // What was wrong stands above: it has printed it.
    Err(if ended.is_some_and(|status| !status.success()) {
        ChoreFailure::already_printed()
    } else {
        gone("the loopback EC2", "")
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Asked,
    ByItself,
}

/// Waits for Ctrl-C, or for the server's own end.
fn hold(mut is_running: impl FnMut() -> bool) -> Result<End, ChoreFailure> {
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|e| ChoreFailure::new(format!("Ctrl-C cannot be waited for: {e}")))?;
    while signals.pending().next().is_none() {
        if !is_running() {
            return Ok(End::ByItself);
        }
        std::thread::park_timeout(PAUSE);
    }
    eprintln!("ending it");
    Ok(End::Asked)
}

fn about_kafka(bootstrap: &str) -> String {
    format!(
        "\
Kafka listens at {bootstrap}, without a password; a topic comes into being when it is first named.
In forebay.yaml:

  apiVersion: forebay/v1
  kind: Config
  kafka:
    - brokers: ['{bootstrap}']
      topics: [{{name: jobs, principal: me}}]
      status: jobs-status
      rejected: jobs-rejected

Then: forebay doctor --config forebay.yaml, forebay run --config forebay.yaml, forebay sources
Ctrl-C ends it, and what it holds is gone."
    )
}

fn about_localstack(endpoint: &str) -> String {
    format!(
        "\
LocalStack (SQS, EC2, S3) listens at {endpoint}; any key id and secret will do.
Make its queues and its bucket:

  AWS_ENDPOINT_URL={endpoint} python3 localstack/seed.py

In forebay.yaml:

  apiVersion: forebay/v1
  kind: Config
  sqs:
    - endpoint: {endpoint}
      region: us-east-1
      queues: [{{name: jobs, principal: me}}]
      status: jobs-status
      rejected: jobs-rejected

In the environment of `forebay doctor` and `forebay run`: AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
Ctrl-C ends it, and what it holds is gone. More: localstack/README.md"
    )
}

fn about_kube(kubernetes: &Kubernetes) -> String {
    format!(
        "\
Kubernetes 1.34 listens at {url}: API server, controller manager, scheduler, and kwok in the place of kubelets, so a pod
that is bound says that it runs, and nothing runs. JobSet's resource is there, its controller is not.
You are its administrator:

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}

A node with eight GPUs:

  echo '{{kind: Node, apiVersion: v1, metadata: {{name: gpu-1}}, status: {{allocatable: {{cpu: 96, memory: 1Ti,
    pods: 110, nvidia.com/gpu: 8}}}}}}' | kubectl create -f -

An annotation ends a pod with the exit code that it names: kubectl annotate pod/NAME test.forebay.dev/exit=0
Logs: {folder}
Ctrl-C ends it, and what it holds is gone.",
        url = kubernetes.url(),
        kubeconfig = kubernetes.kubeconfig().display(),
        kubectl = kubernetes.kubectl_path().display(),
        folder = kubernetes.folder().display(),
    )
}

fn gone(part: &str, tail: &str) -> ChoreFailure {
    ChoreFailure::new(format!("{part} ended by itself; the last lines of its log:\n{tail}\nstart it again"))
}
