//! `forebay.yaml`: where `forebay run` listens, who may call it, where its journal is, and which policy it follows. These comments
//! are its documentation.
//!
//! Never: a key that is not known here (a misspelt one is told with its place), a key with nothing after it, nor a secret's value, written or in a
//! message.

pub mod aws;
mod channel;
pub mod checkpoints;
pub mod cost;
pub mod ec2;
pub mod kafka;
pub mod kubernetes;
pub mod retention;
pub mod secret;
pub mod sqs;
pub mod tenants;
pub mod tokens;

use checkpoints::CheckpointsConfig;
use cost::CostConfig;
use ec2::{ClusterConfig, Ec2Config};
use forebay_policy::FileErrors;
use kafka::KafkaConfig;
use kubernetes::KubernetesConfig;
use retention::{JournalConfig, LogConfig};
use schemars::JsonSchema;
use secret::Secret;
use serde::{Deserialize, Serialize};
use sqs::SqsConfig;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tenants::TenantsConfig;
use tokens::{Role, Token};

/// Where `forebay run` listens when nothing is said.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Where its journal is when nothing is said, from the current folder on.
pub const DEFAULT_DATA: &str = "forebay-data";

/// Real nodes with nothing to run on them are an expensive slip of the pen.
const NO_CLUSTER: &str = "`ec2` buys real nodes, and nothing says what runs on them: write `kubernetes:` with the cluster that they join, or \
                          `cluster: simulated` to try out what a policy buys (jobs are only played through)";

/// One of them runs the jobs.
const TWO_CLUSTERS: &str =
    "`kubernetes` and `cluster: simulated` are both given: leave one out, jobs run in one of them";

/// A cluster's nodes come from somewhere.
const NO_NODES: &str = "`kubernetes` runs jobs on the nodes that `ec2` buys, and there is no `ec2`: write what instances are launched with";

/// The configuration of `forebay run`. Flags on the command line go before it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Forebay configuration")]
pub struct Config {
    /// Always `forebay/v1`.
    pub api_version: ConfigVersion,
    /// Always `Config`.
    pub kind: ConfigKind,
    /// Where the API and the page listen, such as `127.0.0.1:8080`. Beyond loopback only with `tokens`.
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,
    /// Folder of the journal, from this file's folder on. Default: `./forebay-data`.
    pub data: Option<PathBuf>,
    /// The policy's file, from this file's folder on. Default: the built-in `policies/teams.yaml`.
    pub policy: Option<PathBuf>,
    /// Who may call the HTTP API. None: whoever reaches it, which then is on loopback only, may do everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Token>,
    /// What each tenant may have open. Default: a million jobs, 4GiB of their specifications, 1,000 undeclared queues.
    pub tenants: Option<TenantsConfig>,
    /// Proxies that callers come through, by address: their connections are not counted as one peer's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: Vec<IpAddr>,
    /// Kafka clusters that job events come from and statuses go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kafka: Vec<KafkaConfig>,
    /// SQS queues that job events come from and statuses go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sqs: Vec<SqsConfig>,
    /// The real cloud that nodes are bought in. Default: a simulated one.
    pub ec2: Option<Ec2Config>,
    /// The Kubernetes cluster that the nodes join and jobs run in. It or `cluster` is to be given where `ec2` is.
    pub kubernetes: Option<KubernetesConfig>,
    /// What plays jobs through where no `kubernetes` runs them.
    pub cluster: Option<ClusterConfig>,
    /// Where checkpoints are looked at. Default: nowhere; what runs report of them is believed.
    pub checkpoints: Option<CheckpointsConfig>,
    /// Where bills are written without being asked for. Default: nowhere.
    pub cost: Option<CostConfig>,
    /// How long the journal keeps what is over.
    pub journal: Option<JournalConfig>,
    /// How long statuses are kept, which are in the folder `status` beside the journal.
    pub statuses: Option<LogConfig>,
    /// How long rejected events are kept, which are in the folder `rejected` beside the journal.
    pub rejected: Option<LogConfig>,
    /// Wait while another process holds the journal's folder, and take over when it ends. Default: end with an error then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// The version of the configuration's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConfigVersion {
    /// The first.
    #[default]
    #[serde(rename = "forebay/v1")]
    V1,
}

/// What kind of document this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConfigKind {
    /// A configuration.
    #[default]
    Config,
}

/// Why a configuration cannot be used. Nothing of its values is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no YAML, or something is not known or of another type: each with its place.
    #[error(transparent)]
    Written(#[from] FileErrors),
    /// What it says does not go together.
    #[error("{path}: {problem}\n  = help: `forebay schema config` says what may stand here")]
    Contradictory {
        /// The file as it was named.
        path: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}

impl Config {
    /// Reads a configuration; its paths are taken from the folder of `path`.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let refused = |problem: String| ConfigError::Contradictory { path: path.display().to_string(), problem };
        let mut config: Config = forebay_policy::read_config(&path.display().to_string(), text)?;
        config.start_at(path.parent().unwrap_or(Path::new("")));
        if let Some(ec2) = &mut config.ec2 {
            ec2.check().map_err(refused)?;
            ec2.settle_ready(config.kubernetes.is_some()).map_err(refused)?;
            if config.cluster.is_none() && config.kubernetes.is_none() {
                return Err(refused(NO_CLUSTER.to_owned()));
            }
        }
        if let Some(kubernetes) = &config.kubernetes {
            kubernetes.check().map_err(refused)?;
            if config.cluster.is_some() {
                return Err(refused(TWO_CLUSTERS.to_owned()));
            }
            if config.ec2.is_none() {
                return Err(refused(NO_NODES.to_owned()));
            }
        }
        if let Some(tenants) = &config.tenants {
            tenants.check().map_err(refused)?;
        }
        if let Some(cost) = &config.cost {
            cost.check().map_err(refused)?;
        }
        let channels = config.kafka.iter().flat_map(KafkaConfig::channels);
        channel::check(channels.chain(config.sqs.iter().flat_map(SqsConfig::channels))).map_err(refused)?;
        Ok(config)
    }

    /// Writes defaults of parts down, and makes paths whole.
    pub fn fill(&mut self) {
        let whole = |path: &mut PathBuf| *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        [&mut self.data, &mut self.policy].into_iter().flatten().for_each(whole);
        // A relative path that starts at a folder is whole where the folder is.
        self.kafka.iter_mut().for_each(KafkaConfig::fill);
        self.checkpoints.iter_mut().for_each(CheckpointsConfig::fill);
        self.fill_retention();
        self.fill_tenants();
        self.start_at(&std::env::current_dir().unwrap_or_default());
    }

    /// Makes every relative path start at this folder.
    fn start_at(&mut self, folder: &Path) {
        for place in [&mut self.data, &mut self.policy].into_iter().flatten() {
            *place = folder.join(&*place);
        }
        self.tokens.iter_mut().for_each(|token| token.secret.start_at(folder));
        self.kafka.iter_mut().for_each(|kafka| kafka.start_at(folder));
        self.sqs.iter_mut().for_each(|sqs| sqs.start_at(folder));
        self.ec2.iter_mut().for_each(|ec2| ec2.start_at(folder));
        self.kubernetes.iter_mut().for_each(|kubernetes| kubernetes.start_at(folder));
        self.checkpoints.iter_mut().for_each(|checkpoints| checkpoints.start_at(folder));
        self.cost.iter_mut().for_each(|cost| cost.start_at(folder));
    }

    /// Every secret that is referred to, with whose it is.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        let tokens = self.tokens.iter().map(|token| (token.whose(), &token.secret));
        let kafka = self.kafka.iter().flat_map(KafkaConfig::secrets);
        let sqs = self.sqs.iter().flat_map(SqsConfig::secrets);
        let ec2 = self.ec2.iter().flat_map(Ec2Config::secrets);
        tokens.chain(kafka).chain(sqs).chain(ec2).chain(self.checkpoints.iter().flat_map(CheckpointsConfig::secrets))
    }

    /// Who events may come from beside operators: topics' and queues' principals, tokens that may submit, and namespaces whose
    /// objects are adopted.
    pub fn principals(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let topics = self.kafka.iter().flat_map(|kafka| &kafka.topics).map(|topic| &topic.principal);
        let queues = self.sqs.iter().flat_map(|sqs| &sqs.queues).map(|queue| &queue.principal);
        let submits = |token: &&Token| token.roles.contains(&Role::Submit) && !token.roles.contains(&Role::Operate);
        let tokens = self.tokens.iter().filter(submits).map(|token| &token.name);
        let named = topics.chain(queues).chain(tokens).map(|name| Cow::Borrowed(name.as_str()));
        named.chain(self.kubernetes.iter().flat_map(KubernetesConfig::principals).map(Cow::Owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_at_the_file_and_unknown_keys_are_told() {
        let good = "apiVersion: forebay/v1\nkind: Config\nlisten: 127.0.0.1:9090\npolicy: p.yaml\n";
        let config = Config::parse(Path::new("etc/forebay.yaml"), good).expect("reads");
        assert_eq!(config.policy.as_deref(), Some(Path::new("etc/p.yaml")));
        assert_eq!(config.listen.map(|l| l.port()), Some(9090));
        let error = Config::parse(Path::new("f.yaml"), "apiVersion: forebay/v1\nkind: Config\nlisen: 1.2.3.4:80\n");
        let text = error.expect_err("a fault").to_string();
        assert!(
            text.contains("`lisen`") && text.contains("f.yaml:3:1") && text.contains("did you mean `listen`?"),
            "{text}"
        );
    }

    #[test]
    fn a_key_with_nothing_after_it_is_refused() {
        let head = "apiVersion: forebay/v1\nkind: Config\n";
        for (text, key, place) in [
            ("listen:\n", "listen", "f.yaml:3:1"),
            ("journal: ~\n", "journal", "f.yaml:3:1"),
            ("kafka:\n  # - brokers: ['127.0.0.1:9092']\nstandby: true\n", "kafka", "f.yaml:3:1"),
            ("statuses: {keep: 7d, atMost: }\n", "atMost", "f.yaml:3:22"),
            ("tenants:\n  each:\n    # openJobs: 9\n", "each", "f.yaml:4:3"),
            ("checkpoints:\n  s3: null\n", "s3", "f.yaml:4:3"),
        ] {
            let error = Config::parse(Path::new("f.yaml"), &format!("{head}{text}")).expect_err(text).to_string();
            let told = format!("error: nothing stands after `{key}:`\n");
            assert!(error.starts_with(&told) && error.contains(place), "{text}: {error}");
            assert!(error.contains("= help: write a ") && error.ends_with("or remove the key"), "{text}: {error}");
            assert_eq!(error.matches("error:").count(), 1, "{text}: {error}");
        }
    }

    #[test]
    fn each_topic_and_queue_is_named_once_and_has_an_owner() {
        let head = "apiVersion: forebay/v1\nkind: Config\n";
        let kafka = |topics: &str| {
            format!("{head}kafka:\n  - brokers: ['127.0.0.1:9092']\n    topics: [{topics}]\n    status: out\n")
        };
        let read = |text: &str| Config::parse(Path::new("etc/forebay.yaml"), text);
        let good = read(&kafka("{name: a, principal: x}, {name: b, principal: y, tenant: t}")).expect("reads");
        assert_eq!((good.kafka[0].group.as_str(), good.kafka[0].topics[0].tenant.as_str()), ("forebay", "default"));
        let both = format!(
            "{}sqs:\n  - queues: [{{name: 'https://sqs.eu-west-1.amazonaws.com/1/a', principal: x}}]\n",
            kafka("")
        );
        assert_eq!(read(&both).expect("reads").sqs[0].receivers, 2);
        for (topics, part) in [
            ("{name: a, principal: x}, {name: a, principal: y}", "`a` is named twice"),
            ("{name: out, principal: x}", "`out` is named twice"),
            ("{name: a, principal: ''}", "principal of kafka `a` is no name"),
            ("{name: a, principal: 'kube:x'}", "begins with `kube:`"),
            ("{name: a}", "principal"),
            ("{name: a, principal: x, tennant: y}", "tennant"),
        ] {
            let error = read(&kafka(topics)).expect_err(topics).to_string();
            assert!(error.contains(part) && error.contains("forebay.yaml"), "{error}");
        }
    }

    #[test]
    fn checkpoints_are_looked_at_where_it_says() {
        let head = "apiVersion: forebay/v1\nkind: Config\ncheckpoints: ";
        let read = |text: &str| Config::parse(Path::new("etc/forebay.yaml"), &format!("{head}{text}\n"));
        let keys = "{id: {env: ID}, secret: {file: aws.key}}";
        let good = read(&format!(
            "{{s3: {{region: eu-central-1, keys: {keys}, buckets: [b, a]}}, files: true, readAtMost: 1GiB}}"
        ));
        let config = good.expect("reads");
        let secrets: Vec<_> = config.secrets().map(|(whose, secret)| (whose, secret.clone())).collect();
        assert_eq!(
            secrets[1],
            ("checkpoints `s3` `keys.secret`".to_owned(), secret::Secret::File("etc/aws.key".into()))
        );
        let checkpoints = config.checkpoints.expect("it is there");
        assert_eq!(
            (checkpoints.files, checkpoints.read_at_most.map(|m| m.to_string())),
            (true, Some("1GiB".to_owned()))
        );
        for (text, part) in [("{s3: {bucket: a}}", "bucket"), ("{files: 1}", "yaml:3:"), ("{readAtMost: 5}", "yaml:3:")]
        {
            assert!(read(text).expect_err(text).to_string().contains(part), "{text}");
        }
        assert!(
            !read("{s3: {keys: {id: hunter2, secret: hunter2}}}").expect_err("refused").to_string().contains("hunter2")
        );
    }

    const TOKENS: &str =
        "apiVersion: forebay/v1\nkind: Config\ntokens:\n  - name: a\n    roles: [submit, read]\n    secret: ";

    #[test]
    fn a_token_refers_to_its_secret() {
        for (written, secret) in [
            ("{file: a.token}", secret::Secret::File("etc/a.token".into())),
            ("{file: /run/a}", secret::Secret::File("/run/a".into())),
            ("{env: A_TOKEN}", secret::Secret::Env("A_TOKEN".into())),
        ] {
            let config = Config::parse(Path::new("etc/forebay.yaml"), &format!("{TOKENS}{written}\n")).expect(written);
            let token = &config.tokens[0];
            assert_eq!((token.tenant.as_str(), &token.secret), ("default", &secret));
        }
    }

    #[test]
    fn a_secret_in_the_file_is_refused_and_not_repeated() {
        for written in [
            "hunter2-hunter2-hunter2",
            "'hunter2'",
            "{value: hunter2}",
            "{file: a, env: hunter2}",
            "{}",
            "[hunter2]",
            "17",
            "",
        ] {
            let error =
                Config::parse(Path::new("f.yaml"), &format!("{TOKENS}{written}\n")).expect_err(written).to_string();
            let told = error.contains("{file: PATH}") || error.contains("use one of `file`, `env`");
            assert!(error.contains("f.yaml:6:") && told, "{written}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let near = format!("{TOKENS}hunter2\n    rolls: []\n");
        let error = Config::parse(Path::new("f.yaml"), &near).expect_err("a fault").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
