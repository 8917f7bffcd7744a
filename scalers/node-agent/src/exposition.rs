//! The agent's own metrics, as OpenMetrics text at `GET /metrics` of the address that it was given. By default there is none.
//!
//! Labels are numbers of GPUs and words of this file. Never: the name of a worker, a second connection before the first one is answered, or
//! a connection that lasts.

use crate::activity::monitor::GpuMonitor;
use crate::activity::reporter::ReportCounts;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The longest request that is read, in bytes.
const MOST_REQUEST: usize = 8 * 1024;
/// How long one connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers until the process ends.
pub(crate) fn serve(listener: &TcpListener, text: impl Fn() -> String) {
    for stream in listener.incoming().flatten() {
        // Whoever asked may have gone.
        let _ = answer(stream, &text);
    }
}

fn answer(mut stream: TcpStream, text: impl Fn() -> String) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (end, mut request) = (Instant::now() + PATIENCE, Vec::new());
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < MOST_REQUEST {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    let asked = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET /metrics?");
    let (status, body) =
        if asked { ("200 OK", text()) } else { ("404 Not Found", "there is GET /metrics\n".to_owned()) };
    let kind = if asked { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// One metric and its points so far.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string does not fail.
        let _ = write!(self.0, "# HELP forebay_agent_{name} {help}\n# TYPE forebay_agent_{name} {kind}\n");
    }

    fn point(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "forebay_agent_{name}{labels} {value}");
    }
}

/// The metrics of an agent.
pub(crate) fn text(monitor: &GpuMonitor, counts: &ReportCounts, source: &str) -> String {
    let state = monitor.lock();
    let mut page = Exposition(String::new());
    page.family("source_up", "gauge", "1 while the source of GPU figures responds with some, else 0.");
    page.point("source_up", &format!("{{source=\"{source}\"}}"), u8::from(state.sample.is_some()));
    let gpus = state.sample.as_deref().map(|sample| sample.gpus.as_slice()).unwrap_or_default();
    let labels = |gpu: &crate::gpus::GpuReading| match gpu.instance {
        Some(instance) => format!("{{gpu=\"{}\",instance=\"{instance}\"}}", gpu.index),
        None => format!("{{gpu=\"{}\"}}", gpu.index),
    };
    page.family(
        "gpu_utilization_ratio",
        "gauge",
        "The part of the time in which a GPU computes. Absent where it is not known.",
    );
    for gpu in gpus {
        if let Some(permille) = gpu.utilization {
            page.point("gpu_utilization_ratio", &labels(gpu), f64::from(permille) / 1000.0);
        }
    }
    for (name, help, of) in [
        (
            "gpu_memory_used_bytes",
            "Memory of a GPU that is in use.",
            (|gpu| gpu.used_mib) as fn(&crate::gpus::GpuReading) -> _,
        ),
        ("gpu_memory_total_bytes", "Memory of a GPU.", |gpu| gpu.total_mib),
    ] {
        page.family(name, "gauge", help);
        for gpu in gpus {
            if let Some(mib) = of(gpu) {
                page.point(name, &labels(gpu), mib.saturating_mul(1024 * 1024));
            }
        }
    }
    page.family("workers", "gauge", "Workers on this node by what they do with their GPUs.");
    for (name, count) in ["busy", "idle", "unknown"].into_iter().zip(state.tracker.counts()) {
        page.point("workers", &format!("{{state=\"{name}\"}}"), count);
    }
    let totals = state.tracker.totals();
    for (name, help, ms) in [
        ("worker_observed_seconds", "Time of workers in which it was known whether they compute.", totals.observed),
        ("worker_busy_seconds", "Time of workers in which they computed on a GPU.", totals.busy),
        ("worker_resident_seconds", "Time of workers in which they held memory of a GPU.", totals.resident),
    ] {
        page.family(name, "counter", help);
        // Exact for any time that an agent can have run.
        page.point(&format!("{name}_total"), "", ms as f64 / 1000.0);
    }
    page.family("reports", "counter", "Reports of activity by what became of them.");
    for (outcome, count) in [("accepted", &counts.accepted), ("later", &counts.later), ("refused", &counts.refused)] {
        page.point("reports_total", &format!("{{outcome=\"{outcome}\"}}"), count.load(Ordering::Relaxed));
    }
    page.family("workers_dropped", "counter", "Workers whose observations were dropped because there were too many.");
    page.point("workers_dropped_total", "", state.tracker.dropped());
    page.0.push_str("# EOF\n");
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn it_answers_one_path_and_survives_what_is_no_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (monitor, counts) = (GpuMonitor::new(Duration::from_secs(1)), ReportCounts::default());
        // Until the test's process ends.
        std::thread::spawn(move || serve(&listener, || text(&monitor, &counts, "nvml")));
        drop(TcpStream::connect(address).unwrap());
        assert!(ask(address, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MOST_REQUEST - 16));
        assert!(ask(address, &long).starts_with("HTTP/1.1 404 "));
        let page = ask(address, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        for part in [
            "200 OK",
            "forebay_agent_source_up{source=\"nvml\"} 0\n",
            "forebay_agent_workers{state=\"busy\"} 0\n",
            "forebay_agent_worker_busy_seconds_total 0\n",
            "forebay_agent_reports_total{outcome=\"accepted\"} 0\n",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(
            page.ends_with("# EOF\n") && !page.contains("gpu_utilization_ratio{"),
            "what is not known has no point: {page}"
        );
    }
}
