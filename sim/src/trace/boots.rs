//! Boot times that were measured: `instance_type,zone,capacity,boot_s`, a row a boot.
//! It never makes one up: what is not in the file boots as the catalogue says.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_catalog::input::{CsvTable, InputError, open};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Span;

/// The most boots of one file.
const MAX_BOOTS: usize = 1_000_000;

/// Boots by instance type, zone and capacity type.
pub type BootTimes = BTreeMap<(String, String, CapacityType), Vec<Span>>;

/// Reads boot times, from the cloud's answer to a launch until the node takes work.
///
/// # Errors
/// Whatever is wrong with the file, with its line, column and value: see [`InputError`].
pub fn read_boots(path: impl AsRef<Path>) -> Result<BootTimes, InputError> {
    let path = path.as_ref();
    let mut table = CsvTable::new(open(path)?)?;
    table.require(&["instance_type", "zone", "capacity", "boot_s"])?;
    let (mut boots, mut rows) = (BootTimes::new(), 0);
    while let Some(row) = table.next_row()? {
        rows += 1;
        if rows > MAX_BOOTS {
            return Err(InputError::line(path, row.line, format!("more than {MAX_BOOTS} boots"), "leave some out"));
        }
        let capacities = [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand];
        let capacity = capacities.into_iter().find(|c| c.as_str() == row.text("capacity"));
        let unknown = || row.fault("capacity", "not a capacity type", "write reserved, spot or on-demand");
        let key = (row.id("instance_type")?, row.id("zone")?, capacity.ok_or_else(unknown)?);
        boots.entry(key).or_default().push(Span(row.ms("boot_s")?));
    }
    table.not_empty("the file has a header but no boots")?;
    Ok(boots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_are_read_by_offering_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("boot_times.csv");
        let read = |rows: &str| {
            std::fs::write(&path, format!("instance_type,zone,capacity,boot_s\n{rows}")).expect("a temporary file");
            read_boots(&path).map_err(|e| e.to_string())
        };
        let boots = read("x,a,spot,90\nx,a,spot,91.5\nx,a,on-demand,60\n").expect("boots");
        let of = |capacity| boots[&("x".to_owned(), "a".to_owned(), capacity)].clone();
        assert_eq!(of(CapacityType::Spot), [Span::secs(90), Span(91_500)]);
        assert_eq!(of(CapacityType::OnDemand), [Span::secs(60)]);
        assert!(read("x,a,sopt,90\n").expect_err("no capacity type").contains("line 2, column capacity"));
        assert!(read("x,a,spot,\n").expect_err("no time").contains("column boot_s"));
        assert!(read("").expect_err("no boots").contains("no boots"));
    }
}
