//! The bill of materials: every package that the program is built from, with version, licence and digest, as CycloneDX.
//!
//! ```text
//! Cargo.lock, each Cargo.toml, empty sources -> a folder of its own -> cargo-cyclonedx -> controller/forebay_bin.cdx.json
//!     -> without the names of that folder -> FILE
//! ```
//!
//! cargo-cyclonedx writes beside each manifest, so it gets copies of them. One commit has one bill: the time in it is the commit's.
//! Never: writes among the sources, or has a folder of this machine in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_parts::CargoCyclonedx;
use serde::Deserialize;

use crate::ChoreFailure;
use crate::command::{capture, git, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask sbom` takes.
#[derive(clap::Args)]
pub struct SbomArgs {
    /// Where to [default: target/release/forebay.cdx.json, beside the program]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What the program is built for, such as `aarch64-unknown-linux-gnu`; else this machine
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
}

/// The package of the program.
const PACKAGE: &str = "forebay";

/// What a bill has of interest here.
#[derive(Deserialize)]
struct Bill {
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    version: String,
    #[serde(default)]
    licenses: Vec<serde_json::Value>,
    #[serde(default)]
    hashes: Vec<serde_json::Value>,
}

/// Writes the bill.
pub fn run(workspace: &Workspace, args: &SbomArgs) -> Result<(), ChoreFailure> {
    let out = args.out.clone().unwrap_or_else(|| workspace.target().join("release/forebay.cdx.json"));
    let bill = make(workspace, args.target.as_deref())?;
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    }
    fs::write(&out, bill).map_err(|e| failed(&out, &e))?;
    println!("{}", out.display());
    Ok(())
}

/// Makes the bill, and looks whether each package is in it as it should be.
pub fn make(workspace: &Workspace, target: Option<&str>) -> Result<String, ChoreFailure> {
    let tool = CargoCyclonedx::install()?;
    let folder = workspace.target().join("sbom");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| failed(&folder, &e))?;
    }
    stage(workspace, &folder)?;
    let package = workspace
        .package(PACKAGE)
        .ok_or_else(|| ChoreFailure::new(format!("`{PACKAGE}` is no package of the workspace")))?;
    let manifest = folder.join(&package.manifest);
    let mut command = Command::new(tool.program());
    command.current_dir(&folder).arg("cyclonedx").arg("--manifest-path").arg(&manifest);
    command.args(["--format", "json", "--spec-version", "1.5", "--describe", "binaries", "--no-build-deps", "--quiet"]);
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    if std::env::var_os("SOURCE_DATE_EPOCH").is_none()
        && let Some(time) = committed_at(workspace.root())
    {
        command.env("SOURCE_DATE_EPOCH", time);
    }
    run_command(&mut command)?;
    let written = folder.join(package.folder()).join(format!("{PACKAGE}_bin.cdx.json"));
    let text = fs::read_to_string(&written).map_err(|e| failed(&written, &e))?;
    let text = text.replace(&format!("file://{}", folder.display()), "file:///forebay");
    check(&text, workspace)?;
    fs::remove_dir_all(&folder).map_err(|e| failed(&folder, &e))?;
    Ok(text)
}

/// Copies what cargo reads to know what is built from what.
fn stage(workspace: &Workspace, folder: &Path) -> Result<(), ChoreFailure> {
    let from_root = |path: &str| workspace.root().join(path);
    let manifests = workspace.packages().iter().map(|package| package.manifest.as_str());
    for path in manifests.chain(["Cargo.lock"]) {
        write(&folder.join(path), &fs::read(from_root(path)).map_err(|e| failed(&from_root(path), &e))?)?;
    }
    for target in workspace.packages().iter().flat_map(|package| &package.targets) {
        write(&folder.join(&target.source), b"")?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ChoreFailure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes)).map_err(|e| failed(path, &e))
}

/// When the commit was made, in seconds. `None`: there is no git here, as in an archive of the sources.
fn committed_at(root: &Path) -> Option<String> {
    let time = capture(git(root).args(["log", "-1", "--format=%ct"])).ok()?;
    Some(time.trim().to_owned()).filter(|time| !time.is_empty())
}

/// Whether each package of others has a version, a licence and a digest, and what the program's own manifest names is there.
fn check(text: &str, workspace: &Workspace) -> Result<(), ChoreFailure> {
    let bill: Bill =
        serde_json::from_str(text).map_err(|e| ChoreFailure::new(format!("the bill of materials: {e}")))?;
    let own = |component: &Component| workspace.package(&component.name).is_some();
    if let Some(bare) = bill.components.iter().find(|it| it.licenses.is_empty() || it.hashes.is_empty() && !own(it)) {
        return Err(ChoreFailure::new(format!(
            "{} {} has no licence or no digest in the bill of materials; is it from a registry?",
            bare.name, bare.version
        )));
    }
    let named = workspace.package(PACKAGE).into_iter().flat_map(|package| &package.libraries).filter(|edge| !edge.dev);
    match named.map(|edge| &edge.to).find(|name| !bill.components.iter().any(|it| it.name == **name)) {
        Some(name) => Err(ChoreFailure::new(format!("{name} is not in the bill of materials, though it is linked"))),
        None => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> ChoreFailure {
    ChoreFailure::new(format!("{}: {error}; its folder must be writable", path.display()))
}
