//! `forebay types`: what a catalogue sells.
//!
//! Never: a price of the day. Those are asked of the cloud by who buys there.

use super::Output;
use super::args::{CatalogArgs, TypesArgs};
use super::outcome::{Exit, Failure, print, print_json};
use crate::show::figures::{gpus, length, number};
use crate::show::table::TextTable;
use forebay_catalog::{Catalogue, PriceRow};
use serde::Serialize;

impl CatalogArgs {
    /// The catalogue in the file that is named, or the built-in one, as the simulated cloud sells it.
    pub(super) fn read(&self) -> Result<Catalogue, Failure> {
        let mut catalogue = Catalogue::builtin();
        if let Some(path) = &self.catalog {
            catalogue.rows = forebay_catalog::read(path).map_err(Failure::input)?;
        }
        Ok(catalogue)
    }
}

/// An instance type as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeView<'a> {
    instance_type: &'a str,
    provider: &'a str,
    /// Null: no GPU.
    model: Option<&'a str>,
    aliases: &'a [String],
    gpus: f64,
    gpu_memory_mib: u32,
    cpu: f64,
    memory_mib: u64,
    #[serde(rename = "on_demand_usd_per_hour")]
    on_demand: f64,
    /// The mean.
    #[serde(rename = "spot_usd_per_hour")]
    spot: f64,
    #[serde(rename = "boot_s")]
    boot: f64,
    sharing: bool,
    nvlink: bool,
}

#[derive(Serialize)]
struct Types<'a> {
    types: Vec<TypeView<'a>>,
}

fn usd(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// GPUs of a type, where each may be a part of one.
fn gpu_count(row: &PriceRow) -> f64 {
    f64::from(row.gpus) * f64::from(row.gpu_milli) / 1000.0
}

fn view(row: &PriceRow) -> TypeView<'_> {
    TypeView {
        instance_type: &row.instance_type,
        provider: &row.provider,
        model: Some(row.gpu_model.as_str()).filter(|model| !model.is_empty()),
        aliases: &row.aliases,
        gpus: gpu_count(row),
        gpu_memory_mib: row.gpu_mem_mib,
        cpu: row.cpu_milli as f64 / 1000.0,
        memory_mib: row.mem_mib,
        on_demand: usd(row.on_demand_micros_per_hour),
        spot: usd(row.spot_micros_per_hour()),
        boot: row.boot_ms as f64 / 1000.0,
        sharing: row.sharing,
        nvlink: row.nvlink,
    }
}

pub(super) fn run(args: &TypesArgs, out: Output) -> Result<Exit, Failure> {
    let catalogue = args.catalog.read()?;
    let asked = |row: &&PriceRow| {
        // A part of a GPU is not one.
        let has_gpus = args.gpus.is_none_or(|gpus| row.gpus == gpus && !row.is_fractional());
        has_gpus && args.model.as_deref().is_none_or(|model| row.answers_to(model))
    };
    let rows: Vec<&PriceRow> = catalogue.rows.iter().filter(asked).collect();
    if let Some(model) = args.model.as_deref().filter(|model| !catalogue.rows.iter().any(|row| row.answers_to(model))) {
        let mut known: Vec<&str> = catalogue.rows.iter().map(|row| row.gpu_model.as_str()).collect();
        known.retain(|model| !model.is_empty());
        known.sort_unstable();
        known.dedup();
        let known = known.join(", ");
        return Err(Failure::input(format_args!("--model {model}: no type has it; there are {known}")));
    }
    if args.json {
        print_json(&Types { types: rows.into_iter().map(view).collect() })?;
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        print("no such types\n")?;
        return Ok(Exit::Done);
    }
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let memory = |row: &&PriceRow| if row.gpus == 0 { "-".to_owned() } else { gib(u64::from(row.gpu_mem_mib)) };
    let table = TextTable::of(&rows, out.paint)
        .left("TYPE", |row| row.instance_type.clone())
        .left("MODEL", move |row| or_none(&row.gpu_model))
        .right("GPUS", |row| gpus(gpu_count(row)))
        .right("GPU GIB", memory)
        .right("CPU", |row| number(row.cpu_milli as f64 / 1000.0, 0))
        .where_it_fits()
        .right("GIB", |row| gib(row.mem_mib))
        .where_it_fits()
        .right("USD/H", |row| number(usd(row.on_demand_micros_per_hour), 3))
        .right("SPOT USD/H", |row| number(usd(row.spot_micros_per_hour()), 3))
        .right("BOOT", |row| length(row.boot_ms))
        .where_it_fits()
        .left("NVLINK", |row| if row.nvlink { "yes".to_owned() } else { "-".to_owned() })
        .where_it_fits()
        .left("CLOUD", |row| row.provider.clone())
        .where_it_fits()
        .left("ALIASES", |row| if row.aliases.is_empty() { "-".to_owned() } else { row.aliases.join(",") })
        .where_asked();
    let text = table.shown(&args.columns.shown()).map_err(|e| Failure::input(format_args!("-o: {e}")))?;
    let source = match &args.catalog.catalog {
        Some(path) => format!("prices: {}; spot: the mean, not the price of the day", path.display()),
        None => {
            "prices: built-in catalogue, list prices of 2026-07; spot: the mean, not the price of the day".to_owned()
        }
    };
    print(&format!("{text}\n{}\n", out.paint.faint(&source)))?;
    Ok(Exit::Done)
}

fn gib(mib: u64) -> String {
    number(mib as f64 / 1024.0, usize::from(!mib.is_multiple_of(1024)))
}
