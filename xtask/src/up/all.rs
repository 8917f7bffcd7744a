//! The whole chain on one machine: Kafka, Kubernetes, an EC2 whose instances become its nodes, and Forebay between them.
//!
//! ```text
//! forebay submit, Kafka's topic `jobs` -> forebay run -> loopback EC2 -> nodes -> pods, as processes -> Kafka's topic `jobs-status`
//! ```
//!
//! Never: anything that outlives Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_parts::{Kafka, KafkaOptions, Kubernetes, KubernetesOptions, NodeBridge, NodeBridgeOptions};

use super::{End, gone, hold};
use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// The namespace of the example's queue.
const NAMESPACE: &str = "research";

/// The label of the nodes that the bridge makes of instances.
const BOUGHT: &str = "node.kubernetes.io/instance-type";

/// The launch template that the loopback EC2 has.
const LAUNCH_TEMPLATE: &str = "forebay-node";

/// How long a program has to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A program of the workspace that runs until it is dropped.
struct Program {
    name: &'static str,
    child: Child,
}

impl Program {
    fn start(
        workspace: &Workspace,
        name: &'static str,
        change: impl FnOnce(&mut Command),
    ) -> Result<Self, ChoreFailure> {
        let path = workspace.debug(name);
        let mut command = Command::new(&path);
        change(&mut command);
        let child = command.spawn();
        let child =
            child.map_err(|e| ChoreFailure::new(format!("{}: {e}: it was built a moment ago", path.display())))?;
        Ok(Self { name, child })
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Who reads its input ends when that closes, and tidies up.
        if self.child.stdin.take().is_some() {
            let end = Instant::now() + END_LIMIT;
            while self.is_running() && Instant::now() < end {
                std::thread::park_timeout(super::PAUSE);
            }
        }
        // It may be gone already, by the same Ctrl-C.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts all of it and holds it until Ctrl-C.
pub(super) fn run(workspace: &Workspace, port: Option<u16>) -> Result<(), ChoreFailure> {
    let mut build = cargo(workspace.root());
    // With the features that all of the workspace asks for, as the tests build them: nothing is built twice.
    let programs = ["forebay", "forebay-loopback-ec2", "forebay-kubelet"];
    run_command(build.args(["build", "--workspace"]).args(programs.map(|name| format!("--bin={name}"))))?;
    let mut kafka = Kafka::start(KafkaOptions::default())?;
    for topic in ["jobs", "jobs-status", "jobs-rejected"] {
        kafka.create_topic(topic, 1)?;
    }
    let mut kubernetes =
        Arc::new(Kubernetes::start(KubernetesOptions { controller_manager: true, ..KubernetesOptions::default() })?);
    let in_cluster = workspace.root().join("examples/kubernetes/cluster.yaml");
    kubernetes.kubectl(&["apply", "-f", &in_cluster.display().to_string()], "")?;
    let ec2_port = forebay_parts::free_port()?;
    let mut ec2 = Program::start(workspace, "forebay-loopback-ec2", |command| {
        command.args(["--calm", "--port", &ec2_port.to_string()]).stdout(Stdio::null());
    })?;
    let bridge = NodeBridge::follow(Arc::clone(&kubernetes), NodeBridgeOptions::new(ec2_port));
    let mut kubelets = Program::start(workspace, "forebay-kubelet", |command| {
        command.arg(kubernetes.kubeconfig()).arg(format!("--label={BOUGHT}"));
        command.arg(workspace.debug("forebay")).stdin(Stdio::piped()).stdout(Stdio::null());
    })?;
    let port = port.map_or_else(forebay_parts::free_port, Ok)?;
    let folder = workspace.target().join("up-all");
    write(workspace, &folder, (&kafka, &kubernetes), (port, ec2_port))?;
    let mut forebay = Program::start(workspace, "forebay", |command| {
        command.args(["run", "--config", "forebay.yaml"]).current_dir(&folder);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    })?;
    println!("{}", about(&kubernetes, kafka.bootstrap(), port, &workspace.target().join("debug")));
    let mut ended = None;
    let end = hold(|| {
        ended =
            [&mut ec2, &mut kubelets, &mut forebay].into_iter().find_map(|one| (!one.is_running()).then_some(one.name));
        ended.is_none() && kafka.is_running()
    })?;
    drop((forebay, kubelets, bridge, ec2));
    if let Some(kubernetes) = Arc::get_mut(&mut kubernetes) {
        kubernetes.stop()?;
    }
    kafka.stop()?;
    // What it kept is of a Kafka and a Kubernetes that are gone.
    let _ = fs::remove_dir_all(&folder);
    match (end, ended) {
        (End::Asked, _) => Ok(()),
        (End::ByItself, name) => Err(gone(name.unwrap_or("Kafka"), "what it said stands above")),
    }
}

/// The configuration of `forebay run`, in a folder that is new.
fn write(
    workspace: &Workspace,
    folder: &Path,
    (kafka, kubernetes): (&Kafka, &Kubernetes),
    (port, ec2_port): (u16, u16),
) -> Result<(), ChoreFailure> {
    let example = workspace.root().join("examples/kubernetes");
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\nlisten: 127.0.0.1:{port}\ndata: data\npolicy: {policy:?}\n\
         kafka:\n  - brokers: ['{brokers}']\n    topics: [{{name: jobs, principal: airflow}}]\n    status: jobs-status\n    rejected: jobs-rejected\n\
         ec2:\n  name: up-all\n  endpoint: http://127.0.0.1:{ec2_port}\n  region: us-east-1\n  zones: [us-east-1a, us-east-1b]\n  \
         launch: {{template: {LAUNCH_TEMPLATE}}}\n  interruptions: ['http://127.0.0.1:{ec2_port}/000000000000/interruptions']\n\
         kubernetes:\n  kubeconfig: {kubeconfig:?}\n  namespace: {NAMESPACE}\n  templates: {templates:?}\n  gateImage: forebay:dev\n",
        policy = example.join("policy.yaml"),
        brokers = kafka.bootstrap(),
        kubeconfig = kubernetes.kubeconfig(),
        templates = example.join("templates"),
    );
    let written = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(folder).and_then(|()| fs::write(folder.join("forebay.yaml"), text)),
    };
    written.map_err(|e| ChoreFailure::new(format!("{}: {e}: check the folder and its permissions", folder.display())))
}

fn about(kubernetes: &Kubernetes, brokers: &str, port: u16, programs: &Path) -> String {
    format!(
        "\
Forebay listens at http://127.0.0.1:{port}, takes events from Kafka's topic `jobs` at {brokers}, buys from an EC2 on this machine, and runs
gangs in a Kubernetes on this machine. The containers of their pods are processes: there are no images, and no GPUs are used.

  export PATH={programs}:$PATH
  export FOREBAY_SERVER=http://127.0.0.1:{port}
  forebay submit examples/kubernetes/resnet.json --wait    # in a minute: two to four pods on as many nodes, completed
  forebay logs resnet-0412 --follow                        # meanwhile, in another terminal; `forebay nodes` shows what was bought
  export KUBECONFIG={kubeconfig}
  {kubectl} get pods,nodes -n {NAMESPACE}

The same event may be sent to the topic `jobs`; statuses are in `jobs-status`. docs/KUBERNETES.md says what you see.
Ctrl-C ends all of it, and what it holds is gone.",
        programs = programs.display(),
        kubeconfig = kubernetes.kubeconfig().display(),
        kubectl = kubernetes.kubectl_path().display(),
    )
}
