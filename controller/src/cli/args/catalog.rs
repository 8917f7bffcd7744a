//! The words of what can be bought, on the command line.
//!
//! Never: behaviour.

use clap::Args;
use std::path::PathBuf;

/// What can be bought, for the commands that read a policy.
#[derive(Debug, Args)]
pub struct CatalogArgs {
    /// Instance types with their prices, as CSV: crates/catalog/data/README.md has the columns. Default: the built-in catalogue.
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,
}
