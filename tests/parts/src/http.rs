//! A question to a server on loopback over plain HTTP: whether it is there, and its few words of JSON.
//!
//! Never: TLS, another host, an answer of more than 4 MiB. What speaks TLS is asked by its own client.

use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// On the same machine, an answer takes milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// A list of ten thousand instances.
const MOST: u64 = 4 << 20;

/// The body of the answer to a GET; an error unless the status is 200.
pub(crate) fn get(port: u16, path: &str) -> Result<String> {
    ask(port, "GET", path, "")
}

/// The body of the answer to a POST of JSON; an error unless the status is 200.
pub(crate) fn post(port: u16, path: &str, json: &str) -> Result<String> {
    ask(port, "POST", path, json)
}

fn ask(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // HTTP/1.0: the answer ends where the connection does.
    let kind = "Content-Type: application/json\r\nConnection: close";
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(body.to_owned()) } else { Err(Error::other(format!("{method} {path}: status {status}"))) }
}
