//! A server that does nothing with what it is sent: it reads each request, makes each post durable by as many syncs of the disk as a journal
//! and its mark need, and says yes. What a client waits for beside an attack on it is what the machine, its disk and the attack cost by
//! themselves; a server under test is compared with that.
//!
//! Never: looks into a body, or refuses anybody.

use crate::wire::p99;
use crate::{full, many};
use forebay_integration::Server;
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How many times longer than at a server that does nothing somebody may wait beside an attack (the 99th of a hundred, and of that the
/// middle one of five).
const MOST: f64 = 5.0;

/// It serves until it is dropped.
struct Nothing {
    url: String,
    _runtime: Runtime,
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
        let (posts, kept) = channel();
        std::thread::spawn(move || keep(&kept));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build().expect("threads");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        runtime.spawn(async move {
            loop {
                // Beyond what one process may have open, others wait for those that end.
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream, posts.clone()))),
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        Nothing { url, _runtime: runtime }
    }
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
/// which has a bound; one in the small form. `attack` begins at an address and goes on until what it returns is dropped; `other` is a
/// request of somebody else at that address, and how long it took.
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
    assert!(!full() || ratio(&middle) <= MOST, "{what}: {pairs:?}");
}
