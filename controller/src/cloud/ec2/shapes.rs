//! The resources of EC2's instance types, before a policy is compiled: read at the start, and saved in `offerings.json` beside the journal once
//! the driver has started.
//!
//! ```text
//! catalog (price rows) + EC2's shapes, or saved ones, or neither -> catalog with EC2's figures, and remarks about them
//! ```
//!
//! Prices come from the catalog and the market only. No type is left out because EC2 did not respond. Never: a byte in the folder of a start that
//! may still be refused.

use super::{aws_settings, foreign_prices, some, wait_for};
use crate::cloud::Corrected;
use crate::config::ec2::Ec2Config;
use crate::files;
use forebay_capacity_ec2::offerings::{self, InstanceShape};
use forebay_capacity_ec2::sdk::{self, Client};
use forebay_catalog::Catalogue;
use forebay_catalog::PriceRow;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// How long the start waits for EC2.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// The file's name in the journal's folder.
const FILE: &str = "offerings.json";

/// The file's version. Files of other versions are ignored. Version 1 had no numbers of EFA interfaces.
const VERSION: u32 = 2;

/// The shapes as they are saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cloud) struct SavedShapes {
    version: u32,
    /// The region.
    pub region: String,
    /// When they were read.
    asked: jiff::Timestamp,
    /// The shapes by type.
    pub shapes: BTreeMap<String, InstanceShape>,
    /// The types that the region did not have.
    absent: BTreeSet<String>,
}

impl SavedShapes {
    /// The result for these types. `None`: EC2 knows none of them, so that the result is not credible.
    pub fn new(
        region: String,
        types: &BTreeSet<String>,
        shapes: BTreeMap<String, InstanceShape>,
    ) -> Option<SavedShapes> {
        if shapes.is_empty() {
            return None;
        }
        let absent = types.iter().filter(|name| !shapes.contains_key(*name)).cloned().collect();
        Some(SavedShapes { version: VERSION, region, asked: jiff::Timestamp::now(), shapes, absent })
    }

    /// Reads the file in a folder, if there is a valid one.
    pub fn read(folder: &Path) -> Option<SavedShapes> {
        let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
        serde_json::from_str(&text).ok().filter(|saved: &SavedShapes| saved.version == VERSION)
    }

    /// Writes the file by way of another one, so that it is never incomplete.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        files::replace_private(&folder.join(FILE), &folder.join(format!("{FILE}.new")), text.as_bytes())
    }

    /// All types that were looked up.
    pub fn types(&self) -> BTreeSet<String> {
        self.shapes.keys().chain(&self.absent).cloned().collect()
    }
}

/// The catalog with EC2's figures, or with those that are saved in `folder`.
pub fn at_start(config: &Ec2Config, folder: &Path, catalogue: Catalogue) -> Corrected {
    let types = catalogue.rows.iter().map(|row| row.instance_type.clone()).collect();
    let mut region = config.region.clone();
    let result = look_up(config, &types, &mut region);
    let mut remarks: Vec<String> = region.and_then(|region| foreign_prices(config, &region)).into_iter().collect();
    let (saved, is_new) = match result {
        Ok(found) => (found, true),
        Err(why) => {
            let unknown = format!("EC2's instance types could not be read ({why}):");
            let Some(saved) = SavedShapes::read(folder) else {
                remarks.push(format!("{unknown} the figures of the catalog are used"));
                return Corrected { catalogue, remarks, unsaved: None };
            };
            remarks.push(format!("{unknown} those of {} from {:.0} are used", saved.region, saved.asked));
            (saved, false)
        }
    };
    let (catalogue, corrections) = corrected(catalogue, &saved);
    remarks.extend(corrections);
    Corrected { catalogue, remarks, unsaved: is_new.then_some(saved) }
}

/// The region's shapes. `known_region` is set as soon as it is known.
fn look_up(
    config: &Ec2Config,
    types: &BTreeSet<String>,
    known_region: &mut Option<String>,
) -> Result<SavedShapes, String> {
    let text = |e: &dyn Display| e.to_string();
    let aws = aws_settings(config).map_err(|e| text(&e))?;
    wait_for(START_TIMEOUT, async {
        let client = sdk::connect(&aws).await.map_err(|e| text(&e))?.ec2;
        let region = region(&client);
        *known_region = Some(region.clone());
        let shapes = offerings::instance_shapes(&client, types).await.map_err(|e| text(&e))?;
        let none = format!("{region} has none of the catalog's types");
        SavedShapes::new(region, types, shapes).ok_or(none)
    })
}

/// The region of a client.
pub(super) fn region(client: &Client) -> String {
    client.config().region().map_or_else(String::new, |region| region.to_string())
}

/// Price rows with EC2's figures, without the types that the region does not have.
fn corrected(catalogue: Catalogue, saved: &SavedShapes) -> (Catalogue, Vec<String>) {
    let (mut rows, mut absent, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for row in &catalogue.rows {
        match saved.shapes.get(&row.instance_type) {
            Some(shape) => {
                let new = corrected_row(row, shape);
                changed.extend(difference(row, &new));
                rows.push(new);
            }
            None if saved.absent.contains(&row.instance_type) => absent.push(format!("`{}`", row.instance_type)),
            None => rows.push(row.clone()),
        }
    }
    let not_spot = saved.shapes.iter().filter(|(_, shape)| !shape.spot).map(|(name, _)| name.clone()).collect();
    let mut remarks = Vec::new();
    if !absent.is_empty() {
        remarks.push(format!("{} does not have {}: left out of the catalog", saved.region, some(absent)));
    }
    if !changed.is_empty() {
        remarks.push(format!("EC2's figures replace those of the catalog: {}", some(changed)));
    }
    let efa = saved.shapes.iter().map(|(name, shape)| (name.clone(), shape.efa)).collect();
    (Catalogue { rows, not_spot, efa, ..catalogue }, remarks)
}

/// Where EC2 has no figures for GPUs, those of the catalog stay.
fn corrected_row(row: &PriceRow, shape: &InstanceShape) -> PriceRow {
    let mut new = PriceRow { cpu_milli: u64::from(shape.vcpus) * 1000, mem_mib: shape.mem_mib, ..row.clone() };
    let Some(gpus) = &shape.gpus else { return new };
    (new.gpus, new.gpu_mem_mib, new.gpu_milli) = (gpus.count, gpus.mem_mib, gpus.milli);
    if new.gpu_model.is_empty() {
        new.gpu_model.clone_from(&gpus.model);
    } else if !new.answers_to(&gpus.model) {
        // Jobs may use either name.
        new.aliases.push(gpus.model.clone());
    }
    new
}

/// The differences of EC2's figures. `None`: there are none.
fn difference(old: &PriceRow, new: &PriceRow) -> Option<String> {
    let mut parts = Vec::new();
    let mut differs = |is: u64, was: u64, unit: &str| {
        if is != was {
            parts.push(format!("{is} {unit}, not {was}"));
        }
    };
    differs(new.cpu_milli, old.cpu_milli, "thousandths of a CPU");
    differs(new.mem_mib, old.mem_mib, "MiB");
    differs(new.gpus.into(), old.gpus.into(), "GPUs");
    differs(new.gpu_mem_mib.into(), old.gpu_mem_mib.into(), "MiB of GPU memory");
    differs(new.gpu_milli.into(), old.gpu_milli.into(), "thousandths of a GPU");
    (!parts.is_empty()).then(|| format!("`{}` has {}", old.instance_type, parts.join(", ")))
}

/// The differences of a later lookup, by type.
pub(super) fn differences(saved: &SavedShapes, now: &SavedShapes) -> Vec<String> {
    let types = saved.types().intersection(&now.types()).cloned().collect::<Vec<_>>();
    let differs = types.into_iter().filter(|name| saved.shapes.get(name) != now.shapes.get(name));
    differs
        .map(|name| match (saved.shapes.contains_key(&name), now.shapes.contains_key(&name)) {
            (true, false) => format!("{} no longer has `{name}`", now.region),
            (false, true) => format!("{} has `{name}` now", now.region),
            _ => format!("`{name}` has other resources now"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_capacity_ec2::offerings::InstanceGpus;
    use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions};
    use forebay_policy::compile;

    fn aws() -> Catalogue {
        let rows = forebay_catalog::builtin().into_iter().filter(|row| row.provider == "aws").collect();
        Catalogue { rows, zones: vec!["us-east-1a".to_owned()], ..Catalogue::default() }
    }

    fn config(folder: &Path, endpoint: &str) -> Ec2Config {
        std::fs::write(folder.join("key"), "test\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(folder.join("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let key = serde_json::json!({ "file": folder.join("key") });
        let keys = serde_json::json!({ "id": key, "secret": key });
        let written = serde_json::json!({ "name": "t", "region": "us-east-1", "endpoint": endpoint, "keys": keys });
        serde_json::from_value(written).unwrap()
    }

    fn shape(row: &PriceRow) -> InstanceShape {
        let gpus = InstanceGpus {
            count: row.gpus,
            mem_mib: row.gpu_mem_mib,
            model: row.gpu_model.split('-').next().unwrap().to_owned(),
            milli: row.gpu_milli,
        };
        InstanceShape {
            vcpus: u32::try_from(row.cpu_milli / 1000).unwrap(),
            mem_mib: row.mem_mib,
            gpus: (row.gpus > 0).then_some(gpus),
            efa: 0,
            spot: true,
        }
    }

    fn saved(change: impl Fn(&mut BTreeMap<String, InstanceShape>)) -> SavedShapes {
        let catalogue = aws();
        let mut shapes = catalogue.rows.iter().map(|row| (row.instance_type.clone(), shape(row))).collect();
        change(&mut shapes);
        let types = catalogue.rows.iter().map(|row| row.instance_type.clone()).collect();
        SavedShapes::new("us-east-1".to_owned(), &types, shapes).unwrap()
    }

    #[test]
    fn saved_shapes_are_used_when_ec2_does_not_respond() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut options = RegionOptions::default();
        options.types.retain(|row| !row.instance_type.starts_with("p2."));
        options.types.iter_mut().filter(|row| row.instance_type == "g5.xlarge").for_each(|row| row.mem_mib = 15_000);
        let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
        let config = config(folder.path(), &loopback.url());
        let started = at_start(&config, &data, aws());
        assert!(!data.exists(), "a start that may still be refused has written");
        files::create_private_folder(&data).unwrap();
        assert_eq!(started.save(&data), None);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(data.join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let (first, remarks) = (started.catalogue, started.remarks);
        assert_eq!(
            remarks,
            [
                "us-east-1 does not have `p2.xlarge`, `p2.8xlarge`, `p2.16xlarge`: left out of the catalog",
                "EC2's figures replace those of the catalog: `g5.xlarge` has 15000 MiB, not 16384"
            ]
        );
        assert_eq!(first.rows.len(), aws().rows.len() - 3);
        assert!(first.rows.iter().any(|row| row.instance_type == "g5.xlarge" && row.mem_mib == 15_000));
        assert!(!data.join(format!("{FILE}.new")).exists());
        assert_eq!((first.efa["p5.48xlarge"], first.efa["g5.xlarge"]), (32, 0));

        drop(loopback);
        let Corrected { catalogue: second, remarks, unsaved } = at_start(&config, &data, aws());
        assert_eq!(unsaved, None);
        assert_eq!((second.rows, second.efa), (first.rows, first.efa));
        assert!(
            remarks[0].starts_with("EC2's instance types could not be read (") && remarks.len() == 3,
            "{remarks:?}"
        );
        assert!(remarks[0].contains("those of us-east-1 from 2"), "{remarks:?}");

        std::fs::write(data.join(FILE), "{\"version\": 1, \"reg").unwrap();
        let Corrected { catalogue: third, remarks, .. } = at_start(&config, &data, aws());
        assert_eq!((third.rows, third.efa.len()), (aws().rows, 0));
        assert!(remarks.len() == 1 && remarks[0].ends_with("the figures of the catalog are used"), "{remarks:?}");
    }

    #[test]
    fn prices_of_another_region_are_reported_even_without_a_response() {
        let folder = tempfile::tempdir().unwrap();
        let nobody = "http://127.0.0.1:9";
        let abroad = Ec2Config { region: Some("eu-west-1".to_owned()), ..config(folder.path(), nobody) };
        let remarks = at_start(&abroad, folder.path(), aws()).remarks;
        assert!(
            remarks.len() == 2 && remarks[0].contains("eu-west-1") && remarks[0].contains("`prices: FILE`"),
            "{remarks:?}"
        );
        let own = Ec2Config { prices: Some("eu.csv".into()), ..abroad };
        let remarks = at_start(&own, folder.path(), aws()).remarks;
        assert!(remarks.len() == 1 && remarks[0].starts_with("EC2's instance types could not be read"), "{remarks:?}");
    }

    #[test]
    fn equal_figures_are_not_reported() {
        let (catalogue, remarks) = corrected(aws(), &saved(|_| {}));
        assert_eq!((catalogue.rows, remarks), (aws().rows, Vec::new()));
    }

    #[test]
    fn a_type_that_was_not_looked_up_stays() {
        let mut answer = saved(|shapes| shapes.retain(|name, _| name == "g5.xlarge"));
        answer.absent.clear();
        assert_eq!(corrected(aws(), &answer).0.rows.len(), aws().rows.len());
        assert_eq!(
            SavedShapes::new("r".to_owned(), &answer.types(), BTreeMap::new()),
            None,
            "a result without types is not credible"
        );
    }

    #[test]
    fn gpus_are_corrected_only_where_ec2_has_figures() {
        let answer = saved(|shapes| {
            shapes.get_mut("p5.4xlarge").unwrap().gpus = None;
            let l4 = InstanceGpus { count: 1, mem_mib: 11_444, model: "l4-12q".to_owned(), milli: 500 };
            shapes.get_mut("g6.xlarge").unwrap().gpus = Some(l4);
        });
        let (catalogue, remarks) = corrected(aws(), &answer);
        let row = |name: &str| catalogue.rows.iter().find(|row| row.instance_type == name).unwrap().clone();
        assert_eq!((row("p5.4xlarge").gpus, row("p5.4xlarge").gpu_mem_mib), (1, 81_920));
        assert!(row("g6.xlarge").is_fractional() && row("g6.xlarge").answers_to("l4"));
        assert!(row("g6.xlarge").answers_to("L4-12Q"));
        let words = "`g6.xlarge` has 11444 MiB of GPU memory, not 22888, 500 thousandths of a GPU, not 1000";
        assert_eq!(remarks, [format!("EC2's figures replace those of the catalog: {words}")]);
    }

    #[test]
    fn types_without_spot_have_no_spot_offering() {
        let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nqueues: {a: {}}\n\
                    pools: {p: {instanceTypes: [g5.xlarge, g6.xlarge]}}\n";
        let answer = saved(|shapes| shapes.get_mut("g5.xlarge").unwrap().spot = false);
        let policy = compile("t", text, &corrected(aws(), &answer).0).unwrap().policy;
        let offers: Vec<(&str, bool)> = policy
            .offerings
            .iter()
            .map(|o| (o.instance_type.as_str(), o.capacity == forebay_kernel::catalog::CapacityType::Spot))
            .collect();
        assert_eq!(offers, [("g5.xlarge", false), ("g6.xlarge", true), ("g6.xlarge", false)]);
    }

    #[test]
    fn a_later_lookup_is_compared_by_type() {
        let before = saved(|shapes| drop(shapes.remove("g6.xlarge")));
        let after = saved(|shapes| {
            shapes.remove("g5.xlarge");
            shapes.get_mut("g4dn.xlarge").unwrap().mem_mib = 1;
        });
        assert_eq!(
            differences(&before, &after),
            [
                "`g4dn.xlarge` has other resources now",
                "us-east-1 no longer has `g5.xlarge`",
                "us-east-1 has `g6.xlarge` now"
            ]
        );
        assert_eq!(differences(&before, &before), [""; 0]);
    }
}
