//! What an object's pods ask for, counted as kube-scheduler counts it, and what cannot be carried.
//!
//! ```text
//! pod    = max(containers + sidecars, each init container + the sidecars before it) + overhead; `spec.resources` counts in their place
//! worker = the largest pod of the object, of each resource; a gang has equal workers
//! ```

use super::NODE_LABEL_PREFIX;
use super::quantity::milli;
use super::workload::{PodGroup, Workload};
use crate::settings::KubeSettings;
use serde_json::Value;
use std::collections::BTreeMap;

/// What an object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// All pods that run at a time.
    pub workers: u32,
    /// Thousandths of a core that each needs.
    pub cpu_milli: u64,
    /// MiB that each needs.
    pub memory_mib: u64,
    /// Whole GPUs that each needs.
    pub gpus: u64,
    /// Whether all ask for the same. Otherwise each counts with the largest of each resource.
    pub equal: bool,
}

/// The most workers of a gang.
const MOST_WORKERS: u64 = 100_000;

impl Workload {
    /// What it asks for.
    ///
    /// # Errors
    /// It cannot be carried: what, where, and how to mend it.
    pub fn demand(&self, settings: &KubeSettings) -> Result<Demand, String> {
        let groups = self.groups();
        let (mut workers, mut each): (u64, Vec<Requests>) = (0, Vec::new());
        for group in &groups {
            check(group)?;
            let parallelism = group.job["parallelism"].as_u64().unwrap_or(1);
            workers = workers.saturating_add(parallelism.saturating_mul(group.replicas));
            each.push(pod_requests(&group.job["template"]["spec"], &format!("{}.template.spec", group.place))?);
        }
        for job in self.spec["replicatedJobs"].as_array().into_iter().flatten() {
            let after = job["dependsOn"].as_array().into_iter().flatten();
            if after.clone().any(|on| on["status"] == "Complete") {
                let name = job["name"].as_str().unwrap_or_default();
                return Err(format!(
                    "`spec.replicatedJobs[{name}].dependsOn` waits for another one to complete, and a gang starts all or none: make \
                     them objects of their own"
                ));
            }
        }
        if workers == 0 || workers > MOST_WORKERS {
            return Err(format!(
                "it has {workers} pods at a time: let `parallelism` and `replicas` give 1 to {MOST_WORKERS}"
            ));
        }
        let largest = |resource: &str| each.iter().filter_map(|of| of.get(resource)).max().copied().unwrap_or(0);
        for name in each.iter().flat_map(BTreeMap::keys) {
            let shared = *name == settings.shared_gpu_resource || name.starts_with(&settings.mig_resource_prefix);
            if shared && largest(name) > 0 {
                let gpu = &settings.gpu_resource;
                return Err(format!(
                    "it asks for `{name}`, and parts of a GPU are not adopted: ask for whole ones, `{gpu}`, or submit an event"
                ));
            }
        }
        let gpus = largest(&settings.gpu_resource).div_ceil(1000) as u64;
        let mib = largest("memory").div_ceil(1000).div_ceil(1 << 20);
        Ok(Demand {
            workers: workers as u32,
            cpu_milli: u64::try_from(largest("cpu")).unwrap_or(u64::MAX),
            memory_mib: u64::try_from(mib).unwrap_or(u64::MAX),
            gpus,
            equal: each.windows(2).all(|pair| counted(&pair[0], settings) == counted(&pair[1], settings)),
        })
    }
}

/// Amounts by resource, in thousandths.
pub(crate) type Requests = BTreeMap<String, u128>;

/// What of a pod's requests a worker has.
fn counted(requests: &Requests, settings: &KubeSettings) -> [u128; 3] {
    ["cpu", "memory", &settings.gpu_resource].map(|name| requests.get(name).copied().unwrap_or(0))
}

/// What a Job may not have.
fn check(group: &PodGroup<'_>) -> Result<(), String> {
    let (job, place) = (group.job, &group.place);
    if job["podReplacementPolicy"] != "Failed" {
        return Err(format!(
            "`{place}.podReplacementPolicy` is not `Failed`: write it, so that no pod is replaced before the one that it replaces has ended"
        ));
    }
    let parallelism = job["parallelism"].as_u64().unwrap_or(1);
    let completions = job["completions"].as_u64();
    if completions.unwrap_or(1) != parallelism || (completions.is_none() && parallelism != 1) {
        return Err(format!(
            "`{place}.completions` and `parallelism` differ, and a gang runs all its workers at a time: write {parallelism} for both"
        ));
    }
    let spec = &job["template"]["spec"];
    let is_there = |field: &str| match &spec[field] {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    for field in ["nodeName", "affinity", "topologySpreadConstraints", "schedulingGates", "resourceClaims"] {
        if is_there(field) {
            return Err(format!("`{place}.template.spec.{field}` chooses nodes, and Forebay does: leave it out"));
        }
    }
    let ours = |key: &String| key.starts_with(NODE_LABEL_PREFIX);
    let selector = spec["nodeSelector"].as_object();
    if let Some(key) = selector.into_iter().flat_map(|map| map.keys()).find(|key| !ours(key)) {
        return Err(format!(
            "`{place}.template.spec.nodeSelector` asks for `{key}`, and Forebay chooses nodes: leave it out"
        ));
    }
    Ok(())
}

/// What a pod of a template takes on its node.
pub(crate) fn pod_requests(spec: &Value, place: &str) -> Result<Requests, String> {
    let list = |name: &str| spec[name].as_array().into_iter().flatten();
    let (mut sidecars, mut first) = (Requests::new(), Requests::new());
    for container in list("initContainers") {
        let mut asks = container_requests(&container["resources"], place)?;
        add(&mut asks, &sidecars);
        if container["restartPolicy"] == "Always" {
            sidecars.clone_from(&asks);
        }
        raise(&mut first, &asks);
    }
    let mut all = sidecars;
    for container in list("containers") {
        add(&mut all, &container_requests(&container["resources"], place)?);
    }
    raise(&mut all, &first);
    // What is stated for the whole pod counts in the place of its containers' sum.
    all.extend(container_requests(&spec["resources"], place)?);
    add(&mut all, &amounts(&spec["overhead"], place)?);
    Ok(all)
}

/// Requests, and limits where there is no request.
fn container_requests(resources: &Value, place: &str) -> Result<Requests, String> {
    let mut all = amounts(&resources["limits"], place)?;
    all.extend(amounts(&resources["requests"], place)?);
    Ok(all)
}

fn amounts(of: &Value, place: &str) -> Result<Requests, String> {
    let read = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let amount = milli(&text)
            .ok_or_else(|| format!("`{place}`: `{name}` of `{text}` is no quantity: write one, such as 500m or 2Gi"))?;
        Ok((name.clone(), amount))
    };
    of.as_object().into_iter().flatten().map(read).collect()
}

fn add(to: &mut Requests, more: &Requests) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_insert(0);
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(to: &mut Requests, least: &Requests) {
    for (name, amount) in least {
        let most = to.entry(name.clone()).or_insert(0);
        *most = (*most).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adoption::WorkloadKind;
    use serde_json::json;

    fn settings() -> KubeSettings {
        KubeSettings::new("jobs", "forebay:1")
    }

    fn asks(cpu: &str, memory: &str, gpus: u32) -> Value {
        json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"nvidia.com/gpu": gpus.to_string()}})
    }

    fn job(spec: Value) -> Value {
        json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed", "template": {"spec": spec}})
    }

    fn of(kind: WorkloadKind, spec: Value) -> Workload {
        Workload::of_json(kind, json!({"metadata": {"name": "a", "uid": "u"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_pod_counts_as_kube_scheduler_counts_it() {
        let spec = json!({
            "initContainers": [
                {"resources": {"requests": {"cpu": "1", "memory": "3Gi"}}},
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
                {"resources": {"requests": {"cpu": "4"}}},
            ],
            "containers": [{"resources": asks("2", "1Gi", 1)}, {"resources": asks("500m", "1Gi", 0)}],
            "overhead": {"cpu": "100m", "memory": "64Mi"},
        });
        let demand = of(WorkloadKind::Job, job(spec)).demand(&settings()).unwrap();
        // The last init container with the sidecar is the most of the processor: 4.25; the first one the most of memory.
        assert_eq!((demand.workers, demand.cpu_milli, demand.memory_mib, demand.gpus), (2, 4350, 3 * 1024 + 64, 1));
    }

    #[test]
    fn a_jobset_counts_all_its_pods_with_the_largest() {
        let of_job = |name: &str, replicas: u32, asks: Value| {
            json!({"name": name, "replicas": replicas,
            "template": {"spec": job(json!({"containers": [{"resources": asks}]}))}})
        };
        let jobs = json!({"replicatedJobs": [of_job("driver", 1, asks("1", "4Gi", 0)), of_job("work", 3, asks("8", "2Gi", 8))]});
        let demand = of(WorkloadKind::JobSet, jobs).demand(&settings()).unwrap();
        let expected = Demand { workers: 8, cpu_milli: 8000, memory_mib: 4096, gpus: 8, equal: false };
        assert_eq!(demand, expected);
    }

    #[test]
    fn what_cannot_be_carried_is_told_with_its_place() {
        let good = job(json!({"containers": []}));
        let with = |path: &str, value: Value| {
            let mut spec = good.clone();
            let (at, name) = path.rsplit_once('/').unwrap();
            spec.pointer_mut(at).unwrap()[name] = value;
            of(WorkloadKind::Job, spec).demand(&settings()).unwrap_err()
        };
        assert!(of(WorkloadKind::Job, good.clone()).demand(&settings()).is_ok());
        for (path, value, said) in [
            ("/podReplacementPolicy", json!("TerminatingOrFailed"), "podReplacementPolicy"),
            ("/completions", json!(4), "completions"),
            ("/template/spec/nodeName", json!("n"), "nodeName"),
            ("/template/spec/affinity", json!({"podAffinity": {}}), "affinity"),
            ("/template/spec/nodeSelector", json!({"zone": "a"}), "`zone`"),
            ("/template/spec/containers", json!([{"resources": {"requests": {"cpu": "many"}}}]), "no quantity"),
            ("/template/spec/containers", json!([{"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]), "mig"),
        ] {
            let words = with(path, value);
            assert!(words.contains(said) && words.contains(": "), "{words}");
        }
    }
}
