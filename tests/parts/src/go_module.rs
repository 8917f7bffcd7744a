//! Programs that are built from Go modules, each pinned by a go.mod and go.sum of ours, once into the cache.
//!
//! Never: a binary that somebody else built, or a module that go.sum does not know.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guarded::guarded;
use crate::install::{self, BUILD_LIMIT, Recipe, install};
use crate::{PartError, cache, tools};

/// A Go module of ours, and the programs that are built from it.
pub(crate) struct GoModule {
    pub(crate) what: &'static str,
    pub(crate) from: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// What the linker sets, so that a server can say its version.
    pub(crate) flags: &'static str,
    /// The package of each program, and the program's name.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

#[cfg(test)]
impl GoModule {
    /// Fails where its words, its version and its go.mod do not agree.
    pub(crate) fn check(&self) {
        assert!(self.what.ends_with(self.version), "{}", self.what);
        for (package, _) in self.programs {
            let [listed, alone] = [format!("\t{package}\n"), format!("tool {package}")];
            assert!(self.go_mod.contains(&listed) || self.go_mod.contains(&alone), "{package}");
        }
    }
}

/// The folder of a module's programs. Builds them where they are not there yet, and prints that it does.
pub(crate) fn build(module: &GoModule) -> Result<PathBuf, PartError> {
    let pins = [module.go_mod, module.go_sum, module.flags].concat();
    let recipe = Recipe {
        what: module.what,
        from: module.from,
        name: format!("{}-{}", module.name, module.version),
        pins: &pins,
        proof: "bin",
    };
    let folder = install(&cache()?, &recipe, |new| {
        let go = tools::go()?;
        write_module(new, module.go_mod, module.go_sum)?;
        let out = new.join("bin.new");
        fs::create_dir(&out).map_err(PartError::file(&out))?;
        for (package, program) in module.programs {
            let mut command = go_command(&go, new);
            command.args(["build", "-trimpath", "-ldflags", module.flags, "-o"]).arg(out.join(program)).arg(package);
            install::run("go build", &mut command, &new.join("install.log"), BUILD_LIMIT)?;
        }
        let bin = new.join("bin");
        fs::rename(&out, &bin).map_err(PartError::file(&bin))
    })?;
    Ok(folder.join("bin"))
}

/// Writes the files that pin a module.
pub(crate) fn write_module(folder: &Path, go_mod: &str, go_sum: &str) -> Result<(), PartError> {
    for (name, text) in [("go.mod", go_mod), ("go.sum", go_sum)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(PartError::file(&path))?;
    }
    Ok(())
}

/// Go in a folder, with nothing of the caller's settings that would change what is built, and behind whoever waits for the processor.
pub(crate) fn go_command(go: &Path, folder: &Path) -> Command {
    let mut command = guarded("nice");
    command.arg(go).current_dir(folder);
    command.envs([("CGO_ENABLED", "0"), ("GOWORK", "off"), ("GOFLAGS", "-mod=readonly -buildvcs=false")]);
    command
}
