//! GPUs by the text of a DCGM exporter, in Prometheus' format:
//!
//! ```text
//! DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-8f..",namespace="team-a",pod="train-0"} 35
//! DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-9a..",GPU_I_ID="3",namespace="team-a",pod="infer-0"} 0.41
//! DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-8f..",namespace="team-a",pod="train-0"} 20480
//! ```
//!
//! Use is the most that any of its metrics says. The exporter knows pods and no processes. It comes over the network, so every size has
//! a bound. Never: follows a redirect, or takes a figure that is out of its range.

use super::{GpuReader, GpuReading, GpuSample};
use crate::controller_client::http_agent;
use crate::owners::PodName;
use crate::report::printable;
use std::collections::BTreeMap;
use std::time::Duration;
use ureq::Agent;

/// The largest text that is read, in bytes: 8 GPUs with 7 instances each, 60 metrics of 400 bytes, and as much again.
const MOST_TEXT: u64 = 4 * 1024 * 1024;
/// The longest line. Labels have some hundred bytes.
const MOST_LINE: usize = 8 * 1024;
/// The most GPUs and instances that are kept.
const MOST_SERIES: usize = 512;
/// The most labels of one line.
const MOST_LABELS: usize = 64;
/// The time limit of one request. The exporter has its figures in memory.
const TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) struct DcgmReader {
    agent: Agent,
    url: String,
}

impl DcgmReader {
    /// Reads `/metrics` where the address has no path of its own.
    pub fn new(url: &str) -> DcgmReader {
        let has_path = url.trim_start_matches("http://").contains('/');
        let url = if has_path { url.to_owned() } else { format!("{url}/metrics") };
        DcgmReader { agent: http_agent(TIMEOUT), url }
    }
}

impl GpuReader for DcgmReader {
    fn read(&mut self) -> Result<GpuSample, String> {
        let failed = |error: ureq::Error| format!("no figures from {}: {}", self.url, printable(&error.to_string()));
        let mut response = self.agent.get(&self.url).call().map_err(failed)?;
        if response.status() != 200 {
            return Err(format!("no figures from {}: it responded {}", self.url, response.status()));
        }
        let text = response.body_mut().with_config().limit(MOST_TEXT).read_to_string().map_err(failed)?;
        let sample = parse(&text);
        if sample.gpus.is_empty() {
            return Err(format!("no GPU: {} has no DCGM_FI metrics; is it a DCGM exporter?", self.url));
        }
        Ok(sample)
    }
}

/// The figures of one GPU or one of its instances.
type Series = (u32, Option<u32>);

/// Parses the text of an exporter. A line that is not understood is left out.
pub(crate) fn parse(text: &str) -> GpuSample {
    let mut gpus: BTreeMap<Series, GpuReading> = BTreeMap::new();
    let mut free: BTreeMap<Series, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| line.len() <= MOST_LINE && line.starts_with("DCGM_FI_")) {
        let Some((metric, labels, value)) = sample_line(line) else { continue };
        let Some(index) = labels.get("gpu").and_then(|gpu| gpu.parse().ok()) else { continue };
        let series = (index, labels.get("GPU_I_ID").and_then(|id| id.parse().ok()));
        if gpus.len() >= MOST_SERIES && !gpus.contains_key(&series) {
            continue;
        }
        let known = || GpuReading { index, instance: series.1, mig: Some(series.1.is_some()), ..GpuReading::default() };
        match metric {
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE" => used(gpus.entry(series).or_insert_with(known), value, 1000.0, 1.0),
            "DCGM_FI_DEV_GPU_UTIL" | "DCGM_FI_DEV_ENC_UTIL" | "DCGM_FI_DEV_DEC_UTIL" => {
                used(gpus.entry(series).or_insert_with(known), value, 10.0, 100.0);
            }
            "DCGM_FI_DEV_FB_USED" => gpus.entry(series).or_insert_with(known).used_mib = mib(value),
            "DCGM_FI_DEV_FB_FREE" => {
                gpus.entry(series).or_insert_with(known);
                free.extend(mib(value).map(|mib| (series, mib)));
            }
            _ => continue,
        }
        if let Some(reading) = gpus.get_mut(&series) {
            describe(reading, &labels);
        }
    }
    for (series, reading) in &mut gpus {
        reading.total_mib = reading.used_mib.zip(free.get(series)).map(|(used, free)| used.saturating_add(*free));
    }
    GpuSample { gpus: gpus.into_values().collect() }
}

/// Takes a figure of use that is at most `most`.
fn used(reading: &mut GpuReading, value: f64, scale: f64, most: f64) {
    if (0.0..=most).contains(&value) {
        // Rounded to thousandths: the range is checked.
        let permille = (value * scale).round() as u32;
        reading.utilization = Some(reading.utilization.map_or(permille, |before| before.max(permille)));
    }
}

/// A memory in MiB. DCGM writes what it does not know as very large numbers; no GPU has 16 TiB.
fn mib(value: f64) -> Option<u64> {
    (0.0..=16_777_216.0).contains(&value).then_some(value as u64)
}

fn describe(reading: &mut GpuReading, labels: &BTreeMap<&str, String>) {
    let label = |name: &str, most: usize| {
        let value = labels.get(name).filter(|value| !value.is_empty() && value.len() <= most)?;
        value.bytes().all(|b| b.is_ascii_graphic()).then(|| value.clone())
    };
    reading.uuid = reading.uuid.take().or_else(|| label("UUID", 64));
    reading.name = reading.name.take().or_else(|| labels.get("modelName").map(|name| printable(name)));
    let pod = label("namespace", 253).zip(label("pod", 253));
    reading.pod = reading.pod.take().or_else(|| pod.map(|(namespace, name)| PodName { namespace, name }));
}

/// A line as `name{label="value",...} 12.5`, with an optional time behind it.
fn sample_line(line: &str) -> Option<(&str, BTreeMap<&str, String>, f64)> {
    let open = line.find('{')?;
    let (labels, rest) = label_set(&line[open + 1..])?;
    let value = rest.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
    Some((line[..open].trim_end(), labels, value))
}

/// Labels up to `}`, and what is behind it. `\\`, `\"` and `\n` are the escapes of the format.
fn label_set(text: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let (mut labels, mut rest) = (BTreeMap::new(), text);
    for _ in 0..=MOST_LABELS {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, quoted) = rest.split_once('=')?;
        let (value, behind) = quoted_value(quoted.trim_start().strip_prefix('"')?)?;
        labels.insert(name.trim(), value);
        rest = behind;
    }
    None
}

/// A value up to its closing quote, and what is behind it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",container="main",namespace="team-a",pod="train-0"} 35
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b"} 0
DCGM_FI_DEV_ENC_UTIL{gpu="1",UUID="GPU-b"} 12 1795295091000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",namespace="team-a",pod="train-0"} 20480
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",namespace="team-a",pod="train-0"} 61440
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",UUID="GPU-c",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",namespace="team-a",pod="infer-0"} 0.4119
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",UUID="GPU-c",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8",namespace="",pod=""} 0.000000
DCGM_FI_DEV_SM_CLOCK{gpu="3"} 1980
go_goroutines 12
"#;

    fn pod(name: &str) -> Option<PodName> {
        Some(PodName { namespace: "team-a".to_owned(), name: name.to_owned() })
    }

    #[test]
    fn gpus_and_instances_have_their_figures_and_pods() {
        let gpus = parse(TEXT).gpus;
        let figures = gpus.iter().map(|g| (g.index, g.instance, g.utilization, g.used_mib, g.total_mib, g.pod.clone()));
        assert_eq!(
            Vec::from_iter(figures),
            [
                (0, None, Some(350), Some(20480), Some(81920), pod("train-0")),
                (1, None, Some(120), None, None, None),
                (2, Some(7), Some(412), None, None, pod("infer-0")),
                (2, Some(8), Some(0), None, None, None),
            ]
        );
        assert_eq!((gpus[0].uuid.as_deref(), gpus[0].name.as_deref()), (Some("GPU-a"), Some("NVIDIA H100 80GB HBM3")));
    }

    #[test]
    fn a_figure_that_is_none_is_absent_and_never_zero() {
        for value in ["NaN", "+Inf", "-1", "101", "9223372036854775794", "140737488355328", "", "x", "1e400"] {
            let text = format!(
                "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\"}} {value}\nDCGM_FI_DEV_FB_USED{{gpu=\"0\"}} 9e18\nDCGM_FI_DEV_FB_FREE{{gpu=\"0\"}} 1\n"
            );
            let gpus = parse(&text).gpus;
            assert_eq!(
                (gpus.len(), gpus[0].utilization, gpus[0].used_mib, gpus[0].total_mib),
                (1, None, None, None),
                "{value}"
            );
        }
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let long = format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",x=\"{}\"}} 1", "y".repeat(MOST_LINE));
        let labels: String = (0..100).map(|n| format!("l{n}=\"\",")).collect();
        for line in [
            "DCGM_FI_DEV_GPU_UTIL",
            "DCGM_FI_DEV_GPU_UTIL 5",
            "DCGM_FI_DEV_GPU_UTIL{} 5",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\" 5",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"0} 5",
            "DCGM_FI_DEV_GPU_UTIL{gpu=0} 5",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"-1\"} 5",
            "DCGM_FI_DEV_GPU_UTIL{gpu=\"\\",
            "DCGM_FI_\u{1f980}{gpu=\"0\"} 5",
            &long,
            &format!("DCGM_FI_DEV_GPU_UTIL{{{labels}gpu=\"0\"}} 5"),
        ] {
            assert_eq!(parse(line).gpus, [], "{line}");
        }
        let escaped = parse("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\\\"} 9\\n\",namespace=\"b\"} 5").gpus;
        assert_eq!((escaped[0].utilization, &escaped[0].pod), (Some(50), &None), "a pod by that name cannot be");
        let many: String = (0..2000).map(|n| format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"{n}\"}} 1\n")).collect();
        assert_eq!(parse(&many).gpus.len(), MOST_SERIES);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FB_USED|\\{|\\}|gpu=|\"|\\\\|,| |0|5|\n|.){0,60}") {
            let gpus = parse(&text).gpus;
            prop_assert!(gpus.iter().all(|gpu| gpu.utilization.is_none_or(|used| used <= 1000)));
        }
    }

    #[test]
    fn an_address_without_a_path_has_the_usual_one() {
        assert_eq!(DcgmReader::new("http://127.0.0.1:9400").url, "http://127.0.0.1:9400/metrics");
        assert_eq!(DcgmReader::new("http://127.0.0.1:9400/m").url, "http://127.0.0.1:9400/m");
    }
}
