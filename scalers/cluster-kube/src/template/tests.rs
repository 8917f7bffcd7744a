//! Templates: what is allowed, what is refused and in which words.

use super::*;
use crate::settings::KubeSettings;
use serde_json::json;

const TRAIN: &str = r#"
name: train
queues: [research]
images: [registry.example.com/team/, registry.example.com/base]
env: [EPOCHS]
secrets:
  wandb: {secret: wandb-key, env: {WANDB_API_KEY: key}}
  ssh: {secret: ssh-key, mountPath: /etc/ssh-key}
volumes:
  datasets: {mountPath: /data, source: {persistentVolumeClaim: {claimName: datasets}}}
pod:
  metadata: {labels: {team: vision}}
  spec:
    containers:
    - {name: worker, env: [{name: HOME, value: /tmp}]}
    - {name: sidecar, image: registry.example.com/side:1}
"#;

fn train() -> PodTemplate {
    PodTemplate::parse(TRAIN).unwrap()
}

fn fields(run: serde_json::Value) -> RunFields {
    RunFields::of(json!({ "run": run }).to_string().as_bytes()).unwrap()
}

fn render(run: serde_json::Value) -> Result<RenderedRun, TemplateError> {
    TemplateSet::new([train()])?.render("research/vision", &fields(run))
}

#[test]
fn an_event_sets_what_the_template_allows() {
    let run = json!({"template": "train", "image": "registry.example.com/team/a@sha256:0", "args": ["--x", "$(HOME) $$ $y"],
        "env": {"EPOCHS": "$(SECRET)"}, "secrets": ["wandb", "ssh"], "volumes": ["datasets"]});
    let rendered = render(run).unwrap();
    assert_eq!(rendered.env, [("EPOCHS".to_owned(), "$$(SECRET)".to_owned())]);
    let pod = rendered.pod(&KubeSettings::new("jobs", "forebay:1"), None);
    let spec = &pod["spec"];
    assert_eq!(spec["containers"][0]["args"], json!(["--x", "$$(HOME) $$$$ $$y"]));
    assert_eq!(spec["containers"][0]["image"], "registry.example.com/team/a@sha256:0");
    assert_eq!(spec["containers"][1]["image"], "registry.example.com/side:1");
    assert_eq!((&spec["restartPolicy"], &spec["schedulerName"]), (&json!("Never"), &json!("forebay")));
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["initContainers"][0]["name"], GATE);
    let names: Vec<&str> = spec["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["secret-ssh", "volume-datasets", "forebay-worker"]);
    let env: Vec<&str> =
        spec["containers"][0]["env"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(env, ["HOME", "WANDB_API_KEY"]);
}

const GATE: &str = crate::names::GATE_CONTAINER;

#[test]
fn what_an_event_may_not_set_is_refused_with_a_remedy() {
    let image = "registry.example.com/team/a";
    for (run, words) in [
        (
            json!({"image": image}),
            "run.template: the job names no template; name one that queue research/vision may use: train",
        ),
        (
            json!({"template": "serve"}),
            "run.template: queue research/vision has no template `serve`; name one that queue research/vision may use: train",
        ),
        (json!({"template": "train"}), "run.image: template train has no image of its own; name an image"),
        (
            json!({"template": "train", "image": "registry.example.com/teams/a"}),
            "run.image: template train does not allow `registry.example.com/teams/a`; use an image that begins with one of: registry.example.com/team/, registry.example.com/base",
        ),
        (
            json!({"template": "train", "image": image, "env": {"HOME": "/"}}),
            "run.env.HOME: template train does not let events set it; remove it, or have the operator list it in the template's env",
        ),
        (
            json!({"template": "train", "image": image, "env": {"ld_preload": "/x"}}),
            "run.env.ld_preload: `ld_preload` begins with FOREBAY_, NVIDIA_, LD_, AWS_ or KUBERNETES_, which are never set from outside; remove it",
        ),
        (
            json!({"template": "train", "image": image, "env": {"RANK": "1"}}),
            "run.env.RANK: `RANK` is set for each worker; remove it",
        ),
        (
            json!({"template": "train", "image": image, "secrets": ["db"]}),
            "run.secrets: template train has no secret `db`; name one of its secrets: ssh, wandb",
        ),
        (
            json!({"template": "train", "image": image, "volumes": ["all"]}),
            "run.volumes: template train has no volume `all`; name one of its volumes: datasets",
        ),
    ] {
        assert_eq!(render(run).unwrap_err().to_string(), words);
    }
    let other = TemplateSet::new([train()]).unwrap().render("researchers", &fields(json!({"template": "train"})));
    assert!(other.unwrap_err().to_string().ends_with("may use: none yet"));
}

#[test]
fn images_are_allowed_by_whole_parts_of_their_names() {
    for (image, allowed) in [
        ("registry.example.com/team/a", true),
        ("registry.example.com/base", true),
        ("registry.example.com/base:1", true),
        ("registry.example.com/base@sha256:0", true),
        ("registry.example.com/base/x", true),
        ("registry.example.com/baseline", false),
        ("registry.example.com.evil/team/a", false),
        ("team/a", false),
    ] {
        assert_eq!(train().allows_image(image), allowed, "{image}");
    }
}

#[test]
fn what_gangs_cannot_have_is_refused() {
    let refused = |change: &dyn Fn(&mut PodTemplate)| {
        let mut template = train();
        change(&mut template);
        template.check().unwrap_err().to_string()
    };
    for field in super::check::tests_fields() {
        let words = refused(&|t| t.pod["spec"][field] = json!({}));
        assert!(words.starts_with(&format!("template train: pod.spec.{field}: ")) && words.contains("; "), "{words}");
    }
    for (words, change) in [
        (
            "pod.spec.volumes[0].ephemeral",
            (&|t: &mut PodTemplate| t.pod["spec"]["volumes"] = json!([{"name": "x", "ephemeral": {}}]))
                as &dyn Fn(&mut PodTemplate),
        ),
        ("volumes.v.source.ephemeral", &|t| {
            t.volumes.insert(
                "v".into(),
                VolumeUse { mount_path: "/v".into(), read_only: true, source: json!({"ephemeral": {}}) },
            );
        }),
        ("env: `AWS_PROFILE`", &|t| t.env.extend(["AWS_PROFILE".to_owned()])),
        ("env: `2x`", &|t| t.env.extend(["2x".to_owned()])),
        ("images: `ubuntu`", &|t| t.images.push("ubuntu".into())),
        ("queues: is empty", &|t| t.queues.clear()),
        ("container: `x`", &|t| t.container = Some("x".into())),
        ("pod.metadata.finalizers", &|t| t.pod["metadata"]["finalizers"] = json!([])),
        ("pod.metadata.labels: `forebay.dev/x`", &|t| t.pod["metadata"]["labels"]["forebay.dev/x"] = json!("y")),
        ("pod.spec.initContainers", &|t| t.pod["spec"]["initContainers"] = json!([{"name": GATE}])),
        ("pod.spec.volumes: `forebay-gang`", &|t| t.pod["spec"]["volumes"] = json!([{"name": "forebay-gang"}])),
        ("pod.spec.containers", &|t| t.pod["spec"]["containers"] = json!([])),
        ("pod.spec: is missing", &|t| t.pod = json!({})),
    ] {
        let said = refused(change);
        assert!(said.starts_with(&format!("template train: {words}")), "{said}");
    }
    let unknown = PodTemplate::parse("name: a\nqueue: b\n").unwrap_err().to_string();
    assert!(unknown.contains("queue") && unknown.ends_with("docs/KUBERNETES.md shows"), "{unknown}");
}

#[test]
fn what_no_event_asked_for_is_not_requested_beside_it() {
    let with = |spec: &serde_json::Value| {
        let mut template = train();
        for (field, value) in spec.as_object().unwrap() {
            template.pod["spec"][field.as_str()] = value.clone();
        }
        template.check().map_err(|error| error.to_string())
    };
    let beside = |resources: serde_json::Value| {
        with(&json!({"containers": [{"name": "worker"}, {"name": "side", "resources": resources}]}))
    };
    let remedy = "what a worker holds is the event's gang.each, so ask for more there";
    for (resource, resources) in [
        ("cpu", json!({"requests": {"cpu": "2"}})),
        ("cpu", json!({"limits": {"cpu": 1}})),
        ("memory", json!({"requests": {"cpu": "0", "memory": "1Gi"}})),
        ("memory", json!({"requests": {"cpu": "0"}, "limits": {"cpu": "1", "memory": "1Gi"}})),
        ("nvidia.com/gpu", json!({"limits": {"nvidia.com/gpu": "1"}})),
        ("vpc.amazonaws.com/efa", json!({"limits": {"vpc.amazonaws.com/efa": "4"}})),
        ("hugepages-2Mi", json!({"limits": {"hugepages-2Mi": "4Mi"}})),
    ] {
        let words = beside(resources).unwrap_err();
        let begins = format!("template train: pod.spec.containers[1].resources: it requests `{resource}` (");
        assert!(words.starts_with(&begins) && words.ends_with(remedy), "{words}");
    }
    // An init container may be larger than the work, which is not known here, and a sidecar runs beside it.
    for restart in [json!(null), json!("Always")] {
        let second = json!({"name": "b", "restartPolicy": restart, "resources": {"requests": {"cpu": "1m"}}});
        let words = with(&json!({"initContainers": [{"name": "a"}, second]})).unwrap_err();
        assert!(words.contains("train: pod.spec.initContainers[1].resources: it requests `cpu`"), "{words}");
    }
    let words = beside(json!({"requests": {"cpu": "many"}})).unwrap_err();
    assert!(words.contains("`cpu` of `many` is no quantity") && words.ends_with("correct it"), "{words}");
    // Nothing is requested: a limit caps what it takes of what is left.
    for resources in [
        json!({}),
        json!({"requests": {"cpu": "0", "memory": 0}}),
        json!({"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
        json!({"requests": {"ephemeral-storage": "1Gi"}}),
    ] {
        assert_eq!(beside(resources.clone()), Ok(()), "{resources}");
    }
    // The container that works has the event's requests in the place of these, and what no event can ask for.
    let worker =
        json!({"requests": {"cpu": "4", "ephemeral-storage": "9Gi"}, "limits": {"vpc.amazonaws.com/efa": "4"}});
    assert_eq!(with(&json!({"containers": [{"name": "worker", "resources": worker}]})), Ok(()));
    let mut second = train();
    second.container = Some("sidecar".to_owned());
    second.pod["spec"]["containers"][1]["resources"] = json!({"requests": {"cpu": "4"}});
    assert_eq!(second.check(), Ok(()));
    second.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "4"}});
    assert!(second.check().unwrap_err().to_string().contains("pod.spec.containers[0].resources"));
}

#[test]
fn nothing_of_ours_is_requested_beside_the_event() {
    let rendered = render(json!({"template": "train", "image": "registry.example.com/base"})).unwrap();
    let pod = rendered.pod(&KubeSettings::new("jobs", "forebay:1"), None);
    let requests = crate::adoption::pod_requests(&pod["spec"], "spec").unwrap();
    assert!(requests.values().all(|amount| *amount == 0), "{requests:?}");
}

#[test]
fn the_workers_volume_says_who_the_pod_is() {
    let rendered = render(json!({"template": "train", "image": "registry.example.com/base"})).unwrap();
    let pod = rendered.pod(&KubeSettings::new("jobs", "forebay:1"), None);
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == crate::names::VOLUME_WORKER).unwrap();
    let item = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let items = json!([
        item("worker", "metadata.annotations['forebay.dev/worker']"),
        item("barrier", "metadata.annotations['forebay.dev/barrier']"),
        item("namespace", "metadata.namespace"),
        item("pod", "metadata.name"),
    ]);
    assert_eq!(volume["downwardAPI"]["items"], items);
}

#[test]
fn claims_that_wait_for_a_first_consumer_are_refused() {
    let mut template = train();
    template.pod["spec"]["volumes"] = json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ]);
    assert_eq!(template.claims().into_iter().collect::<Vec<_>>(), ["datasets", "models"]);
    let check = |claims: &[(&str, VolumeClaimState)]| {
        let claims = claims.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect();
        template.check_claims(&claims).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        check(&[("datasets", VolumeClaimState::Bound), ("models", VolumeClaimState::Pending)]),
        Vec::<String>::new()
    );
    assert_eq!(check(&[]), Vec::<String>::new(), "what is not known is not wrong");
    let wrong = check(&[("datasets", VolumeClaimState::Missing), ("models", VolumeClaimState::WaitsForConsumer)]);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong[0].starts_with("template train: pod.spec.volumes[1].persistentVolumeClaim: ")
            && wrong[0].contains("`models` waits for its first consumer")
            && wrong[0].contains("; use a storage class with volumeBindingMode: Immediate"),
        "{wrong:?}"
    );
    let missing = "template train: volumes.datasets.source.persistentVolumeClaim: there is no claim `datasets` in the namespace; create it, or correct its name";
    assert_eq!(wrong[1], missing);
}
