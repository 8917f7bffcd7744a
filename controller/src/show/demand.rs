//! The demand model as people read it: seven numbered inputs, each measured with its plot or table, or a word why it is not.
//!
//! Never: wider than 80 columns, or a figure that the document has not.

use super::colour::Paint;
use super::figures::{count, gpus, number, percent, seconds, short};
use super::plot::{MARGIN, PlotColumn, columns, fewer};
use super::table::{TextTable, figures, wrapped};
use forebay_wire::document::demand::{
    BurstFigures, BurstsDocument, ConcurrencyFigures, DemandDocument, DurationsDocument, MixDocument, MixFigures,
    OverTime, QueueDepthDocument, QueueDurationFigures, ResidencyDocument, SpanFigures, ToleranceDocument,
};
use forebay_wire::document::seconds::Seconds;

/// As wide as a terminal is at least.
const WIDTH: usize = 80;
/// Lines of a plot.
const HEIGHT: usize = 6;
/// Bursts that are listed: those with the most GPU-hours, and as many of noise.
const BURSTS: usize = 8;
/// Queues that are listed.
const QUEUES: usize = 15;

/// All of it.
#[must_use]
pub fn text(demand: &DemandDocument, paint: Paint) -> String {
    let shown = Shown { demand, paint };
    let sections = [
        shown.head(),
        shown.concurrency(),
        shown.section("queueDepth", "2 Queue depth", demand.queue_depth.as_ref(), queue_depth),
        shown.bursts(),
        shown.section("latencyTolerance", "4 Latency tolerance", demand.latency_tolerance.as_ref(), tolerance),
        shown.section("mix", "5 Batch and inference", demand.mix.as_ref(), mix),
        shown.section("vramResidency", "6 VRAM residency", demand.vram_residency.as_ref(), residency),
        shown.section("durations", "7 Job durations", demand.durations.as_ref(), durations),
        shown.notes(),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n\n")
}

struct Shown<'a> {
    demand: &'a DemandDocument,
    paint: Paint,
}

impl Shown<'_> {
    fn head(&self) -> String {
        let d = self.demand;
        let hours = number(d.gpu_hours, 0);
        let (from, to) = (self.at(d.from_s), self.at(d.to_s));
        let window = format!("{} from {from} to {to}", long(d.to_s.0 - d.from_s.0));
        let jobs = format!("{} jobs that ask for {hours} GPU-hours", count(d.jobs));
        [self.paint.strong(&format!("Demand of {}", short(&d.source, 64))), jobs, window].join("\n")
    }

    /// An instant, as far as the clock is known.
    fn at(&self, at: Seconds) -> String {
        match self.demand.clock.as_str() {
            "unix" => {
                crate::clock::instant(at.0).map_or_else(|| long(at.0), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
            }
            _ => long(at.0),
        }
    }

    /// A section of what was measured, or why it was not.
    fn section<T>(&self, input: &str, title: &str, measured: Option<&T>, show: fn(&T, Paint) -> String) -> String {
        let body = measured.map_or_else(|| self.missing(input), |found| show(found, self.paint));
        format!("{}\n{body}", self.paint.strong(title))
    }

    /// Why an input was not measured.
    fn missing(&self, input: &str) -> String {
        let found = self.demand.not_measured.iter().find(|missing| missing.input == input);
        let why = found.map_or("", |missing| missing.why.as_str());
        let lines = wrapped(&format!("not measured: {why}"), Some(WIDTH - 2));
        let lines = lines.iter().map(|line| format!("  {}", self.paint.warn(line)));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn concurrency(&self) -> String {
        let found = &self.demand.concurrency;
        let rows: Vec<(&str, &ConcurrencyFigures)> =
            std::iter::once(("asked for", &found.asked)).chain(found.held.iter().map(|held| ("held", held))).collect();
        let of =
            |figure: fn(&ConcurrencyFigures) -> f64| move |row: &(&str, &ConcurrencyFigures)| gpus_short(figure(row.1));
        let table = TextTable::of(&rows, self.paint)
            .left("GPUS AT ONCE", |row| row.0.to_owned())
            .right("FLOOR", of(|c| c.floor))
            .right("MEAN", of(|c| c.mean))
            .right("P50", of(|c| c.p50))
            .right("P90", of(|c| c.p90))
            .right("P99", of(|c| c.p99))
            .right("PEAK", of(|c| c.peak));
        let missing =
            if found.held.is_none() { format!("held:\n{}", self.missing("concurrency.held")) } else { String::new() };
        let hour_of = if self.demand.clock == "unix" { "hour of day (UTC)" } else { "hour of the trace's day" };
        let parts = [
            self.paint.strong("1 Concurrency"),
            indented(&table.text()),
            indented(&missing),
            "  Asked for over time: filled to the mean, dotted to the most".to_owned(),
            self.course(&found.asked, &self.demand.bursts.listed),
            found.held.as_ref().map_or_else(String::new, |_| "  Held over time".to_owned()),
            found.held.as_ref().map_or_else(String::new, |held| self.course(held, &[])),
            format!("  Asked for by {hour_of}"),
            by_hour(&found.asked),
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// The plot over time, with a line that marks bursts.
    fn course(&self, figures: &ConcurrencyFigures, listed: &[BurstFigures]) -> String {
        let all: Vec<PlotColumn> =
            figures.course.iter().map(|part| PlotColumn { mean: part.mean, peak: part.peak }).collect();
        let few = fewer(&all, WIDTH - MARGIN);
        if few.is_empty() {
            return String::new();
        }
        let width = ((WIDTH - MARGIN) / few.len()).clamp(1, 8);
        let across = few.len() * width;
        let (from, parts) = (self.demand.from_s.0, all.len().div_ceil(few.len()) as u64);
        let part = figures.course.get(1).map_or(u64::MAX, |second| second.from_s.0 - from).max(1);
        let column =
            |at: u64| usize::try_from((at - from) / part / parts).map_or(0, |nth| (nth * width).min(across - 1));
        let mut marks = vec![' '; across];
        // Noise first, so that what lasts is seen where both are.
        for burst in listed.iter().filter(|b| b.noise).chain(listed.iter().filter(|b| !b.noise)) {
            let last = burst.from_s.0 + burst.length_s.0.saturating_sub(1);
            let end = (column(last) + width - 1).min(across - 1);
            marks[column(burst.from_s.0)..=end].fill(if burst.noise { 'n' } else { '^' });
        }
        let marks: String = marks.into_iter().collect();
        let mut lines = vec![columns(&few, width, HEIGHT)];
        if !listed.is_empty() {
            lines.push(format!("{:>MARGIN$}{}", "bursts ", marks.trim_end()));
        }
        let (begin, end) = (self.at(self.demand.from_s), self.at(self.demand.to_s));
        let gap = across.saturating_sub(begin.chars().count() + end.chars().count()).max(2);
        lines.push(format!("{:MARGIN$}{begin}{}{end}", "", " ".repeat(gap)));
        lines.join("\n")
    }

    fn bursts(&self) -> String {
        let found = &self.demand.bursts;
        let ceiling = found
            .ceiling
            .map_or_else(|| "none: no burst lasts".to_owned(), |most| format!("{} GPUs", gpus_short(most)));
        let shown = vec![
            ("usual", format!("{} GPUs, half of the time at most", gpus_short(found.usual))),
            ("a burst", format!("from {} GPUs on", gpus_short(found.threshold))),
            ("cold start", format!("{}, {}", long(found.boot_s.0), found.boot_from)),
            (
                "bursts",
                format!("{}, {} GPU-hours above the usual", count(found.lasting), number(found.lasting_gpu_hours, 1)),
            ),
            (
                "noise",
                format!("{}, {} GPU-hours above the usual", count(found.noise), number(found.noise_gpu_hours, 1)),
            ),
            ("burst ceiling", ceiling),
        ];
        let mut parts = vec![self.paint.strong("3 Bursts"), indented(&figures(&[shown]))];
        parts.extend(self.burst_table(found, false));
        parts.extend(self.burst_table(found, true));
        parts.join("\n")
    }

    /// Those with the most GPU-hours, of noise or of the others. `None`: there are none.
    fn burst_table(&self, found: &BurstsDocument, noise: bool) -> Option<String> {
        let mut rows: Vec<&BurstFigures> = found.listed.iter().filter(|burst| burst.noise == noise).collect();
        rows.sort_by(|a, b| b.above_gpu_hours.total_cmp(&a.above_gpu_hours).then(a.from_s.cmp(&b.from_s)));
        let listed = rows.len();
        rows.truncate(BURSTS);
        let all = if noise { found.noise } else { found.lasting };
        let more = more_bursts(all.saturating_sub(rows.len() as u64), (listed - rows.len()) as u64);
        let title = if noise { "NOISE FROM" } else { "BURST FROM" };
        let table = TextTable::of(&rows, self.paint)
            .left(title, |burst| self.at(burst.from_s))
            .right("LASTS", |burst| long(burst.length_s.0))
            .right("PEAK", |burst| gpus_short(burst.peak))
            .right("GPU-H ABOVE", |burst| number(burst.above_gpu_hours, 1));
        let why = match noise {
            true => format!("each is over before a node takes work ({}): they queue", long(found.boot_s.0)),
            false => format!("each goes on after a node takes work ({})", long(found.boot_s.0)),
        };
        (!rows.is_empty()).then(|| indented(&format!("{}{more}\n{}", table.text(), self.paint.faint(&why))))
    }

    fn notes(&self) -> String {
        let d = self.demand;
        let own = [
            (d.cpu_only_jobs, "jobs ask for no GPU and are in no figure"),
            (d.unknown_jobs, "jobs are in no figure of GPUs over time: nobody knows how long their work takes"),
        ];
        let own = own.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(n)));
        let notes = own.chain(d.notes.iter().map(|note| short(note, 400)));
        let lines = notes.flat_map(|note| wrapped(&format!("note: {note}"), Some(WIDTH)));
        lines.map(|line| self.paint.faint(&line)).collect::<Vec<_>>().join("\n")
    }
}

/// How many bursts a table leaves out, and how many of these the document lists.
fn more_bursts(left_out: u64, listed: u64) -> String {
    match (left_out, listed) {
        (0, _) => String::new(),
        (more, listed) if listed >= more => format!("\nand {} more: --json has them", count(more)),
        (more, 0) => format!("\nand {} smaller ones: they are counted, and listed nowhere", count(more)),
        (more, listed) => format!("\nand {} more: --json has the {} largest of them", count(more), count(listed)),
    }
}

/// Milliseconds as people read them.
fn long(ms: u64) -> String {
    seconds(ms as f64 / 1000.0)
}

/// GPUs in few characters.
fn gpus_short(x: f64) -> String {
    if x >= 100.0 { number(x, 0) } else { gpus(x) }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| if line.is_empty() { String::new() } else { format!("  {line}") })
        .collect::<Vec<_>>()
        .join("\n")
}

fn by_hour(asked: &ConcurrencyFigures) -> String {
    let mut hours = [PlotColumn::default(); 24];
    for hour in &asked.by_hour {
        hours[usize::from(hour.hour % 24)] = PlotColumn { mean: hour.mean, peak: hour.peak };
    }
    // Two characters of each hour and a gap tell one from the next.
    let spaced: Vec<PlotColumn> =
        hours.iter().flat_map(|hour| [*hour, *hour, PlotColumn::default()]).take(71).collect();
    let axis: String = (0..24).map(|hour| format!("{hour:02} ")).collect();
    format!("{}\n{:MARGIN$}{}", columns(&spaced, 1, HEIGHT - 2), "", axis.trim_end())
}

fn queue_depth(found: &QueueDepthDocument, paint: Paint) -> String {
    let rows: [(&str, OverTime); 2] = [("jobs", found.jobs), ("GPUs", found.gpus)];
    let of = |figure: fn(&OverTime) -> f64| move |row: &(&str, OverTime)| gpus_short(figure(&row.1));
    let table = TextTable::of(&rows, paint)
        .left("WAITING AT ONCE", |row| row.0.to_owned())
        .right("MEAN", of(|d| d.mean))
        .right("P50", of(|d| d.p50))
        .right("P90", of(|d| d.p90))
        .right("P99", of(|d| d.p99))
        .right("PEAK", of(|d| d.peak));
    let waits = found.wait_s.map_or_else(|| "none has started".to_owned(), |wait| spread(&wait));
    let shown = vec![("wait at the end", count(found.waiting)), ("over without a start", count(found.gave_up))];
    indented(&format!("{}\nwaits  {waits}\n{}", table.text(), figures(&[shown])))
}

fn spread(of: &SpanFigures) -> String {
    let [p50, p90, p99, longest] = [of.p50, of.p90, of.p99, of.longest].map(|span| long(span.0));
    format!("{p50} p50, {p90} p90, {p99} p99, {longest} longest, of {}", count(of.count))
}

fn tolerance(found: &ToleranceDocument, paint: Paint) -> String {
    let up_to = |band: Option<Seconds>| match band {
        None => "longer".to_owned(),
        Some(Seconds(0)) => "not at all".to_owned(),
        Some(end) => format!("up to {}", long(end.0)),
    };
    let table = TextTable::of(&found.bands, paint)
        .left("MAY WAIT", |band| up_to(band.up_to_s))
        .right("JOBS", |band| count(band.jobs))
        .right("GPU-HOURS", |band| number(band.gpu_hours, 1))
        .right("SHARE", |band| percent(band.share))
        .left("", |band| "#".repeat((band.share * 30.0).round() as usize));
    let [p10, p50, p90] = [found.p10_s, found.p50_s, found.p90_s].map(|span| long(span.0));
    let source = |source: &str| match source {
        "maxWait" => "by max_wait_s",
        "deadline" => "by a deadline",
        "deadlineOutOfReach" => "deadline out of reach",
        _ => "by a start target",
    };
    let jobs = |n: u64| format!("{} jobs", count(n));
    let mut shown =
        vec![("stated", format!("{}, {} of the work", jobs(found.stated_jobs), percent(found.stated_share)))];
    shown.extend(found.sources.iter().map(|of| (source(&of.source), jobs(of.jobs))));
    shown.push(("not stated", jobs(found.unstated_jobs)));
    shown.push(("may wait, by work", format!("{p10} p10, {p50} p50, {p90} p90")));
    indented(&format!("{}\n{}", figures(&[shown]), table.text()))
}

fn mix(found: &MixDocument, paint: Paint) -> String {
    let rows = [("batch", found.batch), ("inference", found.inference), ("nothing tells", Some(found.untold))];
    type Row = (&'static str, Option<MixFigures>);
    let of =
        |show: fn(&MixFigures) -> String| move |row: &Row| row.1.map_or_else(|| "?".to_owned(), |part| show(&part));
    let table = TextTable::of(&rows, paint)
        .left("WORK", |row| row.0.to_owned())
        .right("JOBS", of(|part| count(part.jobs)))
        .right("GPU-HOURS", of(|part| number(part.gpu_hours, 1)))
        .right("SHARE", of(|part| percent(part.share)))
        .left("", |row| "#".repeat((row.1.map_or(0.0, |part| part.share) * 30.0).round() as usize));
    indented(&table.text())
}

fn residency(found: &ResidencyDocument, paint: Paint) -> String {
    let times =
        |ratio: Option<f64>| ratio.map_or("nothing computed".to_owned(), |ratio| format!("{} x", number(ratio, 2)));
    let known = |source: &str| match source {
        "gpuUtil" => "jobs with gpu_util",
        "services" => "services that are loaded",
        _ => "runs reported idle",
    };
    let table = TextTable::of(&found.rows, paint)
        .left("KNOWN OF", |row| known(&row.source).to_owned())
        .right("COUNT", |row| count(row.count))
        .right("HELD GPU-H", |row| number(row.resident_gpu_hours, 1))
        .right("COMPUTING", |row| number(row.busy_gpu_hours, 1))
        .right("HELD/COMPUTING", |row| times(row.ratio));
    indented(&format!("{}\nall of it: {}", table.text(), times(found.ratio)))
}

fn durations(found: &DurationsDocument, paint: Paint) -> String {
    let rows: Vec<&QueueDurationFigures> = found.by_queue.iter().take(QUEUES).collect();
    let of = |figure: fn(&SpanFigures) -> Seconds| move |row: &&QueueDurationFigures| long(figure(&row.durations).0);
    let table = TextTable::of(&rows, paint)
        .left("QUEUE", |row| short(&row.queue, 24))
        .right("JOBS", |row| count(row.durations.count))
        .right("GPU-HOURS", |row| number(row.gpu_hours, 1))
        .right("P50", of(|d| d.p50))
        .right("P90", of(|d| d.p90))
        .right("P99", of(|d| d.p99));
    let more = found.by_queue.len() - rows.len();
    let more =
        if more > 0 { format!("\nand {} queues more: --json has them", count(more as u64)) } else { String::new() };
    let all = spread(&found.all);
    let queues = if rows.is_empty() { String::new() } else { format!("\n{}{more}", table.text()) };
    indented(&format!("all  {all}{queues}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bursts_that_the_document_lists_are_said_to_be_in_it() {
        for (left_out, listed, said) in [
            (0, 0, ""),
            (12, 12, "\nand 12 more: --json has them"),
            (1_500, 992, "\nand 1,500 more: --json has the 992 largest of them"),
            (7, 0, "\nand 7 smaller ones: they are counted, and listed nowhere"),
        ] {
            assert_eq!(more_bursts(left_out, listed), said);
        }
    }
}
