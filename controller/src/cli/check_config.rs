//! `forebay check` of a configuration: everything about it that can be found without a network.
//!
//! Never: a secret's text. One that is not there is a warning here: files are often checked where they are written, not where they run.

use super::Output;
use super::check::{Finding, FindingLevel, compile_file};
use super::doctor::{secrets, submitters, summary};
use super::outcome::{Exit, Failure, print};
use crate::config::tokens::Tokens;
use crate::config::{Config, ConfigError, DEFAULT_DATA, DEFAULT_LISTEN};
use crate::sources::adapter;
use forebay_policy::FileErrors;
use forebay_source::{Diagnostic, Severity};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The text, if it is a configuration's. A file that cannot be read as YAML is one if a line says so; one that says neither that nor
/// that it is a policy is what most of its keys are.
pub(super) fn text_of(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let kind = text.lines().find_map(|line| {
        let value = line.strip_prefix("kind:").or_else(|| line.strip_prefix("\"kind\":"))?;
        Some(value.split('#').next()?.trim().trim_matches(['"', '\'', ',']))
    });
    let is_config = match kind {
        Some("Config") => true,
        Some("Policy") => false,
        _ => has_keys_of_a_configuration(text),
    };
    is_config.then_some(text)
}

fn has_keys_of_a_configuration(text: &str) -> bool {
    let schema = schemars::schema_for!(Config);
    let known = schema.get("properties").and_then(Value::as_object);
    let key = |line: &str| -> Option<bool> {
        let key = line.split_once(':')?.0.trim_matches(['"', '\'']);
        let is_key = key.chars().all(char::is_alphanumeric) && !["", "apiVersion", "kind"].contains(&key);
        is_key.then(|| known.is_some_and(|known| known.contains_key(key)))
    };
    let (of_config, others): (Vec<bool>, Vec<bool>) = text.lines().filter_map(key).partition(|is| *is);
    of_config.len() > others.len()
}

/// Why a configuration cannot be used.
pub(super) enum Refused {
    /// Each with its place.
    Written(FileErrors),
    /// One thing, of the file as a whole.
    Whole(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Whole(failure)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        match refused {
            Refused::Written(errors) => Failure::input(errors),
            Refused::Whole(failure) => failure,
        }
    }
}

/// What is printed of a configuration that can be used, and what is unwise about it.
pub(super) fn checked(file: &Path, text: &str, out: Output) -> Result<(String, Vec<Finding>), Refused> {
    let (config, found) = diagnosed(file, text)?;
    let mut text = format!("{}: configuration: {}\n", file.display(), summary(&config));
    let mut findings = Vec::new();
    for Diagnostic { subject, message, .. } in found.iter().filter(|finding| finding.severity == Severity::Warning) {
        text.push_str(&format!("{} {subject}: {message}\n", out.paint.warn("warning:")));
        findings.push(Finding::whole(FindingLevel::Warning, &format!("{subject}: {message}")));
    }
    Ok((text, findings))
}

/// Prints a configuration with every default filled in, if it can be used.
pub(super) fn explain(file: &Path, text: &str) -> Result<Exit, Failure> {
    let (config, _) = diagnosed(file, text)?;
    print(&explained(&config)?).map(|()| Exit::Done)
}

/// A configuration, and what a start would warn of.
fn diagnosed(file: &Path, text: &str) -> Result<(Config, Vec<Diagnostic>), Refused> {
    let name = file.display();
    let config = Config::parse(file, text).map_err(|error| match error {
        ConfigError::Written(errors) => Refused::Written(errors),
        other => Refused::Whole(Failure::input(other)),
    })?;
    let refused = |error: &dyn std::fmt::Display| Failure::input(format_args!("{name}: {error}"));
    Tokens::check(&config.tokens).map_err(|e| refused(&e))?;
    for one in adapter::adapters(&config).map_err(|e| refused(&e))? {
        one.check().map_err(|e| refused(&e))?;
    }
    if let Some(checkpoints) = &config.checkpoints {
        crate::checkpoints::check(checkpoints).map_err(|e| refused(&e))?;
    }
    crate::cluster::check(&config).map_err(|e| refused(&e))?;
    let listen = config.listen.unwrap_or(DEFAULT_LISTEN);
    if config.tokens.is_empty() && !listen.ip().is_loopback() {
        let open = format_args!(
            "listen: {listen} can be reached from other machines, and there are no tokens: list `tokens`, or listen on 127.0.0.1"
        );
        return Err(refused(&open).into());
    }
    let mut found: Vec<Diagnostic> = Vec::new();
    if let Some(path) = &config.policy {
        let catalogue = crate::cloud::catalogue(&config).map_err(|e| refused(&e))?;
        let compiled = compile_file(path, &catalogue)?.1;
        crate::cloud::check_policy(&config, &compiled.policy, &catalogue).map_err(|e| refused(&e))?;
        found.extend(submitters(&config, &compiled));
    }
    found.extend(crate::cloud::warnings(&config).map_err(|e| refused(&e))?);
    found.extend(secrets(&config, Severity::Warning).into_iter().map(|one| one.finding));
    let is_bad = |finding: &&Diagnostic| finding.severity == Severity::Error;
    if let Some(bad) = found.iter().find(is_bad) {
        return Err(refused(&bad.message).into());
    }
    Ok((config, found))
}

/// The configuration with every default filled in, as YAML. It is read as the same configuration, from whatever folder.
fn explained(config: &Config) -> Result<String, Failure> {
    let mut filled = config.clone();
    filled.listen.get_or_insert(DEFAULT_LISTEN);
    filled.data.get_or_insert_with(|| PathBuf::from(DEFAULT_DATA));
    filled.fill();
    let mut value = serde_json::to_value(&filled).map_err(Failure::outside)?;
    remove_nulls(&mut value);
    value["standby"] = config.standby.into();
    let text = serde_saphyr::to_string(&value).map_err(Failure::outside)?;
    let mut out = String::from("# Every default is filled in, and paths are whole. Secrets stay where they are.\n");
    if config.policy.is_none() {
        out.push_str("# policy: the built-in policies/teams.yaml, or that of the journal where there is one\n");
    }
    Ok(out + &text)
}

/// Takes out what is not set.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_configuration_is_known_by_its_kind() {
        for (text, is) in [
            ("apiVersion: forebay/v1\nkind: Config\n", true),
            ("kind: 'Config' # here\nlisten: [", true),
            ("apiVersion: forebay/v1\nkind: Policy\n", false),
            ("metadata:\n  kind: Config\n", false),
            ("kind: Confg\nlisten: 127.0.0.1:80\ndata: d\n", true),
            ("listen: 127.0.0.1:80\n# data: d\nkafka:\n  - brokers: [b]\n", true),
            ("kind: Polcy\nlimits: {nodes: 1}\nqueues: {}\n", false),
            ("limits: {nodes: 1}\npools: {}\n  listen: none\n", false),
            ("", false),
        ] {
            assert_eq!(text_of(text.as_bytes()).is_some(), is, "{text}");
        }
        assert_eq!(text_of(b"kind: Config\n\xff"), None);
    }

    #[test]
    fn what_is_explained_is_the_same_configuration() {
        let text = "apiVersion: forebay/v1\nkind: Config\npolicy: p.yaml\ntokens: [{name: a, roles: [read], secret: {file: a.token}}]\n\
                    kafka: [{brokers: ['h:1'], security: {protocol: sasl-ssl, username: u, password: {env: P}}, topics: [{name: t, principal: \
                    a}]}]\nsqs: [{queues: [{name: q, principal: b}]}]\n\
                    checkpoints: {s3: {region: eu-central-1}}\n";
        let config = Config::parse(Path::new("/etc/forebay.yaml"), text).unwrap();
        let explained = explained(&config).unwrap();
        for part in [
            "SCRAM-SHA-512",
            "group: forebay",
            "receivers: 2",
            "tenant: default",
            "standby: false",
            "127.0.0.1:8080",
            "readAtMost: 64MiB",
            "keepFinished: 30d",
            "keepPolicies: 30d",
            "keep: 7d",
            "atMost: 4GiB",
            "atMost: 1GiB",
            "openJobs: 1000000",
            "undeclaredQueues: 1000",
        ] {
            assert!(explained.contains(part), "no `{part}` in {explained}");
        }
        let again = Config::parse(Path::new("/elsewhere/f.yaml"), &explained).unwrap();
        assert_eq!((&again.tokens, &again.sqs, &again.policy), (&config.tokens, &config.sqs, &config.policy));
        assert_eq!(again.kafka[0].topics, config.kafka[0].topics);
        assert_eq!((again.retention(), again.tenant_limits()), (config.retention(), config.tenant_limits()));
        assert_eq!(super::explained(&again).unwrap(), explained);
    }
}
