//! `forebay gate`: the first container of a worker's pod. It ends when the whole gang is bound and told to go, and nothing of the job runs before.
//!
//! ```text
//! annotation of the pod --kubelet--> file of a downward-API volume --read every 200 ms--> `open`: exit 0
//! the pod is deleted    --kubelet--> SIGTERM ----------------------------------------------> exit 6, at once
//! ```
//!
//! Never: a call to the API server, or a right to make one.

use super::args::GateArgs;
use super::outcome::{Exit, Failure};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// The content of the file that opens the barrier.
const OPEN: &str = "open";
/// How often the file is read: the kubelet writes it a second or so after the annotation.
const EVERY: Duration = Duration::from_millis(200);
/// How often it is said that the gang is not complete, from the beginning on.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// The most that is read of the file.
const MOST_BYTES: u64 = 64;

pub(super) fn run(args: &GateArgs) -> Result<Exit, Failure> {
    runtime()?.block_on(async {
        let ended = end_signal().map_err(Failure::outside)?;
        tokio::select! {
            opened = until_open(args) => opened,
            () = ended => Err(Failure::outside("the gate was asked to end before the gang was complete")),
        }
    })
}

/// With one thread: the container has 64 MiB, and a node has many cores.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::outside)
}

/// SIGTERM or SIGINT, from here on. The gate is the first process of its container: for such a process the kernel drops each signal that it
/// does not handle, and the pod would hold its GPUs for the whole of its grace.
#[cfg(unix)]
fn end_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn end_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

async fn until_open(args: &GateArgs) -> Result<Exit, Failure> {
    let since = Instant::now();
    let mut said: Option<Instant> = None;
    while !is_open(&args.file)? {
        if args.timeout.is_some_and(|most| since.elapsed() >= most) {
            return Err(Failure::outside(format_args!(
                "{}: the gang was not complete in time: its controller ends this attempt and makes another",
                args.file.display()
            )));
        }
        if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            eprintln!("gate: waiting for the rest of the gang for {} s", since.elapsed().as_secs());
        }
        tokio::time::sleep(EVERY).await;
    }
    eprintln!("gate: the gang is complete after {} s", since.elapsed().as_secs());
    Ok(Exit::Done)
}

/// Whether the barrier is open. A file that is not there yet, or empty, is a closed one.
fn is_open(path: &Path) -> Result<bool, Failure> {
    let told = |error: std::io::Error| {
        Failure::input(format_args!(
            "{}: {error}: mount the pod's downward-API volume there, or name its file with --file",
            path.display()
        ))
    };
    let mut text = String::new();
    match std::fs::File::open(path) {
        Ok(file) => match file.take(MOST_BYTES).read_to_string(&mut text) {
            Ok(_) => Ok(text.trim() == OPEN),
            Err(error) => Err(told(error)),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(told(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_opens_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("barrier");
        let open = || is_open(&file).map_err(|failure| failure.text);
        assert_eq!(open(), Ok(false));
        for (text, is) in [("", false), ("closed", false), ("opened", false), ("open", true), ("open\n", true)] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(open(), Ok(is), "{text}");
        }
        assert!(is_open(folder.path()).is_err(), "a folder is no file");
        std::fs::write(&file, "closed").expect("written");
        // Without the signals, which are the whole process's.
        let wait = |args: &GateArgs| runtime().and_then(|runtime| runtime.block_on(until_open(args)));
        let args = GateArgs { file: file.clone(), timeout: Some(Duration::from_millis(1)) };
        assert!(wait(&args).is_err_and(|failure| failure.text.contains("not complete in time")));
        let opens = std::thread::spawn({
            let file = file.clone();
            move || {
                std::thread::sleep(Duration::from_millis(50));
                std::fs::write(file, OPEN).expect("written");
            }
        });
        assert!(wait(&GateArgs { file, timeout: None }).is_ok());
        opens.join().expect("written");
    }
}
