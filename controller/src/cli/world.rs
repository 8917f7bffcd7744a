//! The simulated cloud of a journal: its seed and its market, kept beside the journal so that going on meets the same cloud.
//!
//! Never: another cloud on resume than the one that the journal was begun with.

use super::outcome::{Failure, read, write_private};
use crate::driver::WorldMaker;
use crate::files::create_private_folder;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Span;
use forebay_sim::market::Market;
use forebay_sim::world::{WorldOptions, spot_pairs};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Its name in the journal's folder.
const FILE: &str = "world.json";

/// A drawn market repeats after so long: 60 days, the longest public traces.
const HORIZON_MS: u64 = 60 * 86_400_000;

/// What is over in the simulated world is forgotten after this: long after the driver has settled it.
const FORGETS_AFTER: Span = Span::mins(24 * 60);

/// What the cloud is made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorldFile {
    seed: u64,
    market: Option<PathBuf>,
}

impl WorldFile {
    /// A new journal's; or that of the journal that is there, which the seed must not contradict. Without a seed: the journal's, or 1.
    /// Without a recorded market: the journal's, or one drawn from the seed.
    ///
    /// # Errors
    /// When the file beside the journal cannot be read, or the seed contradicts it.
    pub fn settle(
        folder: &Path,
        resume: bool,
        seed: Option<u64>,
        market: Option<PathBuf>,
    ) -> Result<WorldFile, Failure> {
        let path = folder.join(FILE);
        if resume && !path.exists() && seed.is_none() {
            return Err(Failure::input(format_args!(
                "{}: is not there, and the journal was begun with it: put it back, or name its seed by --seed (1, unless another was given)",
                path.display()
            )));
        }
        if !resume || !path.exists() {
            let market = market.map(|p| p.canonicalize().unwrap_or(p));
            return Ok(WorldFile { seed: seed.unwrap_or(1), market });
        }
        let remedy = "restore it from a backup, or begin a new journal";
        let file: WorldFile = serde_json::from_str(&read(&path)?)
            .map_err(|e| Failure::input(format_args!("{}: {e}: {remedy}", path.display())))?;
        match seed {
            Some(seed) if seed != file.seed => Err(Failure::input(format_args!(
                "--seed {seed}: this journal was begun with seed {}: leave the flag out, or begin a new journal",
                file.seed
            ))),
            _ => Ok(file),
        }
    }

    /// Keeps it beside the journal, whose folder is made. To be called when nothing else can be wrong with the input. What is there
    /// already is left alone: a full disk must not stop a start here, where nobody can say what to do about it.
    ///
    /// # Errors
    /// When the folder cannot be made or the file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), Failure> {
        create_private_folder(folder).map_err(|e| Failure::folder(folder, &e))?;
        let (path, text) = (folder.join(FILE), serde_json::to_string(self).map_err(Failure::outside)? + "\n");
        if std::fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        write_private(&path, &text)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// For people.
    pub fn words(&self) -> String {
        match &self.market {
            Some(path) => format!("spot as recorded in {}, seed {}", path.display(), self.seed),
            None => format!("spot drawn from seed {}", self.seed),
        }
    }

    /// Checks that the market can be read, before anything is begun.
    ///
    /// # Errors
    /// When the recorded market cannot be read.
    pub fn check(&self, policy: &Policy) -> Result<(), Failure> {
        self.market(&spot_pairs(policy)).map(|_| ()).map_err(Failure::input)
    }

    fn market(&self, pairs: &[(String, String)]) -> Result<Market, forebay_catalog::input::InputError> {
        match &self.market {
            Some(path) => Market::recorded(path, pairs),
            None => Ok(Market::seeded(self.seed, pairs, HORIZON_MS)),
        }
    }

    /// For a driver with a real cloud: what is embedded sells nothing and takes nothing back.
    pub fn calm() -> WorldMaker {
        Box::new(|_, origin| WorldOptions { origin, ..WorldOptions::new(1, Market::calm(&[])) })
    }

    /// For the driver, which adds what a file says of its market.
    pub fn maker(&self) -> WorldMaker {
        let file = self.clone();
        Box::new(move |policy, origin| {
            let pairs = spot_pairs(policy);
            // Read once already by `check`; a file that went away since leaves a drawn market.
            let market = file.market(&pairs).unwrap_or_else(|_| Market::seeded(file.seed, &pairs, HORIZON_MS));
            WorldOptions { origin, forgets_after: Some(FORGETS_AFTER), ..WorldOptions::new(file.seed, market) }
        })
    }
}
