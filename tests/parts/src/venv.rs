//! A Python environment of its own in the cache, filled from a list of pins.
//!
//! Never: a package that the list does not name, or a version that it does not pin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

/// A script that was installed into an environment, run by its Python: the script's own first line has the folder's name of the time when it
/// was installed.
pub(crate) fn script(folder: &Path, name: &str) -> Command {
    let mut command = python(folder);
    command.arg(folder.join("bin").join(name));
    command
}

/// The Python of an environment.
pub(crate) fn python(folder: &Path) -> Command {
    Command::new(folder.join("bin/python"))
}

/// What a command prints, which gets no input.
pub(crate) fn output(what: &str, command: &mut Command) -> Result<Output, PartError> {
    command.stdin(Stdio::null()).output().map_err(PartError::process(what))
}
