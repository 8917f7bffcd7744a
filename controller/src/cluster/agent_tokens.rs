//! Whose a service account's token is: agents on nodes that Kubernetes vouches for, each for its own node and no other.
//!
//! ```text
//! accepted lately ---------------------------------.
//! any other: a turn of its sender, then among all --+--ReviewRequest--> the cluster's task -> TokenReview, then the node's instance
//!  '--> remembered for a while by the token's hash: one review serves some dozens of reports
//! ```
//!
//! Whoever reaches the port can send tokens that name a listed account. Half of the reviews that are done at once are kept for tokens that
//! Kubernetes has accepted before, and of the others no sender has more than two at once.
//!
//! Never: keeps or shows a token; asks about what does not name a listed account; believes what a token says of itself.

use super::questions::{Question, Questions};
use crate::config::tokens::{MOST_CHARS, Who};
use crate::driver::{HeldShare, Shares};
use base64::Engine as _;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Whom tokens of agents are made out to.
pub const AUDIENCE: &str = "forebay";

/// Tokens that wait for their review.
const WAITING: usize = 1024;
/// What is said to whoever comes beyond them.
const BUSY: &str = "too many tokens are being reviewed";
/// Reviews at once of tokens that were not accepted before: half of those that the cluster's task does at once.
const NEW_AT_ONCE: usize = 4;
/// Of these, reviews of one sender: a node has one agent, and maybe a new one that takes over.
const NEW_OF_ONE: usize = 2;
/// The longest time that one review takes, and that a token waits for its turn.
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

/// From where a token was sent, as far as the network tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSender {
    /// One address, or the network of one machine.
    Peer(IpAddr),
    /// A trusted proxy, or an address that is not known: it stands for many.
    Many,
}

/// What was said of a token, and until when that counts.
#[derive(Clone, Debug)]
struct Remembered {
    until: Instant,
    said: Result<Arc<Who>, String>,
}

/// What is known of a token.
enum Recalled {
    /// This counts still.
    Said(Result<Arc<Who>, String>),
    /// It was accepted, too long ago to count.
    Accepted,
    /// Nothing, or it was refused.
    New,
}

/// The turn of a token that was not accepted before; given back when dropped.
struct ReviewTurn {
    _waiting: HeldShare,
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

/// Where agents are known by their service account. Its copies share it.
#[derive(Clone)]
pub struct AgentTokens {
    accounts: Arc<BTreeSet<String>>,
    requests: Questions<String, Reviewed>,
    remembered: Arc<Mutex<BTreeMap<[u8; 32], Remembered>>>,
    /// Tokens that were not accepted before and wait, by who sent them.
    waiting: Shares,
    /// Turns of all of these.
    new: Arc<Semaphore>,
    /// Turns of each sender that has some waiting.
    senders: Arc<Mutex<BTreeMap<IpAddr, Weak<Semaphore>>>>,
}

impl AgentTokens {
    /// For these service accounts (`NAMESPACE/NAME`), and where requests come out.
    #[must_use]
    pub fn new(accounts: &[String]) -> (AgentTokens, mpsc::Receiver<ReviewRequest>) {
        let (requests, receiver) = Questions::new(WAITING, BUDGET, BUSY);
        let tokens = AgentTokens {
            accounts: Arc::new(accounts.iter().cloned().collect()),
            requests,
            remembered: Arc::default(),
            waiting: Shares::new(WAITING),
            new: Arc::new(Semaphore::new(NEW_AT_ONCE)),
            senders: Arc::default(),
        };
        (tokens, receiver)
    }

    /// Whether it is worth a review: a token of Kubernetes that calls itself one of the accounts. That is not believed, only asked about.
    #[must_use]
    pub fn concerns(&self, token: &str) -> bool {
        let account = claimed(token);
        account.is_some_and(|account| self.accounts.contains(&account))
    }

    /// Whose a token is. One that was accepted before waits for no other's that was not.
    ///
    /// # Errors
    /// It is no agent's, or that cannot be told now.
    pub async fn find(&self, token: &str, from: TokenSender) -> Result<Arc<Who>, ReviewRefusal> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let _turn = match self.recall(&hash) {
            Recalled::Said(said) => return said.map_err(ReviewRefusal::Unknown),
            Recalled::Accepted => None,
            Recalled::New => Some(self.turn(from).await.map_err(ReviewRefusal::Later)?),
        };
        let said = match self.requests.ask(token.to_owned()).await.map_err(ReviewRefusal::Later)? {
            Ok(agent) => self.who(&agent),
            Err(why) => Err(why),
        };
        self.remember(hash, said.clone());
        said.map_err(ReviewRefusal::Unknown)
    }

    /// The turn of a token that was not accepted before: one of its sender's, and then one of all.
    async fn turn(&self, from: TokenSender) -> Result<ReviewTurn, String> {
        let waiting = match from {
            TokenSender::Peer(peer) => self.waiting.take(&Arc::from(peer.to_string()), 1),
            TokenSender::Many => self.waiting.take_any(&Arc::from("many"), 1),
        };
        let waiting = waiting.ok_or_else(|| BUSY.to_owned())?;
        let wait = async {
            // Neither of them is ever closed.
            let own = match from {
                TokenSender::Peer(peer) => self.turns_of(peer).acquire_owned().await.ok(),
                TokenSender::Many => None,
            };
            (own, Arc::clone(&self.new).acquire_owned().await.ok())
        };
        let late = |_| format!("{BUSY}: its turn did not come within {} s", BUDGET.as_secs());
        let (own, all) = tokio::time::timeout(BUDGET, wait).await.map_err(late)?;
        Ok(ReviewTurn { _waiting: waiting, _own: own, _all: all })
    }

    /// The turns of one sender. They are there as long as one of its tokens waits: there are no more of them than of those.
    fn turns_of(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = senders.get(&peer).and_then(Weak::upgrade) {
            return turns;
        }
        senders.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(NEW_OF_ONE));
        senders.insert(peer, Arc::downgrade(&turns));
        turns
    }

    fn who(&self, agent: &ReviewedAgent) -> Result<Arc<Who>, String> {
        let ReviewedAgent { account, node, instance } = agent;
        if !self.accounts.contains(account) {
            return Err(format!("the service account {account} is no agent's"));
        }
        let instances = instance.iter().chain([node]).cloned().collect();
        Ok(Arc::new(Who::agent(&format!("kube:{account}/{node}"), instances)))
    }

    fn recall(&self, hash: &[u8; 32]) -> Recalled {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        match remembered.get(hash) {
            Some(one) if one.until > Instant::now() => Recalled::Said(one.said.clone()),
            Some(one) if one.said.is_ok() => Recalled::Accepted,
            _ => Recalled::New,
        }
    }

    fn remember(&self, hash: [u8; 32], said: Result<Arc<Who>, String>) {
        let now = Instant::now();
        let until = now + if said.is_ok() { KNOWN_FOR } else { REFUSED_FOR };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST_KNOWN {
            // Those that were accepted lately stay as long again, so that they are reviewed before those that never were.
            remembered.retain(|_, one| one.until > now || one.said.is_ok() && one.until + KNOWN_FOR > now);
        }
        if remembered.len() >= MOST_KNOWN {
            remembered.retain(|_, one| one.until > now);
        }
        // Who sends many that are refused displaces nobody who is known.
        if remembered.len() < MOST_KNOWN || remembered.contains_key(&hash) {
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
    use std::net::Ipv4Addr;
    use tokio::task::JoinHandle;

    const ACCOUNT: &str = "forebay/forebay-agent";
    const NODE: TokenSender = peer(1);
    /// Longer than anything takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    const fn peer(last: u8) -> TokenSender {
        TokenSender::Peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    /// Sends a token that is not known, and goes on waiting for what is said of it.
    fn send(tokens: &AgentTokens, mark: &str, from: TokenSender) -> JoinHandle<Result<(), ReviewRefusal>> {
        let (tokens, token) = (tokens.clone(), of_agent(mark));
        tokio::spawn(async move { tokens.find(&token, from).await.map(drop) })
    }

    /// The next question that the cluster's task is asked.
    async fn next(requests: &mut mpsc::Receiver<ReviewRequest>) -> ReviewRequest {
        tokio::time::timeout(PATIENCE, requests.recv()).await.expect("in time").expect("a question")
    }

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
            let who = tokens.find(&of_agent("x"), NODE).await.expect("known");
            let may = [Role::Agent, Role::Read, Role::Submit, Role::Metrics, Role::Operate].map(|role| who.may(role));
            assert_eq!(may, [true, false, false, false, false]);
            let speaks = ["i-1", "node-1", "i-2", "", "i-"].map(|instance| who.speaks_of(instance));
            assert_eq!(speaks, [true, true, false, false, false]);
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(tokens.find(&of_agent("y"), NODE).await.is_ok());
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 2, "another token is another question");
    }

    #[tokio::test]
    async fn what_kubernetes_says_counts_and_not_what_the_token_says() {
        let (tokens, requests) = AgentTokens::new(&accounts());
        cluster(requests, Ok(Ok(agent("team/other"))));
        let refused = tokens.find(&of_agent("x"), NODE).await.map(drop);
        assert_eq!(refused, Err(ReviewRefusal::Unknown("the service account team/other is no agent's".into())));
    }

    #[tokio::test]
    async fn without_an_answer_nothing_is_remembered() {
        let (tokens, requests) = AgentTokens::new(&accounts());
        let asked = cluster(requests, Err("connection refused".into()));
        for _ in 0..2 {
            let refused = tokens.find(&of_agent("x"), NODE).await.map(drop);
            assert_eq!(refused, Err(ReviewRefusal::Later("connection refused".into())));
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_sender_of_many_unknown_tokens_keeps_no_other_from_its_review() {
        let (tokens, mut requests) = AgentTokens::new(&accounts());
        let many: Vec<_> = (0..2 * WAITING).map(|n| send(&tokens, &format!("greedy{n}"), peer(9))).collect();
        // The cluster does not answer these.
        let greedy = [next(&mut requests).await, next(&mut requests).await];
        let other = send(&tokens, "x", NODE);
        let asked = next(&mut requests).await;
        assert_eq!(asked.asked, of_agent("x"), "the next one is the other's");
        assert!(asked.answer.send(Ok(Ok(agent(ACCOUNT)))).is_ok());
        assert_eq!(other.await.expect("no panic"), Ok(()));
        assert!(requests.try_recv().is_err(), "two of the greedy one are being reviewed, and no more");
        let refused = many.iter().filter(|one| one.is_finished()).count();
        assert!((WAITING..2 * WAITING).contains(&refused), "it has a part of those that may wait: {refused} refused");
        drop(greedy);
        many.iter().for_each(JoinHandle::abort);
    }

    #[tokio::test]
    async fn a_token_that_was_accepted_before_waits_for_none_that_was_not() {
        let (tokens, mut requests) = AgentTokens::new(&accounts());
        let first = send(&tokens, "x", NODE);
        assert!(next(&mut requests).await.answer.send(Ok(Ok(agent(ACCOUNT)))).is_ok());
        assert_eq!(first.await.expect("no panic"), Ok(()));
        // What was said counts no more.
        tokens.remembered.lock().expect("no panic").values_mut().for_each(|one| one.until = Instant::now());
        let many: Vec<_> =
            (0..64).map(|n| send(&tokens, &format!("greedy{n}"), if n % 2 == 0 { NODE } else { peer(2) })).collect();
        let mut greedy = Vec::new();
        for _ in 0..NEW_AT_ONCE {
            greedy.push(next(&mut requests).await);
        }
        let again = send(&tokens, "x", NODE);
        let asked = next(&mut requests).await;
        assert_eq!(asked.asked, of_agent("x"), "it has a review beside theirs");
        assert!(asked.answer.send(Ok(Err("its pod is gone".to_owned()))).is_ok());
        assert_eq!(again.await.expect("no panic"), Err(ReviewRefusal::Unknown("its pod is gone".to_owned())));
        many.iter().for_each(JoinHandle::abort);
    }
}
