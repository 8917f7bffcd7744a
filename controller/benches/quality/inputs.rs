//! Where the inputs of the experiments are, and how a policy of benches/quality is read.
//!
//! Never: an input of its own making.

use forebay_catalog::Catalogue;
use forebay_catalog::read;
use forebay_kernel::policy::Policy;
use forebay_policy::compile;
use std::path::{Path, PathBuf};

/// The folder of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the published inputs, where they are beside the project.
pub fn published(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/traces").join(name);
    path.is_file().then_some(path)
}

/// A policy of benches/quality, compiled with the prices beside it.
pub fn policy(name: &str) -> Result<Policy, String> {
    let folder = root().join("benches/quality");
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = read(folder.join("catalogue.csv")).map_err(|e| e.to_string())?;
    let catalogue = Catalogue { rows, ..Catalogue::builtin() };
    Ok(compile(&path.display().to_string(), &text, &catalogue).map_err(|e| e.to_string())?.policy)
}
