//! `forebay check` and `forebay doctor` with a Kubernetes: what cannot be is told before anything is bought, and what is missing is named.

use super::stand::{KUBECONFIG, Stand, StandOptions};
use forebay_integration::run;
use serde_json::{Value, json};

const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: d}\nlimits: {nodes: 3}\nqueues: {a: {pools: [p]}}\n\
                      pools: {p: {instanceTypes: [g5.xlarge]}}\n";

#[test]
fn what_gangs_need_of_a_cluster_is_tried_and_nothing_changed() {
    let stand = Stand::new(&StandOptions { policy: POLICY, config: "" });
    let folder = stand.folder.path();
    let doctor = || {
        let output = forebay_integration::forebay(folder, &["doctor", "--config", "forebay.yaml"]);
        let mut output = output;
        forebay_integration::Said::from(output.env("TEST_KEY", "test").output().expect("it runs"))
    };
    // The claim of the template: not there, then waiting for what never comes, then bound.
    let said = doctor();
    assert!(said.code == 6 && said.out.contains("there is no claim `datasets` in the namespace"), "{said:?}");
    let class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: gp3}\nprovisioner: example.com/none\n\
                 volumeBindingMode: WaitForFirstConsumer\n";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: datasets, namespace: research}\n\
                 spec: {storageClassName: gp3, accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}\n";
    stand.kubernetes.apply(&format!("{class}---\n{claim}")).expect("a claim");
    let said = doctor();
    assert!(said.code == 6 && said.out.contains("`datasets` waits for its first consumer"), "{said:?}");
    assert!(said.out.contains("volumeBindingMode: Immediate"), "{said:?}");
    let bound = ["patch", "pvc", "datasets", "-n", "research", "--subresource=status", "--type=merge", "-p"];
    stand.kubectl(&[&bound[..], &[r#"{"status": {"phase": "Bound"}}"#]].concat());
    let said = doctor();
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        "v1.34.4",
        "rights in research",
        "namespace research",
        "takes a pod of it in research (a dry run)",
        "bound: `datasets`",
        "device plugin",
    ] {
        assert!(said.out.contains(part), "no `{part}` in {}", said.out);
    }
    assert_eq!(stand.pods().len(), 0);

    // An older chart has no right to look, which gangs do not need.
    let role = ["get", "role", "forebay-system-forebay", "-n", "research", "-o", "json"];
    let mut without: Value = serde_json::from_str(&stand.kubectl(&role)).expect("JSON");
    let rules = without["rules"].as_array_mut().expect("rules");
    rules.retain(|rule| rule["resources"][0] != "persistentvolumeclaims");
    without["metadata"] = json!({"name": "forebay-system-forebay", "namespace": "research"});
    stand.kubernetes.kubectl(&["replace", "-f", "-"], &without.to_string()).expect("replaced");
    let account = "--as=system:serviceaccount:forebay-system:forebay";
    let may = ["auth", "can-i", "get", "persistentvolumeclaims", "-n", "research", account];
    stand.kubernetes.wait_until(&may, |text| text.contains("no")).expect("it counts");
    let said = doctor();
    assert!(said.code == 0 && said.out.contains("not allowed to look"), "{said:?}");

    // Pods of the template are not taken any more: in the API server's words.
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    stand.kubectl(&["label", "namespace", "research", enforce]);
    let said = doctor();
    assert!(said.code == 6 && said.out.contains("violates PodSecurity"), "{said:?}");
    stand.kubectl(&["label", "namespace", "research", "pod-security.kubernetes.io/enforce-"]);

    // Somebody who may do nothing.
    stand.kubectl(&["create", "serviceaccount", "nobody", "-n", "research"]);
    let token = stand.kubectl(&["create", "token", "nobody", "-n", "research"]);
    let path = folder.join("nobody.kubeconfig");
    let admin = std::fs::read_to_string(stand.kubernetes.kubeconfig()).expect("a kubeconfig");
    std::fs::write(&path, admin.replace(stand.kubernetes.token(), token.trim())).expect("written");
    let config = folder.join("forebay.yaml");
    let text = std::fs::read_to_string(&config).expect("written");
    std::fs::write(&config, text.replace(KUBECONFIG, "nobody.kubeconfig")).expect("written");
    let said = doctor();
    assert_eq!(said.code, 6, "{said:?}");
    for part in ["missing: ", "create pods", "patch nodes", "grant them"] {
        assert!(said.out.contains(part), "no `{part}` in {}", said.out);
    }
    assert!(!format!("{said:?}").contains(token.trim()), "a token is told");

    // Nobody there.
    stand.kubernetes.kill_api_server().expect("killed");
    let said = doctor();
    assert!(said.code == 6 && said.out.contains("check the address and the credentials"), "{said:?}");
}

#[test]
fn a_configuration_that_cannot_be_is_told_with_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let put = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("written");
    put("policy.yaml", POLICY);
    put("key", "test");
    std::fs::create_dir(path.join("templates")).expect("a folder");
    let ec2 = "ec2:\n  name: d\n  endpoint: http://127.0.0.1:9\n  region: us-east-1\n  keys: {id: {file: key}, secret: {file: key}}\n  \
               zones: [us-east-1a]\n  launch: {template: t}\n";
    let kube = "kubernetes: {namespace: jobs, templates: templates, gateImage: 'forebay:1'}\n";
    let train = "name: train\nqueues: [a]\nimages: [reg/]\npod: {spec: {containers: [{name: w}]}}\n";
    let cases = [
        (format!("{ec2}{kube}"), "", "no template is in there"),
        (format!("{ec2}{kube}"), train, ""),
        (format!("{ec2}{kube}cluster: simulated\n"), train, "leave one out"),
        (kube.to_owned(), train, "there is no `ec2`"),
        (ec2.to_owned(), train, "write `kubernetes:`"),
        (format!("{ec2}  ready: agent\n{kube}"), train, "write `node`, or leave it out"),
        (format!("{ec2}  ready: node\ncluster: simulated\n"), train, "`node` needs `kubernetes`"),
        (format!("{ec2}{}", kube.replace("jobs", "Jobs")), train, "`Jobs` is no namespace"),
        (format!("{ec2}{}", kube.replace("'forebay:1'", "''")), train, "`gateImage` is empty"),
        (format!("{ec2}{}", kube.replace("namespace", "nomspace")), train, "nomspace"),
        (
            format!("{ec2}{kube}"),
            "name: train\nqueues: [a]\npod: {spec: {nodeName: n, containers: [{name: w}]}}\n",
            "nodeName",
        ),
        (
            format!("{ec2}{kube}"),
            "name: train\nqueues: [a]\npod: {spec: {containers: [{name: w}, {name: s, resources: {requests: {cpu: 2}}}]}}\n",
            "leave `cpu` out",
        ),
        (
            format!("{ec2}{kube}"),
            "name: train\nqueues: [a]\npod: {spec: {containers: [{name: w}], volumes: [{name: v, ephemeral: {}}]}}\n",
            "pod.spec.volumes[0].ephemeral",
        ),
    ];
    for (config, template, part) in cases {
        put("templates/train.yaml", template);
        if template.is_empty() {
            std::fs::remove_file(path.join("templates/train.yaml")).expect("removed");
        }
        put(
            "forebay.yaml",
            &format!("apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ndata: data\n{config}"),
        );
        let said = run(path, &["check", "forebay.yaml"]);
        if part.is_empty() {
            assert_eq!(said.code, 0, "{said:?}");
        } else {
            assert!(said.code == 2 && said.err.contains(part), "`{part}`: {config}: {said:?}");
        }
    }
}
