//! One look at the node: its GPUs, the processes on them and whose they are, the workers and what they do. `forebay agent --once` prints it.
//!
//! Never: waits longer than it was told, or sends anything.

use crate::activity::judge::WorkerReading;
use crate::activity::monitor::{owners, readings};
use crate::gpus::{GpuReading, GpuSample, GpuSource};
use crate::owners::{NodeRoots, ProcessOwner};
use crate::{AgentError, worker::WorkerName};
use std::fmt::Write as _;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Reads the GPUs once and describes what is seen.
///
/// # Errors
/// The source's address is not valid, or the system has no thread left.
pub fn inspect(source: &GpuSource, roots: &NodeRoots, limit: Duration) -> Result<String, AgentError> {
    let Some(mut reader) = source.reader()? else {
        return Ok("GPUs are not read (--gpus none)\n".to_owned());
    };
    let (to, sample) = channel();
    // Nobody waits for this thread: the call may never return.
    let thread = std::thread::Builder::new().name("gpus".to_owned()).spawn(move || to.send(reader.read()));
    thread.map_err(|error| AgentError::Thread(error.to_string()))?;
    Ok(match sample.recv_timeout(limit) {
        Ok(Ok(sample)) => describe(&sample, source, roots),
        Ok(Err(why)) => format!("source {}: {why}\n", source.name()),
        Err(_) => format!("source {}: no response within {limit:?}\n", source.name()),
    })
}

fn describe(sample: &GpuSample, source: &GpuSource, roots: &NodeRoots) -> String {
    let (owners, present) = (owners(sample, roots), roots.present());
    let mut text = format!("source {}: {}\n", source.name(), count(sample.gpus.len(), "GPU"));
    for gpu in &sample.gpus {
        gpu_line(&mut text, gpu);
        for process in gpu.processes.iter().flatten() {
            let owner = match owners.get(&process.pid) {
                Some(ProcessOwner::Worker(name)) => name.to_string(),
                Some(ProcessOwner::Foreign) => "of no worker".to_owned(),
                Some(ProcessOwner::Invisible) | None => "not to be seen from here".to_owned(),
            };
            let _ = writeln!(text, "  process {}: {owner}, {}", process.pid, mib(process.used_mib));
        }
        if let Some(pod) = &gpu.pod {
            let _ = writeln!(text, "  pod {}/{}", pod.namespace, pod.name);
        }
    }
    let readings = readings(sample, roots, &present);
    let _ = writeln!(text, "{}", count(readings.len(), "worker"));
    for (name, reading) in &readings {
        worker_line(&mut text, *name, *reading);
    }
    text
}

fn gpu_line(text: &mut String, gpu: &GpuReading) {
    let instance = gpu.instance.map_or_else(String::new, |id| format!(" instance {id}"));
    let name = [&gpu.name, &gpu.uuid].into_iter().flatten().map(|part| format!(" {part}")).collect::<String>();
    let used = gpu.utilization.map_or("use not known".to_owned(), |permille| {
        format!("computes {}.{} % of the time", permille / 10, permille % 10)
    });
    let partitioned = if gpu.mig == Some(true) { ", partitioned" } else { "" };
    let of = mib(gpu.total_mib);
    let _ = writeln!(text, "GPU {}{instance}{name}: {used}, {} of {of}{partitioned}", gpu.index, mib(gpu.used_mib));
}

fn worker_line(text: &mut String, name: WorkerName, reading: WorkerReading) {
    let computes = match reading.computes {
        Some(true) => "computes",
        Some(false) => "idle",
        None => "not known whether it computes",
    };
    let _ = writeln!(
        text,
        "worker {name}: on {}, {}, {computes}",
        count(reading.gpus as usize, "GPU"),
        mib(reading.memory_mib)
    );
}

fn mib(known: Option<u64>) -> String {
    known.map_or("memory not known".to_owned(), |mib| format!("{mib} MiB"))
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn without_figures_it_says_why() {
        let roots = NodeRoots { proc: PathBuf::from("/nowhere"), kubelet: PathBuf::from("/nowhere") };
        let library = GpuSource::Nvml { library: Some(PathBuf::from("/nowhere/lib.so")) };
        let text = inspect(&library, &roots, Duration::from_secs(10)).unwrap();
        assert_eq!(text, "source nvml: no GPU: the driver's library (libnvidia-ml) is not there\n");
        assert!(inspect(&GpuSource::None, &roots, Duration::ZERO).unwrap().contains("--gpus none"));
    }

    #[test]
    fn what_is_not_known_is_called_so() {
        let sample = GpuSample { gpus: vec![GpuReading::default()] };
        let roots = NodeRoots { proc: PathBuf::from("/nowhere"), kubelet: PathBuf::from("/nowhere") };
        let text = describe(&sample, &GpuSource::None, &roots);
        assert_eq!(text, "source none: 1 GPU\nGPU 0: use not known, memory not known of memory not known\n0 workers\n");
    }
}
