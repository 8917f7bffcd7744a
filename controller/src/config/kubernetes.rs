//! `kubernetes:` in `forebay.yaml`: the cluster that gangs run in, in which namespaces, and from which templates.
//!
//! Never: a credential in the file, or a pod specification from an event.

use forebay_quantity::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the principals of adopted objects begin with. No topic, queue or token may be called so.
pub(super) const KUBE_PRINCIPAL: &str = "kube:";

/// A Kubernetes cluster. Its nodes are those that `ec2` buys.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesConfig {
    /// A kubeconfig, from this file's folder on. Default: the service account of the pod that the controller runs in; elsewhere the variable
    /// `KUBECONFIG`, or `~/.kube/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The namespace of queues that are not named in `namespaces`.
    pub namespace: String,
    /// The namespace of a queue and of all below it, by the queue's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, String>,
    /// A folder with pod templates, one a file (`*.yaml`, `*.json`), from this file's folder on. `docs/KUBERNETES.md` shows one.
    pub templates: PathBuf,
    /// The image with the program `forebay`, for the container that waits until the whole gang is there.
    pub gate_image: String,
    /// Pods of others on a node that is given back are evicted as their disruption budgets allow. After this time, such as
    /// `1h`, the node goes all the same. Default: never; the node is kept, and paid for, until they are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_deadline: Option<Time>,
    /// Namespaces whose suspended Jobs and JobSets are run where their label `forebay.dev/queue` names a queue. What they ask for comes from the
    /// principal `kube:NAMESPACE`, which the queue has to list in its `submitters`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopt: Vec<String>,
    /// Service accounts of the agents on nodes, as `NAMESPACE/NAME`. The token of a pod of theirs, made for the audience `forebay`, speaks of the pod's own
    /// node and of nothing else; Kubernetes says whose it is (TokenReview). Default: none; agents have a token of `tokens`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The URL under which pods reach this controller, such as `http://forebay.forebay:8080`. Default: none, and runs do not report what they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_url: Option<String>,
    /// How many calls are made to the API server. Default: as many as it takes from one client without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<KubeRatesConfig>,
}

/// How many calls are made to the API server. Twice as many a second are made at once after a pause.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeRatesConfig {
    /// Changes a second, such as pods created and bound. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<u32>,
    /// Lists, watches and reads a second. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_second: Option<u32>,
    /// Calls that run at a time. Default: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
}

/// The most of any of them: what no API server takes from one client.
const MOST_RATE: u32 = 10_000;

impl KubeRatesConfig {
    fn check(self) -> Result<(), String> {
        let named = [
            ("writesPerSecond", self.writes_per_second),
            ("readsPerSecond", self.reads_per_second),
            ("inFlight", self.in_flight),
        ];
        match named.into_iter().find(|(_, value)| value.is_some_and(|value| !(1..=MOST_RATE).contains(&value))) {
            Some((name, value)) => Err(format!(
                "kubernetes: `rates.{name}`: {} is no rate: write a number from 1 to {MOST_RATE}, or leave it out for the default",
                value.unwrap_or_default()
            )),
            None => Ok(()),
        }
    }
}

impl KubernetesConfig {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        self.templates = folder.join(&self.templates);
        if let Some(path) = &mut self.kubeconfig {
            *path = folder.join(&*path);
        }
    }

    /// Who submits the objects of its adopted namespaces.
    pub(super) fn principals(&self) -> impl Iterator<Item = String> {
        self.adopt.iter().map(|namespace| format!("{KUBE_PRINCIPAL}{namespace}"))
    }

    /// Everything that can be told without a look outside.
    pub(super) fn check(&self) -> Result<(), String> {
        let named = self.namespaces.iter().map(|(queue, name)| (format!("namespaces.{queue}"), name));
        let adopted = self.adopt.iter().map(|name| ("adopt".to_owned(), name));
        for (place, name) in std::iter::once(("namespace".to_owned(), &self.namespace)).chain(named).chain(adopted) {
            if !is_label(name) {
                let shown = crate::show::figures::short(name, 60);
                return Err(format!(
                    "kubernetes: `{place}`: `{shown}` is no namespace: write 1 to 63 lower-case letters, digits and hyphens, a letter or \
                     digit first and last"
                ));
            }
        }
        if let Some(url) =
            self.report_url.as_deref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://"))
        {
            let shown = crate::show::figures::short(url, 60);
            return Err(format!(
                "kubernetes: `reportUrl`: `{shown}` is no URL: write http:// or https://, and the name under which pods reach this controller"
            ));
        }
        if let Some(name) = self.agents.iter().find(|name| !is_account(name)) {
            let shown = crate::show::figures::short(name, 60);
            return Err(format!(
                "kubernetes: `agents`: `{shown}` is no service account: write NAMESPACE/NAME, such as `forebay/forebay-agent`"
            ));
        }
        if let Some(rates) = self.rates {
            rates.check()?;
        }
        if self.gate_image.trim().is_empty() {
            return Err("kubernetes: `gateImage` is empty: name the image with the program `forebay`".to_owned());
        }
        Ok(())
    }
}

/// Whether a text is a DNS label, as names of namespaces are (RFC 1123).
fn is_label(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let (first, last) = (name.bytes().next(), name.bytes().last());
    name.len() <= 63
        && name.bytes().all(|c| plain(c) || c == b'-')
        && [first, last].into_iter().all(|c| c.is_some_and(plain))
}

/// Whether a text is a service account with its namespace: names of accounts are DNS subdomains.
fn is_account(text: &str) -> bool {
    let is_name = |name: &str| name.len() <= 253 && name.split('.').all(is_label);
    text.split_once('/').is_some_and(|(namespace, name)| is_label(namespace) && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_namespace() {
        for good in ["forebay/forebay-agent", "a/b.c", "0/1"] {
            assert!(is_account(good), "{good}");
        }
        for bad in ["", "agent", "/a", "a/", "a/b/c", "A/b", "a/b..c", "a/b:c"] {
            assert!(!is_account(bad), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_neither_none_nor_beyond_all_bounds() {
        let rates = |text: &str| serde_json::from_str::<KubeRatesConfig>(text).expect("rates").check();
        assert_eq!(rates("{}"), Ok(()));
        assert_eq!(rates(r#"{"writesPerSecond": 1, "readsPerSecond": 10000, "inFlight": 64}"#), Ok(()));
        let zero = rates(r#"{"readsPerSecond": 0}"#).expect_err("no rate");
        assert!(zero.contains("`rates.readsPerSecond`: 0") && zero.contains("from 1 to 10000"), "{zero}");
        assert!(rates(r#"{"inFlight": 10001}"#).is_err());
    }

    #[test]
    fn namespaces_are_labels() {
        for good in ["jobs", "a", "0-a", &"x".repeat(63)] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", &"x".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
