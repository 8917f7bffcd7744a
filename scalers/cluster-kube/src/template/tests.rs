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
fn claims_that_wait_for_a_first_consumer_are_refused() {
    let check = |facts: Option<ClaimFacts>| {
        let claims = facts.map(|facts| ("datasets".to_owned(), facts)).into_iter().collect();
        train().check_claims(&claims).map_err(|error| error.to_string())
    };
    let (bound, mode) = (true, BindingMode::WaitForFirstConsumer);
    assert_eq!(check(Some(ClaimFacts { bound, mode })), Ok(()));
    assert_eq!(check(Some(ClaimFacts { bound: false, mode: BindingMode::Immediate })), Ok(()));
    assert!(check(Some(ClaimFacts { bound: false, mode })).unwrap_err().contains("waits for its first consumer"));
    assert!(check(None).unwrap_err().contains("there is no claim `datasets`"));
}
