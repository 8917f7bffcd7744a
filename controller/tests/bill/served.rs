//! A replay that is served: what the summary, the metrics, the bill and the page of money state over HTTP at one position of the journal is what
//! the bill has there that is made again from the batches.
//!
//! ```text
//! position -> GET /v1/summary, /metrics, /v1/cost, /money -> the same position: they are of one, and are kept; else they are asked for again
//! the journal's batches -> the bill, made again -> at each position that was kept: all four state it
//! ```
//!
//! Never: figures of two positions beside each other.

use crate::again::recomputed::HOUR;
use crate::again::rows::Named;
use crate::again::{NamedSums, Position, Recount, accounts_agree, agrees, cents_of, micro, scraped, spend_agrees};
use crate::{BY, ZONE, day, samples};
use forebay::api::{ApiOptions, serve};
use forebay::driver::{ClockMode, DriverHandle, Running, Settings, start};
use forebay_wire::document::cost::CostDocument;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Seconds of the replay in one: some ten batches a second, each there for longer than the questions take.
const SPEED: u32 = 300;

/// Many times what it takes.
const LIMIT: Duration = Duration::from_secs(900);

/// Between two questions whether the journal has gone on.
const PAUSE: Duration = Duration::from_millis(2);

/// What was answered at one position.
struct Sample {
    summary: i64,
    by: &'static str,
    bill: CostDocument,
    /// What all nodes cost, and of how many points.
    spend: (i64, i64),
    accounts: NamedSums,
    page: MoneyPage,
}

/// What the page shows, in cents.
struct MoneyPage {
    spent: i64,
    /// By caption, the first cell of each row and what it cost. The last row is the sum.
    tables: BTreeMap<String, Vec<(String, i64)>>,
    /// The sum of the table of what was spent over time.
    over_time: i64,
}

/// A server of a driver, ended when dropped.
struct Served {
    url: String,
    agent: ureq::Agent,
    _ending: tokio::sync::watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    fn of(running: &Running) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let options = ApiOptions::of(running);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (ending, ended) = tokio::sync::watch::channel(false);
        runtime.spawn(serve(listener, options, ended));
        let agent = ureq::Agent::config_builder().proxy(None).timeout_global(Some(LIMIT)).build().into();
        Served { url, agent, _ending: ending, _runtime: runtime }
    }

    /// `None`: not now, such as where the journal went on while a bill was read.
    fn get(&self, path: &str) -> Option<String> {
        match self.agent.get(format!("{}{path}", self.url)).call() {
            Ok(mut answer) => Some(answer.body_mut().read_to_string().unwrap()),
            Err(ureq::Error::StatusCode(429 | 503)) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    fn sample(&self, by: &'static str) -> Option<Sample> {
        let summary: Value = serde_json::from_str(&self.get("/v1/summary")?).unwrap();
        let metrics = self.get("/metrics")?;
        let bill = serde_json::from_str(&self.get(&format!("/v1/cost?by={by}"))?).unwrap();
        let page = MoneyPage::read(&self.get("/money?from=&split=queue")?);
        let (summary, spend) = (micro(summary["cost_usd"].as_f64().unwrap()), scraped(&metrics));
        let accounts = accounts(&metrics);
        // They are left out where the journal went on while they were read.
        let is_whole = spend.0 == 0 || !accounts.is_empty();
        is_whole.then_some(Sample { summary, by, bill, spend, accounts, page })
    }
}

/// Labels of a point by name.
type PointLabels<'t> = BTreeMap<&'t str, &'t str>;

/// The points of a metric. No name here has anything in it that is escaped.
fn points<'t>(text: &'t str, metric: &'t str) -> impl Iterator<Item = (PointLabels<'t>, f64)> {
    let point = move |line: &'t str| {
        let (labels, value) = line.strip_prefix(metric)?.strip_prefix('{')?.split_once("\"} ")?;
        let labels: PointLabels<'t> = labels.split("\",").map(|label| label.split_once("=\"").unwrap()).collect();
        let value: f64 = value.parse().unwrap();
        Some((labels, value))
    };
    text.lines().filter_map(point)
}

/// What metrics say of queues, tiers, labels and waste.
fn accounts(text: &str) -> NamedSums {
    let mut found = NamedSums::new();
    let mut add = |by: String, name: &str, usd: f64| {
        let sum = found.entry((by, name.to_owned())).or_default();
        *sum = (sum.0 + micro(usd), sum.1 + 1);
    };
    for (labels, usd) in points(text, "forebay_queue_spend_usd_total") {
        add("queue".to_owned(), labels["queue"], usd);
    }
    for (labels, usd) in points(text, "forebay_tier_spend_usd_total") {
        add("tier".to_owned(), labels["tier"], usd);
    }
    for (labels, usd) in points(text, "forebay_label_spend_usd_total") {
        add(format!("label:{}", labels["label"]), labels["value"], usd);
    }
    for (labels, usd) in points(text, "forebay_waste_usd_total") {
        add("kind".to_owned(), labels["kind"], usd);
    }
    found
}

/// The text of HTML.
fn plain(html: &str) -> String {
    let (mut text, mut in_tag) = (String::new(), false);
    for c in html.chars() {
        match c {
            '<' => in_tag = true,
            '>' if in_tag => in_tag = false,
            c if !in_tag => text.push(c),
            _ => {}
        }
    }
    let marks = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    marks.into_iter().fold(text, |text, (escape, mark)| text.replace(escape, mark))
}

/// A figure with two decimals.
fn cents(text: &str) -> i64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|e| panic!("{e}: {text}"))
}

impl MoneyPage {
    fn read(html: &str) -> MoneyPage {
        let spent = html.split_once("<dt>Spent</dt><dd>").unwrap_or_else(|| panic!("{html}")).1;
        let mut tables = BTreeMap::new();
        let mut over_time = 0;
        for section in html.split("<section tabindex=\"0\" aria-label=\"").skip(1) {
            let (caption, rest) = section.split_once('"').unwrap();
            let body = rest.split("</section>").next().unwrap();
            let cell = |cell: &str| plain(cell.split_once('>').unwrap().1.split("</td>").next().unwrap());
            let row = |row: &str| -> Vec<String> { row.split("<td ").skip(1).map(cell).collect() };
            let rows: Vec<Vec<String>> = body.split("<tr role=\"row\">").skip(1).map(row).collect();
            if caption.starts_with("Spend in USD by") {
                let sums = rows.last().unwrap();
                over_time = cents(&sums[sums.len() - 2]);
            } else {
                let costs = rows.into_iter().map(|row| (row[0].clone(), cents(&row[1]))).collect();
                tables.insert(plain(caption), costs);
            }
        }
        MoneyPage { spent: cents(spent.split('<').next().unwrap()), tables, over_time }
    }

    /// The tables are the rows that were made again, each to less than a cent, and add up to the same cents.
    fn agrees(&self, expected: &Named, at: &str) {
        let total = cents_of(expected.rows("queue").values().map(|row| row[0]).sum());
        assert_eq!((self.spent, self.over_time), (total, total), "the page at {at}");
        for by in BY.into_iter().filter(|by| *by != "day") {
            let caption = match by {
                "job" => "Dearest jobs".to_owned(),
                "kind" => "What it was, and what was wasted".to_owned(),
                by => format!("By {by}"),
            };
            let mut shown = self.tables[&caption].clone();
            let (_, sum) = shown.pop().unwrap();
            assert_eq!(sum, total, "{caption} at {at}");
            assert_eq!(shown.iter().map(|(_, cents)| cents).sum::<i64>(), total, "{caption} at {at}: {shown:?}");
            let rows = expected.rows(by);
            assert!(by == "job" || shown.len() == rows.len().min(20), "{caption} at {at}: {shown:?}, {rows:?}");
            for (name, cents) in shown.iter().filter(|(name, _)| !name.ends_with(" others)") && name != "(no job's)") {
                let key = if by == "job" { name.split(' ').next().unwrap() } else { name.as_str() };
                let micro = rows.get(key).unwrap_or_else(|| panic!("{caption} at {at}: {name} is no row"))[0];
                assert!((cents * 10_000 - micro).abs() < 10_000, "{caption} at {at}: {name} is {cents}, and {micro}");
            }
        }
    }
}

fn position(handle: &DriverHandle) -> Position {
    handle.query(|engine, _| Position::of(engine.state())).unwrap()
}

/// What is answered at so many positions, each another one.
fn sampled(running: &Running, count: usize) -> BTreeMap<Position, Sample> {
    let served = Served::of(running);
    let (begun, mut kept, mut asked) = (Instant::now(), BTreeMap::new(), 0);
    while kept.len() < count {
        assert!(begun.elapsed() < LIMIT, "{} positions within {LIMIT:?}", kept.len());
        assert!(!running.handle.watch().borrow().drained, "the replay is over after {} positions", kept.len());
        let before = position(&running.handle);
        if kept.contains_key(&before) {
            std::thread::park_timeout(PAUSE);
            continue;
        }
        let sample = served.sample(BY[kept.len() % BY.len()]);
        asked += 1;
        if let Some(sample) = sample.filter(|_| position(&running.handle) == before) {
            kept.insert(before, sample);
        }
    }
    println!("{count} positions, asked {asked} times in {:.0} s", begun.elapsed().as_secs_f64());
    kept
}

#[test]
fn summary_metrics_cost_and_page_of_a_served_replay_are_the_bill_at_each_position() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { clock: ClockMode::Scaled(SPEED), exit_when_drained: false, ..day(folder.path(), ZONE) };
    let running = start(settings).unwrap();
    let mut kept = sampled(&running, samples());
    running.handle.stop();
    let finished = running.join().unwrap();
    assert_eq!(finished.audit, [""; 0]);
    drop(finished);
    let (mut compared, mut charged) = (0, 0);
    let recount = Recount { folder: folder.path(), by: &BY, samples: 1, slot_ms: HOUR };
    recount.made_with(|position, expected| {
        let Some(sample) = kept.remove(&position) else { return };
        let at = format!("{position:?}");
        let total = expected.rows("queue").values().map(|row| row[0]).sum::<i64>();
        assert_eq!(sample.summary, total, "summary at {at}");
        agrees(sample.by, &sample.bill, expected, &at);
        spend_agrees(sample.spend.0, sample.spend.1, total, &at);
        accounts_agree(&sample.accounts, &BY, expected, &at);
        sample.page.agrees(expected, &at);
        compared += 1;
        charged += usize::from(total > 0);
    });
    assert!(kept.is_empty(), "positions that the journal does not have: {:?}", kept.keys());
    assert!(compared == samples() && charged * 2 > compared, "{charged} of {compared} positions have a bill");
}
