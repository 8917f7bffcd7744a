//! The bill as a FOCUS dataset, against the column rules of FOCUS 1.2 written down here by hand, and against the bill.
//!
//! Never: the names, formats or sums of the program under test.

use crate::again::rows::Named;
use forebay::cost::{CostRange, focus_of_folder};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a field has to be.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Decimal,
    Instant,
    Text,
    /// Null where there is nothing to say.
    Maybe,
    /// Null in all rows that are made here.
    Null,
    OneOf(&'static [&'static str]),
}

/// The mandatory columns of FOCUS 1.2, and of the others those that are written.
const MANDATORY: [(&str, Rule); 21] = [
    ("BilledCost", Rule::Decimal),
    ("BillingAccountId", Rule::Text),
    ("BillingAccountName", Rule::Text),
    ("BillingCurrency", Rule::OneOf(&["USD"])),
    ("BillingPeriodEnd", Rule::Instant),
    ("BillingPeriodStart", Rule::Instant),
    ("ChargeCategory", Rule::OneOf(&["Usage", "Purchase", "Tax", "Credit", "Adjustment"])),
    ("ChargeClass", Rule::Null),
    ("ChargeDescription", Rule::Text),
    ("ChargePeriodEnd", Rule::Instant),
    ("ChargePeriodStart", Rule::Instant),
    ("ContractedCost", Rule::Decimal),
    ("EffectiveCost", Rule::Decimal),
    ("InvoiceIssuerName", Rule::Text),
    ("ListCost", Rule::Decimal),
    ("PricingQuantity", Rule::Decimal),
    ("PricingUnit", Rule::OneOf(&["Hours", "GPU-Hours"])),
    ("ProviderName", Rule::Text),
    ("PublisherName", Rule::Text),
    ("ServiceCategory", Rule::OneOf(&["Compute"])),
    ("ServiceName", Rule::Text),
];
const OTHERS: [(&str, Rule); 6] = [
    ("ChargeFrequency", Rule::OneOf(&["One-Time", "Recurring", "Usage-Based"])),
    ("ConsumedQuantity", Rule::Decimal),
    ("ConsumedUnit", Rule::OneOf(&["Hours", "GPU-Hours"])),
    ("InvoiceId", Rule::Text),
    ("ServiceSubcategory", Rule::OneOf(&["Virtual Machines"])),
    ("Tags", Rule::Maybe),
];

type Record = BTreeMap<String, String>;

/// Fields of CSV, quoted or not. What is quoted here has no line breaks.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

fn records(text: &str) -> Vec<Record> {
    let mut lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
    let names = fields(lines.next().unwrap());
    let known = |name: &&str| MANDATORY.iter().chain(&OTHERS).any(|(known, _)| known == name);
    for (name, _) in MANDATORY {
        assert_eq!(names.iter().filter(|has| *has == name).count(), 1, "{name}");
    }
    for name in &names {
        assert!(name.starts_with("x_") || known(&name.as_str()), "{name}: a column of one's own begins with x_");
    }
    let record = |line: &str| {
        let fields = fields(line);
        assert_eq!(fields.len(), names.len(), "{line}");
        names.iter().cloned().zip(fields).collect()
    };
    lines.map(record).collect()
}

/// Micro-dollars of a decimal number with at most six decimals.
fn micro(text: &str) -> i64 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{fraction:0<6}").parse().unwrap()
}

fn obeys(rule: Rule, text: &str) -> bool {
    match rule {
        Rule::Decimal => {
            let digits = text.strip_prefix('-').unwrap_or(text).replacen('.', "", 1);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !text.ends_with('.')
        }
        Rule::Instant => text.len() == 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
        Rule::Text => !text.is_empty(),
        Rule::Maybe => true,
        Rule::Null => text.is_empty(),
        Rule::OneOf(words) => words.contains(&text),
    }
}

/// Returns the invoices, one a month.
pub fn the_dataset_obeys_its_columns_and_is_the_bill(folder: &Path, expected: &Named) -> BTreeSet<String> {
    let rows = records(&focus_of_folder(folder, &CostRange::default()).unwrap());
    for row in &rows {
        for (name, rule) in MANDATORY.iter().chain(&OTHERS) {
            assert!(obeys(*rule, &row[*name]), "{name}: {rule:?}: {row:?}");
        }
        let time = |name: &str| row[name].parse::<jiff::Timestamp>().unwrap();
        let (from, to) = (time("ChargePeriodStart"), time("ChargePeriodEnd"));
        // An hour, or half of one in which a month begins.
        let of_border = from == time("BillingPeriodStart") || to == time("BillingPeriodEnd");
        let seconds = to.duration_since(from).as_secs();
        assert!(seconds == 3600 || seconds == 1800 && of_border, "{row:?}");
        assert!(time("BillingPeriodStart") <= from && to <= time("BillingPeriodEnd"), "{row:?}");
        let begins = time("BillingPeriodStart").in_tz(&expected.zone).unwrap();
        assert!(begins.day() == 1 && begins.time() == jiff::civil::Time::midnight(), "{row:?}");
        assert_eq!(row["InvoiceId"], format!("forebay-{}", begins.strftime("%Y-%m")), "{row:?}");
        assert!(micro(&row["ListCost"]) >= 0 && row["BilledCost"] == row["EffectiveCost"], "{row:?}");
        if !row["Tags"].is_empty() {
            let tags: BTreeMap<String, String> = serde_json::from_str(&row["Tags"]).expect("tags are a JSON object");
            assert!(!tags.is_empty() && !row["x_Job"].is_empty(), "{row:?}");
        }
    }
    let key = |by: &str, row: &Record| match by {
        "capacity" => row["x_CapacityType"].clone(),
        "type" => row["x_InstanceType"].clone(),
        "kind" => row["x_Kind"].clone(),
        _ => row["x_Pool"].clone(),
    };
    let total: i64 = rows.iter().map(|row| micro(&row["BilledCost"])).sum();
    for by in ["capacity", "type", "kind", "pool"] {
        let bill = expected.rows(by);
        assert_eq!(bill.values().map(|row| row[0]).sum::<i64>(), total, "by {by}: the dataset is not the bill");
        let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for row in &rows {
            let sum = sums.entry(key(by, row)).or_default();
            (sum.0, sum.1) = (sum.0 + micro(&row["BilledCost"]), sum.1 + 1);
        }
        assert_eq!(sums.keys().collect::<Vec<_>>(), bill.keys().collect::<Vec<_>>());
        for (name, (cost, of)) in sums {
            // Each row is rounded by less than a micro-dollar.
            assert!((cost - bill[&name][0]).abs() <= of, "by {by}, {name}: {cost}, {}", bill[&name][0]);
        }
    }
    let list: i64 = rows.iter().map(|row| micro(&row["ListCost"])).sum();
    assert!(rows.iter().any(|row| row["Tags"].contains("team")) && list > total, "spot costs less than its list price");
    rows.iter().map(|row| row["InvoiceId"].clone()).collect()
}
