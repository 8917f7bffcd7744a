//! The example event of the wire format, from Kafka to its last status: it buys nodes, runs as a gang of pods in its queue's namespace, and
//! leaves nothing.

use super::stand::{LIMIT, NAMESPACE, Stand, StandOptions};
use forebay_integration::kafka::{Pipeline, read_all};
use forebay_integration::{root, until};
use forebay_parts::{Kafka, KafkaOptions};
use serde_json::{Value, json};

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: chain}
limits: {nodes: 4, spend: 1000 USD/h}
queues:
  research/vision: {pools: [h100], quota: {h100: {gpus: 32}}, submitters: [airflow]}
pools:
  h100: {instanceTypes: [p5.48xlarge], drain: {after: 1s}}
";

/// A file of examples/kubernetes.
fn example(name: &str) -> String {
    let path = root().join("examples/kubernetes").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn event() -> Value {
    serde_json::from_str(&example("resnet.json")).expect("JSON")
}

#[test]
fn the_example_event_becomes_a_gang_of_pods_and_ends_as_a_status() {
    let mut kafka = Kafka::start(KafkaOptions::default()).expect("a Kafka");
    for topic in ["jobs", "status"] {
        kafka.create_topic(topic, 1).expect("a topic");
    }
    let config = format!(
        "kafka:\n  - brokers: ['{}']\n    group: chain\n    topics: [{{name: jobs, principal: airflow}}]\n    status: status\n",
        kafka.bootstrap()
    );
    let stand =
        Stand::of_processes(&StandOptions { policy: POLICY, config: &config }, &example("templates/train.yaml"));
    stand.kubernetes.apply(&example("cluster.yaml")).expect("what the template expects");
    let server = stand.start();
    assert!(server.said.iter().any(|line| line.contains(&format!("kubernetes:{NAMESPACE}"))), "{:?}", server.said);
    let pipeline = Pipeline::to(kafka.bootstrap());
    pipeline.send("jobs", "resnet-0412", event().to_string().as_bytes());
    pipeline.flush();
    stand.all_over(&server, 1, LIMIT);

    // Ended pods stay, for their logs.
    let pods = stand.pods();
    assert!((2..=4).contains(&pods.len()), "{pods:?}");
    for pod in &pods {
        assert_eq!(pod["metadata"]["namespace"], NAMESPACE);
        assert!(pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("resnet-0412-1-")), "{pod}");
        assert_eq!(pod["metadata"]["labels"]["team"], "vision");
        assert!(pod["metadata"]["finalizers"].is_null(), "its outcome is in the journal: {pod}");
        let worker = &pod["spec"]["containers"][0];
        assert_eq!((&worker["image"], &worker["args"]), (&json!("reg/r@sha256:ab"), &json!(["--epochs", "90"])));
        assert_eq!((&worker["resources"]["limits"]["nvidia.com/gpu"]), &json!("8"));
        let env = worker["env"].to_string();
        for part in ["WANDB_API_KEY", "wandb-key", "FOREBAY_CHECKPOINT_URI", "s3://ckpt/resnet-0412/", "PET_NNODES"] {
            assert!(env.contains(part), "no {part} in {env}");
        }
        assert_eq!(pod["spec"]["schedulerName"], "forebay");
        assert_eq!(pod["spec"]["initContainers"][0]["command"][1], "gate");
        let mounted = worker["volumeMounts"].to_string();
        assert!(mounted.contains("/data") && !mounted.contains("serviceaccount"), "{mounted}");
    }
    let seen = stand.watcher.seen();
    assert!(seen.early.is_empty() && seen.looks > 10, "{seen:?}");
    assert!(seen.workers.values().all(|pods| pods.len() == 1), "{seen:?}");
    assert_eq!(seen.workers.len(), pods.len());
    let said = server.ask(stand.folder.path(), &["logs", "resnet-0412", "--tail", "2"]);
    for worker in 0..pods.len() {
        let last = format!("w{worker} | epoch 90 of 90\nw{worker} | done\n");
        assert!(said.out.contains(&last), "{said:?}");
    }

    let mut statuses = Vec::new();
    until("its last status is there", LIMIT, || {
        statuses.clear();
        read_all(kafka.bootstrap(), "status", LIMIT, |_, body| {
            let status: Value = serde_json::from_slice(body).expect("JSON");
            statuses.push(status["type"].as_str().unwrap_or_default().to_owned());
        });
        if statuses.iter().any(|status| status == "status.completed") { Ok(()) } else { Err(format!("{statuses:?}")) }
    });
    let of_a_run = ["status.queued", "status.admitted", "status.started", "status.completed"];
    assert!(of_a_run.iter().all(|status| statuses.iter().any(|one| one == status)), "{statuses:?}");
    // Nothing but the pods is left of it.
    let listed =
        stand.kubectl(&["get", "services,configmaps", "-n", NAMESPACE, "-l", "forebay.dev/journal", "-o", "name"]);
    assert_eq!(listed, "", "{listed}");
    kafka.stop().expect("it ends");
}

#[test]
fn what_a_template_does_not_allow_is_told_where_people_look() {
    let stand = Stand::new(&StandOptions { policy: &POLICY.replace("airflow", "local"), config: "" });
    let server = stand.start();
    let mut event = event();
    event["data"]["run"]["image"] = json!("elsewhere/r:1");
    event["data"]["retry"]["attempts"] = json!(1);
    assert_eq!(server.post(&event).0, 202);
    until("it says why", LIMIT, || {
        let why = server.ask(stand.folder.path(), &["why", "resnet-0412"]);
        if why.out.contains("does not allow `elsewhere/r:1`")
            && why.out.contains("use an image that begins with one of: reg/")
        {
            return Ok(());
        }
        Err(format!("{why:?}"))
    });
    assert_eq!(stand.pods().len(), 0);
}
