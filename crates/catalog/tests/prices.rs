//! The built-in catalogue is sound, answers to the models that public traces name, and holds what real jobs ask for.
//! It never checks a price against the world: crates/catalog/data/README.md says where each came from, and when.
//!
//! The published list is read where a folder `shared/traces` lies beside a parent of this crate; elsewhere one of the same form is made of the
//! catalogue. A test says which it used.

use forebay_catalog::{self as prices, PriceRow};
use std::path::{Path, PathBuf};

/// The folder of published lists, if it is there.
fn folder() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|up| up.join("shared/traces")).find(|path| path.is_dir())
}

/// A published list, or nothing where there are none. Where the folder is there, so is every list that a test names.
fn published(folder: Option<&Path>, name: &str) -> Option<String> {
    let Some(folder) = folder else {
        println!("shared/traces is not here: generated data instead of {name}");
        return None;
    };
    let path = folder.join(name);
    println!("real data: {}", path.display());
    Some(std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}: mend its name", path.display())))
}

fn error_of(text: impl AsRef<[u8]>) -> String {
    prices::parse(Path::new("own.csv"), text.as_ref()).expect_err("it is wrong").to_string()
}

#[test]
fn the_built_in_catalogue_is_sound() {
    let rows = prices::builtin();
    assert!(rows.len() >= 60, "{} types", rows.len());
    for row in &rows {
        let name = &row.instance_type;
        let usd = row.on_demand_micros_per_hour;
        assert!((200_000..150_000_000).contains(&usd), "{name} at {usd} micro-dollars an hour");
        assert!((280..=400).contains(&row.spot_permille), "{name}");
        assert!((30_000..=600_000).contains(&row.boot_ms), "{name}");
        assert!((2000..=192_000).contains(&row.cpu_milli) && row.cpu_milli % 1000 == 0, "{name}");
        assert!((8192..=2 << 20).contains(&row.mem_mib) && row.mem_mib % 1024 == 0, "{name}");
        assert!(["aws", "gcp", "oci"].contains(&row.provider.as_str()), "{name}");
        // Memory goes with the part of the GPU that there is.
        let whole = u64::from(row.gpu_mem_mib) * 1000 / u64::from(row.gpu_milli);
        assert!(row.gpus <= 16 && (row.gpus == 0 || (11_000..190_000).contains(&whole)), "{name}");
        assert_eq!(row.is_fractional(), name.starts_with("g6f."), "{name}");
        assert!(!row.nvlink || row.gpus > 1, "{name}: NVLink needs two");
        assert!(!row.sharing || row.gpus > 0, "{name}: nothing to share");
        assert!(row.spot_micros_per_hour() < usd, "{name}");
        // A GPU of one model costs about the same in each size: an outlier is a typing error.
        if row.gpus > 0 {
            let milli = |r: &PriceRow| u64::from(r.gpus) * u64::from(r.gpu_milli);
            let a_gpu = |r: &PriceRow| r.on_demand_micros_per_hour * 1000 / milli(r);
            let peers = rows.iter().filter(|p| p.gpu_model == row.gpu_model && p.gpus > 0);
            let least = peers.map(a_gpu).min().unwrap_or(0);
            assert!(a_gpu(row) <= 9 * least, "{name}: {usd} for {} GPUs", row.gpus);
        }
    }
}

#[test]
fn every_model_that_public_traces_name_can_be_had() {
    let rows = prices::builtin();
    let models = |name: &str| {
        let mut found: Vec<&str> = rows.iter().filter(|r| r.answers_to(name)).map(|r| r.gpu_model.as_str()).collect();
        found.dedup();
        found
    };
    let cases: [(&str, &[&str]); 12] = [
        ("P100", &["p100"]),
        ("T4", &["t4"]),
        ("V100M16", &["v100-16gb"]),
        ("V100M32", &["v100-32gb"]),
        ("V100", &["v100-16gb", "v100-32gb"]),
        ("A10", &["a10g"]),
        ("G2", &["a10g"]),
        ("G3", &["a100-40gb", "a100-80gb", "a100-40gb"]),
        ("h100", &["h100"]),
        ("K80", &["k80"]),
        ("", &[]),
        ("TPU", &[]),
    ];
    for (name, want) in cases {
        assert_eq!(models(name), want, "{name}");
    }
}

#[test]
fn models_that_public_pods_share_can_be_shared() {
    let rows = prices::builtin();
    for model in ["", "P100", "T4", "V100M16", "V100M32", "A10", "G2", "G3"] {
        let shared = |r: &PriceRow| r.sharing && (model.is_empty() || r.answers_to(model));
        assert!(rows.iter().any(|r| shared(r) && r.cpu_milli >= 24_200 && r.mem_mib >= 125_952), "{model}");
    }
}

/// What the published list has of a type: GPUs, their memory, vCPU, memory, and the price of an hour. It counts whole GPUs.
fn listed(row: &PriceRow) -> [String; 5] {
    let micros = row.on_demand_micros_per_hour;
    [
        (if row.is_fractional() { 0 } else { row.gpus }).to_string(),
        row.gpu_mem_mib.to_string(),
        (row.cpu_milli / 1000).to_string(),
        row.mem_mib.to_string(),
        format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
    ]
}

/// A list of the published one's form with every type of the catalogue.
fn made_list(rows: &[PriceRow]) -> String {
    let line = |row: &PriceRow| {
        let [gpus, gpu_mem, vcpu, mem, price] = listed(row);
        format!("{},maker,{},{gpus},{gpu_mem},{vcpu},{mem},,,,{price}\n", row.instance_type, row.gpu_model)
    };
    let head =
        "instance_type,manufacturer,gpu,count,gpu_mem_mib_each,vcpu,mem_mib,net_mbps,nvme_gb,efa,od_usd_hr_us_east_1\n";
    head.to_owned() + &rows.iter().map(line).collect::<String>()
}

/// How many types of the catalogue a list has, and those of them that differ in it.
fn compared(rows: &[PriceRow], list: &str) -> (usize, Vec<String>) {
    let (mut compared, mut differ) = (0, Vec::new());
    for row in rows {
        let Some(line) = list.lines().find(|l| l.split(',').next() == Some(&row.instance_type)) else {
            continue;
        };
        let fields: Vec<&str> = line.split(',').collect();
        let theirs = [fields[3], fields[4], fields[5], fields[6], fields[10]];
        if theirs != listed(row) {
            differ.push(format!("{}: {theirs:?} in the list, {:?} here", row.instance_type, listed(row)));
        }
        compared += 1;
    }
    (compared, differ)
}

#[test]
fn prices_agree_with_the_public_list() {
    let rows = prices::builtin();
    let list = published(folder().as_deref(), "aws_gpu_catalog.csv").unwrap_or_else(|| made_list(&rows));
    let (compared, differ) = compared(&rows, &list);
    assert_eq!(differ, [""; 0]);
    assert!(compared >= 35, "{compared} compared");
}

#[test]
fn each_figure_of_a_list_is_compared_and_a_list_that_is_not_in_its_folder_fails() {
    let rows = prices::builtin();
    let made = made_list(&rows);
    assert_eq!(compared(&rows, &made), (rows.len(), Vec::new()));
    let line = made.lines().nth(1).expect("a type");
    for at in [3, 4, 5, 6, 10] {
        let mut fields: Vec<&str> = line.split(',').collect();
        fields[at] = "7777777";
        let (all, differ) = compared(&rows, &made.replacen(line, &fields.join(","), 1));
        assert_eq!((all, differ.len()), (rows.len(), 1), "field {at}: {differ:?}");
        assert!(differ[0].contains("7777777"), "{differ:?}");
    }
    assert_eq!(published(None, "aws_gpu_catalog.csv"), None);
    let empty = tempfile::tempdir().expect("a folder");
    let misspelt = std::panic::catch_unwind(|| published(Some(empty.path()), "aws_gpu_catalogue.csv"));
    assert!(misspelt.is_err(), "a file that is not in the folder is no reason to compare nothing");
}

#[test]
fn a_bad_catalogue_says_what_is_wrong_with_it() {
    let head = "instance_type,gpu_model,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,spot_permille_of_on_demand,boot_s,sharing,gpu_milli\n";
    let good = "a.1,t4,1,16384,4,16384,0.526,330,110,yes,\n";
    let cases = [
        (
            "b.1,t4,1,16384,4,16384,0,330,110,yes,\n",
            "line 3, column on_demand_usd_per_hour: nothing, found \"0\"; write a number above 0",
        ),
        (
            "b.1,t4,1,16384,4,16384,free,330,110,yes,\n",
            "line 3, column on_demand_usd_per_hour: not a number, found \"free\"; write US dollars",
        ),
        ("b.1,,1,16384,4,16384,1,330,110,yes,\n", "line 3, column gpu_model: does not go with 1 GPUs"),
        ("b.1,t4,1,0,4,16384,1,330,110,yes,\n", "line 3, column gpu_mem_mib: does not go with 1 GPUs"),
        (
            "b.1,t4,1,16384,4,16384,1,1300,110,yes,\n",
            "line 3, column spot_permille_of_on_demand: too large, found \"1300\"",
        ),
        ("b.1,t4,1,16384,4,16384,1,300,110,yes,0\n", "line 3, column gpu_milli: no part of a GPU, found \"0\""),
        ("b.1,t4,1,16384,4,16384,1,300,110,yes,1001\n", "line 3, column gpu_milli: too large, found \"1001\""),
        ("b.1,t4,1,16384,4,16384,1,300,110,maybe,\n", "line 3, column sharing: neither yes nor no, found \"maybe\""),
        (good, "line 3, column instance_type: \"a.1\" is on line 2 already"),
    ];
    for (bad, want) in cases {
        let message = error_of(format!("{head}{good}{bad}"));
        assert!(message.contains(want), "{message}");
    }
    let rows = prices::parse(Path::new("own.csv"), format!("{head}{good}").as_bytes()).expect("a good one");
    assert_eq!((rows[0].gpu_milli, rows[0].is_fractional()), (1000, false));
    assert_eq!((rows[0].on_demand_micros_per_hour, rows[0].spot_micros_per_hour()), (526_000, 173_580));
}

const HEAD: &str =
    "instance_type,gpu_model,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,spot_permille_of_on_demand,boot_s";

#[test]
fn a_file_that_is_no_price_list_says_what_it_is() {
    let row = "a.1,t4,1,16384,4,16384,0.526,330,110";
    let cases: [(Vec<u8>, &str); 12] = [
        (b"\x1f\x8b rest".to_vec(), "own.csv, line 1: a gzip archive; unpack it first (gunzip)"),
        (b"\xff\xfea".to_vec(), "own.csv, line 1: UTF-16 text; save it as UTF-8"),
        (b"a\n\0".to_vec(), "own.csv, line 2: not text (a zero byte); give a text file"),
        ([HEAD.as_bytes(), b"\nb\xff"].concat(), "own.csv, line 2: not UTF-8 text; give a text file, saved as UTF-8"),
        (b" \n\n".to_vec(), "own.csv: the file is empty; check that it was written in full"),
        (format!("{HEAD}\n").into(), "own.csv: the file has a header but no types; check that it was written in full"),
        (b"gpus,gpus\n".to_vec(), "own.csv, line 1: two columns are called gpus; rename or remove one of them"),
        (
            HEAD.replace("boot_s", "boot").into(),
            "column boot_s: the column is missing, found instance_type,gpu_model,gpus,gpu_mem_mib,vcpu,mem_mib,on_demand_usd_per_hour,spo...; rename column boot to boot_s",
        ),
        (
            format!("{HEAD}\n\n{row}\n\n{row},1\n").into(),
            "own.csv, line 5: 10 fields where the header has 9; write every field, empty ones too",
        ),
        (
            format!("{HEAD}\n{row}\nb.1,t4").into(),
            "own.csv, line 3: the last row has 2 fields where the header has 9; the file was cut off",
        ),
        (
            format!("{HEAD}\n{row}\n\"b.1,t4\n").into(),
            "own.csv, line 3: a double quote opens and is never closed; the file was cut off",
        ),
        (
            format!("{HEAD}\r\n\r\n\"a\n.1\"{}\r\n", row.strip_prefix("a.1").unwrap_or_default()).into(),
            "own.csv, line 3, column instance_type: not an id, found \"a\\n.1\"; write 1 to 256 bytes",
        ),
    ];
    for (bytes, want) in cases {
        let message = error_of(&bytes);
        assert!(message.contains(want), "{message}");
    }
}
