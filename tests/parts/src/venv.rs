//! A Python environment of its own in the cache, filled from a list of pins.
//!
//! Never: a package that the list does not name, or a version that it does not pin.

use std::fs;
use std::path::PathBuf;

use crate::guarded::guarded;
use crate::install::{self, Recipe, install};
use crate::{PartError, cache, tools};

/// Installs what `recipe` pins where it is not there yet, and prints that it does. The folder.
pub(crate) fn environment(recipe: &Recipe<'_>) -> Result<PathBuf, PartError> {
    let base = tools::python()?;
    install(&cache()?, recipe, |new| {
        let log = new.join("install.log");
        let mut make = guarded(&base);
        install::step("python -m venv", make.args(["-m", "venv", "."]).current_dir(new), &log)?;
        fs::write(new.join("requirements.txt"), recipe.pins).map_err(PartError::file(new))?;
        let mut fetch = guarded(new.join("bin/python"));
        // All of them are pinned; what is not listed is not wanted.
        fetch.args(["-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--no-cache-dir"]);
        let tmp = new.join("tmp");
        fs::create_dir(&tmp).map_err(PartError::file(&tmp))?;
        fetch.args(["-r", "requirements.txt"]).current_dir(new).env("TMPDIR", &tmp);
        install::step("pip install", &mut fetch, &log)?;
        fs::remove_dir_all(&tmp).map_err(PartError::file(&tmp))
    })
}
