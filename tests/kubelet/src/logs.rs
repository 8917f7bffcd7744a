//! The output of containers over HTTPS, as the API server asks kubelets for it:
//! `GET /containerLogs/NAMESPACE/POD/CONTAINER?tailLines=&limitBytes=`.
//!
//! As a kubelet does, it begins at the line that `tailLines` names and ends after `limitBytes`.
//! Never: `follow`, an address beyond loopback, more than [`MOST_AT_ONCE`] answers at a time, a file that is no container's log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_parts::Secure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::{Context, KubeletError};

const MOST_AT_ONCE: usize = 8;
/// The most of a request; the API server's has some 300 bytes.
const MOST_REQUEST: usize = 16 << 10;
/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The folders of the logs of pods, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct LogFolders(Mutex<BTreeMap<(String, String), PathBuf>>);

impl LogFolders {
    pub(crate) fn add(&self, namespace: &str, pod: &str, folder: &Path) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((namespace.to_owned(), pod.to_owned()), folder.to_owned());
    }

    /// A pod is gone; another one of its name may be there already.
    pub(crate) fn remove(&self, namespace: &str, pod: &str, folder: &Path) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), pod.to_owned());
        if all.get(&key).is_some_and(|known| known == folder) {
            all.remove(&key);
        }
    }

    fn of(&self, namespace: &str, pod: &str) -> Option<PathBuf> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(namespace.to_owned(), pod.to_owned())).cloned()
    }
}

/// Serves logs until the runtime ends, with a certificate that is made in `folder`. The port.
pub(crate) async fn serve(context: &Arc<Context>, folder: &Path) -> Result<u16, KubeletError> {
    let secure = Secure::make(folder)?;
    let config = Arc::new(tls(&secure.server).map_err(KubeletError::system("the certificate of the logs"))?);
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.and_then(|on| on.local_addr().map(|at| (on, at)));
    let (listener, address) = bound.map_err(KubeletError::system("a port for the logs"))?;
    let (context, room) = (Arc::clone(context), Arc::new(Semaphore::new(MOST_AT_ONCE)));
    tokio::spawn(async move {
        while let Ok(place) = Arc::clone(&room).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (context, config) = (Arc::clone(&context), Arc::clone(&config));
            tokio::task::spawn_blocking(move || {
                // Whoever asked has gone, or spoke no TLS.
                let _ = stream.into_std().and_then(|stream| answer(stream, config, &context.logs));
                drop(place);
            });
        }
    });
    Ok(address.port())
}

fn tls(pem: &Path) -> io::Result<ServerConfig> {
    let wrong = |e: String| io::Error::new(io::ErrorKind::InvalidData, e);
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(pem).map_err(|e| wrong(e.to_string()))?.collect();
    let key = PrivateKeyDer::from_pem_file(pem).map_err(|e| wrong(e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| wrong(e.to_string()))?.with_no_client_auth();
    config.with_single_cert(certificates.map_err(|e| wrong(e.to_string()))?, key).map_err(|e| wrong(e.to_string()))
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, logs: &LogFolders) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    let mut some = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut some)?;
        if read == 0 || request.len() + read > MOST_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&some[..read]);
    }
    let line = String::from_utf8_lossy(&request);
    let (status, body) = match of_line(line.lines().next().unwrap_or_default(), logs) {
        Ok(body) => ("200 OK", body),
        Err(why) => ("400 Bad Request", why.into_bytes()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// The answer to a request's first line.
fn of_line(line: &str, logs: &LogFolders) -> Result<Vec<u8>, String> {
    let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).ok_or("GET alone")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut parts = path.strip_prefix("/containerLogs/").ok_or("containerLogs alone")?.split('/');
    let (Some(namespace), Some(pod), Some(container), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("write /containerLogs/NAMESPACE/POD/CONTAINER".to_owned());
    };
    let (mut tail, mut limit) = (None, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let number = || value.parse::<usize>().map(Some).map_err(|_| format!("{name}={value}"));
        match name {
            "tailLines" => tail = number()?,
            "limitBytes" => limit = number()?,
            "follow" if value == "true" => return Err("the stand-in for kubelets does not follow logs".to_owned()),
            _ => {}
        }
    }
    let waits = || format!("container \"{container}\" in pod \"{pod}\" is waiting to start");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let folder = logs.of(namespace, pod).filter(|_| container.chars().all(plain)).ok_or_else(waits)?;
    let log = fs::read(folder.join(format!("{container}.log"))).map_err(|_| waits())?;
    let log = last_lines(&log, tail);
    Ok(log[..limit.unwrap_or(log.len()).min(log.len())].to_vec())
}

fn last_lines(log: &[u8], tail: Option<usize>) -> &[u8] {
    let Some(wanted) = tail else { return log };
    if wanted == 0 {
        return &[];
    }
    // The line end of the last line begins no further one.
    let body = log.strip_suffix(b"\n").unwrap_or(log);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.nth(wanted - 1).map_or(log, |(at, _)| &log[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_given_by_lines_from_its_end_and_by_bytes_from_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.log"), "one\ntwo\nthree\n").unwrap();
        let logs = LogFolders::default();
        logs.add("a", "p", folder.path());
        let ask = |target: &str| {
            of_line(&format!("GET {target} HTTP/1.1"), &logs).map(|body| String::from_utf8(body).unwrap())
        };
        for (query, is) in [
            ("", "one\ntwo\nthree\n"),
            ("?follow=false", "one\ntwo\nthree\n"),
            ("?tailLines=2", "two\nthree\n"),
            ("?tailLines=3", "one\ntwo\nthree\n"),
            ("?tailLines=9", "one\ntwo\nthree\n"),
            ("?tailLines=0", ""),
            ("?tailLines=2&limitBytes=5", "two\nt"),
        ] {
            assert_eq!(ask(&format!("/containerLogs/a/p/w{query}")).as_deref(), Ok(is), "{query}");
        }
        for wrong in [
            "/",
            "/containerLogs/a/p",
            "/containerLogs/a/p/x",
            "/containerLogs/b/p/w",
            "/containerLogs/a/p/w?follow=true",
            "/containerLogs/a/p/..%2Fw",
        ] {
            assert!(ask(wrong).is_err(), "{wrong}");
        }
        assert!(of_line("POST /containerLogs/a/p/w HTTP/1.1", &logs).is_err());
        logs.remove("a", "p", Path::new("/another"));
        assert!(ask("/containerLogs/a/p/w").is_ok(), "of another pod of that name");
        logs.remove("a", "p", folder.path());
        assert!(ask("/containerLogs/a/p/w").is_err());
    }
}
