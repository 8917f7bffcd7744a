//! Pools as an SRE writes them. These comments are the user's documentation and the JSON Schema's descriptions.
//!
//! Never: checks that a type or a zone exists (that is `check`).

use super::WrittenCeiling;
use crate::words::{InstanceTypes, KeepReady, WrittenDrain};
use forebay_quantity::{GpuLayout, PerHour, Percent};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set of instance types with a ceiling, drain and sharing rules.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "a pool such as `{instanceTypes: [g5.xlarge], ceiling: {nodes: 20}}`")]
#[schemars(rename = "Pool")]
pub struct WrittenPool {
    /// Names or globs (`g5.*`), or `any`. Types with a part of a GPU (`g6f.large`) are had by name only, in a pool of one such size; only
    /// jobs that consent to share and ask for no more than the part go there. Default: `any`.
    pub instance_types: Option<InstanceTypes>,
    /// Zones to buy in. Default: all that the cloud offers.
    pub zones: Option<Vec<String>>,
    /// This pool's own hard bounds. Default: those of `limits` only.
    pub ceiling: Option<WrittenCeiling>,
    /// Nodes kept ready whatever happens: a number, or a schedule. Default: 0.
    pub keep_ready: Option<KeepReady>,
    /// When an idle node is given back: `auto` (as long as buying it back would take), or `{after: 5m}`. Default: `auto`.
    pub drain: Option<WrittenDrain>,
    /// GPU sharing, by time slices or by partitions (MIG). Default: one job a GPU.
    pub sharing: Option<WrittenSharing>,
    /// How spot is bought.
    pub spot: Option<Spot>,
    /// How its nodes are connected.
    pub network: Option<WrittenNetwork>,
    /// Its nodes are not bought: they are there, in the cluster, and others may use them too. Work goes to them before anything is bought,
    /// whatever the order of the queue's pools. They are never drained, tainted or given back, and no ceiling counts them. Such a pool has
    /// nothing beside it.
    pub owned: Option<WrittenOwned>,
}

/// Nodes that are there without having been bought.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "labels of nodes such as `{nodes: {example.com/team: [lab]}}`")]
#[schemars(rename = "Owned")]
pub struct WrittenOwned {
    /// Labels of the nodes: a node has all of these keys, each with one of its values.
    pub nodes: IndexMap<String, Vec<String>>,
    /// What a node costs as long as it is there. Default: `0 USD/h`.
    pub price: Option<PerHour>,
}

/// GPU sharing: either by time slices or by partitions. Jobs must consent to it too.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(expecting = "sharing rules such as `{timeSlices: 4, smallest: 25 %}` or `{mig: [7 x 1g.10gb]}`")]
#[schemars(rename = "Sharing")]
pub struct WrittenSharing {
    /// Time slices: jobs on one GPU at most. They share its memory and are not isolated.
    pub time_slices: Option<u16>,
    /// The smallest share by time slices; smaller asks are rounded up to it. Default: an even slice.
    pub smallest: Option<Percent>,
    /// Partitions (MIG), instead of time slices: isolated slices, one worker in each. In order of preference; a node gets one of
    /// them when it is bought and keeps it.
    pub mig: Option<Vec<GpuLayout>>,
}

/// How spot is bought.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map such as `{maxPrice: 100 %}`")]
pub struct Spot {
    /// The highest price to pay, as a part of the on-demand price; ceilings book spot at it. Default: `100 %`.
    pub max_price: Option<Percent>,
}

/// How a pool's nodes are connected.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a map such as `{efa: true, placement: cluster}`")]
#[schemars(rename = "Network")]
pub struct WrittenNetwork {
    /// Elastic Fabric Adapters on each node, one a network card: only for types that take them. Default: false.
    pub efa: Option<bool>,
    /// How a gang's nodes are placed. Default: `none`.
    pub placement: Option<Placement>,
}

/// How a gang's nodes are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Close together, in one placement group.
    Cluster,
    /// As they come.
    None,
}
