//! What instances there are and what they cost: the built-in catalogue, or a user's own file in the same columns.
//! It never knows stock or boot delays of a day: the market and the world do. Money is whole micro-dollars.
//!
//! The columns, their sources and the stand-ins among them are described in `sim/data/README.md`.

use std::path::Path;

use crate::trace::TraceError;
use crate::trace::file::{Opened, from_text, open};
use crate::trace::rows::{Column, Row, Table};

/// The built-in catalogue as it is written.
pub const BUILTIN_CSV: &str = include_str!("../../data/catalog.csv");

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
    let rows = from_text(Path::new("sim/data/catalog.csv"), BUILTIN_CSV).and_then(read_opened);
    // The file is part of the program, and `the_built_in_catalogue_is_sound` reads it in every test run.
    rows.unwrap_or_else(|e| panic!("{e}"))
}

/// Reads a catalogue of one's own, in the file's order.
///
/// # Errors
/// Whatever is wrong with the file, with its line, column and value: see [`TraceError`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<PriceRow>, TraceError> {
    read_opened(open(path.as_ref())?)
}

struct Columns {
    instance_type: Column,
    provider: Option<Column>,
    gpu_model: Column,
    aliases: Option<Column>,
    gpus: Column,
    gpu_mem: Column,
    gpu_milli: Option<Column>,
    vcpu: Column,
    mem: Column,
    on_demand: Column,
    spot: Column,
    boot: Column,
    sharing: Option<Column>,
    nvlink: Option<Column>,
}

fn read_opened(opened: Opened) -> Result<Vec<PriceRow>, TraceError> {
    let mut table = Table::new(opened)?;
    let columns = Columns {
        instance_type: table.column("instance_type")?,
        provider: table.optional("provider"),
        gpu_model: table.column("gpu_model")?,
        aliases: table.optional("aliases"),
        gpus: table.column("gpus")?,
        gpu_mem: table.column("gpu_mem_mib")?,
        gpu_milli: table.optional("gpu_milli"),
        vcpu: table.column("vcpu")?,
        mem: table.column("mem_mib")?,
        on_demand: table.column("on_demand_usd_per_hour")?,
        spot: table.column("spot_permille_of_on_demand")?,
        boot: table.column("boot_s")?,
        sharing: table.optional("sharing"),
        nvlink: table.optional("nvlink"),
    };
    let mut rows: Vec<PriceRow> = Vec::new();
    while let Some(row) = table.next_row()? {
        let next = price_row(&row, &columns)?;
        if let Some(first) = rows.iter().find(|r| r.instance_type == next.instance_type) {
            return Err(TraceError::Repeated {
                path: table.path().to_owned(),
                line: next.line,
                column: "instance_type".to_owned(),
                value: crate::trace::shown(&next.instance_type),
                first_line: first.line,
            });
        }
        rows.push(next);
    }
    if rows.is_empty() {
        return Err(TraceError::Empty { path: table.path().to_owned(), what: "the file has a header but no types" });
    }
    Ok(rows)
}

fn price_row(row: &Row, c: &Columns) -> Result<PriceRow, TraceError> {
    let gpus = row.small(c.gpus, 1024)?;
    let gpu_model = row.text(c.gpu_model).to_lowercase();
    if gpus == 0 && !gpu_model.is_empty() || gpus > 0 && gpu_model.is_empty() {
        return Err(row.fault(
            c.gpu_model,
            format!("does not go with {gpus} GPUs"),
            "name a model exactly where gpus is above 0",
        ));
    }
    let gpu_mem_mib = row.small(c.gpu_mem, 1 << 24)?;
    if (gpus == 0) != (gpu_mem_mib == 0) {
        return Err(row.fault(
            c.gpu_mem,
            format!("does not go with {gpus} GPUs"),
            "write the memory of each GPU in MiB",
        ));
    }
    let above_zero = |column, value: u64| {
        if value > 0 { Ok(value) } else { Err(row.fault(column, "nothing", "write a number above 0")) }
    };
    let price = row.decimal(c.on_demand, 6, MAX_PRICE, "US dollars an hour, at most 10000")?;
    let spot = row.small(c.spot, 1000)?;
    let yes = |column| row.maybe(column).map_or(Ok(false), |(at, text)| yes_no(row, at, text));
    let alias = row.maybe(c.aliases).map(|(_, text)| text.to_lowercase()).unwrap_or_default();
    Ok(PriceRow {
        instance_type: row.id(c.instance_type)?,
        provider: row.maybe(c.provider).map(|(_, text)| text.to_owned()).unwrap_or_default(),
        gpu_model,
        aliases: alias.split('|').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect(),
        gpus,
        gpu_mem_mib,
        gpu_milli: gpu_milli(row, c.gpu_milli)?,
        cpu_milli: above_zero(c.vcpu, row.decimal(c.vcpu, 3, 10_000_000, "the number of vCPUs, at most 10000")?)?,
        mem_mib: above_zero(c.mem, row.whole(c.mem, 1 << 30)?)?,
        on_demand_micros_per_hour: above_zero(c.on_demand, price)?,
        spot_permille: u32::try_from(above_zero(c.spot, u64::from(spot))?).unwrap_or(1000),
        boot_ms: row.ms(c.boot)?,
        sharing: yes(c.sharing)?,
        nvlink: yes(c.nvlink)?,
        line: row.line,
    })
}

/// An empty cell is a whole GPU.
fn gpu_milli(row: &Row, column: Option<Column>) -> Result<u16, TraceError> {
    let Some((at, _)) = row.maybe(column) else { return Ok(1000) };
    match u16::try_from(row.small(at, 1000)?) {
        Ok(milli) if milli > 0 => Ok(milli),
        _ => Err(row.fault(at, "no part of a GPU", "write 1 to 1000, or leave it out for whole GPUs")),
    }
}

fn yes_no(row: &Row, at: Column, text: &str) -> Result<bool, TraceError> {
    match text.to_lowercase().as_str() {
        "yes" | "true" | "1" => Ok(true),
        "no" | "false" | "0" => Ok(false),
        _ => Err(row.fault(at, "neither yes nor no", "write yes or no")),
    }
}
