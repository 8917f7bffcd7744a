//! Bytes on a connection, as no HTTP library would send them; and figures of a server's process.
//!
//! Never: waits for an answer for longer than its caller says.

use forebay_integration::Server;
use forebay_integration::teams::secret;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// Longer than any answer takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where attacks come from: another address of loopback than that of everybody else.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection to a server from the attacker's address.
pub fn connect(server: &Server) -> TcpStream {
    try_connect(&server.url).expect("connects")
}

/// The same to whatever serves at this address, where the system may have no more.
pub fn try_connect(url: &str) -> Option<TcpStream> {
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
    let connected = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((ATTACKER, 0)))?;
        socket.connect(address).await?.into_std()
    });
    let stream = connected.ok()?;
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
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
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

/// For how long one question to the engine has held its thread at most, in seconds.
pub fn longest_question(metrics: &str) -> f64 {
    let mark = "forebay_loop_longest_hold_seconds{work=\"query\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(mark)).unwrap_or_else(|| panic!("not in {metrics}"));
    line.trim().parse().expect("a number")
}
