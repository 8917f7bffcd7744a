//! `sqs:` in `forebay.yaml`: the queues that are read and whose they are, and where statuses and rejected events go.
//!
//! Never: a connection, or a key in the file.

use super::aws::AwsKeys;
use super::channel::{Channel, default_tenant};
use super::secret::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Queues of one account and region.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SqsConfig {
    /// The region, such as `eu-central-1`. Default: that of the environment, the profile or the machine.
    pub region: Option<String>,
    /// Another endpoint than AWS's, such as `http://127.0.0.1:4566`.
    pub endpoint: Option<String>,
    /// Keys, where the usual chain (environment, profile, container, machine) is not wanted.
    pub keys: Option<AwsKeys>,
    /// Queues with job events, standard or FIFO.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<SqsQueue>,
    /// Receivers for each queue, 1 to 64. Default: 2.
    #[serde(default = "default_receivers")]
    #[schemars(range(min = 1, max = 64))]
    pub receivers: usize,
    /// The queue for statuses, by name or URL. Default: none.
    pub status: Option<String>,
    /// The queue for events that were not taken. Default: none; they are in the folder `rejected` in any case.
    pub rejected: Option<String>,
}

/// A queue that is read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SqsQueue {
    /// Its name, or its URL.
    pub name: String,
    /// Who everything in it is from: queues of the policy name it in their `submitters`. Let only that team send to it.
    pub principal: String,
    /// Whose namespace of subjects it is in. Default: `default`.
    #[serde(default = "default_tenant")]
    pub tenant: String,
}

fn default_receivers() -> usize {
    2
}

impl SqsConfig {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        if let Some(keys) = &mut self.keys {
            keys.start_at(folder);
        }
    }

    /// Keys, each with whose it is.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        self.keys.iter().flat_map(|keys| keys.secrets("sqs"))
    }

    /// What is read, and what is written, by name.
    pub(super) fn channels(&self) -> impl Iterator<Item = Channel<'_>> {
        let read = self.queues.iter().map(|q| Channel::read("sqs", short(&q.name), &q.principal, &q.tenant));
        let written = [&self.status, &self.rejected].into_iter().flatten();
        read.chain(written.map(|name| Channel::written("sqs", short(name))))
    }
}

/// The name in a queue's URL; a name is one already.
#[must_use]
pub fn short(queue: &str) -> &str {
    queue.rsplit('/').next().unwrap_or(queue)
}
