//! What instances there are and what they cost: the built-in catalogue, or a user's own file in the same columns.
//!
//! The columns, their sources and the stand-ins among them are described in `crates/catalog/data/README.md`.
//! Never: stock, or boot delays of a day. Money is whole micro-dollars.

use std::io::Cursor;
use std::path::Path;

use crate::input::{CsvRow, CsvTable, InputError, Opened, accept, no_repeats, open};

/// The built-in catalogue as it is written.
pub const BUILTIN_CSV: &str = include_str!("../data/catalog.csv");

/// The highest price of one instance, in micro-dollars an hour: above 10,000 USD the unit is wrong.
const MAX_PRICE: u64 = 10_000_000_000;

/// One instance type with its list price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceRow {
    /// The type's name, unique in its catalogue.
    pub instance_type: String,
    /// Who rents it out: `aws`, `gcp`, `oci`.
    pub provider: String,
    /// The GPU's model in lower case; empty for CPU types.
    pub gpu_model: String,
    /// Other names that the model answers to, in lower case.
    pub aliases: Vec<String>,
    /// GPUs, whole or parts of one; 0 for CPU types.
    pub gpus: u32,
    /// Memory of each GPU, or of the part that there is, in MiB; 0 for CPU types.
    pub gpu_mem_mib: u32,
    /// How much of a GPU each of them is, in thousandths: 1000 for whole ones, 125 for an eighth.
    pub gpu_milli: u16,
    /// CPU in millicores (1000 a vCPU).
    pub cpu_milli: u64,
    /// Main memory in MiB.
    pub mem_mib: u64,
    /// On-demand price in micro-dollars an hour.
    pub on_demand_micros_per_hour: u64,
    /// The mean spot price in 1/1000 of the on-demand price.
    pub spot_permille: u32,
    /// From the launch to a node that takes work, in ms.
    pub boot_ms: u64,
    /// Whether its GPUs may be shared by time slices.
    pub sharing: bool,
    /// Whether its GPUs talk over NVLink.
    pub nvlink: bool,
    /// The line that it is on.
    pub line: u64,
}

impl PriceRow {
    /// The mean spot price in micro-dollars an hour, rounded up.
    #[must_use]
    pub fn spot_micros_per_hour(&self) -> u64 {
        self.on_demand_micros_per_hour.saturating_mul(u64::from(self.spot_permille)).div_ceil(1000)
    }

    /// Whether its GPUs are parts of one: only work that consents to share goes there.
    #[must_use]
    pub fn is_fractional(&self) -> bool {
        self.gpus > 0 && self.gpu_milli < 1000
    }

    /// GPUs joined by NVLink, in groups of so many: all of a node, where the catalogue says that it has NVLink.
    #[must_use]
    pub fn nvlink_group(&self) -> u16 {
        if self.nvlink { u16::try_from(self.gpus).unwrap_or(u16::MAX) } else { 0 }
    }

    /// GPUs of one NUMA node. Nodes of 8 GPUs and more have two sockets, smaller ones are cut from one.
    #[must_use]
    pub fn numa_group(&self) -> u16 {
        let of_socket = if self.gpus >= 8 { self.gpus / 2 } else { self.gpus };
        u16::try_from(of_socket).unwrap_or(u16::MAX)
    }

    /// Whether a job that names this model may run here. Compared without case; no CPU type answers to any name.
    #[must_use]
    pub fn answers_to(&self, model: &str) -> bool {
        let same = |name: &str| name.eq_ignore_ascii_case(model);
        self.gpus > 0 && (same(&self.gpu_model) || self.aliases.iter().any(|a| same(a)))
    }
}

/// The built-in catalogue, in the file's order.
///
/// # Panics
/// Never in a released version: a test reads the file.
#[must_use]
pub fn builtin() -> Vec<PriceRow> {
    let rows = parse(Path::new("crates/catalog/data/catalog.csv"), BUILTIN_CSV.as_bytes());
    // The file is part of the program, and `the_built_in_catalogue_is_sound` reads it in every test run.
    rows.unwrap_or_else(|e| panic!("{e}"))
}

/// Reads a catalogue of one's own, in the file's order.
///
/// # Errors
/// Whatever is wrong with the file, with its line, column and value: see [`InputError`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<PriceRow>, InputError> {
    rows(open(path.as_ref())?)
}

/// Reads the bytes of a catalogue; `path` is what messages call it.
///
/// # Errors
/// Whatever is wrong with it, with its line, column and value: see [`InputError`].
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<PriceRow>, InputError> {
    rows(accept(path, Box::new(Cursor::new(bytes.to_vec())))?)
}

fn rows(opened: Opened) -> Result<Vec<PriceRow>, InputError> {
    let mut table = CsvTable::new(opened)?;
    table.require(&NEEDED)?;
    let mut rows: Vec<PriceRow> = Vec::new();
    while let Some(row) = table.next_row()? {
        rows.push(price_row(&row)?);
    }
    table.not_empty("the file has a header but no types")?;
    no_repeats(table.path(), "instance_type", rows.iter().map(|r| (r.instance_type.as_str(), r.line)))?;
    Ok(rows)
}

/// The columns that a catalogue has at least. Optional ones: `provider`, `aliases`, `sharing`, `nvlink`, `gpu_milli`.
const NEEDED: [&str; 9] = [
    "instance_type",
    "gpu_model",
    "gpus",
    "gpu_mem_mib",
    "vcpu",
    "mem_mib",
    "on_demand_usd_per_hour",
    "spot_permille_of_on_demand",
    "boot_s",
];

fn price_row(row: &CsvRow) -> Result<PriceRow, InputError> {
    let gpus = row.small("gpus", 1024)?;
    let gpu_model = row.text("gpu_model").to_lowercase();
    if gpus == 0 && !gpu_model.is_empty() || gpus > 0 && gpu_model.is_empty() {
        let problem = format!("does not go with {gpus} GPUs");
        return Err(row.fault("gpu_model", problem, "name a model exactly where gpus is above 0"));
    }
    let gpu_mem_mib = row.small("gpu_mem_mib", 1 << 24)?;
    if (gpus == 0) != (gpu_mem_mib == 0) {
        let problem = format!("does not go with {gpus} GPUs");
        return Err(row.fault("gpu_mem_mib", problem, "write the memory of each GPU in MiB"));
    }
    let above_zero = |column, value: u64| {
        if value > 0 { Ok(value) } else { Err(row.fault(column, "nothing", "write a number above 0")) }
    };
    let price = "on_demand_usd_per_hour";
    let micros = row.decimal(price, 6, MAX_PRICE, "US dollars an hour, at most 10000")?;
    let spot_permille = row.small("spot_permille_of_on_demand", 1000)?;
    let aliases = row.text("aliases").to_lowercase();
    Ok(PriceRow {
        instance_type: row.id("instance_type")?,
        provider: row.text("provider").to_owned(),
        gpu_model,
        aliases: aliases.split('|').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect(),
        gpus,
        gpu_mem_mib,
        gpu_milli: gpu_milli(row)?,
        cpu_milli: above_zero("vcpu", row.decimal("vcpu", 3, 10_000_000, "the number of vCPUs, at most 10000")?)?,
        mem_mib: above_zero("mem_mib", row.whole("mem_mib", 1 << 30)?)?,
        on_demand_micros_per_hour: above_zero(price, micros)?,
        spot_permille: above_zero("spot_permille_of_on_demand", spot_permille.into()).map(|_| spot_permille)?,
        boot_ms: row.ms("boot_s")?,
        sharing: yes_no(row, "sharing")?,
        nvlink: yes_no(row, "nvlink")?,
        line: row.line,
    })
}

/// An empty cell is a whole GPU.
fn gpu_milli(row: &CsvRow) -> Result<u16, InputError> {
    const COLUMN: &str = "gpu_milli";
    if row.text(COLUMN).is_empty() {
        return Ok(1000);
    }
    match row.small(COLUMN, 1000)? {
        0 => Err(row.fault(COLUMN, "no part of a GPU", "write 1 to 1000, or leave it out for whole GPUs")),
        milli => Ok(u16::try_from(milli).unwrap_or(1000)),
    }
}

/// An empty cell is no.
fn yes_no(row: &CsvRow, column: &str) -> Result<bool, InputError> {
    match row.text(column).to_lowercase().as_str() {
        "yes" | "true" | "1" => Ok(true),
        "" | "no" | "false" | "0" => Ok(false),
        _ => Err(row.fault(column, "neither yes nor no", "write yes or no")),
    }
}
