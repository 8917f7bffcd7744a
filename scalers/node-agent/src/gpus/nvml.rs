//! GPUs by the driver's library, `libnvidia-ml`. It is opened when the agent runs, so that the agent needs no driver to be built or started.
//!
//! A node may get its driver later than its agent: a library that is not there or does not start is tried again every minute.
//! Never: changes a setting of a GPU. Any call may hang when a GPU has failed, so only the sampler's thread makes them.

use super::{GpuProcess, GpuReader, GpuReading, GpuSample};
use crate::report::printable;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most nodes have the first name only; the second one comes with development packages.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// The pause after a library was not there or did not start.
const RETRY: Duration = Duration::from_secs(60);
/// The most GPUs of a node that are read.
const MOST_GPUS: u32 = 64;
const MIB: u64 = 1024 * 1024;

pub(crate) struct NvmlReader {
    library: Option<PathBuf>,
    nvml: Option<Nvml>,
    /// When the library was last tried in vain, and why that was.
    failed: Option<(Instant, String)>,
    /// The time of the last sample of process utilization, by GPU.
    sampled: BTreeMap<u32, u64>,
}

impl NvmlReader {
    pub fn new(library: Option<PathBuf>) -> NvmlReader {
        NvmlReader { library, nvml: None, failed: None, sampled: BTreeMap::new() }
    }

    fn open(&mut self) -> Result<(), String> {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < RETRY
        {
            return Err(why.clone());
        }
        let own = self.library.as_deref().map(|path| vec![path.as_os_str()]);
        let candidates = own.unwrap_or_else(|| LIBRARIES.iter().map(OsStr::new).collect());
        let mut first = None;
        for path in candidates {
            match Nvml::builder().lib_path(path).init() {
                Ok(nvml) => {
                    (self.nvml, self.failed) = (Some(nvml), None);
                    return Ok(());
                }
                Err(error) => first = first.or_else(|| Some(describe(&error))),
            }
        }
        let why = format!("no GPU: {}", first.unwrap_or_default());
        self.failed = Some((Instant::now(), why.clone()));
        Err(why)
    }
}

impl GpuReader for NvmlReader {
    fn read(&mut self) -> Result<GpuSample, String> {
        if self.nvml.is_none() {
            self.open()?;
        }
        let Some(nvml) = &self.nvml else { return Err("no GPU".to_owned()) };
        let count = match nvml.device_count() {
            Ok(count) => count.min(MOST_GPUS),
            Err(error) => {
                let why = format!("the driver's library does not list the GPUs: {}", describe(&error));
                // The driver may have been replaced: the library is opened again.
                (self.nvml, self.failed) = (None, Some((Instant::now(), why.clone())));
                return Err(why);
            }
        };
        let sampled = &mut self.sampled;
        let gpus = (0..count).map(|index| match nvml.device_by_index(index) {
            Ok(device) => reading(index, &device, sampled),
            // It has failed or is not to be seen: it is there, and nothing of it is known.
            Err(_) => GpuReading { index, ..GpuReading::default() },
        });
        Ok(GpuSample { gpus: gpus.collect() })
    }
}

fn reading(index: u32, device: &Device<'_>, sampled: &mut BTreeMap<u32, u64>) -> GpuReading {
    let memory = device.memory_info().ok();
    let utilization = device.utilization_rates().ok().map(|rates| rates.gpu);
    // Encoders and decoders work beside the rest; most types do not tell, and then the rest counts.
    let encodes = device.encoder_utilization().ok().map(|info| info.utilization);
    let decodes = device.decoder_utilization().ok().map(|info| info.utilization);
    let utilization = utilization.map(|gpu| [encodes, decodes].into_iter().flatten().fold(gpu, u32::max));
    let shares = process_utilization(index, device, sampled);
    let process = |info: ProcessInfo| GpuProcess {
        pid: info.pid,
        used_mib: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
            UsedGpuMemory::Unavailable => None,
        },
        utilization: shares.get(&info.pid).copied(),
    };
    GpuReading {
        index,
        uuid: device.uuid().ok().filter(|uuid| uuid.len() <= 64 && uuid.bytes().all(|b| b.is_ascii_graphic())),
        name: device.name().ok().map(|name| printable(&name)),
        mig: device.mig_mode().ok().map(|mode| mode.current == 1),
        instance: None,
        utilization: utilization.and_then(permille),
        used_mib: memory.as_ref().map(|memory| memory.used / MIB),
        total_mib: memory.as_ref().map(|memory| memory.total / MIB),
        processes: device.running_compute_processes().ok().map(|all| all.into_iter().map(process).collect()),
        pod: None,
    }
}

/// The most that each process has computed since the last call, in thousandths. Many types do not give this. The first call gives nothing:
/// the driver's samples reach back before it.
fn process_utilization(index: u32, device: &Device<'_>, sampled: &mut BTreeMap<u32, u64>) -> BTreeMap<u32, u32> {
    let since = sampled.get(&index).copied();
    let Ok(samples) = device.process_utilization_stats(since) else { return BTreeMap::new() };
    if let Some(newest) = samples.iter().map(|sample| sample.timestamp).max() {
        sampled.insert(index, newest);
    }
    let mut shares = BTreeMap::new();
    let new = |sample: &ProcessUtilizationSample| since.is_some_and(|since| sample.timestamp > since);
    for sample in samples.into_iter().filter(new) {
        if let Some(used) = permille(sample.sm_util.max(sample.enc_util).max(sample.dec_util)) {
            let most = shares.entry(sample.pid).or_insert(used);
            *most = used.max(*most);
        }
    }
    shares
}

/// Thousandths of a percentage. More than a hundred of these is no figure.
fn permille(percent: u32) -> Option<u32> {
    (percent <= 100).then(|| percent * 10)
}

/// The library's errors for a reader of logs. That of a file that is not there is long and names the loader.
fn describe(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => "the driver's library (libnvidia-ml) is not there".to_owned(),
        NvmlError::DriverNotLoaded => "the driver is not loaded".to_owned(),
        NvmlError::FailedToLoadSymbol(_) => "the driver's library (libnvidia-ml) is another one or too old".to_owned(),
        other => printable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_library_it_says_no_gpu_and_does_not_look_again_at_once() {
        let mut reader = NvmlReader::new(Some(PathBuf::from("/nowhere/libnvidia-ml.so.1")));
        let why = reader.read().unwrap_err();
        assert_eq!(why, "no GPU: the driver's library (libnvidia-ml) is not there");
        assert_eq!(reader.read().unwrap_err(), why);
        assert!(reader.failed.is_some_and(|(at, _)| at.elapsed() < RETRY));
    }

    #[test]
    fn a_percentage_above_a_hundred_is_no_figure() {
        assert_eq!([0, 35, 100, 101, u32::MAX].map(permille), [Some(0), Some(350), Some(1000), None, None]);
    }
}
