//! A server that does nothing with what it is sent: it reads each request, makes each post durable by as many syncs of the disk as a journal
//! and its mark need, and says yes. What a client waits for beside an attack on it is what the machine, its disk and the attack cost by
//! themselves; a server under test is compared with that.
//!
//! It is a process of its own, this test binary once more, so that its connections and those of an attack are not files of one process.
//!
//! Never: looks into a body, or refuses anybody.

use crate::wire::{p99, room_for};
use crate::{full, many};
use forebay_integration::{Server, send};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// How many times longer than at a server that does nothing somebody may wait beside an attack (the 99th of a hundred, and of that the
/// middle one of five).
const MOST: f64 = 5.0;

/// What another's post takes at most beside an attack in the small form, whose single ratio says little: it is served, and not only in the end.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// Set in the process that serves.
const SERVES: &str = "FOREBAY_HURT_SERVES_NOTHING";

/// The test that is the server where the variable is set.
const SERVER: &str = "nothing::a_server_that_does_nothing_says_yes";

/// What the system says where this process, or all of them, have as many files open as they may: `EMFILE` and `ENFILE`.
const NO_FILE_LEFT: [i32; 2] = [24, 23];

/// It serves until it is dropped.
struct Nothing {
    url: String,
    process: Child,
}

impl Drop for Nothing {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Posts that wait to be durable.
type Posts = Sender<oneshot::Sender<()>>;

/// Makes posts durable, all that have come together: a journal, then its mark.
fn keep(posts: &Receiver<oneshot::Sender<()>>) {
    let mut files = [tempfile::tempfile(), tempfile::tempfile()].map(|file| file.expect("a file"));
    while let Ok(first) = posts.recv() {
        let together: Vec<_> = std::iter::once(first).chain(posts.try_iter()).collect();
        for file in &mut files {
            file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).expect("writes");
        }
        // Whoever waited may have gone.
        for waits in together {
            let _ = waits.send(());
        }
    }
}

impl Nothing {
    fn start() -> Nothing {
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command.args([SERVER, "--exact", "--nocapture", "--test-threads=1"]).env(SERVES, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        // The test's own name may stand before it in the line.
        let url = said.find_map(|line| line.find("http://").map(|at| line[at..].trim().to_owned()));
        Nothing { url: url.expect("it says where it listens"), process }
    }
}

/// Serves until whoever started this process has gone, or ends it.
fn serve_nothing() {
    room_for(many(400, 10_000));
    let (posts, kept) = channel();
    std::thread::spawn(move || keep(&kept));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build().expect("threads");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    println!("http://{}", listener.local_addr().expect("an address"));
    runtime.spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream, posts.clone()))),
                // With fewer connections than it was asked for nothing that is measured beside it means anything.
                Err(error) if error.raw_os_error().is_some_and(|code| NO_FILE_LEFT.contains(&code)) => {
                    eprintln!("the server that does nothing can take no connection more: {error}");
                    std::process::exit(1);
                }
                // A connection that has ended before it was taken.
                Err(_) => {}
            }
        }
    });
    // Nothing is ever sent: it ends with whoever started this process.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn a_server_that_does_nothing_says_yes() {
    if std::env::var_os(SERVES).is_some() {
        return serve_nothing();
    }
    let nothing = Nothing::start();
    assert_eq!(send(&nothing.url, "GET", "/healthz", &[], b"").0, 200);
    assert_eq!(send(&nothing.url, "POST", "/v1/events", &[], b"[]"), (202, "[]".to_owned()));
}

/// Answers on a connection until it ends.
async fn serve(stream: TcpStream, posts: Posts) -> std::io::Result<()> {
    let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let Some((post, length)) = request(&got) else {
            stream.readable().await?;
            match stream.try_read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(read) => got.extend_from_slice(&piece[..read]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            continue;
        };
        got.drain(..length);
        if post {
            let (done, waits) = oneshot::channel();
            posts.send(done).map_err(std::io::Error::other)?;
            waits.await.map_err(std::io::Error::other)?;
        }
        let answer =
            format!("HTTP/1.1 {}\r\ncontent-length: 2\r\n\r\n[]", if post { "202 Accepted" } else { "200 OK" });
        // It is short, and nobody sends a second request before the first is answered.
        stream.writable().await?;
        stream.try_write(answer.as_bytes())?;
    }
}

/// Whether the request that is whole in front is a post, and its length. `None`: none is whole yet.
fn request(got: &[u8]) -> Option<(bool, usize)> {
    let end = got.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
    let body = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    (got.len() >= end + body).then(|| (head.starts_with("post"), end + body))
}

/// How long somebody waits beside an attack, at a server and at one that does nothing, in turns: the middle ratio of five in the full form,
/// which has a bound; one in the small form, where the server's own time has one. `attack` begins at an address and goes on until what it
/// returns is dropped; `other` is a request of somebody else at that address, and how long it took.
pub fn compare<A>(
    server: &Server,
    what: &str,
    attack: impl Fn(&str) -> A,
    mut other: impl FnMut(&str) -> Duration,
    waits: usize,
) {
    let nothing = Nothing::start();
    let mut beside = |url: &str| {
        let _held = attack(url);
        p99((0..waits).map(|_| other(url)).collect())
    };
    let mut pairs: Vec<(Duration, Duration)> =
        (0..many(1, 5)).map(|_| (beside(&nothing.url), beside(&server.url))).collect();
    let ratio = |(nothing, server): &(Duration, Duration)| server.as_secs_f64() / nothing.as_secs_f64();
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let middle = pairs[pairs.len() / 2];
    println!(
        "{what}: another's post takes {:?} (p99), {:?} at a server that does nothing, {:.1} times as long",
        middle.1,
        middle.0,
        ratio(&middle)
    );
    if full() {
        assert!(ratio(&middle) <= MOST, "{what}: {pairs:?}");
    } else {
        assert!(middle.1 <= SERVED_WITHIN, "{what}: {pairs:?}");
    }
}
