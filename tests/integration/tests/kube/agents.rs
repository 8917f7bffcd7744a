//! Agents that are known by their service account: the token of a pod speaks of the pod's own node, and of nothing else.

use super::stand::{LIMIT, RELEASE_NAMESPACE, Stand, StandOptions};
use forebay_integration::{Server, until};
use serde_json::{Value, json};

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: agents}
limits: {nodes: 2, spend: 1000 USD/h}
queues:
  research: {pools: [a100], submitters: [on-call]}
pools:
  a100: {instanceTypes: [p4d.24xlarge], keepReady: 2}
";

const CONFIG: &str = "  agents: [forebay-system/forebay-agent]\ntokens: [{name: on-call, roles: [operate], secret: {file: on-call.token}}]\n";

const ON_CALL: &str = "a-token-of-the-one-on-call";

/// The names of the nodes that were bought, and their instances.
fn nodes(stand: &Stand) -> Vec<(String, String)> {
    let listed: Value =
        serde_json::from_str(&stand.kubectl(&["get", "nodes", "-l", "forebay.dev/node", "-o", "json"])).expect("JSON");
    let of = |node: &Value| {
        let instance = node["spec"]["providerID"].as_str()?.rsplit('/').next()?;
        Some((node["metadata"]["name"].as_str()?.to_owned(), instance.to_owned()))
    };
    listed["items"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// A pod of an account on a node.
fn create_pod(stand: &Stand, name: &str, account: &str, node: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": RELEASE_NAMESPACE},
        "spec": {"serviceAccountName": account, "nodeName": node, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "reg/agent"}]}});
    let account = format!("serviceaccount/{account}");
    stand.kubectl(&["wait", &account, "-n", RELEASE_NAMESPACE, "--for=create", "--timeout=60s"]);
    stand.kubernetes.apply(&pod.to_string()).expect("a pod");
}

/// A token, as the kubelet has one made for a pod.
fn token(stand: &Stand, account: &str, audience: &str, pod: Option<&str>) -> String {
    let audience = format!("--audience={audience}");
    let mut words = vec!["create", "token", account, "-n", RELEASE_NAMESPACE, &audience];
    words.extend(pod.into_iter().flat_map(|pod| ["--bound-object-kind=Pod", "--bound-object-name", pod]));
    stand.kubectl(&words).trim().to_owned()
}

/// What the controller says of an agent's words about an instance.
fn hello(server: &Server, token: &str, instance: &str) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    server.send("POST", "/v1/agent/hello", &headers, json!({ "instance": instance }).to_string().as_bytes())
}

/// A token with another signature. Not its last character: of that some bits say nothing.
fn forged(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').expect("a signature");
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{first}{}", &signature[1..])
}

#[test]
fn the_token_of_an_agents_pod_speaks_of_its_own_node_alone() {
    let stand = Stand::new(&StandOptions { policy: POLICY, config: CONFIG });
    std::fs::write(stand.folder.path().join("on-call.token"), ON_CALL).expect("written");
    let server = stand.start();
    // An agent is there as soon as its node is, and that makes no node ready that Kubernetes does not call so.
    let bearer = format!("Bearer {ON_CALL}");
    let mut booting = String::new();
    until("an instance", LIMIT, || {
        let (_, text) = server.send("GET", "/v1/nodes", &[("authorization", &bearer)], b"");
        let nodes: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let instance = nodes["nodes"].as_array().and_then(|all| all.iter().find_map(|node| node["instance"].as_str()));
        instance.map(|instance| instance.clone_into(&mut booting)).ok_or(text)
    });
    let (status, text) = hello(&server, ON_CALL, &booting);
    assert!(status == 202 && text.contains("false"), "{status} {text}");
    until("two nodes", LIMIT, || {
        let nodes = nodes(&stand);
        if nodes.len() == 2 { Ok(()) } else { Err(format!("{nodes:?}; {}", server.log())) }
    });
    let [(first, own), (_, other)] = &nodes(&stand)[..] else { panic!("two nodes") };
    create_pod(&stand, "agent-1", "forebay-agent", first);
    create_pod(&stand, "guest", "default", first);

    let agent = token(&stand, "forebay-agent", "forebay", Some("agent-1"));
    for instance in [own, first] {
        let (status, text) = hello(&server, &agent, instance);
        assert!(status == 202 || (instance == first && status == 404), "{instance}: {status} {text}");
    }
    let (status, text) = hello(&server, &agent, other);
    assert!(status == 403 && text.contains("OtherNode"), "{status} {text}");
    let bearer = format!("Bearer {agent}");
    for path in ["/v1/jobs", "/v1/nodes", "/v1/state", "/metrics"] {
        let (status, text) = server.send("GET", path, &[("authorization", &bearer)], b"");
        assert_eq!(status, 401, "{path}: {text}");
    }

    let refused = [
        (token(&stand, "forebay-agent", "forebay", None), "made for no pod"),
        (
            token(&stand, "forebay-agent", "https://kubernetes.default.svc", Some("agent-1")),
            "for the audience `forebay`",
        ),
        (token(&stand, "default", "forebay", Some("guest")), "this token is not known here"),
        (forged(&agent), "Kubernetes does not accept it"),
    ];
    for (token, part) in &refused {
        let (status, text) = hello(&server, token, own);
        assert!(status == 401 && text.contains(part), "{part}: {status} {text}");
    }

    // A pod that is gone speaks of nothing: its token was not shown before.
    let late = token(&stand, "forebay-agent", "forebay", Some("agent-1"));
    stand.kubectl(&["delete", "pod", "agent-1", "-n", RELEASE_NAMESPACE, "--force", "--grace-period=0"]);
    let (status, text) = hello(&server, &late, own);
    assert!(status == 401 && text.contains("Kubernetes does not accept it"), "{status} {text}");

    // Those of the configuration go on.
    let bearer = format!("Bearer {ON_CALL}");
    assert_eq!(server.send("GET", "/v1/nodes", &[("authorization", &bearer)], b"").0, 200);
    let log = server.log();
    assert!(!log.contains(&agent) && !log.contains(&late) && !log.contains("eyJ"), "a token is in the log");
}
