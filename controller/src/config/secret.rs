//! Secrets of the configuration: a file or a variable of the environment that holds one, and the text once it is read.
//!
//! Never: the secret's own value in the configuration, in a message, in `Debug` or in a serialized form.

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The longest secret: a private key in PEM is some 3 KiB.
const MOST_BYTES: u64 = 64 << 10;

/// What may stand for a secret, for messages.
const REMEDY: &str = "keep the secret out of this file: write `secret: {file: PATH}` or `secret: {env: NAME}`";

/// Where a secret is: `{file: PATH}` or `{env: NAME}`, one of the two. Read once, when Forebay starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Secret {
    /// In this file, from the configuration's folder on. One line end after it is cut. Mode 0600 or 0640.
    File(PathBuf),
    /// In this variable of the environment.
    Env(String),
}

/// A secret that was read. Shown by nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

/// Why there is no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret of {whose} {problem}: {remedy}")]
pub struct SecretError {
    whose: String,
    problem: String,
    remedy: String,
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl SecretText {
    /// The secret itself, for whoever must send or compare it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Secret {
    /// Lets a relative path start at `folder`.
    pub fn start_at(&mut self, folder: &Path) {
        if let Secret::File(path) = self {
            *path = folder.join(&*path);
        }
    }

    /// Reads it. `whose` says whose it is, such as ``token `airflow` ``. What is unwise and does no harm yet goes to `warnings`.
    ///
    /// # Errors
    /// It is not there, empty, too long or no text.
    pub fn read(&self, whose: &str, warnings: &mut Vec<String>) -> Result<SecretText, SecretError> {
        let refused =
            |problem: String, remedy: &str| SecretError { whose: whose.to_owned(), problem, remedy: remedy.to_owned() };
        let (text, place) = match self {
            Secret::File(path) => {
                let shown = path.display();
                let text = read_file(path).map_err(|e| {
                    refused(format!("cannot be read from {shown} ({e})"), "put it there, readable for Forebay alone")
                })?;
                warnings.extend(too_open(path).map(|mode| {
                    format!("the secret of {whose} in {shown} is open to others (mode {mode:04o}): chmod 600 {shown}")
                }));
                (text, format!("file {shown}"))
            }
            Secret::Env(name) => {
                let missing =
                    || refused(format!("is not in the environment as {name}"), "set this variable for `forebay run`");
                let text = std::env::var_os(name).ok_or_else(missing)?;
                let text = text
                    .into_string()
                    .map_err(|_| refused(format!("in variable {name} is not UTF-8"), "write it as text"))?;
                (text, format!("variable {name}"))
            }
        };
        let cut = text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
        if cut.is_empty() {
            return Err(refused(format!("is empty ({place})"), "write the secret there"));
        }
        Ok(SecretText(cut.to_owned()))
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => e.to_string(),
    })?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("more than {MOST_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())
}

/// The mode of a file that more than its owner may write, or more than its group may read.
#[cfg(unix)]
fn too_open(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o037 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn too_open(_: &Path) -> Option<u32> {
    None
}

/// By hand, so that a secret that was written in place of its reference is not repeated in the message.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        from.deserialize_any(Reference)
    }
}

/// What may refer to a secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum SecretPlace {
    File,
    Env,
}

/// Something else than a reference stands there.
const ITSELF: &str = "this refers to no secret";

struct Reference;

impl<'de> Visitor<'de> for Reference {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REMEDY)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key()? {
            let secret = match key {
                SecretPlace::File => Secret::File(map.next_value()?),
                SecretPlace::Env => Secret::Env(map.next_value()?),
            };
            if found.replace(secret).is_some() {
                return Err(A::Error::custom(format_args!("`file` and `env` are both given; {REMEDY}")));
            }
        }
        found.ok_or_else(|| A::Error::custom(format_args!("`file` or `env` is missing; {REMEDY}")))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Secret, E> {
        Err(E::custom(format_args!("{ITSELF}; {REMEDY}")))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Secret, E> {
        Err(E::custom(format_args!("{ITSELF}; {REMEDY}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(secret: &Secret) -> (Result<SecretText, SecretError>, Vec<String>) {
        let mut warnings = Vec::new();
        (secret.read("token `t`", &mut warnings), warnings)
    }

    #[test]
    fn one_line_end_is_cut_and_nothing_shows_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        for (written, kept) in
            [("s3cret\n", "s3cret"), ("s3cret\r\n", "s3cret"), ("s3cret", "s3cret"), ("a\n\n", "a\n")]
        {
            std::fs::write(folder.path().join("t"), written).unwrap();
            let mut secret = Secret::File("t".into());
            secret.start_at(folder.path());
            let text = read(&secret).0.unwrap();
            assert_eq!(text.reveal(), kept);
            assert_eq!(format!("{text:?}"), "SecretText(..)");
        }
    }

    #[test]
    fn what_is_not_there_is_said_with_its_name_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        for (bytes, part) in
            [(&b""[..], "is empty"), (b"\n", "is empty"), (&[0xff, 0xfe], "not UTF-8"), (&[b'a'; 70_000], "more than")]
        {
            std::fs::write(&path, bytes).unwrap();
            let error = read(&Secret::File(path.clone())).0.unwrap_err().to_string();
            assert!(error.starts_with("the secret of token `t`") && error.contains(part), "{error}");
        }
        let error = read(&Secret::File(folder.path().join("none"))).0.unwrap_err().to_string();
        assert!(error.contains("no such file") && error.contains("put it there"), "{error}");
        let error = read(&Secret::Env("FOREBAY_TEST_NOT_SET".into())).0.unwrap_err().to_string();
        assert!(error.contains("FOREBAY_TEST_NOT_SET") && error.contains("set this variable"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, "s3cret").unwrap();
        for (mode, told) in [(0o600, 0), (0o640, 0), (0o400, 0), (0o644, 1), (0o660, 1)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let warnings = read(&Secret::File(path.clone())).1;
            assert_eq!(warnings.len(), told, "{mode:o}: {warnings:?}");
            assert!(warnings.iter().all(|w| w.contains("chmod 600") && !w.contains("s3cret")), "{warnings:?}");
        }
    }
}
