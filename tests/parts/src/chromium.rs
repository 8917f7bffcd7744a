//! Chromium, driven by Playwright: what a person sees of a page, and what axe finds in anyone's way there.
//!
//! ```text
//! Debian's chromium  <-- Playwright (node) <-- a script of the test, which prints what it saw
//! ```
//!
//! Never: a browser of Playwright's own, which would have to be downloaded; a page that is not on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guarded::guarded;
use crate::install::{Recipe, install, run_printing, step, temporary};
use crate::{PartError, cache, tools};

const PACKAGE: &str = include_str!("../chromium/package.json");
const LOCK: &str = include_str!("../chromium/package-lock.json");

/// A Chromium with what drives it.
#[derive(Clone, Debug)]
pub struct Chromium {
    node: PathBuf,
    browser: PathBuf,
    folder: PathBuf,
}

impl Chromium {
    /// Installs what drives it into the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no Chromium or no Node.js, or the packages cannot be fetched.
    pub fn install() -> Result<Self, PartError> {
        let (node, browser) = (tools::node()?, tools::chromium()?);
        let recipe = Recipe {
            what: "Playwright 1.60.0 and axe 4.14.1",
            from: "npm, 2 packages, 15 MB on disk",
            name: "playwright-1.60.0".to_owned(),
            pins: LOCK,
            proof: "node_modules/playwright-core/package.json",
        };
        let folder = install(&cache()?, &recipe, |new| {
            for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCK)] {
                fs::write(new.join(name), text).map_err(PartError::file(new))?;
            }
            let mut fetch = guarded("npm");
            fetch.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(new);
            step("npm ci", &mut fetch, &new.join("install.log"))
        })?;
        Ok(Self { node, browser, folder })
    }

    /// Runs a script with its question as its one argument, and returns what it printed. It finds Chromium in `CHROMIUM` and the packages by
    /// `require`.
    ///
    /// # Errors
    /// When it fails, or has not ended within the limit.
    pub fn run(&self, script: &Path, question: &str, limit: Duration) -> Result<String, PartError> {
        let folder = temporary("forebay-chromium-")?;
        let (printed, log) = (folder.path().join("printed"), folder.path().join("log"));
        let file = fs::File::create(&printed).map_err(PartError::file(&printed))?;
        let mut command = guarded(&self.node);
        command.arg(script).arg(question).env("CHROMIUM", &self.browser).env("HOME", folder.path());
        command.env("NODE_PATH", self.folder.join("node_modules")).stdout(file);
        run_printing("node", &mut command, &log, limit)?;
        fs::read_to_string(&printed).map_err(PartError::file(&printed))
    }
}
