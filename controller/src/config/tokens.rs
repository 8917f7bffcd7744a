//! Tokens of the HTTP API: who holds one, in which tenant, and what it may do.
//!
//! Never: keeps a token's text. What is kept is its BLAKE3 hash, and hashes are compared in constant time.

use super::channel::default_tenant;
use super::kubernetes::KUBE_PRINCIPAL;
use super::secret::{Secret, SecretError};
use forebay_quantity::is_unseen;
use forebay_wire::intake::Caller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The shortest token: 16 characters of 6 bits are 96 bits, out of reach of guessing over a network.
const LEAST_CHARS: usize = 16;

/// The longest token that fits the headers of every usual proxy.
pub(crate) const MOST_CHARS: usize = 4096;

/// The longest name of a token or tenant, as a queue's path.
const MOST_NAME: usize = 253;

/// Who may call the HTTP API.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Token {
    /// Who holds it: the principal that queues name in their `submitters`.
    pub name: String,
    /// Whose namespace of subjects it works in. Jobs of other tenants are not there for it.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// What it may do.
    pub roles: Vec<Role>,
    /// For the role `agent`: the instances that it may speak of, by the cloud's ids or Kubernetes' names. Default: every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
    /// Where the token is: at least 16 characters, such as from `openssl rand -hex 32`.
    pub secret: Secret,
}

impl Token {
    /// Whose its secret is, for messages.
    #[must_use]
    pub fn whose(&self) -> String {
        format!("token `{}`", crate::show::figures::short(&self.name, 60))
    }

    fn unfit(&self, problem: &str) -> TokenError {
        TokenError::Unfit { name: crate::show::figures::short(&self.name, 60), problem: problem.to_owned() }
    }
}

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Send events, and cancel the jobs that it may act on.
    Submit,
    /// Read the jobs that it may act on, and figures that name nobody else's.
    Read,
    /// Everything, in every tenant.
    Operate,
    /// Say that a node is there, and that the cloud takes it back: for the agents on the nodes, and nothing else.
    Agent,
    /// Read all of `/metrics`, and nothing else: for monitoring.
    Metrics,
}

impl Role {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Submit => "submit",
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Agent => "agent",
            Role::Metrics => "metrics",
        }
    }
}

/// Who called, and what that allows.
#[derive(Clone, Debug)]
pub struct Who {
    /// For intake.
    pub caller: Caller,
    /// Under which name it takes its turns, and its part of what all share.
    pub name: Arc<str>,
    /// Questions to the engine that it may have open; the next ones wait here, and not before those of others.
    pub questions: Arc<Semaphore>,
    /// Requests of its that are decoded at once, beside the loop.
    pub decodes: Arc<Semaphore>,
    /// Its reads of the archive at once; the next ones wait here, and not before those of others.
    pub reads: Arc<Semaphore>,
    /// Its requests that go through rows beside the loop at once; the next ones wait here too.
    pub scans: Arc<Semaphore>,
    /// Its bills that are computed at once; the next ones wait here too.
    pub bills: Arc<Semaphore>,
    roles: Vec<Role>,
    /// Instances that an agent may speak of. None: every one.
    instances: Vec<String>,
}

/// Questions of one caller to the engine at once: the page makes about ten.
const QUESTIONS: usize = 32;

/// Requests of one caller that are decoded at once: each keeps a processor busy.
const DECODES: usize = 2;

/// Reads of the archive of one caller at once: half of all that are done at once.
const READS: usize = 2;

/// Requests of one caller that go through rows at once: half of all that do at once.
const SCANS: usize = 2;

/// Bills of one caller that are computed at once: half of all that are. A bill is a processor busy for up to seconds.
const BILLS: usize = 1;

impl Who {
    /// Everybody, where nobody is asked for a token: an operator.
    #[must_use]
    pub fn local() -> Who {
        Who::new(Caller::local(), vec![Role::Operate], Vec::new())
    }

    /// An agent that Kubernetes vouches for. It speaks of these instances alone, of which there is at least one.
    #[must_use]
    pub fn agent(name: &str, instances: Vec<String>) -> Who {
        Who::new(Caller::named(&default_tenant(), name), vec![Role::Agent], instances)
    }

    /// Whether it may speak of an instance, as its agent.
    #[must_use]
    pub fn speaks_of(&self, instance: &str) -> bool {
        self.instances.is_empty() || self.instances.iter().any(|own| own == instance)
    }

    fn new(caller: Caller, roles: Vec<Role>, instances: Vec<String>) -> Who {
        let name = Arc::from(format!("{}/{}", caller.tenant, caller.principal));
        let turns = |at_once| Arc::new(Semaphore::new(at_once));
        Who {
            caller,
            name,
            questions: turns(QUESTIONS),
            decodes: turns(DECODES),
            reads: turns(READS),
            scans: turns(SCANS),
            bills: turns(BILLS),
            roles,
            instances,
        }
    }

    /// Whether it may act in this role. An operator may in each.
    #[must_use]
    pub fn may(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.operates()
    }

    /// Whether it is an operator.
    #[must_use]
    pub fn operates(&self) -> bool {
        self.roles.contains(&Role::Operate)
    }
}

/// The tokens that are known. None: nobody is asked for one.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    known: Vec<(blake3::Hash, Arc<Who>)>,
}

/// Why tokens cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Something else about one of them.
    #[error("token `{name}`: {problem}")]
    Unfit {
        /// Which.
        name: String,
        /// What is wrong with it and what to do.
        problem: String,
    },
}

impl Tokens {
    /// Whether they can be used, as far as that can be told without their secrets.
    ///
    /// # Errors
    /// The first that cannot, by its name, and what to do.
    pub fn check(written: &[Token]) -> Result<(), TokenError> {
        let mut names = BTreeSet::new();
        for token in written {
            for (what, name) in [("name", &token.name), ("tenant", &token.tenant)] {
                if name.is_empty() || name.len() > MOST_NAME || name.trim().is_empty() || name.chars().any(is_unseen) {
                    let problem = format!("its {what} is no name: write 1 to {MOST_NAME} printable characters");
                    return Err(token.unfit(&problem));
                }
            }
            if token.name.starts_with(KUBE_PRINCIPAL) {
                let problem = "`kube:` begins the principals of Kubernetes' namespaces: write another name";
                return Err(token.unfit(problem));
            }
            if token.roles.is_empty() {
                return Err(
                    token.unfit("it has no role: give it at least one of submit, read, operate, agent, metrics")
                );
            }
            if !token.instances.is_empty() && token.roles != [Role::Agent] {
                return Err(
                    token.unfit("it names `instances`, which only the role `agent` speaks of: give it that role alone")
                );
            }
            if !names.insert(&token.name) {
                return Err(token.unfit("there are two of this name: give each its own"));
            }
        }
        Ok(())
    }

    /// Reads the secrets of all tokens. What is unwise goes to `warnings`.
    ///
    /// # Errors
    /// The first token that cannot be used, by its name, and what to do.
    pub fn read(written: &[Token], warnings: &mut Vec<String>) -> Result<Tokens, TokenError> {
        Tokens::check(written)?;
        let mut tokens = Tokens::default();
        for token in written {
            let secret = token.secret.read(&token.whose(), warnings)?;
            let text = secret.reveal();
            if !text.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(token.unfit(
                    "its secret has other than printable ASCII characters: make one with `openssl rand -hex 32`",
                ));
            }
            if !(LEAST_CHARS..=MOST_CHARS).contains(&text.len()) {
                let problem = format!(
                    "its secret has {} characters, {LEAST_CHARS} to {MOST_CHARS} are needed: make one with `openssl rand -hex 32`",
                    text.len()
                );
                return Err(token.unfit(&problem));
            }
            let hash = blake3::hash(text.as_bytes());
            if let Some((_, who)) = tokens.known.iter().find(|(other, _)| *other == hash) {
                let named = crate::show::figures::short(&who.caller.principal, 60);
                return Err(token.unfit(&format!("it has the same secret as token `{named}`: give each its own")));
            }
            let operator = token.roles.contains(&Role::Operate);
            let caller = Caller { operator, ..Caller::named(&token.tenant, &token.name) };
            tokens.known.push((hash, Arc::new(Who::new(caller, token.roles.clone(), token.instances.clone()))));
        }
        Ok(tokens)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Who holds a token. Takes as long for each, whatever was sent: every hash is compared, each in constant time.
    #[must_use]
    pub fn find(&self, sent: &str) -> Option<Arc<Who>> {
        let hash = blake3::hash(sent.as_bytes());
        self.known.iter().fold(None, |found, (known, who)| if *known == hash { Some(Arc::clone(who)) } else { found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(folder: &std::path::Path, name: &str, secret: &str, roles: &[Role]) -> Token {
        let path = folder.join(format!("{name}.token"));
        std::fs::write(&path, secret).unwrap();
        Token {
            name: name.into(),
            tenant: default_tenant(),
            roles: roles.to_vec(),
            instances: Vec::new(),
            secret: Secret::File(path),
        }
    }

    #[test]
    fn a_token_is_found_by_its_text_and_shown_by_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let written = [
            token(folder.path(), "a", "aaaaaaaaaaaaaaaa\n", &[Role::Submit]),
            token(folder.path(), "b", "bbbbbbbbbbbbbbbb", &[Role::Operate]),
            token(folder.path(), "c", "cccccccccccccccc", &[Role::Agent]),
        ];
        let tokens = Tokens::read(&written, &mut Vec::new()).unwrap();
        let a = tokens.find("aaaaaaaaaaaaaaaa").unwrap();
        assert_eq!((a.caller.principal.as_str(), a.may(Role::Submit), a.may(Role::Read)), ("a", true, false));
        assert!(tokens.find("bbbbbbbbbbbbbbbb").is_some_and(|b| b.may(Role::Read) && b.operates()));
        let agent = tokens.find("cccccccccccccccc").unwrap();
        let may = [Role::Agent, Role::Submit, Role::Read, Role::Operate].map(|role| agent.may(role));
        assert_eq!((may, a.may(Role::Agent)), ([true, false, false, false], false));
        for other in ["", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa\n", "AAAAAAAAAAAAAAAA"] {
            assert!(tokens.find(other).is_none(), "{other:?}");
        }
        assert!(!format!("{tokens:?}").contains("aaaa"));
    }

    #[test]
    fn what_is_wrong_with_a_token_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let token = |name: &str, secret: &str, roles: &[Role]| token(folder.path(), name, secret, roles);
        let good = token("good", "0123456789abcdef", &[Role::Read]);
        let twin = Token { name: "twin".into(), ..good.clone() };
        let cases = [
            (vec![token("short", "0123456789abcde", &[Role::Read])], "token `short`: its secret has 15"),
            (vec![token("odd", "0123456789 abcdef", &[Role::Read])], "token `odd`: its secret has other"),
            (vec![token("none", "0123456789abcdef", &[])], "token `none`: it has no role"),
            (vec![token("empty", "", &[Role::Read])], "the secret of token `empty` is empty"),
            (vec![Token { name: "a\nb".into(), ..good.clone() }], "its name is no name"),
            (vec![Token { tenant: String::new(), ..good.clone() }], "its tenant is no name"),
            (vec![Token { instances: vec!["i-1".into()], ..good.clone() }], "only the role `agent` speaks of"),
            (vec![good.clone(), good.clone()], "two of this name"),
            (vec![good.clone(), twin], "token `twin`: it has the same secret as token `good`"),
        ];
        for (written, part) in cases {
            let error = Tokens::read(&written, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("0123456789"), "{error}");
        }
    }
}
