//! The built-in price list holds what public traces ask for.
//!
//! Never: a price. The price list's own tests look at those.

mod workloads;

use forebay_catalog::PriceRow;
use forebay_sim::trace::{self, read_nodes};
use workloads::real;

/// The largest pods of the published openb lists: models, GPUs, millicores, MiB.
const LARGEST: [(&str, u32, u64, u64); 11] = [
    ("", 8, 120_200, 737_280),
    ("", 0, 32_000, 65_536),
    ("G2", 8, 120_200, 737_280),
    ("G3", 8, 120_200, 737_280),
    ("G2", 4, 60_200, 320_512),
    ("V100M16|V100M32", 4, 60_200, 320_512),
    ("P100|V100M16|V100M32", 2, 30_200, 160_768),
    ("V100M32", 2, 17_400, 66_560),
    ("P100", 1, 18_708, 64_512),
    ("T4", 1, 24_200, 125_952),
    ("V100M16", 1, 18_708, 64_512),
];

fn fits(row: &PriceRow, models: &[String], gpus: u32, cpu_milli: u64, mem_mib: u64) -> bool {
    let model = models.is_empty() || models.iter().any(|m| row.answers_to(m));
    model && row.gpus >= gpus && row.cpu_milli >= cpu_milli && row.mem_mib >= mem_mib
}

#[test]
fn the_largest_public_pods_fit_somewhere() {
    let rows = forebay_catalog::builtin();
    for (models, gpus, cpu, mem) in LARGEST {
        let models: Vec<String> = models.split('|').filter(|m| !m.is_empty()).map(str::to_owned).collect();
        assert!(rows.iter().any(|r| fits(r, &models, gpus, cpu, mem)), "{models:?} {gpus} {cpu} {mem}");
    }
    if let Some(path) = real("openb_2023_default.csv") {
        for job in trace::read(path, None).expect("the real trace").jobs {
            assert!(rows.iter().any(|r| fits(r, &job.gpu_models, job.gpus, job.cpu_milli, job.mem_mib)), "{job:?}");
        }
    }
    if let Some(path) = real("openb_2023_nodes.csv") {
        for node in read_nodes(path).expect("the real nodes") {
            let model = node.gpu_model.expect("each of them has GPUs");
            assert!(rows.iter().any(|r| r.answers_to(&model)), "{model}");
        }
    }
}
