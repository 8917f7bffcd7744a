//! The program as it is released: the same bytes whoever builds it where, from one commit, one toolchain and one system.
//!
//! ```text
//! release::build      cargo build --release, without the builder's folders in what the compilers write
//! reproduce           the last commit in two new folders of other names and depths -> build each -> compare the bytes
//! ```
//!
//! Never: a commit that is not checked in, or a folder that somebody else built in.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ChoreFailure;
use crate::command::{capture, cargo, git, run as run_command};
use crate::image::must_be_free;
use crate::workspace::Workspace;

/// What `cargo xtask reproduce` takes.
#[derive(clap::Args)]
pub struct ReproduceArgs {
    /// Where to build: a folder that is not there yet, or is empty; both programs stay in it [default: target/reproduce]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// What stands in the place of a folder of this machine.
const SOURCES: &str = "/forebay";
const PACKAGES: &str = "/cargo";
const BUILT: &str = "/target";

/// The two folders: a path is found in a program whatever its length, and one of the same length would hide a difference.
const FOLDERS: [&str; 2] = ["one", "another/one"];

/// Builds the program for release from the sources below `root` into `target`.
pub fn build(root: &Path, target: &Path) -> Result<PathBuf, ChoreFailure> {
    let mut command = cargo(root);
    command.args(["build", "--release", "--locked", "-p", "forebay", "--bins"]);
    command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    // What is below another folder comes later: of several that fit, the last one counts.
    let folders = [(cargo_home()?, PACKAGES), (root.to_owned(), SOURCES), (target.to_owned(), BUILT)];
    let mut rust = Vec::new();
    let mut c = Vec::new();
    for (folder, to) in &folders {
        let folder = folder.display();
        rust.push(format!("--remap-path-prefix={folder}={to}"));
        c.push(format!("-ffile-prefix-map={folder}={to}"));
    }
    // Flags in the environment are kept; cargo would forget them beside these.
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let all = given.split_whitespace().map(str::to_owned).chain(rust);
    command.env("CARGO_ENCODED_RUSTFLAGS", all.collect::<Vec<_>>().join("\u{1f}"));
    // These are split at blanks, and folders with blanks stay as they are.
    c.retain(|flag| !flag.contains(char::is_whitespace));
    for name in ["CFLAGS", "CXXFLAGS"] {
        let given = std::env::var(name).unwrap_or_default();
        command.env(name, format!("{given} {}", c.join(" ")).trim());
    }
    run_command(&mut command)?;
    Ok(target.join("release").join(format!("forebay{}", std::env::consts::EXE_SUFFIX)))
}

/// Where cargo keeps the sources of packages.
fn cargo_home() -> Result<PathBuf, ChoreFailure> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty()).map(PathBuf::from).or_else(home).ok_or_else(|| {
        ChoreFailure::new(
            "no home folder is known, so paths of packages cannot be left out; set CARGO_HOME to cargo's folder",
        )
    })
}

/// Builds the last commit twice, and compares.
pub fn reproduce(workspace: &Workspace, args: &ReproduceArgs) -> Result<(), ChoreFailure> {
    let out = args.out.clone().unwrap_or_else(|| workspace.target().join("reproduce"));
    must_be_free(&out)?;
    let mut ask = git(workspace.root());
    let changed = capture(ask.args(["status", "--porcelain"]))?;
    if !changed.trim().is_empty() {
        eprintln!("the last commit is built; what is changed and not committed is left out");
    }
    let mut programs = Vec::new();
    for folder in FOLDERS {
        let sources = out.join(folder).join("sources");
        let mut clone = git(workspace.root());
        clone.args([OsString::from("clone"), "--quiet".into(), ".".into(), sources.clone().into()]);
        run_command(&mut clone)?;
        let target = out.join(folder).join("target");
        let built = build(&sources, &target)?;
        let program = out.join(folder).join("forebay");
        fs::copy(&built, &program).map_err(|e| failed(&program, &e))?;
        // A second build needs the room of the first.
        fs::remove_dir_all(&target).map_err(|e| failed(&target, &e))?;
        programs.push(program);
    }
    match first_difference(&programs[0], &programs[1])? {
        None => {
            println!("{} and {} are the same, byte for byte", programs[0].display(), programs[1].display());
            Ok(())
        }
        Some(at) => Err(ChoreFailure::new(format!(
            "{} and {} differ, from byte {at} on; `diffoscope` says in what",
            programs[0].display(),
            programs[1].display()
        ))),
    }
}

/// Where two files differ first, counted from 0; where one is longer, at its end.
fn first_difference(one: &Path, other: &Path) -> Result<Option<u64>, ChoreFailure> {
    let read = |path: &Path| fs::read(path).map_err(|e| failed(path, &e));
    let (one, other) = (read(one)?, read(other)?);
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    Ok((one.len() != other.len() || same < one.len()).then_some(same as u64))
}

fn failed(path: &Path, error: &std::io::Error) -> ChoreFailure {
    ChoreFailure::new(format!("{}: {error}; its folder must be writable, with room for a build", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (whole, same) = (write("a", "forebay"), write("b", "forebay"));
        assert_eq!(first_difference(&whole, &same).unwrap(), None);
        assert_eq!(first_difference(&whole, &write("c", "foreday")).unwrap(), Some(4));
        assert_eq!(first_difference(&whole, &write("d", "fore")).unwrap(), Some(4));
        assert!(first_difference(&whole, &folder.path().join("none")).is_err());
    }
}
