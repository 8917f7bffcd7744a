//! The page of what was spent: over time, by whom, on what, and how much of it was no work. Each row leads to what it is made of.
//!
//! ```text
//! charges at one position (as `GET /v1/cost` has them) -> only the rows that were asked for -> timeline and bills -> tables
//! ```
//!
//! Never: a sum of its own. Each table is a bill, in cents that add up to the same total.

use super::answer;
use super::html::{Cell, Heading, Page, Table, Tile, document, escaped, tiles};
use crate::api::Api;
use crate::api::auth::Browser;
use crate::api::client::encoded;
use crate::api::cost::{CostQuery, VisibleCharges, bad, charges_of};
use crate::api::error::{ApiError, ErrorBody};
use crate::api::jobs::query;
use crate::api::rows::not_read;
use crate::cost::{
    CostBasis, CostBy, CostRange, CostSubset, PriceComparison, Timeline, TimelinePeriod, bill, cents_of_rows,
    check_label,
};
use crate::document::write;
use crate::pasted::shell_word;
use crate::show::figures::{count, number, percent, short, usd};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::{BilledJob, ChargeKind};
use forebay_wire::document::cost::{CostDocument, CostRow};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Rows of a table; the others are one row.
const MOST_ROWS: usize = 20;

/// Days where nobody says which.
const DAYS: u32 = 7;

/// Characters of a key that are shown.
const KEY: usize = 60;

/// What the page was asked for.
struct MoneyQuery {
    cost: CostQuery,
    /// Whether a range was named, or all of it.
    ranged: bool,
    /// What the plot is split by, as it was written.
    split: Option<String>,
}

impl MoneyQuery {
    fn read(pairs: Vec<(String, String)>) -> Result<MoneyQuery, ApiError> {
        let ranged = pairs.iter().any(|(name, _)| name == "from" || name == "to");
        let mut split = None;
        // A form sends what is left empty.
        let filled = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let cost = CostQuery::read(filled, |name, value| {
            let own = name == "split";
            if own {
                split = Some(value.to_owned());
            }
            own
        })?;
        Ok(MoneyQuery { cost, ranged, split })
    }
}

/// What the page shows, all of it at one position.
struct Money {
    range: CostRange,
    of: Vec<CostSubset>,
    split: CostBy,
    labels: Vec<String>,
    timeline: Timeline,
    compared: PriceComparison,
    bills: Vec<(CostBy, CostDocument)>,
    jobs: BTreeMap<JobId, BilledJob>,
}

pub(in crate::api) async fn page(
    State(api): State<Api>,
    Browser(who): Browser,
    asked: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ApiError> {
    let found = async {
        let asked = MoneyQuery::read(query(asked)?)?;
        let split: CostBy = asked.split.as_deref().unwrap_or("capacity").parse().map_err(bad)?;
        let range = |basis: &CostBasis| match asked.ranged {
            true => asked.cost.range.clone(),
            false => CostRange::last_days(basis, DAYS),
        };
        let (turn, visible) = charges_of(&api, &who, range).await?;
        for by in std::iter::once(&split).chain(asked.cost.of.iter().map(|row| &row.by)) {
            check_label(by, &visible.basis, &visible.jobs).map_err(bad)?;
        }
        turn.spend(move || Money::of(visible, asked.cost.of, split)).await.map_err(not_read)
    };
    match found.await {
        Ok(money) => Ok(answer(money.html())),
        // What was asked for can be mended in the form; anything else is told as everywhere.
        Err(refused) if refused.status() == StatusCode::BAD_REQUEST => {
            Ok((refused.status(), answer(refusal(refused.body()))).into_response())
        }
        Err(refused) => Err(refused),
    }
}

impl Money {
    fn of(visible: VisibleCharges, of: Vec<CostSubset>, split: CostBy) -> Money {
        let VisibleCharges { range, mut basis, mut charges, jobs } = visible;
        of.iter().for_each(|row| row.keep(&mut basis, &mut charges, &jobs));
        let labels = basis.labels().to_vec();
        let own = |by: &CostBy| of.iter().any(|row| row.by == *by);
        let by = [CostBy::Queue, CostBy::Tenant, CostBy::Tier].into_iter();
        let by = by.chain(labels.iter().cloned().map(CostBy::Label));
        let by = by.chain([CostBy::Kind, CostBy::Capacity, CostBy::Type, CostBy::Pool, CostBy::Job]);
        let bills = by.filter(|by| !own(by)).map(|by| (by.clone(), bill(&by, &basis, &charges, &jobs))).collect();
        Money {
            timeline: Timeline::of(&split, &basis, &charges, &jobs, &range),
            compared: PriceComparison::of(&basis, &charges),
            range,
            of,
            split,
            labels,
            bills,
            jobs,
        }
    }

    /// The bill by something, where it is on the page.
    fn by(&self, by: &CostBy) -> Option<&CostDocument> {
        self.bills.iter().find(|(other, _)| other == by).map(|(_, bill)| bill)
    }

    fn html(&self) -> String {
        let mut body = String::with_capacity(64 * 1024);
        self.form(&mut body);
        self.of_what(&mut body);
        tiles(&mut body, &self.tiles());
        body.push_str("<details><summary>The figures of the plot</summary>");
        self.over_time().write(&mut body);
        body.push_str("</details><div class=\"columns\">");
        for (by, bill) in &self.bills {
            self.table(by, bill).write(&mut body);
        }
        body.push_str("</div>");
        let _ = write!(body, "<p class=\"note\">{}</p>", escaped(&self.note()));
        document(&Page { name: "Money", detail: &range_text(&self.range), reload_s: None }, &body)
    }

    /// From when to when, and by what the plot is split.
    fn form(&self, body: &mut String) {
        let _ = write!(body, "<form action=\"/money\" method=\"get\"><nav aria-label=\"Ranges\"><ul>");
        let of: Vec<&CostSubset> = self.of.iter().collect();
        for (name, range) in [("Last 7 days", None), ("Since the beginning", Some(&CostRange::default()))] {
            let link = escaped(&self.link(range, &of));
            let _ = write!(body, "<li><a href=\"{link}\">{name}</a></li>");
        }
        body.push_str("</ul></nav>");
        for (name, label, value) in
            [("from", "From (included)", &self.range.from), ("to", "To (excluded)", &self.range.to)]
        {
            let value = value.as_deref().unwrap_or_default();
            let _ = write!(
                body,
                "<label>{label}<input name=\"{name}\" value=\"{}\" placeholder=\"2026-11-24\" size=\"20\"></label>",
                escaped(value)
            );
        }
        body.push_str("<label>Plot by<select name=\"split\">");
        let fixed = ["capacity", "queue", "tenant", "tier", "kind", "type", "pool"].map(str::to_owned);
        for by in fixed.into_iter().chain(self.labels.iter().map(|label| format!("label:{label}"))) {
            let chosen = if by == self.split.to_string() { " selected" } else { "" };
            let _ = write!(body, "<option{chosen}>{}</option>", escaped(&by));
        }
        body.push_str("</select></label>");
        for row in &self.of {
            let _ = write!(body, "<input type=\"hidden\" name=\"of\" value=\"{}\">", escaped(&row.to_string()));
        }
        body.push_str("<button>Show</button></form>");
    }

    /// Which rows the page is made of, each with the way out of it.
    fn of_what(&self, body: &mut String) {
        if self.of.is_empty() {
            return;
        }
        body.push_str("<h2>Only ");
        for (at, row) in self.of.iter().enumerate() {
            let others: Vec<&CostSubset> =
                self.of.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, o)| o).collect();
            let and = if at == 0 { "" } else { " and " };
            let (by, key) = (escaped(&row.by.to_string()), escaped(&short(&row.key, KEY)));
            let without = escaped(&self.link(Some(&self.range), &others));
            let _ = write!(
                body,
                "{and}{by} <q>{key}</q> (<a href=\"{without}\" aria-label=\"not only {by} {key}\">not only</a>)"
            );
        }
        body.push_str("</h2>");
    }

    /// This page of another range, or the last days, and other rows.
    fn link(&self, range: Option<&CostRange>, of: &[&CostSubset]) -> String {
        let mut link = format!("/money?split={}", encoded(&self.split.to_string()));
        if let Some(range) = range {
            let _ = write!(link, "&from={}", encoded(range.from.as_deref().unwrap_or_default()));
        }
        if let Some(to) = range.and_then(|range| range.to.as_ref()) {
            let _ = write!(link, "&to={}", encoded(to));
        }
        for row in of {
            let _ = write!(link, "&of={}", encoded(&row.to_string()));
        }
        link
    }

    /// What a row is made of.
    fn link_into(&self, by: &CostBy, key: &str) -> String {
        let row = CostSubset { by: by.clone(), key: key.to_owned() };
        let all: Vec<&CostSubset> = self.of.iter().chain([&row]).collect();
        self.link(Some(&self.range), &all)
    }

    fn tiles(&self) -> Vec<Tile> {
        let (bought, spot) = self
            .timeline
            .periods
            .iter()
            .fold((0, 0), |(bought, spot), period| (bought + period.bought, spot + period.spot));
        let total: i128 = self.timeline.periods.iter().map(TimelinePeriod::total_cents).sum();
        let spot_ratio = if bought > 0 { percent(spot as f64 / bought as f64) } else { "-".to_owned() };
        let gpu_hours = number(bought as f64 / 3.6e9, 1);
        let mut tiles = vec![
            Tile { name: "Spent", value: dollars(total), detail: range_text(&self.range) },
            Tile {
                name: "Spot ratio",
                value: spot_ratio,
                detail: format!("of {gpu_hours} GPU-hours that were bought"),
            },
        ];
        if let Some(kinds) = self.by(&CostBy::Kind) {
            let (cents, all) = cents_of_rows(kinds);
            let waste: i128 = kinds.rows.iter().zip(cents).filter(|(row, _)| is_waste(&row.key)).map(|(_, c)| c).sum();
            let part = if all > 0 { percent(waste as f64 / all as f64) } else { "-".to_owned() };
            tiles.push(Tile {
                name: "Not work",
                value: dollars(waste),
                detail: format!(
                    "{part}: boots, idle nodes, work lost and the like, by kind below; not what pods of others held"
                ),
            });
        }
        let PriceComparison { paid, on_demand, static_peak, hours } = self.compared;
        let less = |than: i128| {
            let part = if than > 0 { percent((than - paid) as f64 / than as f64) } else { "-".to_owned() };
            (part, dollars((than + 5_000).div_euclid(10_000)))
        };
        let (value, list) = less(on_demand);
        tiles.push(Tile {
            name: "Less than at on-demand prices",
            value,
            detail: format!(
                "{list} for the same nodes for as long, at the on-demand prices of now; owned nodes left out"
            ),
        });
        if self.of.is_empty() {
            let (value, peak) = less(static_peak);
            let detail = format!(
                "{peak} for a fleet of what the dearest hour had on average, kept on for all {} hours at these prices; within \
                 that hour more may have been needed",
                count(hours)
            );
            tiles.push(Tile { name: "Less than a fleet of the dearest hour's mean", value, detail });
        }
        tiles
    }

    fn over_time(&self) -> Table {
        let columns = &self.timeline.columns;
        let mut headings = vec![Heading::from("Time")];
        headings.extend(columns.iter().map(|key| Heading { text: short(key, 30), plot: "bar" }));
        headings.push(Heading::from("All, USD"));
        headings.push(Heading { text: "Spot ratio, %".to_owned(), plot: "line" });
        let of: Vec<&CostSubset> = self.of.iter().collect();
        let row = |period: &TimelinePeriod| {
            let link = period.range.as_ref().map(|range| self.link(Some(range), &of)).unwrap_or_default();
            let mut cells = vec![Cell { time: period.begins_local_s, link, ..Cell::text(&period.name) }];
            cells.extend(period.cents.iter().map(|cents| money(*cents)));
            cells.push(money(period.total_cents()));
            let spot = period.spot_ratio().map(|ratio| number(ratio * 100.0, 1));
            cells.push(Cell {
                value: spot.clone().unwrap_or_default(),
                ..Cell::figure(spot.unwrap_or_else(|| "-".to_owned()))
            });
            cells
        };
        let sum = |of: &dyn Fn(&TimelinePeriod) -> i128| money(self.timeline.periods.iter().map(of).sum());
        let mut sums = vec![Cell::text("All")];
        sums.extend((0..columns.len()).map(|at| sum(&|period| period.cents.get(at).copied().unwrap_or(0))));
        sums.push(sum(&TimelinePeriod::total_cents));
        sums.push(Cell::figure(""));
        Table {
            caption: format!("Spend in USD by {}", self.split),
            detail: "in the time zone of the bill".to_owned(),
            headings,
            rows: self.timeline.periods.iter().map(row).collect(),
            sums: Some(sums),
        }
    }

    /// A bill, dearest rows first. Among jobs what was nobody's is one row.
    fn table(&self, by: &CostBy, bill: &CostDocument) -> Table {
        let (cents, total) = cents_of_rows(bill);
        let mut rows: Vec<(&CostRow, i128)> = bill.rows.iter().zip(cents).collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.key.cmp(&b.0.key)));
        let is_nobodys = |(row, _): &(&CostRow, i128)| *by == CostBy::Job && row.key.starts_with('(');
        let (nobodys, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_nobodys);
        let shown = if rows.len() > MOST_ROWS { MOST_ROWS - 1 } else { rows.len() };
        let cells = |(row, cents): &(&CostRow, i128)| {
            let name = Cell { link: self.link_into(by, &row.key), ..Cell::text(self.name(by, &row.key)) };
            let spot = row.spot_ratio.map_or_else(|| "-".to_owned(), percent);
            vec![name, money(*cents), Cell::figure(number(row.gpu_hours, 2)), Cell::figure(spot)]
        };
        let mut all: Vec<Vec<Cell>> = rows.iter().take(shown).map(cells).collect();
        let others = rows.get(shown..).unwrap_or_default();
        all.extend(together(&format!("({} others)", count(others.len() as u64)), others));
        all.extend(together("(no job's)", &nobodys));
        let hours = bill.rows.iter().map(|row| row.gpu_hours).sum::<f64>();
        let caption = match by {
            CostBy::Job => "Dearest jobs".to_owned(),
            CostBy::Kind => "What it was, and what was wasted".to_owned(),
            by => format!("By {by}"),
        };
        let mut heading = by.to_string();
        heading.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
        Table {
            caption,
            headings: [heading.as_str(), "USD", "GPU-hours", "Spot ratio"].map(Heading::from).to_vec(),
            rows: all,
            sums: Some(vec![Cell::text("All"), money(total), Cell::figure(number(hours, 2)), Cell::figure("")]),
            ..Table::default()
        }
    }

    /// A key as people read it: of a job its subject and queue too.
    fn name(&self, by: &CostBy, key: &str) -> String {
        let job = if *by == CostBy::Job { write::job_number(key).and_then(|id| self.jobs.get(&id)) } else { None };
        match job {
            Some(job) => format!("{key} {} in {}", short(&job.subject, KEY), short(&job.queue, KEY)),
            None => short(key, KEY),
        }
    }

    /// The command that says the same.
    fn note(&self) -> String {
        let mut command = "forebay cost --by queue".to_owned();
        for (name, value) in [("from", &self.range.from), ("to", &self.range.to)] {
            if let Some(value) = value {
                let _ = write!(command, " --{name} {value}");
            }
        }
        for row in &self.of {
            let _ = write!(command, " --of {}", shell_word(&row.to_string()));
        }
        format!(
            "The same figures: {command}. These are charges for capacity; storage, transfer and taxes are not included. What the same work would have cost \
             under another policy: forebay journal export --trace, then forebay simulate."
        )
    }
}

/// Whether a kind of charge was no work: not what pods of others held, nor what was spent before anything was known of it.
fn is_waste(kind: &str) -> bool {
    kind != ChargeKind::Worked.as_str() && kind != ChargeKind::Foreign.as_str() && !kind.starts_with('(')
}

/// What cannot be shown, and how to mend it.
fn refusal(error: &ErrorBody) -> String {
    let body = format!(
        "<div class=\"alert\" role=\"alert\"><p>{}</p><p>{}</p></div><p><a href=\"/money\">Show the last 7 days</a></p>",
        escaped(&error.message),
        escaped(&error.remedy)
    );
    document(&Page { name: "Money", detail: "not shown", reload_s: None }, &body)
}

/// A sum of money in a cell, with its value for a plot.
fn money(cents: i128) -> Cell {
    let value = cents as f64 / 100.0;
    Cell { value: format!("{value:.2}"), ..Cell::figure(number(value, 2)) }
}

/// Several rows as one. `None`: there are none.
fn together(name: &str, rows: &[(&CostRow, i128)]) -> Option<Vec<Cell>> {
    let hours = rows.iter().map(|(row, _)| row.gpu_hours).sum::<f64>();
    let sum = money(rows.iter().map(|(_, cents)| cents).sum());
    (!rows.is_empty()).then(|| vec![Cell::text(name), sum, Cell::figure(number(hours, 2)), Cell::figure("-")])
}

fn dollars(cents: i128) -> String {
    usd(cents as f64 / 100.0)
}

fn range_text(range: &CostRange) -> String {
    match (&range.from, &range.to) {
        (None, None) => "since the beginning".to_owned(),
        (Some(from), None) => format!("from {from} on"),
        (None, Some(to)) => format!("before {to}"),
        (Some(from), Some(to)) => format!("from {from} to {to}, that excluded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_pasted_runs_nothing_of_a_name() {
        assert_eq!(shell_word("queue=a/b"), "queue=a/b");
        assert_eq!(shell_word("kind=(no job)"), "'kind=(no job)'");
        let name = "queue=x'; rm -rf ~; '$(id)`id`";
        let said = std::process::Command::new("sh").args(["-c", &format!("printf %s {}", shell_word(name))]).output();
        assert_eq!(String::from_utf8_lossy(&said.expect("a shell").stdout), name);
    }

    #[test]
    fn what_pods_of_others_held_is_no_waste() {
        let waste: Vec<&str> = ChargeKind::ALL.iter().map(|kind| kind.as_str()).filter(|kind| is_waste(kind)).collect();
        assert_eq!(waste, ["lost", "lingering", "booked", "boot", "idle", "fragmentation"]);
        assert!(!is_waste("(before 2026-11-24)"));
    }

    #[test]
    fn what_a_form_leaves_empty_is_not_asked_for() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let asked = |pairs: &[(String, String)]| MoneyQuery::read(pairs.to_vec());
        let all =
            asked(&[pair("from", ""), pair("to", ""), pair("split", "queue"), pair("of", "capacity=spot")]).unwrap();
        assert!(all.ranged && all.cost.range.is_all() && all.split.as_deref() == Some("queue"));
        assert_eq!(all.cost.of.iter().map(ToString::to_string).collect::<Vec<_>>(), ["capacity=spot"]);
        assert!(!asked(&[]).unwrap().ranged, "without a range it is the last days");
        let refused = asked(&[pair("colour", "red")]).err().expect("nobody knows it");
        assert_eq!(refused.code(), "BadQuery");
    }
}
