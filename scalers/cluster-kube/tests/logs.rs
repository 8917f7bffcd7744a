//! The ends of logs from a real API server, through which a stand-in for a kubelet is asked for the output of real processes.
//!
//! Never: the state machine; the pods are made as it makes them, as far as logs are concerned.

use std::time::Duration;

use forebay_cluster_kube::client::{CredentialSource, KubeClient, MOST_LOG, WorkerPod};
use forebay_cluster_kube::names::{effect_id, pod_name};
use forebay_cluster_kube::{KubeErrorClass, RunId, WorkerId};
use forebay_kernel::ids::{Attempt, JobId, Seq};
use forebay_kubelet::{Kubelet, KubeletOptions};
use forebay_parts::{Kubernetes, KubernetesOptions};
use tokio::time::timeout;

const RUN: RunId = RunId { job: JobId(12), attempt: Attempt(3) };
const LIMIT: Duration = Duration::from_secs(60);

/// A worker's pod; `script` is its second container's.
fn pod(worker: &str, journal: &str, script: &str) -> String {
    let id: WorkerId = worker.parse().expect("a worker");
    named(&pod_name("resnet", id, &effect_id(journal, Seq(7))), worker, journal, script)
}

/// A pod that says that it is that worker's.
fn named(name: &str, worker: &str, journal: &str, script: &str) -> String {
    let effect = effect_id(journal, Seq(7));
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{forebay.dev/journal: {journal}, forebay.dev/job: job-12, \
         forebay.dev/attempt: '3'}}, annotations: {{forebay.dev/worker: {worker}, forebay.dev/effect: {effect}, \
         kubectl.kubernetes.io/default-container: work}}}}, spec: {{nodeName: \
         n-1, restartPolicy: Never, containers: [{{name: side, image: none, command: [sh, -c, 'echo of the side']}}, {{name: work, image: none, \
         command: [sh, -c, {script:?}]}}]}}}}\n"
    )
}

/// The pods, when all of them are as they should be.
async fn pods(client: &KubeClient, are: impl Fn(&WorkerPod) -> bool) -> Vec<WorkerPod> {
    let found = async {
        loop {
            let pods = client.worker_pods("j-1", RUN).await.unwrap();
            if pods.len() == 3 && pods.iter().all(&are) {
                return pods;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, found).await.expect("the pods are as they should be, in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_each_workers_log_is_read_and_what_cannot_be_says_why() {
    let kubernetes = Kubernetes::start(KubernetesOptions::default()).unwrap();
    let kubelet = Kubelet::start(KubeletOptions::new(kubernetes.kubeconfig(), "n-1")).unwrap();
    let source = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
    let client = KubeClient::connect(&source).await.unwrap();
    let all = [
        pod("job-12/3/1", "j-1", "i=0; while [ $i -lt 200000 ]; do echo \"line $i\"; i=$((i+1)); done"),
        pod("job-12/3/0", "j-1", "echo one; echo two >&2; echo three"),
        pod("job-12/3/2", "j-1", "printf 'no end'; printf '\\377\\n'"),
        pod("job-12/3/0", "j-2", "echo another journal's"),
        pod("job-12/4/0", "j-1", "echo another attempt's"),
        named("a-copy", "job-12/3/0", "j-1", "echo of a copy"),
    ];
    kubernetes.apply(&all.concat()).unwrap();
    let workers = pods(&client, |pod| pod.ended && pod.container == "work").await;
    let numbers: Vec<u32> = workers.iter().map(|pod| pod.worker.worker).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let small = client.log(&workers[0], 1_000).await.unwrap();
    assert_eq!((small.text.as_str(), small.truncated), ("one\ntwo\nthree\n", false));
    let last = client.log(&workers[0], 1).await.unwrap();
    assert_eq!((last.text.as_str(), last.truncated), ("three\n", true));
    // More than 64 KiB: its end, not where so many lines begin.
    let large = client.log(&workers[1], 10_000).await.unwrap();
    assert!(
        large.truncated && large.text.len() <= MOST_LOG && large.text.len() > MOST_LOG - 20,
        "{}",
        large.text.len()
    );
    assert!(large.text.starts_with("line ") && large.text.ends_with("line 199999\n"));
    assert_eq!(client.log(&workers[2], 10).await.unwrap().text, "no end\u{fffd}\n");

    let unknown = WorkerPod { name: "gone".to_owned(), ..workers[0].clone() };
    assert_eq!(client.log(&unknown, 10).await.unwrap_err().class, KubeErrorClass::NotFound);
    // The node does not answer any more.
    drop(kubelet);
    let lost = client.log(&workers[0], 10).await.unwrap_err();
    assert!(lost.class == KubeErrorClass::Server && lost.message.contains("connection refused"), "{lost}");
}
