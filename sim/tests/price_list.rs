//! The built-in price list holds what public traces ask for.
//!
//! Never: a price. The price list's own tests look at those.

mod workloads;

use forebay_catalog::PriceRow;
use forebay_sim::trace::{self, read_nodes};
use workloads::{file, real_or};

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

/// The models of the published nodes.
const MODELS: [&str; 7] = ["P100", "T4", "V100M16", "V100M32", "A10", "G2", "G3"];

/// The largest pods as a trace, and each with half of what it asks for beside its GPUs.
fn made_pods() -> String {
    let mut text = "job_id,submit_s,duration_s,gpus,gpu_milli,cpu,mem_mib,gpu_model\n".to_owned();
    for (n, (models, gpus, cpu, mem)) in LARGEST.iter().enumerate() {
        for (size, part) in [("all", 1), ("half", 2)] {
            text += &format!("{n}-{size},{n},60,{gpus},1000,{},{},{models}\n", cpu / part, mem / part);
        }
    }
    text
}

/// A node of each model.
fn made_nodes() -> String {
    let rows = MODELS.iter().map(|model| format!("node-{model},64000,262144,2,{model}\n"));
    "node,cpu_milli,mem_mib,gpus,gpu_model\n".to_owned() + &rows.collect::<String>()
}

#[test]
fn what_is_made_where_the_real_lists_are_not_can_be_read() {
    let (_folder, pods) = file("pods.csv", made_pods());
    assert_eq!(trace::read(pods, None).unwrap_or_else(|e| panic!("{e}")).jobs.len(), 2 * LARGEST.len());
    let (_folder, nodes) = file("nodes.csv", made_nodes());
    assert_eq!(read_nodes(nodes).unwrap_or_else(|e| panic!("{e}")).len(), MODELS.len());
}

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
    let (_folder, path) = real_or("openb_2023_default.csv", made_pods);
    let jobs = trace::read(path, None).unwrap_or_else(|e| panic!("{e}")).jobs;
    assert!(jobs.len() >= LARGEST.len(), "{} jobs", jobs.len());
    for job in jobs {
        assert!(rows.iter().any(|r| fits(r, &job.gpu_models, job.gpus, job.cpu_milli, job.mem_mib)), "{job:?}");
    }
    let (_folder, path) = real_or("openb_2023_nodes.csv", made_nodes);
    let nodes = read_nodes(path).unwrap_or_else(|e| panic!("{e}"));
    assert!(nodes.len() >= MODELS.len(), "{} nodes", nodes.len());
    for node in nodes {
        let model = node.gpu_model.expect("each of them has GPUs");
        assert!(rows.iter().any(|r| r.answers_to(&model)), "{model}");
    }
}
