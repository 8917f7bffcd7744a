//! A bill as a table and as CSV.
//!
//! Never: rows that do not add up to the total as it is shown.

use super::colour::Paint;
use super::figures::{number, percent, short};
use super::table::TextTable;
use crate::cost::{cents_of_rows, csv_field};
use forebay_wire::document::cost::CostDocument;

/// The bill as people read it, in cents that add up.
#[must_use]
pub fn table(bill: &CostDocument, by: &str, paint: Paint) -> String {
    if bill.rows.is_empty() {
        return "nothing was spent".to_owned();
    }
    let (cents, total) = cents_of_rows(bill);
    let rows: Vec<_> = bill.rows.iter().zip(cents).collect();
    let table = TextTable::of(&rows, paint)
        .left(&by.to_uppercase(), |(row, _)| short(&row.key, 48))
        .right("USD", |(_, cents)| usd(*cents))
        .right("GPU-HOURS", |(row, _)| number(row.gpu_hours, 2))
        .right("SPOT", |(row, _)| row.spot_ratio.map_or_else(|| "-".to_owned(), percent));
    format!("{}\n\n{} USD in all", table.text(), paint.strong(&usd(total)))
}

fn usd(cents: i128) -> String {
    number(cents as f64 / 100.0, 2)
}

/// The bill as CSV (RFC 4180), with six decimals.
#[must_use]
pub fn csv(bill: &CostDocument) -> String {
    let row = |row: &forebay_wire::document::cost::CostRow| {
        let spot = row.spot_ratio.map_or_else(String::new, |ratio| format!("{ratio:.6}"));
        format!("{},{:.6},{:.6},{spot}\r\n", csv_field(&row.key), row.cost_usd, row.gpu_hours)
    };
    std::iter::once("key,cost_usd,gpu_hours,spot_ratio\r\n".to_owned()).chain(bill.rows.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::document::cost::CostRow;

    fn bill() -> CostDocument {
        let row =
            |key: &str, cost_usd| CostRow { key: key.to_owned(), cost_usd, gpu_hours: 2.5, spot_ratio: Some(0.25) };
        let rows = vec![row("a,b", 0.333_334), row("=sum(1)", 0.333_333), row("c\"d", 0.333_333)];
        CostDocument { rows, total_usd: 1.0 }
    }

    #[test]
    fn cents_add_up_to_the_total_that_is_shown() {
        let text = table(&bill(), "queue", Paint::PLAIN);
        assert!(text.contains("a,b      0.34") && text.contains("=sum(1)  0.33"), "{text}");
        assert!(text.ends_with("1.00 USD in all"), "{text}");
    }

    #[test]
    fn csv_keeps_every_key_in_its_field() {
        let text = csv(&bill());
        assert_eq!(
            text,
            "key,cost_usd,gpu_hours,spot_ratio\r\n\"a,b\",0.333334,2.500000,0.250000\r\n'=sum(1),0.333333,2.500000,0.250000\r\n\
             \"c\"\"d\",0.333333,2.500000,0.250000\r\n"
        );
    }
}
