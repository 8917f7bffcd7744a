//! Node lists: the fleet that is already there, in the project's CSV or as Alibaba published its own.
//! It never prices a node: reserved nodes cost what a policy sets.

use std::path::Path;

use forebay_catalog::input::{CsvTable, InputError, no_repeats, open};

/// One node of a fixed fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceNode {
    /// The id, unique in its list.
    pub id: String,
    /// CPU in millicores.
    pub cpu_milli: u64,
    /// Main memory in MiB.
    pub mem_mib: u64,
    /// Whole GPUs; 0 is a CPU node.
    pub gpus: u32,
    /// The GPU's model in lower case; `None` where there is no GPU or the list does not name it.
    pub gpu_model: Option<String>,
    /// Its pool, where a policy has owned nodes; `None` where the list does not say.
    pub pool: Option<String>,
    /// The line that it is on.
    pub line: u64,
}

/// Reads `node,cpu_milli,mem_mib,gpus`, with `gpu_model` and `pool` where it has them, or the published
/// `sn,cpu_milli,memory_mib,gpu,model`, in the file's order.
///
/// # Errors
/// Whatever is wrong with the file, with its line, column and value: see [`InputError`].
pub fn read_nodes(path: impl AsRef<Path>) -> Result<Vec<TraceNode>, InputError> {
    let mut table = CsvTable::new(open(path.as_ref())?)?;
    let published = table.has("sn") && !table.has("node");
    let [id, mem, gpus, model] =
        if published { ["sn", "memory_mib", "gpu", "model"] } else { ["node", "mem_mib", "gpus", "gpu_model"] };
    table.require(&[id, "cpu_milli", mem, gpus])?;
    let mut nodes = Vec::new();
    while let Some(row) = table.next_row()? {
        super::bounded(table.path(), row.line, nodes.len())?;
        let name = row.maybe(model).map(str::to_lowercase).filter(|m| m != "nan");
        nodes.push(TraceNode {
            id: row.id(id)?,
            cpu_milli: row.whole("cpu_milli", 1_000_000_000)?,
            mem_mib: row.whole(mem, 1 << 30)?,
            gpus: row.small(gpus, 1024)?,
            gpu_model: name,
            pool: row.maybe("pool").map(str::to_owned),
            line: row.line,
        });
    }
    table.not_empty("the file has a header but no nodes")?;
    no_repeats(table.path(), id, nodes.iter().map(|n| (n.id.as_str(), n.line)))?;
    Ok(nodes)
}
