//! What EC2's types are made of, before a policy is compiled: asked once at the start, kept in `offerings.json` beside the journal.
//!
//! ```text
//! catalogue (price rows) + EC2's shapes, or those that were kept, or neither -> catalogue with EC2's figures, and what to say of it
//! ```
//!
//! Never: a price; those are the catalogue's and the market's. Never: a type that is left out because nobody answered.

use super::{foreign_prices, place};
use crate::config::ec2::Ec2Config;
use crate::policy::Catalogue;
use forebay_capacity_ec2::offerings::{self, Shape};
use forebay_capacity_ec2::wire::{self, Client};
use forebay_sim::prices::PriceRow;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// How long a start waits for EC2.
const LIMIT: Duration = Duration::from_secs(5);

/// Its name in the journal's folder.
const FILE: &str = "offerings.json";

/// The file's version. One of another version is as none; 1 did not count EFA interfaces.
const VERSION: u32 = 2;

/// Types that one line names at most.
const NAMED: usize = 8;

/// What EC2 said, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    version: u32,
    /// Of which region.
    pub region: String,
    /// When it said so.
    asked: jiff::Timestamp,
    /// By type.
    pub shapes: BTreeMap<String, Shape>,
    /// Types that the region did not have.
    absent: BTreeSet<String>,
}

impl Kept {
    /// An answer about these types. `None`: EC2 knows none of them, which says nothing of any.
    pub fn new(region: String, types: &BTreeSet<String>, shapes: BTreeMap<String, Shape>) -> Option<Kept> {
        if shapes.is_empty() {
            return None;
        }
        let absent = types.iter().filter(|name| !shapes.contains_key(*name)).cloned().collect();
        Some(Kept { version: VERSION, region, asked: jiff::Timestamp::now(), shapes, absent })
    }

    /// What is kept in a folder.
    pub fn read(folder: &Path) -> Option<Kept> {
        let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
        serde_json::from_str(&text).ok().filter(|kept: &Kept| kept.version == VERSION)
    }

    /// Written beside it first, then put in its place: half an answer is never found.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let draft = folder.join(format!("{FILE}.new"));
        std::fs::create_dir_all(folder)?;
        let mut file = std::fs::File::create(&draft)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&draft, folder.join(FILE))
    }

    /// All types that were asked for.
    pub fn types(&self) -> BTreeSet<String> {
        self.shapes.keys().chain(&self.absent).cloned().collect()
    }
}

/// The catalogue with EC2's own figures, and what there is to say of it.
pub fn at_start(config: &Ec2Config, folder: &Path, catalogue: Catalogue) -> (Catalogue, Vec<String>) {
    let types = catalogue.rows().iter().map(|row| row.instance_type.clone()).collect();
    let (region, asked) = ask(config, &types);
    let mut said: Vec<String> = region.and_then(|region| foreign_prices(config, &region)).into_iter().collect();
    let kept = match asked {
        Ok(kept) => {
            let failed = kept.write(folder).err();
            let path = folder.join(FILE);
            said.extend(failed.map(|e| format!("{}: {e}: what EC2 says is not kept", path.display())));
            kept
        }
        Err(why) => {
            let unknown = format!("EC2 does not say what its types are made of ({why}):");
            let Some(kept) = Kept::read(folder) else {
                said.push(format!("{unknown} the catalogue's own figures are taken"));
                return (catalogue, said);
            };
            said.push(format!("{unknown} what it said of {} at {:.0} is taken", kept.region, kept.asked));
            kept
        }
    };
    let (catalogue, corrections) = corrected(catalogue, &kept);
    said.extend(corrections);
    (catalogue, said)
}

/// The region that was asked, and what it said. The first is known without an answer, if somebody says which it is.
fn ask(config: &Ec2Config, types: &BTreeSet<String>) -> (Option<String>, Result<Kept, String>) {
    let mut asked_of = config.region.clone();
    let asked = ask_within(config, types, &mut asked_of);
    (asked_of, asked)
}

fn ask_within(config: &Ec2Config, types: &BTreeSet<String>, asked_of: &mut Option<String>) -> Result<Kept, String> {
    let text = |e: &dyn Display| e.to_string();
    let place = place(config).map_err(|e| text(&e))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| text(&e))?;
    let asked = async {
        let client = wire::connect(&place).await.map_err(|e| text(&e))?.ec2;
        let region = region(&client);
        *asked_of = Some(region.clone());
        let shapes = offerings::shapes(&client, types).await.map_err(|e| text(&e))?;
        let none = format!("{region} has none of the catalogue's");
        Kept::new(region, types, shapes).ok_or(none)
    };
    let within = runtime.block_on(async { tokio::time::timeout(LIMIT, asked).await });
    within.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())))
}

/// The region that a client asks.
pub(super) fn region(client: &Client) -> String {
    client.config().region().map_or_else(String::new, |region| region.to_string())
}

/// Price rows with EC2's figures, without the types that the region does not have.
fn corrected(catalogue: Catalogue, kept: &Kept) -> (Catalogue, Vec<String>) {
    let (mut rows, mut absent, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for row in catalogue.rows() {
        match kept.shapes.get(&row.instance_type) {
            Some(shape) => {
                let new = corrected_row(row, shape);
                changed.extend(difference(row, &new));
                rows.push(new);
            }
            None if kept.absent.contains(&row.instance_type) => absent.push(format!("`{}`", row.instance_type)),
            None => rows.push(row.clone()),
        }
    }
    let not_spot = kept.shapes.iter().filter(|(_, shape)| !shape.spot).map(|(name, _)| name.clone()).collect();
    let mut said = Vec::new();
    if !absent.is_empty() {
        said.push(format!("{} does not have {}: left out of the catalogue", kept.region, some(&absent)));
    }
    if !changed.is_empty() {
        said.push(format!("EC2's own figures go before the catalogue's: {}", some(&changed)));
    }
    let efa = kept.shapes.iter().map(|(name, shape)| (name.clone(), shape.efa)).collect();
    (catalogue.with_rows(rows).without_spot(not_spot).with_efa(efa), said)
}

fn some(all: &[String]) -> String {
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{named} and {} more", all.len() - NAMED) } else { named }
}

/// Where EC2 says nothing of GPUs, or not how much of one there is, the catalogue's hold.
fn corrected_row(row: &PriceRow, shape: &Shape) -> PriceRow {
    let mut new = PriceRow { cpu_milli: u64::from(shape.vcpus) * 1000, mem_mib: shape.mem_mib, ..row.clone() };
    let Some(gpus) = &shape.gpus else { return new };
    (new.gpus, new.gpu_mem_mib, new.gpu_milli) = (gpus.count, gpus.mem_mib, gpus.milli);
    if new.gpu_model.is_empty() {
        new.gpu_model.clone_from(&gpus.model);
    } else if !new.answers_to(&gpus.model) {
        // Jobs may ask for it by either name.
        new.aliases.push(gpus.model.clone());
    }
    new
}

/// What EC2 has otherwise. `None`: nothing.
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

/// What a later answer has otherwise than what is kept, by type.
pub(super) fn differences(kept: &Kept, now: &Kept) -> Vec<String> {
    let types = kept.types().intersection(&now.types()).cloned().collect::<Vec<_>>();
    let differs = types.into_iter().filter(|name| kept.shapes.get(name) != now.shapes.get(name));
    differs
        .map(|name| match (kept.shapes.contains_key(&name), now.shapes.contains_key(&name)) {
            (true, false) => format!("{} does not have `{name}` any more", now.region),
            (false, true) => format!("{} has `{name}` now", now.region),
            _ => format!("`{name}` is made of something else now"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;
    use forebay_capacity_ec2::offerings::Gpus;
    use forebay_loopback_ec2::{Clock, Loopback, Region, RegionOptions};

    fn aws() -> Catalogue {
        let rows = forebay_sim::prices::builtin().into_iter().filter(|row| row.provider == "aws").collect();
        Catalogue::new(rows, vec!["us-east-1a".to_owned()])
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

    fn shape(row: &PriceRow) -> Shape {
        let gpus = Gpus {
            count: row.gpus,
            mem_mib: row.gpu_mem_mib,
            model: row.gpu_model.split('-').next().unwrap().to_owned(),
            milli: row.gpu_milli,
        };
        Shape {
            vcpus: u32::try_from(row.cpu_milli / 1000).unwrap(),
            mem_mib: row.mem_mib,
            gpus: (row.gpus > 0).then_some(gpus),
            efa: 0,
            spot: true,
        }
    }

    fn kept(change: impl Fn(&mut BTreeMap<String, Shape>)) -> Kept {
        let catalogue = aws();
        let mut shapes = catalogue.rows().iter().map(|row| (row.instance_type.clone(), shape(row))).collect();
        change(&mut shapes);
        let types = catalogue.rows().iter().map(|row| row.instance_type.clone()).collect();
        Kept::new("us-east-1".to_owned(), &types, shapes).unwrap()
    }

    #[test]
    fn ec2_is_asked_once_and_what_it_said_holds_when_it_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut options = RegionOptions::default();
        options.types.retain(|row| !row.instance_type.starts_with("p2."));
        options.types.iter_mut().filter(|row| row.instance_type == "g5.xlarge").for_each(|row| row.mem_mib = 15_000);
        let loopback = Loopback::start(Region::new(options), Clock::Wall).unwrap();
        let config = config(folder.path(), &loopback.url());
        let (first, said) = at_start(&config, &data, aws());
        assert_eq!(
            said,
            [
                "us-east-1 does not have `p2.xlarge`, `p2.8xlarge`, `p2.16xlarge`: left out of the catalogue",
                "EC2's own figures go before the catalogue's: `g5.xlarge` has 15000 MiB, not 16384"
            ]
        );
        assert_eq!(first.rows().len(), aws().rows().len() - 3);
        assert!(first.rows().iter().any(|row| row.instance_type == "g5.xlarge" && row.mem_mib == 15_000));
        assert!(!data.join(format!("{FILE}.new")).exists());
        assert_eq!((first.efa()["p5.48xlarge"], first.efa()["g5.xlarge"]), (32, 0));

        drop(loopback);
        let (second, said) = at_start(&config, &data, aws());
        assert_eq!((second.rows(), second.efa()), (first.rows(), first.efa()));
        assert!(said[0].starts_with("EC2 does not say what its types are made of (") && said.len() == 3, "{said:?}");
        assert!(said[0].contains("what it said of us-east-1 at 2"), "{said:?}");

        std::fs::write(data.join(FILE), "{\"version\": 1, \"reg").unwrap();
        let (third, said) = at_start(&config, &data, aws());
        assert_eq!((third.rows(), third.efa().len()), (aws().rows(), 0));
        assert!(said.len() == 1 && said[0].ends_with("the catalogue's own figures are taken"), "{said:?}");
    }

    #[test]
    fn prices_of_another_region_are_told_even_if_it_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let nobody = "http://127.0.0.1:9";
        let abroad = Ec2Config { region: Some("eu-west-1".to_owned()), ..config(folder.path(), nobody) };
        let (_, said) = at_start(&abroad, folder.path(), aws());
        assert!(said.len() == 2 && said[0].contains("eu-west-1") && said[0].contains("`prices: FILE`"), "{said:?}");
        let own = Ec2Config { prices: Some("eu.csv".into()), ..abroad };
        let (_, said) = at_start(&own, folder.path(), aws());
        assert!(said.len() == 1 && said[0].starts_with("EC2 does not say"), "{said:?}");
    }

    #[test]
    fn what_agrees_is_not_spoken_of() {
        let (catalogue, said) = corrected(aws(), &kept(|_| {}));
        assert_eq!((catalogue.rows(), said), (aws().rows(), Vec::new()));
    }

    #[test]
    fn a_type_that_was_never_asked_for_stays() {
        let mut answer = kept(|shapes| shapes.retain(|name, _| name == "g5.xlarge"));
        answer.absent.clear();
        assert_eq!(corrected(aws(), &answer).0.rows().len(), aws().rows().len());
        assert_eq!(Kept::new("r".to_owned(), &answer.types(), BTreeMap::new()), None, "no type at all is no answer");
    }

    #[test]
    fn gpus_are_corrected_only_where_ec2_is_clear() {
        let answer = kept(|shapes| {
            shapes.get_mut("p5.4xlarge").unwrap().gpus = None;
            let l4 = Gpus { count: 1, mem_mib: 11_444, model: "l4-12q".to_owned(), milli: 500 };
            shapes.get_mut("g6.xlarge").unwrap().gpus = Some(l4);
        });
        let (catalogue, said) = corrected(aws(), &answer);
        let row = |name: &str| catalogue.rows().iter().find(|row| row.instance_type == name).unwrap().clone();
        assert_eq!((row("p5.4xlarge").gpus, row("p5.4xlarge").gpu_mem_mib), (1, 81_920));
        assert!(row("g6.xlarge").is_fractional() && row("g6.xlarge").answers_to("l4"));
        assert!(row("g6.xlarge").answers_to("L4-12Q"));
        let words = "`g6.xlarge` has 11444 MiB of GPU memory, not 22888, 500 thousandths of a GPU, not 1000";
        assert_eq!(said, [format!("EC2's own figures go before the catalogue's: {words}")]);
    }

    #[test]
    fn what_is_not_sold_as_spot_is_not_offered_as_spot() {
        let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\nqueues: {a: {}}\n\
                    pools: {p: {instanceTypes: [g5.xlarge, g6.xlarge]}}\n";
        let answer = kept(|shapes| shapes.get_mut("g5.xlarge").unwrap().spot = false);
        let policy = compile("t", text, &corrected(aws(), &answer).0).unwrap().policy;
        let offers: Vec<(&str, bool)> = policy
            .offerings
            .iter()
            .map(|o| (o.instance_type.as_str(), o.capacity == forebay_engine::catalog::CapacityType::Spot))
            .collect();
        assert_eq!(offers, [("g5.xlarge", false), ("g6.xlarge", true), ("g6.xlarge", false)]);
    }

    #[test]
    fn a_later_answer_is_compared_type_by_type() {
        let before = kept(|shapes| drop(shapes.remove("g6.xlarge")));
        let after = kept(|shapes| {
            shapes.remove("g5.xlarge");
            shapes.get_mut("g4dn.xlarge").unwrap().mem_mib = 1;
        });
        assert_eq!(
            differences(&before, &after),
            [
                "`g4dn.xlarge` is made of something else now",
                "us-east-1 does not have `g5.xlarge` any more",
                "us-east-1 has `g6.xlarge` now"
            ]
        );
        assert_eq!(differences(&before, &before), [""; 0]);
    }
}
