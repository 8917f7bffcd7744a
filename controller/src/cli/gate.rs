//! `forebay gate`: the first container of a worker's pod. It ends when the whole gang is bound and told to go, and nothing of the job runs before.
//!
//! ```text
//! annotation of the pod --kubelet--> file of a downward-API volume --read every 200 ms--> `open`: exit 0
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
/// How often it is said that the gang is not complete.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// The most that is read of the file.
const MOST_BYTES: u64 = 64;

pub(super) fn run(args: &GateArgs) -> Result<Exit, Failure> {
    let since = Instant::now();
    let mut said = since;
    while !is_open(&args.file)? {
        if args.timeout.is_some_and(|most| since.elapsed() >= most) {
            return Err(Failure::outside(format_args!(
                "{}: the gang was not complete in time: its controller ends this attempt and makes another",
                args.file.display()
            )));
        }
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            eprintln!("gate: waiting for the rest of the gang for {} s", since.elapsed().as_secs());
        }
        std::thread::sleep(EVERY);
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
        let args = GateArgs { file: file.clone(), timeout: Some(Duration::from_millis(1)) };
        assert!(run(&args).is_err_and(|failure| failure.text.contains("not complete in time")));
        let opens = std::thread::spawn({
            let file = file.clone();
            move || {
                std::thread::sleep(Duration::from_millis(50));
                std::fs::write(file, OPEN).expect("written");
            }
        });
        assert!(run(&GateArgs { file, timeout: None }).is_ok());
        opens.join().expect("written");
    }
}
