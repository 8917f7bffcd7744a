//! What can be told from the files alone: the configuration, its policy, its secrets, and whether the two know the same people.
//!
//! Never: a secret's text, or a look at the network.

use super::{Checked, Ground, plain};
use crate::cli::check::compile_or_built_in;
use crate::cli::live::has_journal;
use crate::cli::outcome::{Failure, read};
use crate::config::tokens::Tokens;
use crate::config::{Config, DEFAULT_DATA, DEFAULT_LISTEN};
use crate::show::figures::{count, short};
use forebay_kernel::policy::Undeclared;
use forebay_policy::Compiled;
use forebay_source::{Diagnostic, Severity};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Their heading.
pub const GROUP: &str = "files";

/// Reads a configuration. `None`: the defaults.
pub(in crate::cli) fn configuration(path: Option<&Path>) -> Result<Config, Failure> {
    match path {
        Some(path) => Config::parse(path, &read(path)?).map_err(Failure::input),
        None => Ok(Config::default()),
    }
}

/// What it says, in a line.
pub(in crate::cli) fn summary(config: &Config) -> String {
    let some = |n: usize, one: &str| match n {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        n => format!("{} {one}s", count(n as u64)),
    };
    let topics = config.kafka.iter().map(|kafka| kafka.topics.len()).sum();
    let queues = config.sqs.iter().map(|sqs| sqs.queues.len()).sum();
    let mut parts = vec![
        format!("listens on {}", config.listen.unwrap_or(DEFAULT_LISTEN)),
        some(config.tokens.len(), "token"),
        format!("{} ({} read)", some(config.kafka.len(), "kafka cluster"), some(topics, "topic")),
        format!("{} ({} read)", some(config.sqs.len(), "sqs account"), some(queues, "queue")),
    ];
    if config.kafka.is_empty() {
        parts[2] = "no kafka".to_owned();
    }
    if config.sqs.is_empty() {
        parts[3] = "no sqs".to_owned();
    }
    if config.checkpoints.is_some() {
        parts.push("looks at checkpoints".to_owned());
    }
    if config.standby {
        parts.push("stands by".to_owned());
    }
    parts.join(", ")
}

/// The folder of the journal.
pub(super) fn folder(config: &Config) -> PathBuf {
    config.data.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA))
}

/// The policy, and who it names.
pub(super) fn policy(config: &Config) -> Vec<Checked> {
    let found = compiled_policy(config).unwrap_or_else(|bad| vec![bad]);
    found.into_iter().map(|finding| Checked::new(GROUP, Ground::Files, finding)).collect()
}

fn compiled_policy(config: &Config) -> Result<Vec<Diagnostic>, Diagnostic> {
    let folder = folder(config);
    if config.policy.is_none() && has_journal(&folder) {
        let said = format!("that of the journal in {} goes on; not read here", folder.display());
        return Ok(vec![Diagnostic::ok("policy", said)]);
    }
    let bad = |text: String| Diagnostic::error("policy", text);
    let catalogue = crate::cloud::catalogue(config).map_err(|e| Diagnostic::error("prices", e.to_string()))?;
    let compiled = compile_or_built_in(config.policy.as_deref(), &catalogue).map_err(|e| bad(plain(&e.text)))?.1;
    crate::cloud::check_policy(config, &compiled.policy, &catalogue).map_err(|e| bad(e.to_string()))?;
    let mut found = vec![Diagnostic::ok("policy", policy_line(config, &compiled))];
    found.extend(submitters(config, &compiled));
    Ok(found)
}

fn policy_line(config: &Config, compiled: &Compiled) -> String {
    let file = config.policy.as_ref().map_or_else(|| "built in".to_owned(), |path| path.display().to_string());
    let advice = match compiled.advice.len() {
        0 => "no advice".to_owned(),
        1 => "1 piece of advice, which `forebay check` shows".to_owned(),
        n => format!("{n} pieces of advice, which `forebay check` shows"),
    };
    let name = short(&compiled.policy.name, 60);
    format!("`{name}` ({file}) compiles: {} queues, {advice}", compiled.policy.queues.len())
}

/// Whether events can come from whom the policy expects, and whether whoever sends some may.
pub(in crate::cli) fn submitters(config: &Config, compiled: &Compiled) -> Vec<Diagnostic> {
    let policy = &compiled.policy;
    let shared = match &policy.undeclared {
        Undeclared::Under { rule, .. } => Some(rule),
        Undeclared::Reject => None,
    };
    let rules: Vec<_> = policy.queues.values().chain(shared).collect();
    let listed: BTreeSet<&str> = rules.iter().flat_map(|rule| &rule.submitters).map(String::as_str).collect();
    if listed.is_empty() {
        return Vec::new();
    }
    let principals: Vec<_> = config.principals().collect();
    let senders = || principals.iter().map(|name| name.as_ref());
    let mut found = Vec::new();
    if !rules.iter().any(|rule| rule.submitters.is_empty()) {
        let strangers: BTreeSet<&str> = senders().filter(|name| !listed.contains(name)).collect();
        found.extend(strangers.iter().map(|name| {
            let what = format!("principal `{}`", short(name, 60));
            Diagnostic::warning(
                what,
                "no queue of the policy lists it, and every queue lists somebody: each of its jobs would be `ForbiddenQueue`; add it to \
                 the `submitters` of its queue",
            )
        }));
    }
    let mut known: BTreeSet<&str> = senders().collect();
    known.extend(config.tokens.iter().map(|token| token.name.as_str()));
    if config.tokens.is_empty() {
        known.insert("local");
    }
    found.extend(listed.difference(&known).map(|name| {
        let what = format!("submitter `{}`", short(name, 60));
        Diagnostic::warning(
            what,
            "the policy lists it, and no topic, queue, token or adopted namespace has it as its principal: nothing can come from it; correct its name on \
             one side",
        )
    }));
    if found.is_empty() {
        found.push(Diagnostic::ok("submitters", format!("{} are listed, and each can be somebody", listed.len())));
    }
    found
}

/// Each secret: whether it is there, and who else may read it. `missing`: what one is that is not there.
pub(in crate::cli) fn secrets(config: &Config, missing: Severity) -> Vec<Checked> {
    let mut complete = true;
    let mut found: Vec<Diagnostic> = Vec::new();
    let (mut resolved, mut open) = (0_usize, Vec::new());
    for (whose, secret) in config.secrets() {
        let what = format!("secret of {whose}");
        // What was tried says whose it is.
        let prefix = format!("the {what} ");
        let without = |said: String| said.strip_prefix(&prefix).map(str::to_owned).unwrap_or(said);
        let mut warnings = Vec::new();
        match secret.read(&whose, &mut warnings) {
            Ok(_) => resolved += 1,
            Err(error) => {
                complete = false;
                found.push(Diagnostic {
                    subject: what.clone(),
                    severity: missing,
                    message: without(error.to_string()),
                });
            }
        }
        open.extend(warnings.into_iter().map(|warning| Diagnostic::warning(what.clone(), without(warning))));
    }
    // A token's secret may be there and not do: too short, or another's.
    if complete && let Err(error) = Tokens::read(&config.tokens, &mut Vec::new()) {
        found.push(Diagnostic::error("tokens", error.to_string()));
    }
    if found.is_empty() && resolved > 0 {
        found.push(Diagnostic::ok("secrets", format!("all {resolved} are there")));
    }
    found.append(&mut open);
    found.into_iter().map(|finding| Checked::new(GROUP, Ground::Files, finding)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_catalog::Catalogue;
    use forebay_policy::compile;

    const HEAD: &str = "apiVersion: forebay/v1\nkind: Config\n";

    fn said(config: &str, queues: &str) -> Vec<String> {
        let config = Config::parse(Path::new("forebay.yaml"), &format!("{HEAD}{config}")).unwrap();
        let text = include_str!("../../../../policies/teams.yaml");
        let compiled = compile("p", &text.replace("  vision/batch:\n", queues), &Catalogue::builtin()).unwrap();
        let open = |rule: &forebay_kernel::policy::QueueRule| rule.submitters.is_empty();
        assert!(compiled.policy.queues.values().any(open), "the ready-made policy has open queues");
        submitters(&config, &compiled).into_iter().map(|f| format!("{:?} {}", f.severity, f.subject)).collect()
    }

    #[test]
    fn a_submitter_that_nobody_can_be_is_told_and_a_policy_without_lists_says_nothing() {
        let listed = "  vision/batch:\n    submitters: [a, b]\n";
        let topics = "kafka: [{brokers: [h:1], topics: [{name: t, principal: a}]}]\n";
        assert_eq!(said(topics, "  vision/batch:\n"), Vec::<String>::new());
        assert_eq!(said(topics, listed), ["Warning submitter `b`"]);
        let both = format!("{topics}sqs: [{{queues: [{{name: q, principal: b}}]}}]\n");
        assert_eq!(said(&both, listed), ["Ok submitters"]);
        let token = "tokens: [{name: b, roles: [operate], secret: {env: B}}]\n";
        assert_eq!(said(&format!("{topics}{token}"), listed), ["Ok submitters"]);
    }

    #[test]
    fn a_principal_that_no_queue_takes_is_told_where_every_queue_lists_somebody() {
        let text = "kafka: [{brokers: [h:1], topics: [{name: t, principal: a}, {name: u, principal: c}]}]\n";
        let config = Config::parse(Path::new("forebay.yaml"), &format!("{HEAD}{text}")).unwrap();
        let policy = include_str!("../../../../policies/teams.yaml");
        let mut compiled = compile("p", policy, &Catalogue::builtin()).unwrap();
        for rule in compiled.policy.queues.values_mut() {
            rule.submitters = vec!["a".to_owned()];
        }
        compiled.policy.undeclared = Undeclared::Reject;
        let found = submitters(&config, &compiled);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].subject == "principal `c`" && found[0].message.contains("ForbiddenQueue"), "{found:?}");
    }
}
