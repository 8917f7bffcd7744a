//! What each worker does with its GPUs, by one sample of these and the owners of the processes on them.
//!
//! ```text
//! on a GPU by itself        computes as the GPU does
//! with others on it         as the driver says of its processes; else not, if the GPU is idle; else it is not known
//! on no GPU                 does not compute, if the processes on all GPUs are known; else it is not known
//! ```
//!
//! What is not known is never idle. Never: reads anything.

use crate::gpus::{GpuReading, GpuSample, computes};
use crate::owners::{PresentWorkers, ProcessOwner};
use crate::worker::WorkerName;
use std::collections::BTreeMap;

/// Memory of a GPU that counts as held where the source knows no processes, in MiB: the driver's own part of an empty GPU is smaller.
const RESIDENT_FROM: u64 = 64;

/// What a worker does with its GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WorkerReading {
    /// GPUs, or MIG instances, that it is on.
    pub gpus: u32,
    /// The memory that it holds on them.
    pub memory_mib: Option<u64>,
    /// Whether it computes.
    pub computes: Option<bool>,
    /// Whether it holds memory of a GPU.
    pub resident: Option<bool>,
}

/// The owners of all processes in a sample.
pub(crate) type Owners = BTreeMap<u32, ProcessOwner>;

/// What each worker that is there does. A worker that is on a GPU is there too, even if it was not seen elsewhere.
pub(crate) fn judge(
    sample: &GpuSample,
    owners: &Owners,
    present: &PresentWorkers,
) -> BTreeMap<WorkerName, WorkerReading> {
    let mut readings: BTreeMap<WorkerName, WorkerReading> = BTreeMap::new();
    for gpu in &sample.gpus {
        for (name, reading) in on_gpu(gpu, owners, present) {
            let known = readings.get(&name).copied();
            readings.insert(name, known.map_or(reading, |before| both(before, reading)));
        }
    }
    let elsewhere = on_no_gpu(sample, owners);
    for name in &present.workers {
        readings.entry(*name).or_insert(elsewhere);
    }
    readings
}

fn on_gpu(gpu: &GpuReading, owners: &Owners, present: &PresentWorkers) -> BTreeMap<WorkerName, WorkerReading> {
    if let Some(pod) = &gpu.pod {
        let resident = gpu.used_mib.map(|mib| mib >= RESIDENT_FROM);
        let reading =
            WorkerReading { gpus: 1, memory_mib: gpu.used_mib, computes: computes(gpu.utilization), resident };
        return present.pods.get(pod).map(|name| (*name, reading)).into_iter().collect();
    }
    let owner = |pid: &u32| owners.get(pid).copied().unwrap_or(ProcessOwner::Invisible);
    let processes = gpu.processes.iter().flatten();
    let mut readings = BTreeMap::new();
    for process in processes.clone() {
        let ProcessOwner::Worker(name) = owner(&process.pid) else { continue };
        let own = |pid: &u32| owner(pid) == ProcessOwner::Worker(name);
        let alone = processes.clone().all(|other| own(&other.pid));
        let by_process = processes.clone().filter(|other| own(&other.pid)).map(|own| computes(own.utilization));
        let of_all = by_process.reduce(any).flatten();
        let of_gpu = computes(gpu.utilization);
        let computes = match of_all {
            // One process of it is known to compute, or all of them not to.
            Some(computes) => Some(computes || (alone && of_gpu == Some(true))),
            None => of_gpu.filter(|computes| alone || !computes),
        };
        let memory = processes.clone().filter(|other| own(&other.pid)).map(|own| own.used_mib);
        let memory_mib = memory.reduce(|one, other| Some(one? + other?)).flatten();
        let resident = memory_mib.map_or(Some(true), |mib| Some(mib > 0));
        readings.insert(name, WorkerReading { gpus: 1, memory_mib, computes, resident });
    }
    readings
}

/// A worker that none of the processes belongs to.
fn on_no_gpu(sample: &GpuSample, owners: &Owners) -> WorkerReading {
    let visible = |pid: &u32| !matches!(owners.get(pid), None | Some(ProcessOwner::Invisible));
    // A GPU that computes for nobody has processes that are not to be seen, and those may be of any worker.
    let explained = |gpu: &GpuReading| match &gpu.processes {
        Some(processes) if processes.is_empty() => computes(gpu.utilization) == Some(false),
        Some(processes) => processes.iter().all(|process| visible(&process.pid)),
        None => false,
    };
    let idle = |gpu: &GpuReading| gpu.pod.is_none() && computes(gpu.utilization) == Some(false);
    let known = |by: &dyn Fn(&GpuReading) -> bool| !sample.gpus.is_empty() && sample.gpus.iter().all(by);
    // Memory that is held by nobody to be seen may be of any worker as well.
    let empty = known(&explained);
    WorkerReading {
        gpus: 0,
        memory_mib: empty.then_some(0),
        computes: known(&|gpu| explained(gpu) || idle(gpu)).then_some(false),
        resident: empty.then_some(false),
    }
}

/// One of both is so; neither is so; or it is not known.
fn any(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// A worker on two GPUs.
fn both(one: WorkerReading, other: WorkerReading) -> WorkerReading {
    WorkerReading {
        gpus: one.gpus + other.gpus,
        memory_mib: one.memory_mib.zip(other.memory_mib).map(|(one, other)| one + other),
        computes: any(one.computes, other.computes),
        resident: any(one.resident, other.resident),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::GpuProcess;
    use crate::owners::PodName;

    fn name(text: &str) -> WorkerName {
        text.parse().unwrap()
    }

    /// Processes 10 to 19 are of worker 0, 20 to 29 of worker 1, 30 to 39 of nobody, and others are not visible.
    fn owners() -> Owners {
        let worker = |text: &str| ProcessOwner::Worker(name(text));
        let of = |from: u32, owner: ProcessOwner| (from..from + 10).map(move |pid| (pid, owner));
        of(10, worker("job-1/1/0")).chain(of(20, worker("job-1/1/1"))).chain(of(30, ProcessOwner::Foreign)).collect()
    }

    fn present() -> PresentWorkers {
        let pod = PodName { namespace: "a".to_owned(), name: "p".to_owned() };
        let workers = ["job-1/1/0", "job-1/1/1", "job-2/1/0"].map(name).into();
        PresentWorkers { workers, pods: BTreeMap::from([(pod, name("job-2/1/0"))]) }
    }

    /// A GPU with this use and these processes, each with its own use where that is known.
    fn gpu(utilization: Option<u32>, processes: Option<&[(u32, Option<u32>)]>) -> GpuReading {
        let process = |(pid, utilization): &(u32, Option<u32>)| GpuProcess {
            pid: *pid,
            used_mib: Some(100),
            utilization: *utilization,
        };
        let processes = processes.map(|all| all.iter().map(process).collect());
        GpuReading { utilization, processes, used_mib: Some(1000), ..GpuReading::default() }
    }

    /// Whether the three workers compute.
    fn judged(gpus: Vec<GpuReading>) -> [Option<bool>; 3] {
        let readings = judge(&GpuSample { gpus }, &owners(), &present());
        ["job-1/1/0", "job-1/1/1", "job-2/1/0"].map(|text| readings[&name(text)].computes)
    }

    #[test]
    fn what_computes_is_told_from_what_is_idle_and_from_what_is_not_known() {
        let (yes, no) = (Some(true), Some(false));
        for (why, gpus, wanted) in [
            ("alone on a busy GPU", vec![gpu(Some(900), Some(&[(10, None), (11, None)]))], [yes, no, no]),
            ("alone on an idle GPU", vec![gpu(Some(0), Some(&[(10, None)]))], [no, no, no]),
            ("shared and busy", vec![gpu(Some(900), Some(&[(10, None), (20, None)]))], [None, None, no]),
            ("shared and idle", vec![gpu(Some(0), Some(&[(10, None), (20, None)]))], [no, no, no]),
            ("shared, told apart", vec![gpu(Some(900), Some(&[(10, Some(0)), (20, Some(900))]))], [no, yes, no]),
            ("shared, half told", vec![gpu(Some(900), Some(&[(10, None), (20, Some(900))]))], [None, yes, no]),
            ("with a stranger", vec![gpu(Some(900), Some(&[(10, None), (30, None)]))], [None, no, no]),
            ("alone, its process between samples", vec![gpu(Some(900), Some(&[(10, Some(0))]))], [yes, no, no]),
            ("with one that is not visible", vec![gpu(Some(900), Some(&[(10, None), (77, None)]))], [None, None, None]),
            ("all idle, whoever they are", vec![gpu(Some(0), Some(&[(77, None)]))], [no, no, no]),
            ("busy for nobody", vec![gpu(Some(900), Some(&[]))], [None, None, None]),
            ("partitioned: no use is given", vec![gpu(None, Some(&[(10, None)]))], [None, no, no]),
            ("processes are not given", vec![gpu(Some(900), None)], [None, None, None]),
            ("idle without a list", vec![gpu(Some(0), None)], [no, no, no]),
            (
                "one of two GPUs computes",
                vec![gpu(Some(0), Some(&[(10, None)])), gpu(Some(7), Some(&[(10, None)]))],
                [yes, no, no],
            ),
            (
                "one of two GPUs is not known",
                vec![gpu(Some(0), Some(&[(10, None)])), gpu(None, Some(&[(10, None)]))],
                [None, no, no],
            ),
            ("a GPU that has failed", vec![GpuReading::default()], [None, None, None]),
            ("no GPU", vec![], [None, None, None]),
        ] {
            assert_eq!(judged(gpus), wanted, "{why}");
        }
    }

    #[test]
    fn memory_is_held_by_who_is_on_the_gpu() {
        let sample = GpuSample { gpus: vec![gpu(Some(0), Some(&[(10, None), (11, None), (20, None)]))] };
        let readings = judge(&sample, &owners(), &present());
        let held =
            |text: &str| (readings[&name(text)].gpus, readings[&name(text)].memory_mib, readings[&name(text)].resident);
        assert_eq!(held("job-1/1/0"), (1, Some(200), Some(true)));
        assert_eq!(held("job-1/1/1"), (1, Some(100), Some(true)));
        assert_eq!(held("job-2/1/0"), (0, Some(0), Some(false)));
    }

    #[test]
    fn an_exporters_gpu_is_its_pods() {
        let of_pod = |name: &str, utilization: Option<u32>, used: u64| GpuReading {
            pod: Some(PodName { namespace: "a".to_owned(), name: name.to_owned() }),
            used_mib: Some(used),
            utilization,
            ..GpuReading::default()
        };
        let figures = |gpus: Vec<GpuReading>| {
            let reading = judge(&GpuSample { gpus }, &Owners::new(), &present())[&name("job-2/1/0")];
            (reading.gpus, reading.memory_mib, reading.computes, reading.resident)
        };
        assert_eq!(figures(vec![of_pod("p", Some(0), 2000)]), (1, Some(2000), Some(false), Some(true)));
        assert_eq!(
            figures(vec![of_pod("p", Some(0), 3), of_pod("p", Some(400), 9)]),
            (2, Some(12), Some(true), Some(false))
        );
        assert_eq!(figures(vec![of_pod("q", Some(0), 3)]), (0, None, None, None), "another pod's says nothing of it");
        assert_eq!(judged(vec![of_pod("p", None, 3)]), [None; 3]);
    }
}
