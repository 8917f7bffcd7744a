//! What a simulation needs beside jobs and policy: the nodes that nobody bought, and the instance types where the built-in catalogue is not the one
//! that the policy was compiled with.
//!
//! ```text
//! a pool of owned nodes                                     -> nodes.csv, those that are there now
//! the text means something else with the built-in catalogue -> catalog.csv, the types of the policy in force at its prices
//! ```
//!
//! Never: a catalogue with which the policy does not compile.

use forebay_catalog::{Catalogue, PriceRow, builtin};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::state::State;
use forebay_kernel::state::owned::OwnedNode;
use forebay_policy::compile;
use forebay_sim::trace::{csv_field, csv_seconds};
use std::collections::BTreeMap;

/// The first line of a list of nodes.
const NODE_COLUMNS: &str = "node,cpu_milli,mem_mib,gpus,gpu_model,pool";

/// The first line of a catalogue.
const TYPE_COLUMNS: &str = "instance_type,provider,gpu_model,aliases,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,\
                            spot_permille_of_on_demand,boot_s,sharing,nvlink,gpu_milli";

/// Whether a simulation needs something, and what it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Supply {
    /// It does not.
    #[default]
    NotNeeded,
    /// This, as CSV.
    Known(String),
    /// It does, and the journal does not know it.
    Unknown,
}

/// The owned nodes that are there, where the policy in force has a pool of them.
pub fn nodes(state: &State) -> Supply {
    let has_owned = state.policy().is_some_and(|policy| policy.pools.iter().any(|pool| pool.owned.is_some()));
    if !has_owned {
        return Supply::NotNeeded;
    }
    let rows = builtin();
    let there = state.nodes().filter_map(|node| state.owned_node(node));
    let rows: String = there.map(|node| node_row(&node, &rows)).collect();
    if rows.is_empty() { Supply::Unknown } else { Supply::Known(format!("{NODE_COLUMNS}\n{rows}")) }
}

/// A list has one model of a node: the first that a catalogue knows, for that tells the memory of a GPU.
fn node_row(OwnedNode { name, pool, shape, .. }: &OwnedNode, rows: &[PriceRow]) -> String {
    let is_known = |model: &&String| rows.iter().any(|row| row.answers_to(model));
    let model = shape.models.iter().find(is_known).or(shape.models.first());
    let [name, model, pool] = [name.as_str(), model.map_or("", String::as_str), pool.as_str()].map(csv_field);
    format!("{name},{},{},{},{model},{pool}\n", shape.cpu.0, shape.mem.0, shape.gpus)
}

/// The instance types of the policy in force, where its text means something else with the built-in catalogue.
pub fn catalogue(state: &State, text: Option<&str>) -> Supply {
    let (Some(text), Some(policy)) = (text, state.policy()) else { return Supply::NotNeeded };
    catalogue_of(&policy.offerings, text)
}

fn catalogue_of(offerings: &[Offering], text: &str) -> Supply {
    let bought = types(offerings);
    let own: Vec<PriceRow> = bought.values().map(price_row).collect();
    // A policy may name types that are sold elsewhere, beside those that it buys.
    let is_other = |row: &PriceRow| !bought.contains_key(&row.instance_type);
    let with_others: Vec<PriceRow> = own.iter().cloned().chain(builtin().into_iter().filter(is_other)).collect();
    let tried = [builtin(), own, with_others].map(|rows| (covers(&bought, text, &rows), rows));
    // One that sells these types alone, else one that sells them among others.
    let found = [Covers::Exactly, Covers::WithOthers]
        .into_iter()
        .find_map(|wanted| tried.iter().position(|(covers, _)| *covers == wanted));
    match found {
        None => Supply::Unknown,
        Some(0) => Supply::NotNeeded,
        Some(nth) => {
            let rows: String = tried[nth].1.iter().map(type_row).collect();
            Supply::Known(format!("{TYPE_COLUMNS}\n{rows}"))
        }
    }
}

/// What a policy buys with a catalogue, beside what it bought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Covers {
    /// The same types at the same prices.
    Exactly,
    /// These, and others.
    WithOthers,
    /// Not all of these, or the policy does not compile.
    Not,
}

fn covers(bought: &BTreeMap<String, SoldType>, text: &str, rows: &[PriceRow]) -> Covers {
    let catalogue = Catalogue { rows: rows.to_vec(), ..Catalogue::builtin() };
    let Ok(compiled) = compile("policy.yaml", text, &catalogue) else { return Covers::Not };
    let found = types(&compiled.policy.offerings);
    if !bought.iter().all(|(name, sold)| found.get(name).is_some_and(|other| sold.agrees(other))) {
        return Covers::Not;
    }
    if found.len() == bought.len() { Covers::Exactly } else { Covers::WithOthers }
}

/// What a catalogue says of a type, as far as offerings have it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SoldType {
    offer: Offering,
    /// In 1/1000 of the on-demand price. `None`: it is not bought as spot.
    spot_permille: Option<u32>,
}

impl SoldType {
    /// Whether another is the same, as far as this one is known.
    fn agrees(&self, other: &SoldType) -> bool {
        self.offer == other.offer && self.spot_permille.is_none_or(|permille| other.spot_permille == Some(permille))
    }
}

/// The types of offerings that are bought, by name. Zones are the simulated cloud's own.
fn types(offerings: &[Offering]) -> BTreeMap<String, SoldType> {
    let mut found: BTreeMap<String, SoldType> = BTreeMap::new();
    for offer in offerings.iter().filter(|offer| offer.capacity != CapacityType::Owned) {
        let plain = Offering {
            zone: String::new(),
            capacity: CapacityType::OnDemand,
            price: offer.on_demand,
            max_price: offer.on_demand,
            // A catalogue says whether there is NVLink, and of NUMA nothing.
            nvlink: u16::from(offer.nvlink > 0),
            numa: 0,
            ..offer.clone()
        };
        let sold = found.entry(offer.instance_type.clone()).or_insert(SoldType { offer: plain, spot_permille: None });
        if offer.capacity == CapacityType::Spot {
            sold.spot_permille = sold.spot_permille.or(Some(permille(offer)));
        }
    }
    found
}

/// The price of spot as a catalogue states it. It is rounded up to a micro-dollar there, so that rounding down finds the stated figure again.
fn permille(offer: &Offering) -> u32 {
    let permille = offer.price.0.saturating_mul(1000).checked_div(offer.on_demand.0).unwrap_or(1000);
    u32::try_from(permille.clamp(1, 1000)).unwrap_or(1000)
}

/// A type as a row. What offerings do not say is as in the built-in catalogue, where that has the type.
fn price_row(sold: &SoldType) -> PriceRow {
    let SoldType { offer, spot_permille } = sold;
    let known = builtin().into_iter().find(|row| row.instance_type == offer.instance_type);
    let (model, aliases) = offer.models.split_first().map(|(first, rest)| (first.clone(), rest.to_vec())).unzip();
    PriceRow {
        instance_type: offer.instance_type.clone(),
        provider: known.as_ref().map(|row| row.provider.clone()).unwrap_or_default(),
        gpu_model: model.unwrap_or_default(),
        aliases: aliases.unwrap_or_default(),
        gpus: u32::from(offer.gpus),
        gpu_mem_mib: u32::try_from(offer.gpu_mem.0).unwrap_or(u32::MAX),
        gpu_milli: known.as_ref().map_or(1000, |row| row.gpu_milli),
        cpu_milli: offer.cpu.0,
        mem_mib: offer.mem.0,
        on_demand_micros_per_hour: offer.on_demand.0,
        spot_permille: spot_permille.or(known.as_ref().map(|row| row.spot_permille)).unwrap_or(1000),
        boot_ms: offer.boot.0,
        sharing: known.as_ref().is_none_or(|row| row.sharing),
        nvlink: offer.nvlink > 0,
        line: 0,
    }
}

fn type_row(row: &PriceRow) -> String {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let price = row.on_demand_micros_per_hour;
    let fields = [
        csv_field(&row.instance_type),
        csv_field(&row.provider),
        csv_field(&row.gpu_model),
        csv_field(&row.aliases.join("|")),
        row.gpus.to_string(),
        row.gpu_mem_mib.to_string(),
        csv_seconds(row.cpu_milli),
        row.mem_mib.to_string(),
        format!("{}.{:06}", price / 1_000_000, price % 1_000_000),
        row.spot_permille.to_string(),
        csv_seconds(row.boot_ms),
        yes(row.sharing).to_owned(),
        yes(row.nvlink).to_owned(),
        row.gpu_milli.to_string(),
    ];
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::state::load;
    use forebay_wire::document::state::StateDocument;
    use std::path::Path;

    const TYPES: &str = "instance_type,gpu_model,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,spot_permille_of_on_demand,boot_s\n\
                         big.1x,h100,1,81920,16,131072,3.000001,333,61.5\nsmall.1x,,0,0,2.5,4096,0.07,400,30\n";

    fn policy(types: &str) -> String {
        format!(
            "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: one}}\ntiers:\n  only: {{priority: 1, buys: spot-then-on-demand}}\nundeclaredQueues: \
             {{under: shared}}\nqueues:\n  shared: {{tier: only, pools: [p]}}\npools:\n  p: {{instanceTypes: [{types}], ceiling: {{nodes: \
             2}}}}\nlimits: {{nodes: 2}}\n"
        )
    }

    fn offerings(text: &str, rows: Vec<PriceRow>) -> Vec<Offering> {
        let compiled = compile("p", text, &Catalogue { rows, ..Catalogue::builtin() });
        compiled.unwrap_or_else(|e| panic!("{e}")).policy.offerings
    }

    fn read(text: &str) -> Vec<PriceRow> {
        forebay_catalog::parse(Path::new("catalog.csv"), text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_built_in_catalogue_is_not_written_down() {
        let text = policy("g5.*, p5.48xlarge");
        assert_eq!(catalogue_of(&offerings(&text, builtin()), &text), Supply::NotNeeded);
    }

    #[test]
    fn types_of_ones_own_catalogue_are_written_as_they_were() {
        let text = policy("big.1x, small.1x");
        let bought = offerings(&text, read(TYPES));
        let Supply::Known(csv) = catalogue_of(&bought, &text) else { panic!("it is needed") };
        assert_eq!(types(&offerings(&text, read(&csv))), types(&bought), "{csv}");
        assert!(csv.contains("\nbig.1x,,h100,,1,81920,16,131072,3.000001,333,61.500,"), "{csv}");
    }

    #[test]
    fn other_prices_of_built_in_types_are_written_beside_types_of_other_clouds() {
        let dearer = |row: PriceRow| PriceRow { on_demand_micros_per_hour: 2 * row.on_demand_micros_per_hour, ..row };
        let rows: Vec<PriceRow> = builtin().into_iter().map(dearer).collect();
        let written = |text: &str| {
            let of = offerings(text, rows.clone()).into_iter().filter(|offer| offer.instance_type == "g5.xlarge");
            match catalogue_of(&of.collect::<Vec<_>>(), text) {
                Supply::Known(csv) => csv,
                other => panic!("{other:?}"),
            }
        };
        let alone = written(&policy("g5.xlarge"));
        assert_eq!(alone.lines().count(), 2, "{alone}");
        let price = rows.iter().find(|row| row.instance_type == "g5.xlarge").map(|row| row.on_demand_micros_per_hour);
        assert_eq!(read(&alone).first().map(|row| row.on_demand_micros_per_hour), price);
        // The cloud that is bought from does not sell it, and the policy names it.
        let beside = written(&policy("g5.xlarge, n1-standard-16-p100x1"));
        assert_eq!(beside.lines().count(), builtin().len() + 1, "{beside}");
    }

    #[test]
    fn a_policy_that_no_catalogue_explains_is_said_to_be_so() {
        let text = policy("big.1x");
        let bought = offerings(&text, read(TYPES));
        assert_eq!(catalogue_of(&bought, &policy("bigger.1x")), Supply::Unknown);
    }

    #[test]
    fn owned_nodes_that_are_there_are_listed_as_a_simulation_reads_them() {
        let owned = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: ours}\nlimits: {nodes: 1, spend: 1000 USD/h}\ntiers:\n  normal: \
                     {priority: 500, buys: spot-then-on-demand}\n  idle: {priority: 0, buys: nothing}\nqueues:\n  research: {submitters: \
                     [local]}\n  research/buys: {tier: normal, pools: [a100, home]}\n  research/idle: {tier: idle, pools: [home]}\npools:\n  \
                     a100: {instanceTypes: [p4d.24xlarge]}\n  home: {owned: {nodes: {example.com/team: [lab]}, price: 1.5 USD/h}}\n";
        let engine = |text: &str, nodes: &str| {
            let compiled = compile("p", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"));
            let document =
                format!(r#"{{"apiVersion":"forebay/v1","kind":"State","now_s":600,"jobs":[],"nodes":[{nodes}]}}"#);
            let document = StateDocument::parse(&document).unwrap();
            load(&document, Some(compiled.policy)).unwrap_or_else(|e| panic!("{e}")).engine
        };
        let node = r#"{"node":"n1","instanceType":"dgx","zone":"rack","capacityType":"owned","phase":"ready","pool":"home","gpus":8}"#;
        let known = Supply::Known(format!("{NODE_COLUMNS}\nn1,1000000,16777216,8,,home\n"));
        assert_eq!(nodes(engine(owned, node).state()), known);
        assert_eq!(nodes(engine(owned, "").state()), Supply::Unknown, "none of them is there");
        assert_eq!(nodes(engine(&policy("g5.xlarge"), "").state()), Supply::NotNeeded);
    }
}
