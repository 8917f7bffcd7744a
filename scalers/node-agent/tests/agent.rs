//! The agent between a metadata and a controller that are small servers of the test's own, and behave as badly as real ones.
//!
//! Never: a wait without a limit, or a port beyond loopback.

use forebay_node_agent::{Agent, AgentError, Metadata, MetadataError, Pace, Say, Settings};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For anything that should come: two busy cores are slow.
const SOON: Duration = Duration::from_secs(20);
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
    let mut words = line.split(' ');
    let line = [words.next(), words.next()].map(Option::unwrap_or_default).join(" ");
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

/// A metadata as EC2 has it: nothing without a token.
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

fn pace() -> Pace {
    Pace {
        look: Duration::from_millis(20),
        metadata: Duration::from_millis(500),
        controller: Duration::from_secs(5),
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        notice: Duration::from_secs(60),
    }
}

/// What an agent says.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn all(&self) -> Vec<String> {
        self.0.lock().expect("unpoisoned").clone()
    }

    /// Lines with this in it.
    fn count(&self, part: &str) -> usize {
        self.all().iter().filter(|line| line.contains(part)).count()
    }
}

fn agent(metadata: &str, controller: &str, pace: Pace) -> (Agent, Said) {
    let said = Said::default();
    let inside = said.clone();
    let say: Say = Arc::new(move |line| inside.0.lock().expect("unpoisoned").push(line.to_owned()));
    let (controller, metadata) = (controller.to_owned(), metadata.to_owned());
    let settings = Settings { controller, metadata, token: Some("agent-token".into()), pace };
    (Agent::start(&settings, &say).expect("it starts"), said)
}

/// Looks until it holds.
fn until(what: &str, said: &Said, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}; the agent said {:?}", said.all());
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// How often a path of the metadata was asked for.
fn looks(stub: &Stub, path: &str) -> usize {
    let line = format!("GET {path}");
    stub.asked().iter().filter(|asked| asked.line == line).count()
}

#[test]
fn it_says_hello_and_a_notice_is_told_once_however_often_it_is_seen() {
    let paths = of(&[(ID, "i-1234567890abcdef0")]);
    let (imds, controller) = (metadata(&paths), Stub::start(taken()));
    let (agent, said) = agent(&imds.url(), &controller.url(), pace());
    until("hello", &said, || controller.posted("/v1/agent/hello") == [r#"{"instance":"i-1234567890abcdef0"}"#]);
    assert_eq!(controller.asked()[0].token.as_deref(), Some("Bearer agent-token"));
    assert!(controller.posted("/v1/agent/notices").is_empty());
    paths.lock().unwrap().insert(REBALANCE, (200, r#"{"noticeTime":"2026-11-21T20:20:00Z"}"#.into()));
    paths.lock().unwrap().insert(ACTION, (200, WARNING.into()));
    until("both are told", &said, || controller.posted("/v1/agent/notices").len() == 2);
    let before = looks(&imds, ACTION);
    until("it is seen again and again", &said, || looks(&imds, ACTION) > before + 5);
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
    assert!(said.all().iter().all(|line| !line.contains("agent-token") && !line.contains("imds-token")));
}

#[test]
fn a_notice_is_kept_while_the_controller_is_away_and_told_when_it_is_back() {
    let paths = of(&[(ID, "i-1"), (ACTION, WARNING)]);
    let imds = metadata(&paths);
    // It hangs up, however often it is asked; then it is busy, then behind a proxy that says so, then there.
    let (away, tries) = (Arc::new(Mutex::new(true)), Mutex::new(0));
    let inside = Arc::clone(&away);
    let controller = Stub::start(Arc::new(move |_| {
        if *inside.lock().unwrap() {
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
    let (_agent, said) = agent(&imds.url(), &controller.url(), pace());
    until("it was tried again and again", &said, || controller.asked().len() > 5);
    let before = looks(&imds, ACTION);
    until("it goes on looking", &said, || looks(&imds, ACTION) > before + 5);
    assert_eq!(said.count("not taken yet"), 1, "{:?}", said.all());
    *away.lock().unwrap() = false;
    until("both are taken", &said, || said.count("the controller knows") == 2);
    let line = |part: &str| said.all().iter().position(|line| line.contains(part));
    let (warning, hello) =
        (line("the controller knows: the instance is taken back"), line("the controller knows: hello"));
    assert!(warning < hello, "the warning goes before the hello: {:?}", said.all());
    assert_eq!(said.count("the controller knows: the instance is taken back at 2026-11-21T20:32:00Z"), 1);
    assert_eq!(
        [said.count("no answer from"), said.count("full: later"), said.count("503")],
        [1, 1, 1],
        "{:?}",
        said.all()
    );
}

#[test]
fn an_instance_that_is_not_known_yet_is_told_again_and_a_bad_report_is_not() {
    let paths = of(&[(ID, "i-1")]);
    let imds = metadata(&paths);
    let known = Arc::new(Mutex::new(false));
    let inside = Arc::clone(&known);
    let controller = Stub::start(Arc::new(move |asked| {
        let error = |status: u16, message: &str| {
            Some((status, format!("{{\"error\":{{\"code\":\"X\",\"message\":\"{message}\",\"remedy\":\"do\"}}}}")))
        };
        match (asked.line.as_str(), *inside.lock().unwrap()) {
            ("POST /v1/agent/notices", _) => error(400, "no such kind"),
            (_, false) => error(404, "no such instance"),
            (_, true) => Some((202, "{}".into())),
        }
    }));
    let (_agent, said) = agent(&imds.url(), &controller.url(), pace());
    until("it is tried again", &said, || controller.posted("/v1/agent/hello").len() > 3);
    paths.lock().unwrap().insert(ACTION, (200, WARNING.into()));
    until("a refusal is final", &said, || said.count("given up, for the controller refuses it") == 1);
    *known.lock().unwrap() = true;
    until("it is known now", &said, || said.count("the controller knows: hello") == 1);
    assert_eq!(controller.posted("/v1/agent/notices").len(), 1);
    assert_eq!(said.count("no such instance: do"), 1, "said once: {:?}", said.all());
}

#[test]
fn a_notice_that_nobody_takes_is_given_up_when_it_is_old() {
    let paths = of(&[(ID, "i-1"), (ACTION, WARNING)]);
    let imds = metadata(&paths);
    let controller = Stub::start(Arc::new(|_| Some((401, String::new()))));
    let pace = Pace { notice: Duration::from_millis(200), ..pace() };
    let (_agent, said) = agent(&imds.url(), &controller.url(), pace);
    until("it is given up", &said, || said.count("given up after 200ms") == 1);
    let notices = controller.posted("/v1/agent/notices").len();
    until("hello is not", &said, || controller.posted("/v1/agent/hello").len() > 3);
    assert_eq!(controller.posted("/v1/agent/notices").len(), notices);
}

#[test]
fn a_metadata_that_is_slow_gone_or_strange_is_said_once_and_asked_again() {
    // First it answers too late, then with a page, then with an id that is none, then as it should.
    let (controller, mode) = (Stub::start(taken()), Arc::new(Mutex::new(0)));
    let inside = Arc::clone(&mode);
    let imds = Stub::start(Arc::new(move |asked| {
        // Not locked for as long as an answer takes.
        let mode = *inside.lock().unwrap();
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
    let pace = Pace { metadata: Duration::from_secs(1), ..pace() };
    let (_agent, said) = agent(&imds.url(), &controller.url(), pace);
    for next in 1..=3 {
        let before = imds.asked().len();
        until("it is asked", &said, || imds.asked().len() > before + 2);
        assert!(controller.asked().is_empty(), "{:?}", said.all());
        *mode.lock().unwrap() = next;
    }
    until("hello", &said, || controller.posted("/v1/agent/hello").len() == 1);
    assert_eq!((said.count("the metadata says nothing"), said.count("answers again")), (1, 1), "{:?}", said.all());
    // A session that ends is begun anew.
    *mode.lock().unwrap() = 4;
    until("a new session", &said, || imds.asked().iter().any(|asked| asked.token.as_deref() == Some("new")));
    assert_eq!(said.count("the metadata says nothing"), 1, "{:?}", said.all());
}

#[test]
fn what_a_metadata_answers_is_bounded_and_checked() {
    let limit = Duration::from_secs(5);
    for (token, id, part) in [
        ("t", "i-\u{1b}[2J".to_owned(), r"`i-\u{1b}[2J` is no instance's id"),
        ("t", "i".repeat(65), "is no instance's id"),
        ("t", String::new(), "is no instance's id"),
        ("t", "i".repeat(100_000), "asked again"),
        ("two words", "i-1".to_owned(), "this is no token"),
        ("", "i-1".to_owned(), "this is no token"),
    ] {
        let stub = Stub::start(Arc::new(move |asked| {
            Some((200, if asked.line.starts_with("PUT") { token.to_owned() } else { id.clone() }))
        }));
        let error = Metadata::new(&stub.url(), limit).instance().expect_err(part);
        let text = error.to_string();
        match error {
            MetadataError::Strange { .. } => assert!(text.contains(part), "{text}"),
            MetadataError::Silent { .. } => assert_eq!(part, "asked again", "{text}"),
        }
        assert!(text.len() < 500 && !text.contains('\u{1b}'), "{text}");
    }
    let moved = Stub::start(Arc::new(|_| Some((302, String::new()))));
    assert!(Metadata::new(&moved.url(), limit).instance().is_err(), "it follows nobody");
    let settings = Settings {
        controller: "https://forebay".into(),
        metadata: "http://127.0.0.1:1".into(),
        token: None,
        pace: pace(),
    };
    let say: Say = Arc::new(|_| {});
    assert!(matches!(Agent::start(&settings, &say), Err(AgentError::Address { what: "controller", .. })));
}
