//! What the GPUs of the node do, read from one of two sources: the driver's library (NVML) or the text of a DCGM exporter.
//!
//! ```text
//! NVML  ---+
//!          +--sampler, a thread of its own--> GpuSample, one GpuReading a GPU or MIG instance
//! DCGM  ---+
//! ```
//!
//! A figure that the source does not give is absent. It is never zero for that, because zero means idle.

pub(crate) mod dcgm;
pub(crate) mod nvml;
pub(crate) mod sampler;

use crate::owners::PodName;
use crate::report::printable;
use crate::{AgentError, address};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The least use that counts as computing, in thousandths: half a percent. NVML gives whole percents, so there it is one percent; an exporter's
/// averages have noise below it.
const COMPUTES_FROM: u32 = 5;

/// Where the agent reads what GPUs do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSource {
    /// The driver's library, or the one at this path.
    Nvml {
        /// `None`: `libnvidia-ml`, where the system finds it.
        library: Option<PathBuf>,
    },
    /// A DCGM exporter.
    Dcgm {
        /// Its metrics, such as `http://127.0.0.1:9400/metrics`.
        url: String,
    },
    /// GPUs are not read.
    None,
}

/// A text names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given}: this is no source of GPU figures; write nvml, nvml=LIBRARY, dcgm=http://HOST:PORT or none")]
pub struct GpuSourceError {
    given: String,
}

impl FromStr for GpuSource {
    type Err = GpuSourceError;

    fn from_str(text: &str) -> Result<GpuSource, GpuSourceError> {
        match text.split_once('=') {
            None if text == "nvml" => Ok(GpuSource::Nvml { library: None }),
            None if text == "none" => Ok(GpuSource::None),
            Some(("nvml", path)) if !path.is_empty() => Ok(GpuSource::Nvml { library: Some(PathBuf::from(path)) }),
            Some(("dcgm", url)) if !url.is_empty() => Ok(GpuSource::Dcgm { url: url.to_owned() }),
            _ => Err(GpuSourceError { given: printable(text) }),
        }
    }
}

impl GpuSource {
    /// The name in reports and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            GpuSource::Nvml { .. } => "nvml",
            GpuSource::Dcgm { .. } => "dcgm",
            GpuSource::None => "none",
        }
    }

    /// How often it is read. NVML averages over at most a second; an exporter reads DCGM every 30 s by default.
    #[must_use]
    pub fn interval(&self) -> Duration {
        match self {
            GpuSource::Dcgm { .. } => Duration::from_secs(5),
            GpuSource::Nvml { .. } | GpuSource::None => Duration::from_secs(1),
        }
    }

    /// What reads it. `None`: nothing does.
    pub(crate) fn reader(&self) -> Result<Option<Box<dyn GpuReader>>, AgentError> {
        Ok(match self {
            GpuSource::Nvml { library } => Some(Box::new(nvml::NvmlReader::new(library.clone()))),
            GpuSource::Dcgm { url } => Some(Box::new(dcgm::DcgmReader::new(address("gpus", url)?))),
            GpuSource::None => None,
        })
    }
}

/// A source that can be read again and again. A call may hang for ever: only the sampler's thread makes it.
pub(crate) trait GpuReader: Send {
    /// Reads all GPUs, or says why that was not possible.
    fn read(&mut self) -> Result<GpuSample, String>;
}

/// The GPUs of the node at one time.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct GpuSample {
    pub gpus: Vec<GpuReading>,
}

/// One GPU, or one MIG instance where the source gives figures of these.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct GpuReading {
    pub index: u32,
    pub uuid: Option<String>,
    pub name: Option<String>,
    /// Whether it is partitioned.
    pub mig: Option<bool>,
    /// The MIG instance that the figures are of.
    pub instance: Option<u32>,
    /// The part of the time in which it computed, in thousandths.
    pub utilization: Option<u32>,
    pub used_mib: Option<u64>,
    pub total_mib: Option<u64>,
    /// The processes on it.
    pub processes: Option<Vec<GpuProcess>>,
    /// The pod that has it, where the source says so.
    pub pod: Option<PodName>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuProcess {
    pub pid: u32,
    pub used_mib: Option<u64>,
    /// The part of the time in which this process computed, in thousandths.
    pub utilization: Option<u32>,
}

/// Whether so much use is computing.
pub(crate) fn computes(utilization: Option<u32>) -> Option<bool> {
    utilization.map(|permille| permille >= COMPUTES_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_in_one_word() {
        let library = |path: &str| GpuSource::Nvml { library: Some(PathBuf::from(path)) };
        for (text, wanted) in [
            ("nvml", Some(GpuSource::Nvml { library: None })),
            ("nvml=/x/libnvidia-ml.so.1", Some(library("/x/libnvidia-ml.so.1"))),
            ("dcgm=http://127.0.0.1:9400", Some(GpuSource::Dcgm { url: "http://127.0.0.1:9400".to_owned() })),
            ("none", Some(GpuSource::None)),
            ("", None),
            ("NVML", None),
            ("nvml=", None),
            ("dcgm", None),
            ("dcgm=", None),
            ("none=1", None),
            ("rocm\u{7}", None),
        ] {
            let parsed = text.parse::<GpuSource>();
            assert_eq!(parsed.clone().ok(), wanted, "{text}");
            assert!(!parsed.is_err_and(|error| error.to_string().contains('\u{7}')), "{text}");
        }
        let reader = GpuSource::Dcgm { url: "https://127.0.0.1".to_owned() }.reader();
        assert!(reader.is_err_and(|error| error.to_string().contains("http://HOST:PORT")));
    }

    #[test]
    fn noise_is_not_computing_and_what_is_not_known_is_neither() {
        assert_eq!(
            [None, Some(0), Some(4), Some(5), Some(1000)].map(computes),
            [None, Some(false), Some(false), Some(true), Some(true)]
        );
    }
}
