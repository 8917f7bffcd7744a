//! What the tests need beyond cargo and the network: a short table, each row with a probe and how to get it.
//!
//! As root on a system with apt-get it installs what is missing, and prints the command; elsewhere it names it.
//! Never: `sudo`, or a need that the sections which run do not have.

use std::process::Command;

use forebay_parts::tools;

use crate::ChoreFailure;
use crate::command::{answers, run as run_command};

/// What a section builds and starts. Each has the needs of those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Our own code and its lints.
    Rust,
    /// The controller with its sources, and the C and C++ that these bring.
    Controller,
    /// A browser, which looks at the pages.
    Browser,
    /// Real servers.
    Parts,
}

struct Need {
    name: &'static str,
    why: &'static str,
    scope: Scope,
    probe: Probe,
    /// Debian's packages that bring it; none where it is not Debian's to bring.
    debian: &'static [&'static str],
    how: &'static str,
}

struct Probe {
    /// The command, or what is looked for.
    words: &'static str,
    /// For a program with a version of its own to check. Else the command exits with 0 where the thing is there.
    tool: Option<fn() -> bool>,
}

const fn command(words: &'static str) -> Probe {
    Probe { words, tool: None }
}

const fn tool(words: &'static str, finds: fn() -> bool) -> Probe {
    Probe { words, tool: Some(finds) }
}

const NEEDS: [Need; 13] = [
    Need {
        name: "C compiler (cc)",
        why: "the journal builds its own SQLite",
        scope: Scope::Rust,
        probe: command("cc --version"),
        debian: &["gcc", "libc6-dev"],
        how: "Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install",
    },
    Need {
        name: "rustfmt",
        why: "tidy checks the format",
        scope: Scope::Rust,
        probe: command("cargo fmt --version"),
        debian: &[],
        how: "rustup component add rustfmt",
    },
    Need {
        name: "clippy",
        why: "it holds the purity rules",
        scope: Scope::Rust,
        probe: command("cargo clippy --version"),
        debian: &[],
        how: "rustup component add clippy",
    },
    Need {
        name: "C++ compiler (c++)",
        why: "the Kafka source builds its own librdkafka",
        scope: Scope::Controller,
        probe: command("c++ --version"),
        debian: &["g++"],
        how: "Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install",
    },
    Need {
        name: "make",
        why: "librdkafka's build is a makefile",
        scope: Scope::Controller,
        probe: command("make --version"),
        debian: &["make"],
        how: "Debian, Ubuntu: apt-get install make; Fedora: dnf install make; macOS: xcode-select --install",
    },
    Need {
        name: "OpenSSL's headers",
        why: "librdkafka speaks TLS with them",
        scope: Scope::Controller,
        probe: command("pkg-config --exists openssl"),
        debian: &["libssl-dev", "pkg-config"],
        how: "Debian, Ubuntu: apt-get install libssl-dev pkg-config; Fedora: dnf install openssl-devel pkgconf; \
              macOS: brew install openssl pkgconf",
    },
    Need {
        name: "Node.js 18 or newer",
        why: "Playwright runs on it",
        scope: Scope::Browser,
        probe: tool("node --version, npm --version", || tools::node().is_ok()),
        debian: &["nodejs", "npm"],
        how: "Debian, Ubuntu: apt-get install nodejs npm; Fedora: dnf install nodejs; macOS: brew install node",
    },
    Need {
        name: "Chromium",
        why: "the pages are looked at in it",
        scope: Scope::Browser,
        probe: tool("chromium --version", || tools::chromium().is_ok()),
        debian: &["chromium"],
        how: "Debian: apt-get install chromium; Fedora: dnf install chromium; elsewhere: set CHROMIUM to its path",
    },
    Need {
        name: "OpenSSL (openssl)",
        why: "it makes the certificates of a Kafka with TLS, and of Kubernetes",
        scope: Scope::Parts,
        probe: tool("openssl version", || tools::openssl().is_ok()),
        debian: &["openssl"],
        how: "Debian, Ubuntu: apt-get install openssl; Fedora: dnf install openssl; macOS: brew install openssl",
    },
    Need {
        name: "Java 17 or newer",
        why: "Kafka runs on it",
        scope: Scope::Parts,
        probe: tool("java -version", || tools::java().is_ok()),
        debian: &["default-jre-headless"],
        how: "Debian, Ubuntu: apt-get install default-jre-headless; Fedora: dnf install java-21-openjdk-headless; \
              macOS: brew install openjdk, and set JAVA_HOME",
    },
    Need {
        name: "Maven",
        why: "it fetches Kafka's files",
        scope: Scope::Parts,
        probe: tool("mvn --version", || tools::maven().is_ok()),
        debian: &["maven"],
        how: "Debian, Ubuntu: apt-get install maven; Fedora: dnf install maven; macOS: brew install maven",
    },
    Need {
        name: "Python 3.13",
        why: "LocalStack, cfn-lint and focus-validator run on it",
        scope: Scope::Parts,
        probe: tool("python3.13, on the path or in pyenv", || tools::python().is_ok()),
        // Where Debian's own is another version, this changes nothing and the text below names what does.
        debian: &["python3-venv"],
        how: "Debian 13: apt-get install python3-venv; Fedora: dnf install python3.13; elsewhere: pyenv install 3.13; \
              macOS: brew install python@3.13",
    },
    Need {
        name: "Go 1.24 or newer",
        why: "it builds Kubernetes, etcd, kwok and Helm",
        scope: Scope::Parts,
        probe: tool("go env GOVERSION", || tools::go().is_ok()),
        // As for Python: an older Debian's is too old, and the text names another way.
        debian: &["golang-go"],
        how: "Debian 13: apt-get install golang-go; Fedora: dnf install golang; macOS: brew install go; \
              elsewhere: https://go.dev/dl",
    },
];

/// The needs that are not met, after all that could be installed has been.
pub struct Missing(Vec<&'static Need>);

impl Missing {
    /// Why a section of this scope cannot run: every need of it that is missing, what it is for, and how to get it.
    pub fn of(&self, scope: Scope) -> Option<ChoreFailure> {
        let rows: Vec<String> = (self.0.iter().filter(|need| need.scope <= scope))
            .map(|need| format!("\n  {}: {}\n    get it: {}", need.name, need.why, need.how))
            .collect();
        (!rows.is_empty()).then(|| ChoreFailure::new(format!("it needs what is not here:{}", rows.concat())))
    }
}

/// Probes each need of the scope, installs what it can, and returns those that are missing then.
pub fn check(scope: Scope) -> Missing {
    let mut missing: Vec<&Need> = NEEDS.iter().filter(|need| need.scope <= scope && !is_there(need)).collect();
    let packages = packages(&missing);
    if !packages.is_empty() && may_install() {
        if let Err(error) = install(&packages) {
            // What is still missing is named by each section that needs it, with how to get it.
            eprintln!("{}", error.message);
        }
        missing.retain(|need| !is_there(need));
    }
    Missing(missing)
}

fn is_there(need: &Need) -> bool {
    let Probe { words, tool } = need.probe;
    let there = tool.map_or_else(|| answers(&words.split(' ').collect::<Vec<_>>()), |finds| finds());
    eprintln!("need: {} ({words}): {}", need.name, if there { "there" } else { "missing" });
    there
}

fn packages(missing: &[&Need]) -> Vec<&'static str> {
    missing.iter().flat_map(|need| need.debian.iter().copied()).collect()
}

/// Only where nobody has to be asked: root, and apt-get there.
fn may_install() -> bool {
    answers(&["apt-get", "--version"]) && answers(&["sh", "-c", "test \"$(id -u)\" = 0"])
}

fn install(packages: &[&str]) -> Result<(), ChoreFailure> {
    run_command(Command::new("apt-get").arg("update"))?;
    let mut install = Command::new("apt-get");
    // Nobody is there to answer what a package asks.
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y", "--no-install-recommends"]);
    run_command(install.args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_the_needs_of_those_above_it() {
        let named = |scope| NEEDS.iter().filter(|need| need.scope <= scope).map(|need| need.name).collect::<Vec<_>>();
        assert_eq!(named(Scope::Rust), ["C compiler (cc)", "rustfmt", "clippy"]);
        assert!(named(Scope::Controller).contains(&"make") && !named(Scope::Controller).contains(&"Maven"));
        assert_eq!(named(Scope::Parts).len(), NEEDS.len());
    }

    #[test]
    fn only_the_sections_that_have_a_need_miss_it() {
        let missing = Missing(NEEDS.iter().filter(|need| need.name == "Maven").collect());
        assert!(missing.of(Scope::Rust).is_none() && missing.of(Scope::Controller).is_none());
        let words = missing.of(Scope::Parts).unwrap().message;
        assert!(
            words.contains("Maven: it fetches Kafka's files") && words.contains("apt-get install maven"),
            "{words}"
        );
    }

    #[test]
    fn what_debian_brings_is_asked_for_at_once() {
        let all: Vec<&Need> = NEEDS.iter().collect();
        assert!(packages(&all).contains(&"libssl-dev") && packages(&all).contains(&"maven"));
        let rustup: Vec<&Need> = NEEDS.iter().filter(|need| need.name == "clippy").collect();
        assert!(packages(&rustup).is_empty(), "rustup's are not Debian's to bring");
    }

    #[test]
    fn each_need_says_how_to_get_it() {
        for need in &NEEDS {
            assert!(need.debian.iter().all(|package| need.how.contains(package)), "{}", need.name);
            assert!(!need.how.is_empty() && !need.why.is_empty(), "{}", need.name);
        }
    }
}
