//! Whose a service account's token is: agents on nodes that Kubernetes vouches for, each for its own node and no other.
//!
//! ```text
//! API --ReviewRequest--> the cluster's task (bounded, with a budget) -> TokenReview, then the node's instance
//!  '--> remembered for a while by the token's hash: one review serves some dozens of reports
//! ```
//!
//! Never: keeps or shows a token; asks about what does not name a listed account; believes what a token says of itself.

use super::questions::{Question, Questions};
use crate::config::tokens::{MOST_CHARS, Who};
use base64::Engine as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Whom tokens of agents are made out to.
pub const AUDIENCE: &str = "forebay";

/// Tokens that wait for their review.
const WAITING: usize = 1024;
/// The longest time that one review takes.
const BUDGET: Duration = Duration::from_secs(20);
/// So long what was said of a token counts: as long its pod may be gone.
const KNOWN_FOR: Duration = Duration::from_secs(5 * 60);
/// The same where it was refused: what is mended counts soon.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Tokens that are remembered: twice the nodes of the largest clusters.
const MOST_KNOWN: usize = 16_384;
/// What Kubernetes says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedAgent {
    /// The service account, as `NAMESPACE/NAME`.
    pub account: String,
    /// The node of its pod.
    pub node: String,
    /// The node's instance at the cloud. `None`: nothing names it.
    pub instance: Option<String>,
}

/// What is said of a token: whose it is, or why it is nobody's.
pub type Reviewed = Result<ReviewedAgent, String>;

/// A question of the API about a token.
pub type ReviewRequest = Question<String, Reviewed>;

/// Why a token was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewRefusal {
    /// It is not an agent's of this cluster, for this reason.
    Unknown(String),
    /// That could not be told now, for this reason.
    Later(String),
}

/// What was said of a token, and until when that counts.
#[derive(Clone, Debug)]
struct Remembered {
    until: Instant,
    said: Result<Arc<Who>, String>,
}

/// Where agents are known by their service account. Its copies share it.
#[derive(Clone)]
pub struct AgentTokens {
    accounts: Arc<BTreeSet<String>>,
    requests: Questions<String, Reviewed>,
    remembered: Arc<Mutex<BTreeMap<[u8; 32], Remembered>>>,
}

impl AgentTokens {
    /// For these service accounts (`NAMESPACE/NAME`), and where requests come out.
    #[must_use]
    pub fn new(accounts: &[String]) -> (AgentTokens, mpsc::Receiver<ReviewRequest>) {
        let (requests, receiver) = Questions::new(WAITING, BUDGET, "too many tokens are being reviewed");
        let accounts = Arc::new(accounts.iter().cloned().collect());
        (AgentTokens { accounts, requests, remembered: Arc::default() }, receiver)
    }

    /// Whether it is worth a review: a token of Kubernetes that calls itself one of the accounts. That is not believed, only asked about.
    #[must_use]
    pub fn concerns(&self, token: &str) -> bool {
        let account = claimed(token);
        account.is_some_and(|account| self.accounts.contains(&account))
    }

    /// Whose a token is.
    ///
    /// # Errors
    /// It is no agent's, or that cannot be told now.
    pub async fn find(&self, token: &str) -> Result<Arc<Who>, ReviewRefusal> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(said) = self.recall(&hash) {
            return said.map_err(ReviewRefusal::Unknown);
        }
        let said = match self.requests.ask(token.to_owned()).await.map_err(ReviewRefusal::Later)? {
            Ok(agent) => self.who(&agent),
            Err(why) => Err(why),
        };
        self.remember(hash, said.clone());
        said.map_err(ReviewRefusal::Unknown)
    }

    fn who(&self, agent: &ReviewedAgent) -> Result<Arc<Who>, String> {
        let ReviewedAgent { account, node, instance } = agent;
        if !self.accounts.contains(account) {
            return Err(format!("the service account {account} is no agent's"));
        }
        let instances = instance.iter().chain([node]).cloned().collect();
        Ok(Arc::new(Who::agent(&format!("kube:{account}/{node}"), instances)))
    }

    fn recall(&self, hash: &[u8; 32]) -> Option<Result<Arc<Who>, String>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(hash).filter(|one| one.until > Instant::now()).map(|one| one.said.clone())
    }

    fn remember(&self, hash: [u8; 32], said: Result<Arc<Who>, String>) {
        let now = Instant::now();
        let until = now + if said.is_ok() { KNOWN_FOR } else { REFUSED_FOR };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST_KNOWN {
            remembered.retain(|_, one| one.until > now);
        }
        // Who sends many that are refused displaces nobody who is known.
        if remembered.len() < MOST_KNOWN {
            remembered.insert(hash, Remembered { until, said });
        }
    }
}

/// The service account that a token says it is of, as `NAMESPACE/NAME`. Nothing proves it.
fn claimed(token: &str) -> Option<String> {
    if token.len() > MOST_CHARS {
        return None;
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    let account = claims.get("sub")?.as_str()?.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tokens::Role;
    use serde_json::json;

    const ACCOUNT: &str = "forebay/forebay-agent";

    fn token(subject: &str, mark: &str) -> String {
        let claims = json!({"sub": subject}).to_string();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
        format!("e30.{claims}.{mark}")
    }

    fn of_agent(mark: &str) -> String {
        token("system:serviceaccount:forebay:forebay-agent", mark)
    }

    fn agent(account: &str) -> ReviewedAgent {
        ReviewedAgent { account: account.into(), node: "node-1".into(), instance: Some("i-1".into()) }
    }

    /// A cluster that says the same of every token. Returns how often it was asked.
    fn cluster(
        mut requests: mpsc::Receiver<ReviewRequest>,
        said: Result<Reviewed, String>,
    ) -> Arc<std::sync::atomic::AtomicUsize> {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _ = request.answer.send(said.clone());
            }
        });
        asked
    }

    fn accounts() -> Vec<String> {
        vec![ACCOUNT.to_owned()]
    }

    #[test]
    fn only_tokens_that_call_themselves_a_listed_account_are_asked_about() {
        let (tokens, _requests) = AgentTokens::new(&accounts());
        assert!(tokens.concerns(&of_agent("x")));
        for other in [
            String::new(),
            "0123456789abcdef".into(),
            "a.b.c".into(),
            format!("{}.x", of_agent("x")),
            token("system:serviceaccount:forebay:other", "x"),
            token("ann", "x"),
            of_agent(&"x".repeat(MOST_CHARS)),
        ] {
            assert!(!tokens.concerns(&other), "{other}");
        }
    }

    #[tokio::test]
    async fn an_agent_speaks_of_its_own_node_and_is_asked_about_once() {
        let (tokens, requests) = AgentTokens::new(&accounts());
        let asked = cluster(requests, Ok(Ok(agent(ACCOUNT))));
        for _ in 0..3 {
            let who = tokens.find(&of_agent("x")).await.expect("known");
            let may = [Role::Agent, Role::Read, Role::Submit, Role::Metrics, Role::Operate].map(|role| who.may(role));
            assert_eq!(may, [true, false, false, false, false]);
            let speaks = ["i-1", "node-1", "i-2", "", "i-"].map(|instance| who.speaks_of(instance));
            assert_eq!(speaks, [true, true, false, false, false]);
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(tokens.find(&of_agent("y")).await.is_ok());
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 2, "another token is another question");
    }

    #[tokio::test]
    async fn what_kubernetes_says_counts_and_not_what_the_token_says() {
        let (tokens, requests) = AgentTokens::new(&accounts());
        cluster(requests, Ok(Ok(agent("team/other"))));
        let refused = tokens.find(&of_agent("x")).await.map(drop);
        assert_eq!(refused, Err(ReviewRefusal::Unknown("the service account team/other is no agent's".into())));
    }

    #[tokio::test]
    async fn without_an_answer_nothing_is_remembered() {
        let (tokens, requests) = AgentTokens::new(&accounts());
        let asked = cluster(requests, Err("connection refused".into()));
        for _ in 0..2 {
            let refused = tokens.find(&of_agent("x")).await.map(drop);
            assert_eq!(refused, Err(ReviewRefusal::Later("connection refused".into())));
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 2);
    }
}
