//! Every test binary of the workspace, built by one cargo command, and run section by section without cargo.
//!
//! ```text
//! cargo test -p a, then cargo test -p b      what both are built on is built twice where they ask for other features of it
//! cargo build --workspace --tests            one list of features for all: each library once
//! ```
//!
//! Only the run of all sections does so: who asks for one section waits for its packages alone. The tests of xtask itself are not
//! among them; the section `tidy` has run them before. The attacks in their whole form (attacks.rs) build the files that they are in.
//! Never: the examples in documentation; only cargo can build those (section `examples`).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ChoreFailure;
use crate::command::{capture_all, cargo, shown};
use crate::workspace::{Package, Workspace};

/// One test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// How the closing table names it, as cargo does: `engine (tests/engine/main.rs)`.
    pub name: String,
    /// The binary, or nothing where it could not be built.
    program: Option<PathBuf>,
    /// Its package's folder, in which it runs.
    folder: PathBuf,
    /// Whether it is a file of tests, which must have some; a library or a program may have none.
    pub is_test_file: bool,
}

/// What one build made.
#[derive(Debug, Default)]
pub struct Built {
    /// Source (from the root) and program of each test binary.
    programs: Vec<(PathBuf, PathBuf)>,
}

impl Built {
    /// Builds all that can be built. The second value is an error where something could not.
    pub fn all(workspace: &Workspace) -> (Self, Result<(), ChoreFailure>) {
        let mut command = cargo(workspace.root());
        // The examples too, as `cargo test` does: they are built with the features of the tests.
        command.args(["build", "--workspace", "--exclude", "xtask", "--tests", "--examples", "--keep-going"]);
        Self::by(command)
    }

    /// Builds some test files of one package.
    pub fn files(workspace: &Workspace, package: &str, files: &[&str]) -> (Self, Result<(), ChoreFailure>) {
        let mut command = cargo(workspace.root());
        command.args(["test", "--no-run", "-p", package]);
        command.args(files.iter().flat_map(|file| ["--test", file]));
        Self::by(command)
    }

    /// What this command of cargo's builds.
    fn by(mut command: Command) -> (Self, Result<(), ChoreFailure>) {
        command.arg("--message-format=json-render-diagnostics");
        eprintln!("$ {}", shown(&command));
        let (output, ended) = capture_all(&mut command);
        (Self::read(&output), ended)
    }

    /// Reads cargo's messages, one JSON object a line.
    fn read(output: &str) -> Self {
        let mut programs = Vec::new();
        for message in output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
            if let (true, Some(program), Some(source)) =
                (is_test, message["executable"].as_str(), message["target"]["src_path"].as_str())
            {
                programs.push((PathBuf::from(source), PathBuf::from(program)));
            }
        }
        Self { programs }
    }

    /// The test binaries of a package, those included that could not be built.
    pub fn of(&self, workspace: &Workspace, package: &Package) -> Vec<Binary> {
        // Joined part by part, so that the root's own folder, which is empty, adds no slash.
        let folder: PathBuf = workspace.root().iter().chain(Path::new(package.folder()).iter()).collect();
        let tested = package.targets.iter().filter(|target| target.tested);
        let binaries = tested.map(|target| {
            let source = workspace.root().join(&target.source);
            let program = self.programs.iter().find(|(its, _)| *its == source).map(|(_, program)| program.clone());
            let within = target.source.strip_prefix(package.folder()).unwrap_or(&target.source);
            let name = format!("{} ({})", target.name.replace('-', "_"), within.trim_start_matches('/'));
            Binary { name, program, folder: folder.clone(), is_test_file: target.is_test_file() }
        });
        binaries.collect()
    }
}

impl Binary {
    /// The command that runs it as cargo does: in its package's folder, and with that folder in its environment.
    pub fn command(&self) -> Result<Command, ChoreFailure> {
        let Some(program) = &self.program else {
            return Err(ChoreFailure::new(format!(
                "{} was not built; the section `build` has the compiler's error",
                self.name
            )));
        };
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_among_cargos_messages() {
        let output = concat!(
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/t/forebay","target":{"src_path":"/w/m.rs"}}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/kill9-1","target":{"src_path":"/w/k.rs"}}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":null,"target":{"src_path":"/w/n.rs"}}"#,
            "\nno JSON\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(Built::read(output).programs, [(PathBuf::from("/w/k.rs"), PathBuf::from("/t/kill9-1"))]);
    }

    #[test]
    fn a_binary_that_was_not_built_fails_by_its_name() {
        let name = "engine (tests/engine/main.rs)".to_owned();
        let binary = Binary { name, program: None, folder: "/w".into(), is_test_file: true };
        let error = binary.command().unwrap_err().message;
        assert_eq!(error, "engine (tests/engine/main.rs) was not built; the section `build` has the compiler's error");
    }
}
