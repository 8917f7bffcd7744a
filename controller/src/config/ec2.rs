//! `ec2:` in `forebay.yaml`: the account and region that nodes are bought in, how they are launched, and where EC2's warnings come from.
//!
//! Never: a connection, a key in the file, or what may be bought and for how much; that is the policy's.

use super::aws::AwsKeys;
use super::secret::Secret;
use crate::journal::JournalId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A real cloud: EC2 in one account and region.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ec2Config {
    /// The name under which instances are bought, 1 to 40 letters, digits and hyphens. It is a tag of each. One controller a name.
    pub name: String,
    /// The region, such as `us-east-1`. Default: that of the environment, the profile or the machine.
    pub region: Option<String>,
    /// Another endpoint than AWS's, such as `http://127.0.0.1:4599`.
    pub endpoint: Option<String>,
    /// Keys, where the usual chain (environment, profile, container, machine) is not wanted.
    pub keys: Option<AwsKeys>,
    /// Zones to buy in, beside those that have a subnet below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// How instances are launched, whatever their pool.
    #[serde(default)]
    pub launch: LaunchConfig,
    /// How instances of single pools are launched, by the pool's name: what is given here goes before `launch`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, LaunchConfig>,
    /// Capacity that is paid for already. It is used first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationConfig>,
    /// When an instance takes work. Default: `running`; with `kubernetes` it is `node`, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Queues with EventBridge's warnings of interruptions, by name or URL: `deploy/aws` makes one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<String>,
    /// Journals of controllers that are no more, by UUID: their instances are ended. Only where nothing of theirs still works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predecessors: Vec<String>,
    /// Instance types with prices, as CSV. Default: the built-in catalogue, whose prices are those of us-east-1
    /// (`crates/catalog/data/README.md` has its columns).
    pub prices: Option<PathBuf>,
}

/// How instances are launched.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaunchConfig {
    /// The launch template, by id (`lt-...`) or name. It or `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Its version. Default: the template's default version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The image, `ami-...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A subnet a zone. Default: what the template says, or the zone's default subnet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subnets: BTreeMap<String, String>,
    /// Security groups, `sg-...`. Default: what the template says, or the network's default one. Pools with `efa` need them, one of them
    /// with all traffic to and from itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// The instance profile, by name. Default: what the template says, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// A file with the first boot's script, 16 KiB at most, from this file's folder on. The journal keeps its text: no secrets. Default:
    /// what the template says, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<PathBuf>,
    /// Tags of the instances beside Forebay's own, for cost allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Capacity that is paid for already.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservationConfig {
    /// `cr-...`.
    pub id: String,
    /// Of what.
    pub instance_type: String,
    /// Where.
    pub zone: String,
    /// A Capacity Block: bought for a time, its instances are ended 30 minutes before its end. Default: an On-Demand Capacity
    /// Reservation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block: bool,
    /// When it begins, such as `2026-11-30T11:30:00Z`. Default: it has begun.
    #[schemars(with = "Option<String>")]
    pub starts: Option<jiff::Timestamp>,
    /// When it ends, such as `2026-12-01T11:30:00Z`. Needed for a block.
    #[schemars(with = "Option<String>")]
    pub ends: Option<jiff::Timestamp>,
}

/// When an instance takes work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// When EC2 calls it running.
    Running,
    /// When the agent on it says so.
    Agent,
    /// When its node in Kubernetes is ready and has all its GPUs.
    Node,
}

/// What runs on the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterConfig {
    /// Nothing: jobs are played through for as long as they say. With a real cloud it costs real money, and tries out its buying.
    Simulated,
}

impl Ec2Config {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        self.keys.iter_mut().for_each(|keys| keys.start_at(folder));
        let launches = std::iter::once(&mut self.launch).chain(self.pools.values_mut());
        for path in launches.filter_map(|l| l.user_data.as_mut()).chain(self.prices.as_mut()) {
            *path = folder.join(&*path);
        }
    }

    /// Keys, each with whose it is.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        self.keys.iter().flat_map(|keys| keys.secrets("ec2"))
    }

    /// The zones that may be bought in.
    #[must_use]
    pub fn all_zones(&self) -> Vec<String> {
        let launches = std::iter::once(&self.launch).chain(self.pools.values());
        let subnets = launches.flat_map(|l| l.subnets.keys());
        let zones: BTreeSet<&String> = self.zones.iter().chain(subnets).collect();
        zones.into_iter().cloned().collect()
    }

    /// How instances of a pool are launched: its own settings before those of all.
    #[must_use]
    pub fn launch_of(&self, pool: &str) -> LaunchConfig {
        let Some(own) = self.pools.get(pool) else { return self.launch.clone() };
        let all = &self.launch;
        let or = |own: &Option<String>, all: &Option<String>| own.clone().or_else(|| all.clone());
        let joined = |own: &BTreeMap<String, String>, all: &BTreeMap<String, String>| {
            all.iter().chain(own).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        // A pool with a template or an image of its own does not mix it with the other's.
        let own_start = own.template.is_some() || own.image.is_some();
        LaunchConfig {
            template: if own_start { own.template.clone() } else { all.template.clone() },
            version: if own_start { own.version.clone() } else { or(&own.version, &all.version) },
            image: if own_start { own.image.clone() } else { all.image.clone() },
            subnets: joined(&own.subnets, &all.subnets),
            security_groups: if own.security_groups.is_empty() {
                all.security_groups.clone()
            } else {
                own.security_groups.clone()
            },
            instance_profile: or(&own.instance_profile, &all.instance_profile),
            user_data: own.user_data.clone().or_else(|| all.user_data.clone()),
            tags: joined(&own.tags, &all.tags),
        }
    }

    /// Checks when instances take work, or fills it in, beside what runs on them.
    pub(super) fn settle_ready(&mut self, kubernetes: bool) -> Result<(), String> {
        match (self.ready, kubernetes) {
            (Some(Ready::Running | Ready::Agent), true) => {
                Err("ec2: `ready`: with `kubernetes` an instance takes work when its node is ready: write `node`, or leave it out".to_owned())
            }
            (Some(Ready::Node), false) => {
                Err("ec2: `ready`: `node` needs `kubernetes`: write `running` or `agent`, or leave it out".to_owned())
            }
            _ => {
                self.ready.get_or_insert(if kubernetes { Ready::Node } else { Ready::Running });
                Ok(())
            }
        }
    }

    /// Everything that can be told without a look outside.
    pub(super) fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || self.name.len() > 40 || !self.name.chars().all(plain) {
            return Err("ec2: `name` is no name: write 1 to 40 letters, digits and hyphens".to_owned());
        }
        if self.all_zones().is_empty() {
            return Err("ec2: no zone to buy in: list `zones`, or `launch.subnets` by zone".to_owned());
        }
        // Where pools are named, `launch` may be what they have in common and no more.
        if self.pools.is_empty() {
            self.launch.check("ec2.launch")?;
        }
        for name in self.pools.keys() {
            self.launch_of(name).check(&format!("ec2.pools.{name}"))?;
        }
        for reservation in &self.reservations {
            if reservation.starts.zip(reservation.ends).is_some_and(|(starts, ends)| starts >= ends) {
                return Err(format!(
                    "ec2: the reservation `{}` ends before it starts: mend `starts` or `ends`",
                    reservation.id
                ));
            }
            if reservation.block && reservation.ends.is_none() {
                return Err(format!(
                    "ec2: the Capacity Block `{}` has no end: give `ends`, its instances are ended 30 minutes before it",
                    reservation.id
                ));
            }
        }
        for journal in &self.predecessors {
            if journal.parse::<JournalId>().is_err() {
                return Err(format!(
                    "ec2: the predecessor `{}` is no journal's id: its UUID, with `.` and a number after a restore",
                    crate::show::figures::short(journal, 60)
                ));
            }
        }
        Ok(())
    }
}

impl LaunchConfig {
    fn check(&self, at: &str) -> Result<(), String> {
        if self.template.is_none() && self.image.is_none() {
            return Err(format!("{at}: nothing says what to launch: give `template` or `image`"));
        }
        // EC2 takes 50 tags; Forebay's own are five.
        if self.tags.len() > 40 {
            return Err(format!("{at}: {} tags are too many: at most 40", self.tags.len()));
        }
        let own =
            |key: &&String| key.starts_with("forebay:") || key.starts_with("aws:") || key.is_empty() || key.len() > 127;
        match self.tags.keys().find(own) {
            Some(key) => Err(format!("{at}: the tag `{}` is not yours to give", crate::show::figures::short(key, 60))),
            None => Ok(()),
        }
    }
}
