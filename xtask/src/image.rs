//! The container image's root folder: the program, what it links, and what a program expects of a system. No container engine is needed.
//!
//! ```text
//! OUT/rootfs        usr/bin/forebay, its libraries, etc/passwd, CA certificates, licences, bill of materials, var/lib/forebay, tmp
//! OUT/Dockerfile    the last stage of deploy/image/Dockerfile, for an engine that takes this folder
//! ```
//!
//! Never: a file over another one, a shell, a secret, a key.

mod libraries;
mod root;

use std::fs;
use std::path::{Path, PathBuf};

use crate::ChoreFailure;
use crate::command::{capture, cargo};
use crate::workspace::Workspace;
use crate::{release, sbom};

use root::Contents;
pub use root::must_be_free;

/// What `cargo xtask image` takes.
#[derive(clap::Args)]
pub struct ImageArgs {
    /// Where to: a folder that is not there yet, or is empty [default: target/image]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// A program that is built already; else it is built for release
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// The authorities that the program trusts, as PEM
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    pub certificates: PathBuf,
}

/// The file with the stages, from the root.
const DOCKERFILE: &str = "deploy/image/Dockerfile";

/// Builds the program where none is given, and assembles the folder.
pub fn run(workspace: &Workspace, args: &ImageArgs) -> Result<(), ChoreFailure> {
    let out = args.out.clone().unwrap_or_else(|| workspace.target().join("image"));
    root::must_be_free(&out)?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => release::build(workspace.root(), workspace.target())?,
    };
    let libraries = libraries::of(&binary)?;
    let license = workspace.root().join("LICENSE");
    let dependencies = dependencies(workspace)?;
    let bill = sbom::make(workspace, None)?;
    let contents = Contents {
        binary: &binary,
        libraries: &libraries,
        certificates: &args.certificates,
        license: &license,
        dependencies: &dependencies,
        bill: &bill,
    };
    root::assemble(&out.join("rootfs"), &contents)?;
    let stages = read(&workspace.root().join(DOCKERFILE))?;
    let path = out.join("Dockerfile");
    fs::write(&path, last_stage(&stages)?).map_err(|e| failed(&path, &e))?;
    println!("{}", out.join("rootfs").display());
    for library in &libraries {
        println!("  links {}", library.display());
    }
    println!("an image of it, by an engine: docker build --tag forebay {}", out.display());
    Ok(())
}

/// The packages that are linked, with their versions and licences, one a line.
fn dependencies(workspace: &Workspace) -> Result<String, ChoreFailure> {
    let mut tree = cargo(workspace.root());
    tree.args(["tree", "--locked", "--package", "forebay", "--edges", "normal", "--prefix", "none"]);
    tree.args(["--format", "{p}: {l}"]);
    let text = capture(&mut tree)?;
    // Our own have a path behind their version; LICENSE is theirs.
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.contains(" (/")).collect();
    lines.sort_unstable();
    lines.dedup();
    // A package that is listed again has a mark at its end.
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.ends_with("(*)")).collect();
    Ok(lines.join("\n") + "\n")
}

/// The last stage of a Dockerfile, with the root folder beside it in the place of the one that an earlier stage made.
fn last_stage(stages: &str) -> Result<String, ChoreFailure> {
    let malformed =
        || ChoreFailure::new(format!("{DOCKERFILE}: no stage `FROM scratch`; write one, which copies /image/rootfs"));
    let (_, last) = stages.rsplit_once("\nFROM scratch\n").ok_or_else(malformed)?;
    let last = last.replace("--from=build ", "").replace(" /image/rootfs/", " rootfs/");
    Ok(format!("FROM scratch\n{last}"))
}

fn read(path: &Path) -> Result<String, ChoreFailure> {
    fs::read_to_string(path).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &std::io::Error) -> ChoreFailure {
    ChoreFailure::new(format!("{}: {error}; it has to be there, and its folder must be writable", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_beside_the_root_is_the_last_stage_of_the_committed_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let stages = read(&folder.join(DOCKERFILE)).unwrap();
        let last = last_stage(&stages).unwrap();
        assert!(last.starts_with("FROM scratch\nCOPY rootfs/ /\n"), "{last}");
        assert!(last.contains("COPY --chown=65532:65532 rootfs/var/lib/forebay/ /var/lib/forebay/\n"), "{last}");
        assert!(last.contains("\nUSER 65532:65532\n") && !last.contains("build"), "{last}");
        assert!(stages.contains("RUN cargo xtask image --out /image\n"), "both have the same root");
        assert!(last_stage("FROM debian\n").is_err());
    }

    /// The chart runs the program by this path and as this user.
    #[test]
    fn the_chart_and_the_image_agree() {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm/forebay/templates/controller.yaml");
        let chart = read(&chart).unwrap();
        assert!(chart.contains("command: [/usr/bin/forebay]") && chart.contains("runAsUser: 65532"));
        assert!(chart.contains("mountPath: /var/lib/forebay}"));
    }
}
