//! The programs of a Kubernetes: built from Go modules, each pinned by a go.mod and go.sum of ours, once into the cache.
//!
//! ```text
//! kube/kubernetes   kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
//! kube/etcd         etcd
//! kube/kwok         kwok
//! kube/jobset       JobSet's CustomResourceDefinition, a file of its module
//! kube/jobset-manager    its controller
//! ```
//!
//! Never: a binary that somebody else built, or a module that go.sum does not know.

use std::fs;
use std::path::{Path, PathBuf};

use crate::go_module::{GoModule, build, go_command, write_module};
use crate::install::{self, Recipe, install};
use crate::{PartError, cache, tools};

const KUBERNETES: &str = "1.34.4";
const ETCD: &str = "3.6.6";
const KWOK: &str = "0.7.0";
const JOBSET: &str = "0.10.1";

const MODULES: [GoModule; 3] = [
    GoModule {
        what: "Kubernetes 1.34.4",
        from: "Go, a build of ten minutes, 300 MB on disk",
        name: "kubernetes",
        version: KUBERNETES,
        go_mod: include_str!("../../kube/kubernetes/go.mod"),
        go_sum: include_str!("../../kube/kubernetes/go.sum"),
        flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 \
                -X k8s.io/component-base/version.gitMinor=34 -X k8s.io/component-base/version.gitTreeState=clean",
        programs: &[
            ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
            ("k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"),
            ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
            ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
        ],
    },
    GoModule {
        what: "etcd 3.6.6",
        from: "Go, a build of a minute, 25 MB on disk",
        name: "etcd",
        version: ETCD,
        go_mod: include_str!("../../kube/etcd/go.mod"),
        go_sum: include_str!("../../kube/etcd/go.sum"),
        flags: "-s -w",
        programs: &[("go.etcd.io/etcd/server/v3", "etcd")],
    },
    GoModule {
        what: "kwok 0.7.0",
        from: "Go, a build of two minutes, 60 MB on disk",
        name: "kwok",
        version: KWOK,
        go_mod: include_str!("../../kube/kwok/go.mod"),
        go_sum: include_str!("../../kube/kwok/go.sum"),
        flags: "-s -w",
        programs: &[("sigs.k8s.io/kwok/cmd/kwok", "kwok")],
    },
];

const JOBSET_MANAGER: GoModule = GoModule {
    what: "JobSet 0.10.1",
    from: "Go, a build of two minutes, 60 MB on disk",
    name: "jobset-manager",
    version: JOBSET,
    go_mod: include_str!("../../kube/jobset-manager/go.mod"),
    go_sum: include_str!("../../kube/jobset-manager/go.sum"),
    flags: "-s -w",
    programs: &[("sigs.k8s.io/jobset", "jobset-manager")],
};

/// JobSet's controller.
pub(super) fn jobset_manager() -> Result<PathBuf, PartError> {
    Ok(build(&JOBSET_MANAGER)?.join("jobset-manager"))
}

/// The folders of the programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    kubernetes: PathBuf,
    etcd: PathBuf,
    kwok: PathBuf,
}

impl Programs {
    /// Builds what is not there yet, and prints that it does.
    pub(super) fn install() -> Result<Self, PartError> {
        let [kubernetes, etcd, kwok] = &MODULES;
        Ok(Self { kubernetes: build(kubernetes)?, etcd: build(etcd)?, kwok: build(kwok)? })
    }

    /// A program of Kubernetes itself.
    pub(super) fn kubernetes(&self, name: &str) -> PathBuf {
        self.kubernetes.join(name)
    }

    pub(super) fn etcd(&self) -> PathBuf {
        self.etcd.join("etcd")
    }

    pub(super) fn kwok(&self) -> PathBuf {
        self.kwok.join("kwok")
    }
}

/// JobSet's CustomResourceDefinition, as its module has it.
pub(super) fn jobset_crd() -> Result<PathBuf, PartError> {
    const GO_MOD: &str = include_str!("../../kube/jobset/go.mod");
    const GO_SUM: &str = include_str!("../../kube/jobset/go.sum");
    const CRD: &str = "jobset.yaml";
    let pins = [GO_MOD, GO_SUM].concat();
    let recipe = Recipe {
        what: "JobSet 0.10.1's CustomResourceDefinition",
        from: "Go, a module of 2 MB",
        name: format!("jobset-{JOBSET}"),
        pins: &pins,
        proof: CRD,
    };
    let folder = install(&cache()?, &recipe, |new| {
        let go = tools::go()?;
        write_module(new, GO_MOD, GO_SUM)?;
        let log = new.join("install.log");
        let mut fetch = go_command(&go, new);
        fetch.args(["mod", "download", "-x", &format!("sigs.k8s.io/jobset@v{JOBSET}")]);
        install::step("go mod download", &mut fetch, &log)?;
        let mut ask = go_command(&go, new);
        let listed = new.join("module");
        ask.args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/jobset"]);
        install::step("go list -m", &mut ask, &listed)?;
        let module = fs::read_to_string(&listed).map_err(PartError::file(&listed))?;
        let crd = Path::new(module.trim()).join("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml");
        // Read and written, because a file of the module store may not be written to, and a copy would not be either.
        let text = fs::read(&crd).map_err(PartError::file(&crd))?;
        fs::write(new.join(CRD), text).map_err(PartError::file(new))
    })?;
    Ok(folder.join(CRD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_versions_are_those_of_the_modules() {
        let [kubernetes, etcd, kwok] = &MODULES;
        assert!(kubernetes.go_mod.contains(&format!("\tk8s.io/kubernetes v{KUBERNETES}")));
        assert!(kubernetes.flags.contains(&format!("gitVersion=v{KUBERNETES} ")));
        assert!(etcd.go_mod.contains(&format!("\tgo.etcd.io/etcd/server/v3 v{ETCD}")), "{}", etcd.go_mod);
        assert!(kwok.go_mod.contains(&format!("sigs.k8s.io/kwok v{KWOK}")));
        assert!(include_str!("../../kube/jobset/go.mod").contains(&format!("sigs.k8s.io/jobset v{JOBSET}")));
        for module in MODULES.iter().chain([&JOBSET_MANAGER]) {
            module.check();
        }
    }
}
