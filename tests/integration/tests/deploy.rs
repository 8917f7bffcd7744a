//! `deploy/aws`: CloudFormation takes the template, and its policies allow what Forebay calls, and little else.
//!
//! Never: a call to AWS.

use forebay_capacity_ec2::request;
use forebay_integration::{root, run};
use forebay_parts::CfnLint;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the adapters call on AWS's clients, and the action of IAM that each needs. A new call belongs in here, and into the template.
const CALLS: [(&str, &str); 18] = [
    ("create_fleet", "ec2:CreateFleet"),
    ("create_placement_group", "ec2:CreatePlacementGroup"),
    ("describe_availability_zones", "ec2:DescribeAvailabilityZones"),
    ("describe_capacity_reservations", "ec2:DescribeCapacityReservations"),
    ("describe_instance_status", "ec2:DescribeInstanceStatus"),
    ("describe_instance_types", "ec2:DescribeInstanceTypes"),
    ("describe_instances", "ec2:DescribeInstances"),
    ("describe_spot_price_history", "ec2:DescribeSpotPriceHistory"),
    ("describe_subnets", "ec2:DescribeSubnets"),
    ("run_instances", "ec2:RunInstances"),
    ("terminate_instances", "ec2:TerminateInstances"),
    ("get_object", "s3:GetObject"),
    // Whoever may read an object may look at it.
    ("head_object", "s3:GetObject"),
    ("list_objects_v2", "s3:ListBucket"),
    ("delete_message_batch", "sqs:DeleteMessage"),
    ("get_queue_attributes", "sqs:GetQueueAttributes"),
    ("get_queue_url", "sqs:GetQueueUrl"),
    ("receive_message", "sqs:ReceiveMessage"),
];

/// What the template allows without a call above: tags and the role come with a launch, the job queues are the sources', and writing
/// checkpoints is the jobs'.
const BESIDE: [&str; 7] = [
    "ec2:CreateTags",
    "iam:PassRole",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "sqs:ChangeMessageVisibility",
    "sqs:SendMessage",
];

fn template() -> PathBuf {
    root().join("deploy/aws/forebay.yaml")
}

fn decoded() -> Value {
    let lint = CfnLint::install().expect("cfn-lint");
    let said = lint.to_json(&template()).expect("it runs");
    serde_json::from_slice(&said.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&said.stderr)))
}

/// Every policy statement below a value: whatever has an effect.
fn statements<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) if fields.contains_key("Effect") => found.push(value),
        Value::Object(fields) => fields.values().for_each(|value| statements(value, found)),
        Value::Array(values) => values.iter().for_each(|value| statements(value, found)),
        _ => {}
    }
}

fn all_statements(template: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    statements(&template["Resources"], &mut found);
    assert!(found.len() > 15, "{} statements only", found.len());
    found
}

/// One text, or several.
fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map_or_else(|| value.as_str().into_iter().collect(), |all| all.iter().filter_map(Value::as_str).collect())
}

/// The statements of one resource of the template that allow an action.
fn allowing<'a>(template: &'a Value, resource: &str, action: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    statements(&template["Resources"][resource]["Properties"], &mut found);
    found.retain(|s| s["Effect"] == "Allow" && texts(&s["Action"]).contains(&action));
    found
}

/// The Rust files of a folder, and of those in it.
fn sources(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut all = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            all.push(std::fs::read_to_string(&path).expect("reads"));
        }
    }
    all
}

/// Names of AWS's calls in a file: `.describe_instances()` and the like. Its tests, which come last, call nobody: they look at what would
/// be asked.
fn calls(text: &str) -> BTreeSet<String> {
    const VERBS: [&str; 10] =
        ["create_", "delete_", "describe_", "get_", "head_", "list_", "put_", "receive_", "run_", "terminate_"];
    let text = text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text, |(before, _)| before);
    let names = text.split('.').skip(1).filter_map(|rest| rest.split_once("()").map(|(name, _)| name));
    let plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    names.filter(plain).filter(|name| VERBS.iter().any(|verb| name.starts_with(verb))).map(str::to_owned).collect()
}

#[test]
fn cfn_lint_has_nothing_to_say() {
    let lint = CfnLint::install().expect("cfn-lint");
    let said = lint.lint(&template()).expect("it runs");
    assert!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    // It would say something.
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.yaml");
    let text = std::fs::read_to_string(template()).expect("reads");
    std::fs::write(&broken, text.replace("MessageRetentionPeriod: 3600", "MessageRetentionPeriod: 36000000"))
        .expect("writes");
    let said = lint.lint(&broken).expect("it runs");
    assert!(!said.status.success() && String::from_utf8_lossy(&said.stdout).contains("36000000"), "{said:?}");
}

#[test]
fn every_action_that_is_called_is_allowed_and_few_others_are() {
    let template = decoded();
    let mut found = Vec::new();
    statements(&template["Resources"]["ControllerPolicy"], &mut found);
    let allowed: BTreeSet<&str> = found.iter().flat_map(|s| texts(&s["Action"])).collect();
    let mut called = BTreeSet::new();
    for crate_ in ["capacity-ec2", "checkpoint-s3"] {
        for text in sources(&root().join("scalers").join(crate_).join("src")) {
            called.extend(calls(&text));
        }
    }
    assert!(called.len() >= 3, "{called:?}");
    for call in &called {
        let action = CALLS.iter().find(|(name, _)| name == call).map(|(_, action)| *action);
        let action = action.unwrap_or_else(|| panic!("which action does `{call}` need? Say so in CALLS"));
        assert!(allowed.contains(action), "`{call}` is called and {action} is not allowed");
    }
    let uncalled: Vec<_> = CALLS.iter().filter(|(name, _)| !called.contains(*name)).collect();
    assert!(
        uncalled.is_empty(),
        "nobody calls these any more: take them out of CALLS, and their actions out of the template: {uncalled:?}"
    );
    let known: BTreeSet<&str> = CALLS.iter().map(|(_, action)| *action).chain(BESIDE).collect();
    let all: BTreeSet<&str> =
        all_statements(&template).iter().filter(|s| s["Effect"] == "Allow").flat_map(|s| texts(&s["Action"])).collect();
    let strange: Vec<_> =
        all.iter().filter(|action| !known.contains(*action) && **action != "sts:AssumeRole").collect();
    assert!(strange.is_empty(), "allowed, and nobody calls it: {strange:?}");
}

#[test]
fn no_action_is_everything_and_what_changes_something_is_bound_to_the_cluster() {
    let template = decoded();
    for statement in all_statements(&template) {
        let (allow, actions) = (statement["Effect"] == "Allow", texts(&statement["Action"]));
        assert!(!actions.is_empty() && statement.get("NotAction").is_none(), "{statement}");
        assert!(actions.iter().all(|action| !action.contains('*')), "{statement}");
        let looks = actions.iter().all(|action| action.starts_with("ec2:Describe"));
        assert!(!allow || looks || !texts(&statement["Resource"]).contains(&"*"), "everything: {statement}");
        assert!(!allow || statement["Principal"] != "*", "everybody: {statement}");
    }
    let cluster = serde_json::json!({ "Ref": "ClusterName" });
    let of = |action: &str| allowing(&template, "ControllerPolicy", action);
    let is_instance = |s: &&&Value| s["Resource"].to_string().contains(":instance/*");
    let [end] = of("ec2:TerminateInstances")[..] else { panic!("one statement ends instances") };
    assert_eq!(end["Condition"]["StringEquals"]["aws:ResourceTag/forebay:cluster"], cluster);
    let launch = of("ec2:RunInstances");
    let [launch] = launch.iter().filter(is_instance).collect::<Vec<_>>()[..] else { panic!("one launches instances") };
    assert_eq!(launch["Condition"]["StringEquals"]["aws:RequestTag/forebay:cluster"], cluster);
    let [tag] = of("ec2:CreateTags")[..] else { panic!("one statement tags") };
    assert_eq!(
        tag["Condition"]["StringEquals"]["ec2:CreateAction"],
        serde_json::json!(["CreateFleet", "RunInstances"])
    );
    let [pass] = of("iam:PassRole")[..] else { panic!("one statement passes a role") };
    assert_eq!(pass["Resource"], serde_json::json!({ "Fn::GetAtt": ["NodeRole", "Arn"] }));
    // Both roles have no others than these; a node's is the checkpoints'.
    assert_eq!(
        template["Resources"]["ControllerRole"]["Properties"]["ManagedPolicyArns"],
        serde_json::json!([{ "Ref": "ControllerPolicy" }])
    );
    for (role, fields) in
        [("NodeRole", ["Policies", "ManagedPolicyArns"]), ("ControllerRole", ["Policies", "PermissionsBoundary"])]
    {
        let has = &template["Resources"][role]["Properties"];
        assert!(fields.iter().all(|field| has.get(field).is_none()), "{role}: {has}");
    }
    for statement in allowing(&template, "NodeCheckpoints", "s3:PutObject") {
        assert!(statement["Resource"].to_string().contains("${CheckpointBucket}/${CheckpointPrefix}*"), "{statement}");
    }
}

#[test]
fn the_rules_and_nobody_else_write_what_the_adapter_reads() {
    let template = decoded();
    let resources = template["Resources"].as_object().expect("resources");
    let rules: BTreeSet<&str> =
        resources.iter().filter(|(_, r)| r["Type"] == "AWS::Events::Rule").map(|(name, _)| name.as_str()).collect();
    let [write] = allowing(&template, "InterruptionQueuePolicy", "sqs:SendMessage")[..] else { panic!("one writes") };
    assert_eq!(write["Principal"], serde_json::json!({ "Service": "events.amazonaws.com" }));
    let arns = write["Condition"]["ArnEquals"]["aws:SourceArn"].as_array().expect("ARNs");
    let named: BTreeSet<&str> = arns.iter().filter_map(|arn| arn["Fn::GetAtt"][0].as_str()).collect();
    assert_eq!((named.len(), &named), (arns.len(), &rules), "by the rules' own ARNs");
    let reads = std::fs::read_to_string(root().join("scalers/capacity-ec2/src/notice/detail.rs")).expect("reads");
    let mut kinds = BTreeSet::new();
    for rule in &rules {
        let properties = &resources[*rule]["Properties"];
        assert_eq!(properties["Targets"][0]["Arn"], serde_json::json!({ "Fn::GetAtt": ["InterruptionQueue", "Arn"] }));
        kinds.extend(texts(&properties["EventPattern"]["detail-type"]));
    }
    let read: BTreeSet<&str> = reads
        .split('"')
        .filter(|text| {
            text.ends_with("Warning")
                || text.ends_with("Notification")
                || text.ends_with("Recommendation")
                || text.ends_with("Health Event")
        })
        .collect();
    assert_eq!(kinds, read, "what the rules send, and what is read");
}

/// What an output says, with what its stack would have put into it.
fn section(template: &Value, output: &str) -> String {
    let section = template["Outputs"][output]["Value"]["Fn::Sub"].as_str().expect("a text");
    let mut section = section.replace("${AWS::Region}", "eu-west-1").replace("${ClusterName}", "forebay");
    for name in ["JobQueue", "StatusQueue", "RejectedQueue", "InterruptionQueue"] {
        let url = format!("https://sqs.eu-west-1.amazonaws.com/123456789012/forebay-{name}-1A2B3C");
        section = section.replace(&format!("${{{name}}}"), &url);
    }
    assert!(!section.contains("${"), "{section}");
    section
}

#[test]
fn the_outputs_paste_into_a_configuration() {
    const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: p}\nlimits: {nodes: 3}\nqueues: {a: {pools: [p]}}\n\
                          pools: {p: {instanceTypes: [g5.xlarge]}}\n";
    let template = decoded();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("policy.yaml"), POLICY).expect("writes");
    let head = "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\ncluster: simulated\n";
    let check = |text: &str| {
        std::fs::write(folder.path().join("forebay.yaml"), text).expect("writes");
        run(folder.path(), &["check", "forebay.yaml"])
    };
    let (ec2, sqs) = (section(&template, "Ec2Section"), section(&template, "SqsSection"));
    // As the output's description has it: zones, and a template under `launch`, which stands on one line.
    // It names no instance profile, with which a launch from a template would not be a fleet's.
    assert!(ec2.contains("launch: {}"), "{ec2}");
    let own = ec2.replace("launch: {}", "launch: {template: gpu}") + "  zones: [eu-west-1a, eu-west-1b]\n";
    let text = format!("{head}{own}{sqs}");
    let said = check(&text);
    assert_eq!(said.code, 0, "{said:?} of\n{text}");
    // The region is another one than that of the built-in prices.
    assert!(said.out.contains("eu-west-1 has others") && said.out.contains("`prices: FILE`"), "{said:?}");
    let description = template["Outputs"]["Ec2Section"]["Description"].as_str().expect("a text");
    for (left_out, part) in [(own.replace("template: gpu", ""), "template"), (own.replace("zones", "# zones"), "zones")]
    {
        let said = check(&format!("{head}{left_out}{sqs}"));
        assert!(said.code == 2 && said.err.contains(part), "{said:?} of\n{left_out}");
        assert!(description.contains(part), "{description}");
    }
}

#[test]
fn placement_groups_have_names_that_the_policy_allows() {
    let template = decoded();
    for action in ["ec2:CreatePlacementGroup", "ec2:RunInstances"] {
        let named = |s: &&Value| s["Resource"].to_string().contains(":placement-group/");
        let statements = allowing(&template, "ControllerPolicy", action);
        let [statement] = statements.into_iter().filter(|s| named(s)).collect::<Vec<_>>()[..] else {
            panic!("one statement with placement groups for {action}")
        };
        let resources = match &statement["Resource"] {
            Value::Array(all) => all.clone(),
            one => vec![one.clone()],
        };
        let patterns: Vec<String> = resources
            .iter()
            .filter_map(|resource| resource["Fn::Sub"].as_str()?.split_once(":placement-group/"))
            .map(|(_, name)| name.replace("${ClusterName}", "lab"))
            .collect();
        let [pattern] = &patterns[..] else { panic!("{action}: {patterns:?}") };
        let start = pattern.strip_suffix('*').unwrap_or_else(|| panic!("{action}: {pattern}"));
        assert!(!start.contains(['*', '?', '$']), "{action}: {pattern}");
        for name in [request::placement_group("lab", "large", "us-east-1a"), request::dry_run_group("lab")] {
            assert!(name.starts_with(start), "{action}: `{name}` is none of {pattern}");
        }
        let other = request::placement_group("other", "large", "us-east-1a");
        assert!(!other.starts_with(start), "{action}: `{other}` is another cluster's");
    }
}
