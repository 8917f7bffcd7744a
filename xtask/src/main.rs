//! Every chore of the project, one subcommand each. `cargo xtask --help` is the map.
//!
//! A chore prints each command that it runs, so that a reader can run it alone. Some install, and print what: `up` the
//! real servers, pinned, into a cache folder (`$FOREBAY_CACHE/parts`, else `~/.cache/forebay/parts`); `test` the same, and
//! what apt-get brings where it runs as root; `sbom` and `image` cargo-cyclonedx. The others reach no network beyond what cargo itself fetches.

mod bench;
mod command;
mod fuzz;
mod image;
mod needs;
mod page;
mod release;
mod sbom;
mod schema;
mod sweep;
mod test;
mod tidy;
mod up;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_parts::PartError;

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The chores of Forebay",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run the checks and the tests, section by section, and list at the end all that failed
    Test(test::TestArgs),
    /// Check the rules of the project that the compiler does not (CONTRIBUTING.md names them)
    Tidy,
    /// Run the seeded fault sweep in simulation
    Sweep(sweep::SweepArgs),
    /// Feed made-up inputs to every decoder, and print how much of them is reached
    Fuzz(fuzz::FuzzArgs),
    /// Write the JSON Schemas to policies/schema, or check that they are up to date
    Schema(schema::WriteSchemaArgs),
    /// Run the benches, or the one that is named
    Bench(bench::BenchArgs),
    /// Assemble the root folder of the container image: the program, the libraries that it links, certificates, a user
    Image(image::ImageArgs),
    /// Write the program's bill of materials, as CycloneDX
    Sbom(sbom::SbomArgs),
    /// Build the last commit for release in two folders, and compare the programs byte by byte
    Reproduce(release::ReproduceArgs),
    /// Start Kafka, LocalStack, Kubernetes, the loopback EC2, or all of them with Forebay on this machine and print how Forebay is pointed at it; Ctrl-C ends it
    Up(up::UpArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = Workspace::find().and_then(|workspace| match cli.chore {
        Chore::Test(args) => test::run(&workspace, &args),
        Chore::Tidy => tidy::run(&workspace),
        Chore::Sweep(args) => sweep::run(&workspace, &args),
        Chore::Fuzz(args) => fuzz::run(&workspace, &args),
        Chore::Schema(args) => schema::run(&workspace, &args),
        Chore::Bench(args) => bench::run(&workspace, &args),
        Chore::Image(args) => image::run(&workspace, &args),
        Chore::Sbom(args) => sbom::run(&workspace, &args),
        Chore::Reproduce(args) => release::reproduce(&workspace, &args),
        Chore::Up(args) => up::run(&workspace, &args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // `test` has already printed everything above its closing line, which must stay the last one.
            if !failure.message.is_empty() {
                eprintln!("{}", failure.message);
            }
            ExitCode::FAILURE
        }
    }
}

/// Why a chore did not succeed, in words that end with what to do about it.
#[derive(Debug)]
pub struct ChoreFailure {
    /// What to print, or nothing when the chore has printed it already.
    pub message: String,
}

impl ChoreFailure {
    /// A failure with its message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// A failure that has been printed already.
    pub fn already_printed() -> Self {
        Self::new("")
    }
}

impl From<PartError> for ChoreFailure {
    fn from(error: PartError) -> Self {
        Self::new(error.to_string())
    }
}
