//! The agent between a metadata and a controller that are small servers of the test's own, and behave as badly as real ones.
//!
//! Never: a wait without a limit, or a port beyond loopback.

use forebay_node_agent::{
    AgentError, AgentSettings, AgentTimings, AgentToken, GpuSource, InstanceMetadata, LogLine, MetadataError,
    NodeAgent, NodeRoots,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For anything that should come: two busy cores are slow.
const SOON: Duration = Duration::from_secs(90);
const ACTION: &str = "/latest/meta-data/spot/instance-action";
const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";
const ID: &str = "/latest/meta-data/instance-id";
const WARNING: &str = r#"{"action": "terminate", "time": "2026-11-21T20:32:00Z"}"#;

/// A request as it came: method, path, the two headers that matter, body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    line: String,
    token: Option<String>,
    body: String,
}

/// What answers a request: a status and a body; nothing for a connection that is closed without an answer.
type Answers = Arc<dyn Fn(&Asked) -> Option<(u16, String)> + Send + Sync>;

/// A server that keeps what it was asked.
struct Stub {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    fn start(answers: Answers) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stub = Stub { port, asked: Arc::default() };
        let asked = Arc::clone(&stub.asked);
        // Until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                // One that hangs does not hold up the next.
                std::thread::spawn(move || answer(stream, &asked, &answers));
            }
        });
        stub
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("unpoisoned").clone()
    }

    /// Bodies that were posted to a path.
    fn posted(&self, path: &str) -> Vec<String> {
        let line = format!("POST {path}");
        self.asked().into_iter().filter(|asked| asked.line == line).map(|asked| asked.body).collect()
    }
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<Asked>>, answers: &Answers) {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() || line.is_empty() {
        return;
    }
    let (mut token, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "x-aws-ec2-metadata-token" | "authorization" => token = Some(value.to_owned()),
            "content-length" => length = value.parse().expect("a length"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let mut describe = line.split(' ');
    let line = [describe.next(), describe.next()].map(Option::unwrap_or_default).join(" ");
    let request = Asked { line, token, body: String::from_utf8(body).expect("text") };
    asked.lock().expect("unpoisoned").push(request.clone());
    if let Some((status, text)) = answers(&request) {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
        // Whoever asked may have gone.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
    }
}

/// Paths of the metadata that answer, by what.
type Paths = Arc<Mutex<BTreeMap<&'static str, (u16, String)>>>;

/// A metadata service like EC2's: nothing without a token.
fn metadata(paths: &Paths) -> Stub {
    let paths = Arc::clone(paths);
    Stub::start(Arc::new(move |asked| {
        if asked.line == "PUT /latest/api/token" {
            return Some((200, "imds-token".to_owned()));
        }
        if asked.token.as_deref() != Some("imds-token") {
            return Some((401, String::new()));
        }
        let path = asked.line.strip_prefix("GET ").expect("a GET");
        Some(paths.lock().expect("unpoisoned").get(path).cloned().unwrap_or((404, "no such".to_owned())))
    }))
}

fn of(pairs: &[(&'static str, &str)]) -> Paths {
    Arc::new(Mutex::new(pairs.iter().map(|(path, text)| (*path, (200, (*text).to_owned()))).collect()))
}

fn taken() -> Answers {
    Arc::new(|_| Some((202, "{\"new\":true}".to_owned())))
}

fn timings() -> AgentTimings {
    AgentTimings {
        poll_interval: Duration::from_millis(20),
        metadata_timeout: Duration::from_millis(500),
        controller_timeout: Duration::from_secs(5),
        first_delay: Duration::from_millis(10),
        longest_delay: Duration::from_millis(50),
        notice_lifetime: Duration::from_secs(60),
        ..AgentTimings::default()
    }
}

/// The log of an agent.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn all(&self) -> Vec<String> {
        self.0.lock().expect("unpoisoned").clone()
    }

    /// Lines with this in it.
    fn count(&self, part: &str) -> usize {
        self.all().iter().filter(|line| line.contains(part)).count()
    }
}

fn agent(metadata: &str, controller: &str, timings: AgentTimings) -> (NodeAgent, Log) {
    agent_with(AgentToken::Fixed("agent-token".into()), metadata, controller, timings)
}

fn agent_with(token: AgentToken, metadata: &str, controller: &str, timings: AgentTimings) -> (NodeAgent, Log) {
    let lines = Log::default();
    let state = lines.clone();
    let log: LogLine = Arc::new(move |line| state.0.lock().expect("unpoisoned").push(line.to_owned()));
    let (controller, metadata) = (controller.to_owned(), metadata.to_owned());
    let (gpus, roots) = (GpuSource::None, NodeRoots::default());
    let settings = AgentSettings { controller, metadata, token, gpus, roots, listen: None, timings };
    (NodeAgent::start(&settings, &log).expect("it starts"), lines)
}

/// Looks until it holds.
fn until(what: &str, lines: &Log, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}; the agent logged {:?}", lines.all());
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// How often a path of the metadata was asked for.
fn looks(stub: &Stub, path: &str) -> usize {
    let line = format!("GET {path}");
    stub.asked().iter().filter(|asked| asked.line == line).count()
}

#[test]
fn a_token_that_is_replaced_in_its_file_is_shown_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    std::fs::write(&path, "old-token\n").expect("written");
    let paths = of(&[(ID, "i-1")]);
    // It knows the new one alone.
    let knows: Answers = Arc::new(|asked| {
        let known = asked.token.as_deref() == Some("Bearer new-token");
        Some(if known { (202, r#"{"new":true}"#.to_owned()) } else { (401, String::new()) })
    });
    let (imds, controller) = (metadata(&paths), Stub::start(knows));
    let (agent, lines) = agent_with(AgentToken::File(path.clone()), &imds.url(), &controller.url(), timings());
    let shown = |token: &str| controller.asked().iter().any(|asked| asked.token.as_deref() == Some(token));
    until("the first", &lines, || shown("Bearer old-token"));
    std::fs::remove_file(&path).expect("removed");
    until("that it is gone", &lines, || lines.count("name a file with a token") > 0);
    std::fs::write(&path, "new-token").expect("written");
    until("the second", &lines, || shown("Bearer new-token"));
    drop(agent);
    assert!(lines.all().iter().all(|line| !line.contains("old-token") && !line.contains("new-token")));
}

#[test]
fn it_reports_its_start_and_each_notice_once_however_often_it_is_seen() {
    let paths = of(&[(ID, "i-1234567890abcdef0")]);
    let (imds, controller) = (metadata(&paths), Stub::start(taken()));
    let (agent, lines) = agent(&imds.url(), &controller.url(), timings());
    until("hello", &lines, || controller.posted("/v1/agent/hello") == [r#"{"instance":"i-1234567890abcdef0"}"#]);
    assert_eq!(controller.asked()[0].token.as_deref(), Some("Bearer agent-token"));
    assert!(controller.posted("/v1/agent/notices").is_empty());
    paths.lock().unwrap().insert(REBALANCE, (200, r#"{"noticeTime":"2026-11-21T20:20:00Z"}"#.into()));
    paths.lock().unwrap().insert(ACTION, (200, WARNING.into()));
    until("both are told", &lines, || controller.posted("/v1/agent/notices").len() == 2);
    let before = looks(&imds, ACTION);
    until("it is seen again and again", &lines, || looks(&imds, ACTION) > before + 5);
    let mut told = controller.posted("/v1/agent/notices");
    told.sort();
    assert_eq!(
        told,
        [
            r#"{"instance":"i-1234567890abcdef0","kind":"interruption","at":"2026-11-21T20:32:00Z"}"#,
            r#"{"instance":"i-1234567890abcdef0","kind":"rebalance","at":"2026-11-21T20:20:00Z"}"#,
        ]
    );
    assert_eq!(controller.posted("/v1/agent/hello").len(), 1);
    let tokens = imds.asked().iter().filter(|asked| asked.line.starts_with("PUT")).count();
    assert_eq!(tokens, 1, "one session for all of it");
    drop(agent);
    assert!(lines.all().iter().all(|line| !line.contains("agent-token") && !line.contains("imds-token")));
}

#[test]
fn a_warning_that_was_read_is_delivered_though_the_next_path_fails() {
    let paths = of(&[(ID, "i-1"), (ACTION, WARNING)]);
    paths.lock().unwrap().insert(REBALANCE, (500, String::new()));
    let (imds, controller) = (metadata(&paths), Stub::start(taken()));
    let (_agent, lines) = agent(&imds.url(), &controller.url(), timings());
    until("the warning", &lines, || controller.posted("/v1/agent/notices").len() == 1);
    assert!(controller.posted("/v1/agent/notices")[0].contains("interruption"));
    assert_eq!(lines.count("the metadata does not respond"), 1, "{:?}", lines.all());
}

#[test]
fn a_notice_is_kept_while_the_controller_is_away_and_delivered_when_it_is_back() {
    let paths = of(&[(ID, "i-1"), (ACTION, WARNING)]);
    let imds = metadata(&paths);
    // It hangs up, however often it is asked; then it is busy, then behind a proxy that says so, then there.
    let (away, tries) = (Arc::new(Mutex::new(true)), Mutex::new(0));
    let state = Arc::clone(&away);
    let controller = Stub::start(Arc::new(move |_| {
        if *state.lock().unwrap() {
            return None;
        }
        let mut tries = tries.lock().unwrap();
        *tries += 1;
        match *tries {
            1 => Some((429, r#"{"error":{"code":"Busy","message":"full","remedy":"later"}}"#.into())),
            2 => Some((503, "a proxy's page".into())),
            _ => Some((202, "{}".into())),
        }
    }));
    let (_agent, lines) = agent(&imds.url(), &controller.url(), timings());
    until("it was tried again and again", &lines, || controller.asked().len() > 5);
    let before = looks(&imds, ACTION);
    until("it goes on looking", &lines, || looks(&imds, ACTION) > before + 5);
    assert_eq!(lines.count("not delivered yet"), 1, "{:?}", lines.all());
    *away.lock().unwrap() = false;
    until("both are taken", &lines, || lines.count("delivered: ") == 2);
    let line = |part: &str| lines.all().iter().position(|line| line.contains(part));
    let (warning, hello) = (line("delivered: the instance is reclaimed"), line("delivered: hello"));
    assert!(warning < hello, "the warning goes before the hello: {:?}", lines.all());
    assert_eq!(lines.count("delivered: the instance is reclaimed at 2026-11-21T20:32:00Z"), 1);
    assert_eq!(
        [lines.count("no response from"), lines.count("full: later"), lines.count("503")],
        [1, 1, 1],
        "{:?}",
        lines.all()
    );
}

#[test]
fn a_report_on_an_unknown_instance_is_retried_and_a_bad_report_is_not() {
    let paths = of(&[(ID, "i-1")]);
    let imds = metadata(&paths);
    let known = Arc::new(Mutex::new(false));
    let state = Arc::clone(&known);
    let controller = Stub::start(Arc::new(move |asked| {
        let error = |status: u16, message: &str| {
            Some((status, format!("{{\"error\":{{\"code\":\"X\",\"message\":\"{message}\",\"remedy\":\"do\"}}}}")))
        };
        match (asked.line.as_str(), *state.lock().unwrap()) {
            ("POST /v1/agent/notices", _) => error(400, "no such kind"),
            (_, false) => error(404, "no such instance"),
            (_, true) => Some((202, "{}".into())),
        }
    }));
    let (_agent, lines) = agent(&imds.url(), &controller.url(), timings());
    until("it is tried again", &lines, || controller.posted("/v1/agent/hello").len() > 3);
    paths.lock().unwrap().insert(ACTION, (200, WARNING.into()));
    until("a refusal is final", &lines, || lines.count("refused by the controller") == 1);
    *known.lock().unwrap() = true;
    until("it is known now", &lines, || lines.count("delivered: hello") == 1);
    assert_eq!(controller.posted("/v1/agent/notices").len(), 1);
    assert_eq!(lines.count("no such instance: do"), 1, "lines once: {:?}", lines.all());
}

#[test]
fn a_notice_that_is_not_accepted_is_abandoned_when_it_is_old() {
    let paths = of(&[(ID, "i-1"), (ACTION, WARNING)]);
    let imds = metadata(&paths);
    let controller = Stub::start(Arc::new(|_| Some((401, String::new()))));
    let timings = AgentTimings { notice_lifetime: Duration::from_millis(200), ..timings() };
    let (_agent, lines) = agent(&imds.url(), &controller.url(), timings);
    until("it is given up", &lines, || lines.count("abandoned after 200ms") == 1);
    let notices = controller.posted("/v1/agent/notices").len();
    until("hello is not", &lines, || controller.posted("/v1/agent/hello").len() > 3);
    assert_eq!(controller.posted("/v1/agent/notices").len(), notices);
}

#[test]
fn a_metadata_service_that_fails_is_logged_once_and_polled_again() {
    // First it answers too late, then with a page, then with an id that is none, then as it should.
    let (controller, mode) = (Stub::start(taken()), Arc::new(Mutex::new(0)));
    let state = Arc::clone(&mode);
    let imds = Stub::start(Arc::new(move |asked| {
        // Not locked for as long as an answer takes.
        let mode = *state.lock().unwrap();
        match (mode, asked.line.as_str()) {
            (0, _) => {
                std::thread::park_timeout(Duration::from_secs(3));
                None
            }
            (1, _) => Some((200, "<html> \r\n".repeat(10_000))),
            (2, line) if line.ends_with("instance-id") => Some((200, "i-1\nx".into())),
            (4, _) if asked.token.as_deref() == Some("old") => Some((401, String::new())),
            (4, "PUT /latest/api/token") => Some((200, "new".into())),
            (_, "PUT /latest/api/token") => Some((200, "old".into())),
            (_, line) if line.ends_with("instance-id") => Some((200, "i-1".into())),
            _ => Some((404, String::new())),
        }
    }));
    let timings = AgentTimings { metadata_timeout: Duration::from_secs(1), ..timings() };
    let (_agent, lines) = agent(&imds.url(), &controller.url(), timings);
    for next in 1..=3 {
        let before = imds.asked().len();
        until("it is asked", &lines, || imds.asked().len() > before + 2);
        assert!(controller.asked().is_empty(), "{:?}", lines.all());
        *mode.lock().unwrap() = next;
    }
    until("hello", &lines, || controller.posted("/v1/agent/hello").len() == 1);
    assert_eq!(
        (lines.count("the metadata does not respond"), lines.count("responds again")),
        (1, 1),
        "{:?}",
        lines.all()
    );
    // A session that ends is begun anew.
    *mode.lock().unwrap() = 4;
    until("a new session", &lines, || imds.asked().iter().any(|asked| asked.token.as_deref() == Some("new")));
    assert_eq!(lines.count("the metadata does not respond"), 1, "{:?}", lines.all());
}

#[test]
fn responses_of_the_metadata_are_bounded_and_validated() {
    let limit = Duration::from_secs(5);
    for (token, id, part) in [
        ("t", "i-\u{1b}[2J".to_owned(), r"`i-\u{1b}[2J` is not the id of an instance"),
        ("t", "i".repeat(65), "is not the id of an instance"),
        ("t", String::new(), "is not the id of an instance"),
        ("t", "i".repeat(100_000), "asked again"),
        ("two words", "i-1".to_owned(), "this is not a token"),
        ("", "i-1".to_owned(), "this is not a token"),
    ] {
        let stub = Stub::start(Arc::new(move |asked| {
            Some((200, if asked.line.starts_with("PUT") { token.to_owned() } else { id.clone() }))
        }));
        let error = InstanceMetadata::new(&stub.url(), limit).instance().expect_err(part);
        let text = error.to_string();
        match error {
            MetadataError::UnexpectedResponse { .. } => assert!(text.contains(part), "{text}"),
            MetadataError::NoResponse { .. } => assert_eq!(part, "asked again", "{text}"),
        }
        assert!(text.len() < 500 && !text.contains('\u{1b}'), "{text}");
    }
    let moved = Stub::start(Arc::new(|_| Some((302, String::new()))));
    assert!(InstanceMetadata::new(&moved.url(), limit).instance().is_err(), "it follows nobody");
    let settings = AgentSettings {
        controller: "https://forebay".into(),
        metadata: "http://127.0.0.1:1".into(),
        token: AgentToken::None,
        gpus: GpuSource::None,
        roots: NodeRoots::default(),
        listen: None,
        timings: timings(),
    };
    let log: LogLine = Arc::new(|_| {});
    assert!(matches!(NodeAgent::start(&settings, &log), Err(AgentError::Address { what: "controller", .. })));
}
