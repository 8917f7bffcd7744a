//! The metadata and control paths over a plain socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Span;

use super::Stage;

/// Sends a request. Returns the status and the body of the response.
fn send(stage: &Stage, method: &str, path: &str, header: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(stage.loopback.url().trim_start_matches("http://")).unwrap();
    let text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n{header}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut respond = String::new();
    stream.read_to_string(&mut respond).unwrap();
    let (head, body) = respond.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn metadata_need_a_token() {
    let stage = Stage::calm();
    let id = {
        let mut region = stage.loopback.region();
        let now = region.now();
        let tags = [("team a".to_owned(), "x".to_owned())].into();
        region.launch_foreign(now, "g5.xlarge", "us-east-1b", CapacityType::Spot, tags).unwrap()
    };
    let (status, token) =
        send(&stage, "PUT", &format!("/{id}/latest/api/token"), "x-aws-ec2-metadata-token-ttl-seconds: 60\r\n");
    assert_eq!(status, 200);
    assert_eq!(send(&stage, "PUT", &format!("/{id}/latest/api/token"), "").0, 400);
    let with = format!("x-aws-ec2-metadata-token: {token}\r\n");
    let read = |path: &str| send(&stage, "GET", &format!("/{id}/latest/meta-data/{path}"), &with);
    assert_eq!(send(&stage, "GET", &format!("/{id}/latest/meta-data/instance-id"), "").0, 401);
    for (path, text) in [
        ("instance-id", id.as_str()),
        ("instance-type", "g5.xlarge"),
        ("instance-life-cycle", "spot"),
        ("placement/availability-zone", "us-east-1b"),
        ("placement/region", "us-east-1"),
        ("tags/instance/team%20a", "x"),
    ] {
        assert_eq!(read(path), (200, text.to_owned()), "{path}");
    }
    for path in ["spot/instance-action", "spot/termination-time", "events/recommendations/rebalance", "nothing"] {
        assert_eq!(read(path).0, 404, "{path}");
    }
    {
        let mut region = stage.loopback.region();
        let now = region.now();
        assert!(region.recommend_rebalance(now, &id));
        assert!(region.reclaim(now, &id, Some(Span::secs(120))));
    }
    let action = r#"{"action":"terminate","time":"2026-01-01T00:02:00Z"}"#;
    assert_eq!(read("spot/instance-action"), (200, action.to_owned()));
    assert_eq!(read("spot/termination-time"), (200, "2026-01-01T00:02:00Z".to_owned()));
    assert_eq!(read("events/recommendations/rebalance").1, r#"{"noticeTime":"2026-01-01T00:00:00Z"}"#);
    stage.pass(Span::secs(60));
    assert_eq!(read("instance-id").0, 401, "a token expires");
}

#[test]
fn control_requests_change_the_region() {
    let stage = Stage::calm();
    let (status, id) = send(&stage, "POST", "/control/foreign?type=g5.xlarge&zone=us-east-1a&capacity=spot", "");
    let id = id.trim();
    assert_eq!(status, 200);
    assert_eq!(send(&stage, "POST", &format!("/control/reclaim?instance={id}&notice=5"), "").0, 200);
    assert_eq!(send(&stage, "POST", &format!("/control/tag?instance={id}&key=k&value=v"), "").0, 200);
    assert!(send(&stage, "GET", "/control/instances", "").1.contains("k=v"));
    stage.pass(Span::mins(1));
    assert_eq!(send(&stage, "POST", &format!("/control/end?instance={id}"), "").0, 400);
    assert!(send(&stage, "GET", "/control/instances", "").1.contains("terminated"));
    for bad in ["reclaim", "dance", "stock?type=a&zone=b&capacity=c", "reclaim?instance=x&notice=y"] {
        assert_eq!(send(&stage, "POST", &format!("/control/{bad}"), "").0, 400, "{bad}");
    }
    let help = send(&stage, "GET", "/control/help", "").1;
    for verb in ["reclaim", "rebalance", "retire", "end", "stop", "tag", "foreign", "stock"] {
        assert!(help.contains(&format!("/control/{verb} ")), "{verb}");
        assert!(!send(&stage, "POST", &format!("/control/{verb}"), "").1.contains("there is no command"), "{verb}");
    }
}
