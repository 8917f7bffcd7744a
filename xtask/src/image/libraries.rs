//! The shared libraries that a program links, by the system's loader.
//!
//! Never: a library that is loaded later by name, such as a driver's; whoever runs the image brings it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ChoreFailure;
use crate::command::shown;

/// Where a loader looks without settings. A library elsewhere would be in the image and not be found.
const FOUND_BY_DEFAULT: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];

/// The libraries of a program and the loader, as the loader names them. None: it is linked statically.
pub fn of(binary: &Path) -> Result<Vec<PathBuf>, ChoreFailure> {
    must_be_a_program(binary)?;
    let mut ask = Command::new("ldd");
    ask.arg(binary).env("LC_ALL", "C");
    eprintln!("$ {}", shown(&ask));
    let output = ask.output().map_err(|e| {
        ChoreFailure::new(format!(
            "ldd: {e}; it comes with glibc: assemble the image on a Linux that has it, such as Debian"
        ))
    })?;
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.success() {
        listed(&text)
    } else if errors.contains("not a dynamic executable") || text.contains("not a dynamic executable") {
        Ok(Vec::new())
    } else {
        Err(ChoreFailure::new(format!("{}: {}; name a program for this machine", shown(&ask), errors.trim())))
    }
}

fn must_be_a_program(binary: &Path) -> Result<(), ChoreFailure> {
    let mut magic = [0; 4];
    let read = File::open(binary).and_then(|mut file| file.read_exact(&mut magic));
    let why = match read {
        Ok(()) if magic == *b"\x7fELF" => return Ok(()),
        Ok(()) => "not a Linux program".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(ChoreFailure::new(format!(
        "{}: {why}; name a program that was built for Linux with --binary",
        binary.display()
    )))
}

/// What `ldd` prints: `NAME => PATH (ADDRESS)`, the loader's own path, and what is in no file.
fn listed(text: &str) -> Result<Vec<PathBuf>, ChoreFailure> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            let problem = format!("{name}: not found; install the package with this library, and try again");
            return Err(ChoreFailure::new(problem));
        }
        let path = place.split(" (").next().unwrap_or_default();
        if !path.starts_with('/') {
            continue;
        }
        if !FOUND_BY_DEFAULT.iter().any(|folder| path.starts_with(folder)) {
            return Err(ChoreFailure::new(format!(
                "{path}: no loader looks in its folder by default; link the program with the system's library instead"
            )));
        }
        found.push(PathBuf::from(path));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_every_library_are_found_and_what_is_in_no_file_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007f55)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(listed(text).unwrap(), found);
        assert_eq!(listed("\tstatically linked\n").unwrap(), Vec::<PathBuf>::new());
        let missing = listed("\tlibssl.so.3 => not found\n").unwrap_err().message;
        assert!(missing.starts_with("libssl.so.3: not found; install"), "{missing}");
        let elsewhere = listed("\tliba.so => /opt/a/liba.so (0x0)\n").unwrap_err().message;
        assert!(elsewhere.starts_with("/opt/a/liba.so: no loader looks"), "{elsewhere}");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        for path in [concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "/no/such/program"] {
            let refused = of(Path::new(path)).unwrap_err().message;
            assert!(refused.ends_with("name a program that was built for Linux with --binary"), "{refused}");
        }
    }
}
