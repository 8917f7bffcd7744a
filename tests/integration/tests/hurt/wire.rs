//! Bytes on a connection, as no HTTP library would send them; and figures of a server's process.
//!
//! Never: waits for an answer for longer than its caller says.

use crate::full;
use forebay_integration::Server;
use forebay_integration::teams::{ask, secret};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// Longer than any answer takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where attacks come from: another address of loopback than that of everybody else.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Files that are open beside the connections of an attack: those of other tests, pipes to servers, what connects.
const OTHER_FILES: usize = 256;

/// What an attack may make a server use beyond what it has without one, in MiB.
const MOST_MORE_MIB: u64 = 512;

/// One question or batch computes for longer on the engine's thread, in seconds, only where something else is wrong: a page takes some
/// milliseconds, and a batch of 6,000 jobs fifty.
pub const LONGEST_HOLD_S: f64 = 0.1;

/// A connection to a server from the attacker's address.
pub fn connect(server: &Server) -> TcpStream {
    connect_to(&server.url).unwrap_or_else(|e| panic!("{}: {e}", server.url))
}

fn connect_to(url: &str) -> std::io::Result<TcpStream> {
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        // Its port is free again as soon as it is closed: attacks follow each other, and one address has some 28,000.
        socket.set_zero_linger()?;
        socket.bind(SocketAddr::from((ATTACKER, 0)))?;
        socket.connect(address).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// So many connections from the attacker's address, and this sent on each. Fails where this machine does not have so many: an attack is as
/// large as it says.
pub fn connections(url: &str, count: usize, begun: &str) -> Vec<TcpStream> {
    room_for(count);
    let held = (1..=count).map(|nth| {
        let mut stream = connect_to(url).unwrap_or_else(|e| panic!("connection {nth} of {count} to {url}: {e}"));
        // Whom the server has no room for it closes at once, which is its right.
        let _ = stream.write_all(begun.as_bytes());
        stream
    });
    held.collect()
}

/// Lets this process have so many connections.
///
/// # Panics
/// When the system does not let it have as many.
pub fn room_for(connections: usize) {
    let wanted = connections + OTHER_FILES;
    if may_open() < wanted {
        let (process, files) = (std::process::id().to_string(), format!("--nofile={wanted}:"));
        // Where that fails the line below says what is missing.
        let _ = Command::new("prlimit").args(["--pid", &process, &files]).status();
    }
    let had = may_open();
    assert!(had >= wanted, "{wanted} open files are wanted, and this process may have {had}: `ulimit -n {wanted}`");
}

/// How many files this process may have open.
fn may_open() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the limits of a process");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit of open files");
    let soft = line.split_whitespace().next().expect("a number");
    soft.parse().unwrap_or(usize::MAX)
}

/// What comes until the server closes the connection, or a whole answer with a length is there.
pub fn answer(stream: &mut TcpStream) -> String {
    let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => got.extend_from_slice(&piece[..read]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => panic!("{e} after {}", String::from_utf8_lossy(&got)),
        }
        if is_whole(&String::from_utf8_lossy(&got)) {
            break;
        }
    }
    String::from_utf8_lossy(&got).into_owned()
}

fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

/// Sends bytes on a connection of their own: the answer.
pub fn send(server: &Server, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    // It may be refused before all of it is sent.
    let _ = stream.write_all(bytes);
    answer(&mut stream)
}

/// The status of an answer.
pub fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The code of an error in the documented shape.
pub fn code(answer: &str) -> String {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let error: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    assert!(
        error["error"]["message"].is_string() && error["error"]["remedy"].is_string(),
        "not the shape of errors: {answer}"
    );
    error["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// The head of a request in somebody's name.
pub fn head(name: &str, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n{more}\r\n", secret(name))
}

/// How long something takes.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed(), done)
}

/// The time that all but one in a hundred are within.
pub fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

/// Resident memory of a server, in MiB.
pub fn resident_mib(server: &Server) -> u64 {
    memory_mib(server, "VmRSS:")
}

/// The most resident memory that a server has had since [`forget_peak`], in MiB.
pub fn peak_mib(server: &Server) -> u64 {
    memory_mib(server, "VmHWM:")
}

/// From now on the peak of a server's memory is counted anew.
pub fn forget_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("it is ours");
}

fn memory_mib(server: &Server, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

/// The CPU time that a server has used since it started, in ticks of the system: mostly a hundred a second.
pub fn cpu_ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name in brackets");
    // The first of these is the third of all; the 14th and the 15th are those of the program and of the system for it.
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}

/// For how long one `query` or one `batch` has held the engine's thread at most since the start, in seconds.
pub fn longest_hold(metrics: &str, work: &str) -> f64 {
    let mark = format!("forebay_loop_longest_hold_seconds{{work=\"{work}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&mark)).unwrap_or_else(|| panic!("not in {metrics}"));
    line.trim().parse().expect("a number")
}

/// What an attack has cost a server that had so many MiB before it: its memory at the most is within 512 MiB of that, and in the full form
/// nothing held its loop for long. Both are printed.
pub fn cost_little(server: &Server, what: &str, idle_mib: u64) {
    let (status, metrics) = ask(server, "scraper", "GET", "/metrics", None);
    assert_eq!(status, 200, "{metrics}");
    let [batch, query] = ["batch", "query"].map(|work| longest_hold(&metrics, work));
    let most = memory_mib(server, "VmHWM:");
    println!(
        "{what}: {idle_mib} MiB before, {most} MiB at most; the longest batch computed {batch:.3} s, the longest question {query:.3} s"
    );
    assert!(most <= idle_mib + MOST_MORE_MIB, "{what}: {most} MiB at most, {idle_mib} MiB before");
    let held = batch.max(query);
    assert!(!full() || held <= LONGEST_HOLD_S, "{what}: the loop was held for {held} s");
}
