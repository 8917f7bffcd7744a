//! The programs that parts need and that no chore installs into the cache: Java, Maven, Python, OpenSSL, Go, Node.js, Chromium.
//!
//! Never: a version that was not asked for its number.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::PartError;

/// The Java that Kafka runs on: `$JAVA_HOME`'s, else the one on the path; 17 or newer.
///
/// # Errors
/// When there is none.
pub fn java() -> Result<PathBuf, PartError> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let candidates = home.into_iter().chain([PathBuf::from("java")]);
    let found = candidates.into_iter().find(|java| {
        let printed = printed(Command::new(java).arg("-version"));
        printed.as_deref().and_then(java_version).is_some_and(|version| version >= 17)
    });
    found.ok_or(PartError::Missing {
        what: "Java 17 or newer (java)",
        why: "Kafka runs on it",
        how: "Debian, Ubuntu: apt-get install default-jre-headless; Fedora: dnf install java-21-openjdk-headless; \
              macOS: brew install openjdk, and set JAVA_HOME",
    })
}

/// The number behind `version "`: `17.0.15` is 17, `1.8.0_392` is 8, `21-ea` is 21.
fn java_version(printed: &str) -> Option<u32> {
    let (_, rest) = printed.split_once("version \"")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    match numbers.next()? {
        1 => numbers.next(),
        version => Some(version),
    }
}

/// Maven, which fetches Kafka's files.
///
/// # Errors
/// When there is none.
pub fn maven() -> Result<PathBuf, PartError> {
    let there = printed(Command::new("mvn").arg("--version")).is_some();
    there.then(|| PathBuf::from("mvn")).ok_or(PartError::Missing {
        what: "Maven (mvn)",
        why: "it fetches Kafka's files",
        how: "Debian, Ubuntu: apt-get install maven; Fedora: dnf install maven; macOS: brew install maven",
    })
}

/// OpenSSL's command, which makes the certificates of a Kafka that asks for a password.
///
/// # Errors
/// When there is none.
pub fn openssl() -> Result<PathBuf, PartError> {
    let there = printed(Command::new("openssl").arg("version")).is_some();
    there.then(|| PathBuf::from("openssl")).ok_or(PartError::Missing {
        what: "OpenSSL (openssl)",
        why: "it makes the certificates of a Kafka with TLS, and of Kubernetes",
        how: "Debian, Ubuntu: apt-get install openssl; Fedora: dnf install openssl; macOS: brew install openssl",
    })
}

/// Go 1.24 or newer, which builds Kubernetes, etcd and kwok; or one that fetches as new a one as their modules ask for, as Go does from 1.21 on.
///
/// # Errors
/// When there is none.
pub fn go() -> Result<PathBuf, PartError> {
    let candidates = [PathBuf::from("go"), PathBuf::from("/usr/local/go/bin/go")];
    let found = candidates.into_iter().find(|go| {
        let printed = printed(Command::new(go).args(["env", "GOVERSION", "GOTOOLCHAIN"]));
        printed
            .as_deref()
            .and_then(go_version)
            .is_some_and(|(version, fetches)| version >= if fetches { 21 } else { 24 })
    });
    found.ok_or(PartError::Missing {
        what: "Go 1.24 or newer (go)",
        why: "it builds Kubernetes, etcd and kwok",
        how: "Debian 13: apt-get install golang-go; Fedora: dnf install golang; macOS: brew install go; elsewhere: https://go.dev/dl",
    })
}

/// The number behind `go1.`, and whether it fetches a newer Go by itself.
fn go_version(printed: &str) -> Option<(u32, bool)> {
    let mut lines = printed.lines();
    let minor = lines.next()?.strip_prefix("go1.")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some((minor, lines.next()?.contains("auto")))
}

/// A Python 3.13 with what makes an environment: from the path, else from pyenv. the program itself, not one that searches
/// for it. LocalStack 4.14.0 imports what 3.12 does not have.
///
/// # Errors
/// When there is none.
pub fn python() -> Result<PathBuf, PartError> {
    let on_path = ["python3.13", "python3"].map(OsString::from);
    on_path.into_iter().chain(pyenv_pythons()).find_map(ask_python).ok_or(PartError::Missing {
        what: "Python 3.13 with venv",
        why: "LocalStack, cfn-lint and focus-validator run on it",
        how: "Debian 13: apt-get install python3-venv; Fedora: dnf install python3.13; elsewhere: pyenv install 3.13; \
              macOS: brew install python@3.13",
    })
}

fn pyenv_pythons() -> Vec<OsString> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv")));
    let Some(versions) = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok()) else {
        return Vec::new();
    };
    let versions = versions.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let wanted = versions.filter(|path| path.file_name().unwrap_or_default().to_string_lossy().starts_with("3.13"));
    wanted.map(|path| path.join("bin/python").into_os_string()).collect()
}

fn ask_python(candidate: OsString) -> Option<PathBuf> {
    let question = "import ensurepip, sys, venv; print(*sys.version_info[:2], sys.executable)";
    let printed = printed(Command::new(candidate).args(["-c", question]))?;
    printed.lines().next()?.strip_prefix("3 13 ").map(PathBuf::from)
}

/// Node.js 18 or newer with npm, which drive a browser.
///
/// # Errors
/// When there is none.
pub fn node() -> Result<PathBuf, PartError> {
    let version = printed(Command::new("node").arg("--version"));
    let there = version.as_deref().and_then(node_version).is_some_and(|version| version >= 18);
    let npm = there && printed(Command::new("npm").arg("--version")).is_some();
    npm.then(|| PathBuf::from("node")).ok_or(PartError::Missing {
        what: "Node.js 18 or newer (node, npm)",
        why: "Playwright runs on it",
        how: "Debian, Ubuntu: apt-get install nodejs npm; Fedora: dnf install nodejs; macOS: brew install node",
    })
}

/// The number behind `v`.
fn node_version(printed: &str) -> Option<u32> {
    printed.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Chromium, in which the pages are looked at: `$CHROMIUM`'s, else one on the path.
///
/// # Errors
/// When there is none.
pub fn chromium() -> Result<PathBuf, PartError> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let candidates = named.into_iter().chain(["chromium", "chromium-browser", "google-chrome"].map(PathBuf::from));
    let paths: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    // Playwright wants the whole path.
    let whole = |name: PathBuf| match name.is_absolute() {
        true => Some(name),
        false => paths.iter().map(|folder| folder.join(&name)).find(|path| path.is_file()),
    };
    let found = candidates.filter_map(whole).find(|path| printed(Command::new(path).arg("--version")).is_some());
    found.ok_or(PartError::Missing {
        what: "Chromium (chromium)",
        why: "the pages are looked at in it",
        how: "Debian: apt-get install chromium; Fedora: dnf install chromium; elsewhere: set CHROMIUM to its path",
    })
}

/// What a command printed, both outputs, where it exits with 0.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_says_its_version_in_many_ways() {
        for (printed, version) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime", Some(17)),
            ("java version \"1.8.0_392\"", Some(8)),
            ("Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version \"21-ea\"", Some(21)),
            ("openjdk version \"25\"", Some(25)),
            ("command not found", None),
        ] {
            assert_eq!(java_version(printed), version, "{printed}");
        }
    }

    #[test]
    fn go_says_its_version_and_whether_it_fetches_another() {
        assert_eq!(go_version("go1.26.8\nlocal\n"), Some((26, false)));
        assert_eq!(go_version("go1.22\nauto\n"), Some((22, true)));
        assert_eq!(go_version("go1.25rc1\ngo1.24.0+auto\n"), Some((25, true)));
        assert_eq!(go_version("devel\n\n"), None);
    }

    #[test]
    fn node_says_its_version() {
        assert_eq!(node_version("v20.20.2\n"), Some(20));
        assert_eq!(node_version("20.20.2"), None);
    }

    #[test]
    fn a_python_that_is_none_is_not_found() {
        assert_eq!(ask_python("true".into()), None);
        assert_eq!(ask_python("no-such-python".into()), None);
    }
}
