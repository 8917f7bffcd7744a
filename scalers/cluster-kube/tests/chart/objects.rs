//! What the chart renders: a real API server takes every object, whatever is switched on, and values that do not fit are refused in words.

use std::collections::BTreeSet;

use forebay_parts::{Helm, Kubernetes, KubernetesOptions};
use serde_json::{Value, json};

use crate::rendered::{NAMESPACE, RELEASE, chart, example, objects, of_kind, refusal, root, text, with};

/// A PodMonitor is of Prometheus' operator: this definition takes any, so its fields are checked below and not here.
const POD_MONITORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

fn cluster() -> Kubernetes {
    let kubernetes = Kubernetes::start(KubernetesOptions::default()).unwrap();
    for namespace in [NAMESPACE, "jobs", "research", "vision", "forebay-agent"] {
        kubernetes.kubectl(&["create", "namespace", namespace], "").unwrap();
    }
    kubernetes.apply(POD_MONITORS).unwrap();
    kubernetes.wait_until(&["get", "podmonitors"], |text| text.starts_with("No resources found")).unwrap();
    kubernetes
}

#[test]
fn helm_finds_nothing_and_a_real_api_server_takes_every_object() {
    let helm = Helm::install().unwrap();
    let kubernetes = cluster();
    for (values, count) in [("small.yaml", 21), ("all.yaml", 33)] {
        let values = example(values);
        helm.lint(&chart(), &values).unwrap();
        let rendered = text(&values);
        let taken = kubernetes.kubectl(&["apply", "--dry-run=server", "-f", "-"], &rendered).unwrap();
        assert!(!taken.contains("Warning"), "{taken}");
        assert_eq!(taken.matches("(server dry run)").count(), objects(&rendered).len(), "{taken}");
        assert_eq!(objects(&rendered).len(), count);
    }
    // A field that Kubernetes does not know is seen.
    let wrong = text(&example("small.yaml")).replace("serviceName:", "servicename:");
    let refused = kubernetes.kubectl(&["apply", "--dry-run=server", "-f", "-"], &wrong).unwrap_err().to_string();
    assert!(refused.contains("servicename"), "{refused}");
    controller_is_restricted(&kubernetes);
}

/// The controller's pod is taken where the standard `restricted` is enforced.
fn controller_is_restricted(kubernetes: &Kubernetes) {
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    kubernetes.kubectl(&["label", "namespace", NAMESPACE, enforce], "").unwrap();
    let rendered = objects(&text(&example("all.yaml")));
    let class = of_kind(&rendered, "PriorityClass")[0].to_string();
    kubernetes.apply(&class).unwrap();
    let mut pod = of_kind(&rendered, "StatefulSet")[0]["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("forebay-0");
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    // The StatefulSet's controller adds the claim.
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-forebay-0"}}));
    let create = |pod: &Value| kubernetes.kubectl(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
    create(&pod).unwrap();
    for (path, value) in [
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/securityContext/seccompProfile/type", json!("Unconfined")),
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/containers/0/securityContext/capabilities/drop", json!([])),
    ] {
        let mut open = pod.clone();
        *open.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        let refused = create(&open).expect_err(path).to_string();
        assert!(refused.contains("violates PodSecurity"), "{path}: {refused}");
    }
}

#[test]
fn the_controller_stays_off_the_nodes_that_it_buys_and_the_agent_is_on_them() {
    let rendered = objects(&text(&example("all.yaml")));
    let controller = &of_kind(&rendered, "StatefulSet")[0]["spec"];
    let agent = &of_kind(&rendered, "DaemonSet")[0]["spec"]["template"]["spec"];
    let term = |pod: &Value| {
        let path = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        pod.pointer(path).cloned().unwrap()
    };
    let expressions =
        |operator: &str| json!([{"matchExpressions": [{"key": "forebay.dev/node", "operator": operator}]}]);
    assert_eq!(term(&controller["template"]["spec"]), expressions("DoesNotExist"));
    assert_eq!(term(agent), expressions("Exists"));
    assert_eq!(controller["replicas"], 1, "the journal has one writer");
    assert_eq!(controller["podManagementPolicy"], "Parallel", "a pod that never gets ready can be replaced");
    let services = of_kind(&rendered, "Service");
    assert_eq!(services[0]["spec"]["publishNotReadyAddresses"], true, "it is read while its disk is full");
    let container = &controller["template"]["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    for (probe, path) in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
    }
    assert_eq!((&agent["hostPID"], &agent["automountServiceAccountToken"]), (&json!(true), &json!(false)));
    let kubelet = json!({"name": "kubelet", "mountPath": "/var/lib/kubelet", "readOnly": true, "mountPropagation": "HostToContainer"});
    assert!(agent["containers"][0]["volumeMounts"].as_array().unwrap().contains(&kubelet));

    let monitor = &of_kind(&rendered, "PodMonitor")[0]["spec"];
    assert_eq!(monitor["selector"]["matchLabels"], controller["selector"]["matchLabels"]);
    let endpoint = json!({"port": "api", "path": "/metrics", "interval": "15s",
        "authorization": {"type": "Bearer", "credentials": {"name": "forebay-tokens", "key": "metrics"}},
        "relabelings": [{"targetLabel": "instance", "replacement": format!("{NAMESPACE}/{RELEASE}")}]});
    assert_eq!(monitor["podMetricsEndpoints"], json!([endpoint]));
    let small = objects(&text(&example("small.yaml")));
    for kind in ["DaemonSet", "PodMonitor"] {
        assert!(of_kind(&small, kind).is_empty(), "{kind} is off by default");
    }
    assert_eq!(of_kind(&small, "NetworkPolicy").len(), 1);
    assert!(!text(&example("all.yaml")).contains("kind: Secret"), "secrets are never made from values");
}

#[test]
fn an_agent_has_its_own_token_unless_a_secret_is_named() {
    let named = example("all.yaml");
    let own = with(&named, &["agent", "tokenSecret"], json!(""));
    for (values, has_own) in [(named, false), (own, true)] {
        let rendered = text(&values);
        let all = objects(&rendered);
        let agent = &of_kind(&all, "DaemonSet")[0]["spec"]["template"]["spec"];
        let token = &agent["volumes"][0];
        let source =
            json!([{"serviceAccountToken": {"audience": "forebay", "expirationSeconds": 3600, "path": "token"}}]);
        assert_eq!(token["projected"]["sources"] == source, has_own, "{token}");
        assert_eq!(token["secret"]["secretName"] == "forebay-agent", !has_own, "{token}");
        let read = agent["containers"][0]["args"].as_array().unwrap();
        assert!(read.contains(&json!("--token-file=/etc/forebay/agent/token")), "{read:?}");
        // The controller knows the account, and may ask whose a token is.
        let account = agent["serviceAccountName"].as_str().unwrap();
        assert_eq!(rendered.contains(&format!("- forebay-agent/{account}")), has_own);
        assert_eq!(rendered.contains("tokenreviews"), has_own);
    }
}

#[test]
fn what_is_missing_or_does_not_fit_is_refused_in_words() {
    let (small, all) = (example("small.yaml"), example("all.yaml"));
    let quote = json!("jobs\"\n  injected: true");
    for (values, part) in [
        (String::new(), "image.repository: not set"),
        (with(&small, &["image", "repository"], json!("")), "name it, such as registry.example.com/forebay"),
        (with(&small, &["config"], json!({})), "config.ec2: not set"),
        (with(&small, &["tokens"], json!([])), "tokens: nobody may call the API"),
        (with(&small, &["templates"], json!({})), "templates: no pod template"),
        (with(&small, &["kubernetes"], json!({"namespace": quote})), "at '/kubernetes/namespace'"),
        (with(&small, &["kubernetes"], json!({"namespaces": {"a": quote}})), "at '/kubernetes/namespaces/a'"),
        (with(&small, &["image", "repository"], json!("a\": b")), "at '/image/repository'"),
        (with(&small, &["image", "tag"], json!("1 # x")), "at '/image/tag'"),
        (with(&small, &["serviceAccount"], json!({"name": "a' || true || 'a"})), "at '/serviceAccount/name'"),
        (with(&small, &["secrets"], json!(["../etc"])), "at '/secrets/0'"),
        (with(&small, &["config", "tokens"], json!([])), "config.tokens: the chart writes this key itself"),
        (
            with(&small, &["tokens"], json!([{"name": "a", "roles": ["root"], "secretKey": "a"}])),
            "at '/tokens/0/roles/0'",
        ),
        (with(&small, &["tokens"], json!([{"name": "a", "roles": ["read"], "secret": "x"}])), "'secret' not allowed"),
        (
            with(&small, &["tolerations"], json!([{"key": "forebay.dev/node", "operator": "Exists"}])),
            "at '/tolerations/0/key'",
        ),
        (with(&small, &["tolerations"], json!([{"operator": "Exists"}])), "missing property 'key'"),
        (with(&small, &["admissionPolicies"], json!({})), "'admissionPolicies' not allowed"),
        (with(&all, &["agent", "nodeCIDRs"], json!([])), "agent.nodeCIDRs: not set"),
        (with(&all, &["networkPolicy", "from"], json!([])), "networkPolicy.from: not set"),
        (with(&all, &["agent", "gpus"], json!("nvml --listen=0.0.0.0:1")), "at '/agent/gpus'"),
    ] {
        let refused = refusal(&values);
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn the_configuration_has_keys_that_forebay_knows_and_what_a_value_says_stays_a_value() {
    let schema = std::fs::read_to_string(root().join("policies/schema/config.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let known: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let hostile = json!([{"name": "a\nlisten: 0.0.0.0:1 # '\"", "roles": ["read"], "secretKey": "a"}]);
    for values in [example("small.yaml"), example("all.yaml"), with(&example("small.yaml"), &["tokens"], hostile)] {
        let rendered = objects(&text(&values));
        let maps = of_kind(&rendered, "ConfigMap");
        let map = |name: &str| maps.iter().find(|map| map["metadata"]["name"] == name).map(|map| &map["data"]);
        let written = map("forebay-config").unwrap()["forebay.yaml"].as_str().unwrap();
        let config: Value = serde_saphyr::from_str(written).unwrap();
        let values: Value = serde_saphyr::from_str(&values).unwrap();
        // `forebay check` knows what is in the section of the cluster; here it is what the chart says.
        let unknown = config.as_object().unwrap().keys().filter(|key| !known.contains(key) && *key != "kubernetes");
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
        assert_eq!((&config["apiVersion"], &config["kind"]), (&json!("forebay/v1"), &json!("Config")));
        assert_eq!(config["listen"], "0.0.0.0:8080");
        assert_eq!(config["ec2"], values["config"]["ec2"]);
        assert_eq!(config["tokens"][0]["name"], values["tokens"][0]["name"]);
        let file = format!("/etc/forebay/tokens/{}", values["tokens"][0]["secretKey"].as_str().unwrap());
        assert_eq!(config["tokens"][0]["secret"], json!({"file": file}), "a reference, never a secret");
        assert_eq!(config["kubernetes"]["namespace"], "jobs");
        assert_eq!(config.get("policy").is_some(), map("forebay-policy").is_some());
        for (_, template) in map("forebay-templates").unwrap().as_object().unwrap() {
            forebay_cluster_kube::template::PodTemplate::parse(template.as_str().unwrap()).unwrap();
        }
    }
}
