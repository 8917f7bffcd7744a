//! `forebay doctor` and `forebay check` with an EC2: everything that buying needs is tried, and nothing is bought.

use forebay_integration::run;
use forebay_kernel::units::Timestamp;
use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions, ReservationKind, ReservationOptions};
use std::collections::BTreeSet;
use std::path::Path;

const POLICY: &str = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: d}\nlimits: {nodes: 3}\nqueues: {a: {pools: [p]}}\n\
                      pools: {p: {instanceTypes: [g5.xlarge]}}\n";

fn write(folder: &Path, url: &str, queue: &str, more: &str) {
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    std::fs::write(folder.join("key"), "test").unwrap();
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\npolicy: policy.yaml\nlisten: 127.0.0.1:0\ndata: data\ncluster: simulated\nec2:\n  name: d\n  \
         endpoint: {url}\n  region: us-east-1\n  keys: {{id: {{file: key}}, secret: {{file: key}}}}\n  interruptions: ['{queue}']\n{more}"
    );
    std::fs::write(folder.join("forebay.yaml"), text).unwrap();
}

fn good(region: &Region) -> String {
    let options = region.options();
    let subnet = &options.subnets[0];
    format!(
        "  launch: {{template: {}, subnets: {{{}: {}}}}}\n",
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
        subnet.zone,
        subnet.id
    )
}

#[test]
fn everything_that_buying_needs_is_tried_and_nothing_bought() {
    let loopback = Loopback::start(Region::new(RegionOptions::default()), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &loopback.url(), &loopback.queue_url(), &good(&loopback.region()));
    let said = run(folder.path(), &["doctor", "--config", "forebay.yaml"]);
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["launch", "allowed", "us-east-1a", "messages are waiting", "addresses free"] {
        assert!(said.out.contains(part), "no `{part}` in {}", said.out);
    }
    assert!(!said.out.contains("`prices: FILE`"), "{}", said.out);
    // Prices of another region than the built-in ones are told.
    let path = folder.path().join("forebay.yaml");
    let abroad = std::fs::read_to_string(&path).unwrap().replace("region: us-east-1", "region: eu-west-1");
    std::fs::write(&path, abroad).unwrap();
    let said = run(folder.path(), &["doctor", "--config", "forebay.yaml"]);
    assert!(said.out.contains("eu-west-1 has others") && said.out.contains("`prices: FILE`"), "{}", said.out);
    assert_eq!(loopback.region().instances().count(), 0);
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let denied = BTreeSet::from(["CreateFleet".to_owned(), "DescribeSpotPriceHistory".to_owned()]);
    let options = RegionOptions { denied, ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let more =
        "  launch: {template: forebay-node, subnets: {us-east-1b: subnet-00000000000000001}}\n  zones: [us-east-9z]\n";
    write(folder.path(), &loopback.url(), &loopback.queue_url(), more);
    let said = run(folder.path(), &["doctor", "--config", "forebay.yaml"]);
    assert_eq!(said.code, 6, "{said:?}");
    for part in ["UnauthorizedOperation", "us-east-9z", "is in us-east-1a"] {
        assert!(said.out.contains(part), "no `{part}` in {}", said.out);
    }
}

#[test]
fn a_reservation_that_is_not_as_configured_or_that_no_pool_can_use_is_reported() {
    // 2030-01-01T00:00:00Z
    let kind = ReservationKind::Block { ends: Timestamp(1_893_456_000_000) };
    let (id, instance_type, zone) =
        ("cr-00000000000000001".to_owned(), "g5.xlarge".to_owned(), "us-east-1a".to_owned());
    let reservations = vec![ReservationOptions { id, instance_type, zone, count: 1, kind }];
    let options = RegionOptions { reservations, ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (block, day) = ("block: true, ends: '2030-01-01T00:00:00Z'", "block: true, ends: '2030-01-02T00:00:00Z'");
    let unused = "nothing is ever launched into the reservation `cr-00000000000000001`";
    for (instance_type, zone, more, code, part) in [
        ("g5.xlarge", "us-east-1a", block, 0, "1 of 1 free"),
        (
            "g5.xlarge",
            "us-east-1b",
            block,
            6,
            "is for g5.xlarge in us-east-1a and configured for g5.xlarge in us-east-1b",
        ),
        ("p4d.24xlarge", "us-east-1a", block, 6, unused),
        ("g5.xlarge", "us-east-1a", day, 6, "ends at 2030-01-01T00:00:00Z"),
        ("g5.xlarge", "us-east-1a", "block: false", 6, "is a Capacity Block"),
    ] {
        let written = format!(
            "{}  reservations: [{{id: cr-00000000000000001, instanceType: {instance_type}, zone: {zone}, {more}}}]\n",
            good(&loopback.region())
        );
        write(folder.path(), &loopback.url(), &loopback.queue_url(), &written);
        let said = run(folder.path(), &["doctor", "--config", "forebay.yaml"]);
        assert!(said.code == code && said.out.contains(part), "{written}: no `{part}` in {said:?}");
        let used = (instance_type, zone) == ("g5.xlarge", "us-east-1a");
        let check = run(folder.path(), &["check", "forebay.yaml"]);
        let reported = check.out.contains(unused) || check.err.contains(unused);
        assert!(check.code == 0 && reported != used, "{written}: {check:?}");
    }
}

#[test]
fn a_configuration_that_cannot_be_is_told_before_anything_is_bought() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (more, part) in [
        ("  launch: {subnets: {us-east-1a: subnet-1}}\n", "`template` or `image`"),
        ("  launch: {template: t}\n", "zones"),
        ("  launch: {template: t}\n  zones: [us-east-1a]\n  pools: {q: {template: u}}\n", "`pools` names `q`"),
        ("  launch: {template: t, tags: {'forebay:journal': x}}\n  zones: [us-east-1a]\n", "not yours to give"),
        ("  launch: {template: t}\n  zones: [us-east-1a]\n  predecessors: [x]\n", "UUID"),
        ("  launch: {template: t}\n  zones: [us-east-1a]\n  lunch: {}\n", "lunch"),
    ] {
        write(path, "http://127.0.0.1:9", "q", more);
        let said = run(path, &["check", "forebay.yaml"]);
        assert!(said.code == 2 && said.err.contains(part), "{more}: {said:?}");
    }
    let whole = "  launch: {template: t}\n  zones: [us-east-1a]\n";
    write(path, "http://127.0.0.1:9", "q", whole);
    assert_eq!(run(path, &["check", "forebay.yaml"]).code, 0);
    std::fs::write(path.join("policy.yaml"), POLICY.replace("limits: {nodes: 3}\n", "")).unwrap();
    let said = run(path, &["run", "--config", "forebay.yaml"]);
    assert!(said.code == 2 && said.err.contains("`limits`"), "{said:?}");
    let text = std::fs::read_to_string(path.join("forebay.yaml")).unwrap().replace("cluster: simulated\n", "");
    std::fs::write(path.join("forebay.yaml"), text).unwrap();
    let said = run(path, &["check", "forebay.yaml"]);
    assert!(said.code == 2 && said.err.contains("cluster: simulated"), "{said:?}");
}
