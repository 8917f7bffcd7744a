//! A stand-in for the driver's library, built from `nvml/stub.c` with the machine's C compiler. Its figures are in a file that a test changes.
//!
//! Never: a file that is half written when the library reads it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::PartError;

/// A library by the name of `libnvidia-ml.so.1` in a folder of its own, removed when dropped.
#[derive(Debug)]
pub struct NvmlStub {
    folder: TempDir,
}

impl NvmlStub {
    /// Builds it. Until [`NvmlStub::set`] is called it has no GPU.
    ///
    /// # Errors
    /// There is no C compiler, or it does not build.
    pub fn build() -> Result<NvmlStub, PartError> {
        let folder = tempfile::tempdir().map_err(PartError::file(&std::env::temp_dir()))?;
        let stub = NvmlStub { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/stub.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(stub.library()).arg(source).arg("-ldl");
        let output = cc.output().map_err(PartError::process("cc, the C compiler that builds the NVML stub"))?;
        if !output.status.success() {
            return Err(PartError::Command {
                command: "cc nvml/stub.c".to_owned(),
                ended: output.status.to_string(),
                tail: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        stub.set("")?;
        Ok(stub)
    }

    /// The library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// Replaces its figures: lines such as `gpu 0 util 35 used 20480 total 81920 mig 0` and `process 0 4711 20480`, or `hang`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, figures: &str) -> Result<(), PartError> {
        let (new, file) = (self.folder.path().join("figures.new"), self.folder.path().join("figures"));
        std::fs::write(&new, figures).and_then(|()| std::fs::rename(&new, &file)).map_err(PartError::file(&file))
    }
}
