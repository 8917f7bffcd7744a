//! The life of one pod: volumes, init containers one after the other, containers side by side, and its end.
//!
//! ```text
//! seen -> volumes -> init container -> ... -> containers -> all ended -> final status -> deleted? final delete -> gone
//!         deletionTimestamp, at any time: SIGTERM to the process groups, SIGKILL at the grace period (1 s at least)
//! ```
//!
//! Never: a container started twice, or after its pod was deleted.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_parts::{GuardedChild, guarded};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::pods::KnownPod;
use crate::program::{Program, Unstartable};
use crate::report::{self, PodReport};
use crate::sources::{self, PodSources};
use crate::status::{ContainerLife, PodLife};
use crate::volumes::PodVolumes;
use crate::{Context, MOST_PODS, REQUEST_LIMIT};

/// How often it looks whether a process has ended: short beside what a process takes to start.
const LOOK: Duration = Duration::from_millis(20);
/// Before what is missing is looked for again.
const RETRY: Duration = Duration::from_millis(500);
/// The most of a container's log; what is beyond begins anew, as with a log that is rotated.
const MOST_LOG: u64 = 16 << 20;
/// What a container that could not be started ends with.
const START_ERROR: i32 = 128;

/// Runs a pod until it is gone. `full`: there are too many.
pub(crate) async fn run(context: Arc<Context>, updates: watch::Receiver<KnownPod>, full: bool) {
    let pod = Arc::clone(&updates.borrow().pod);
    let (Some(name), Some(namespace), Some(uid)) =
        (pod.metadata.name.clone(), pod.metadata.namespace.clone(), pod.metadata.uid.clone())
    else {
        return;
    };
    let (report, reports) = watch::channel(PodReport::default());
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    let folder = context.root.join(&uid);
    context.logs.add(&namespace, &name, &folder.join("logs"));
    let mut task = PodTask {
        life: PodLife::new(&pod),
        context: Arc::clone(&context),
        pod,
        updates,
        report,
        folder: folder.clone(),
        volumes: None,
        kill_at: None,
        gone: false,
    };
    tokio::select! {
        () = task.live(full) => {}
        // It goes on when the pod is gone: then its processes have to end all the same.
        () = told(api, name.clone(), uid, reports) => {}
    }
    context.logs.remove(&namespace, &name, &folder.join("logs"));
    // What was in there is nobody's any more.
    let _ = fs::remove_dir_all(&folder);
}

/// Reports, and never ends.
async fn told(api: Api<Pod>, name: String, uid: String, reports: watch::Receiver<PodReport>) {
    report::run(api, name, uid, reports).await;
    std::future::pending::<()>().await;
}

struct PodTask {
    context: Arc<Context>,
    pod: Arc<Pod>,
    updates: watch::Receiver<KnownPod>,
    report: watch::Sender<PodReport>,
    life: PodLife,
    folder: PathBuf,
    volumes: Option<PodVolumes>,
    /// When its processes are killed. `None`: nobody has asked for its end.
    kill_at: Option<Instant>,
    /// It exists no longer.
    gone: bool,
}

/// A container that runs.
struct Process {
    child: GuardedChild,
    started: Timestamp,
    log: File,
    asked_to_end: bool,
    killed: bool,
}

impl PodTask {
    async fn live(&mut self, full: bool) {
        self.take_update();
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if !matches!(phase, "Succeeded" | "Failed") {
            self.life.refused = refusal(&self.pod, full);
            if self.life.refused.is_none() {
                self.work().await;
            }
            self.life.end();
            self.publish();
        }
        // Nothing of it runs. It stays as long as nobody deletes it.
        while !self.gone {
            if self.pod.metadata.deletion_timestamp.is_some() {
                self.report.send_if_modified(|report| !std::mem::replace(&mut report.delete, true));
            }
            if self.updates.changed().await.is_err() {
                return;
            }
            self.take_update();
        }
    }

    /// From its volumes to the end of its last container.
    async fn work(&mut self) {
        let started_before = self.pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if started_before {
            // Another stand-in has started it, and what it started died with it.
            for life in self.life.init.iter_mut().chain(&mut self.life.containers) {
                *life = ContainerLife::unknown();
            }
            return;
        }
        self.publish();
        let Some(sources) = self.prepare().await else { return };
        let pod = Arc::clone(&self.pod);
        let Some(spec) = &pod.spec else { return };
        for (at, container) in spec.init_containers.iter().flatten().enumerate() {
            let Some(started) = self.start(container, &sources, |life| &mut life.init[at]).await else { return };
            let mut running = BTreeMap::from([(at, started)]);
            while !running.is_empty() {
                self.look(&mut running, |life, at| &mut life.init[at]).await;
            }
            if self.life.init[at].code() != Some(0) || self.kill_at.is_some() {
                return;
            }
        }
        let mut running = BTreeMap::new();
        for (at, container) in spec.containers.iter().enumerate() {
            if let Some(started) = self.start(container, &sources, |life| &mut life.containers[at]).await {
                running.insert(at, started);
            }
        }
        while !running.is_empty() {
            self.look(&mut running, |life, at| &mut life.containers[at]).await;
        }
    }

    /// Volumes, and what variables name. What is missing is waited for. `None`: the pod's end came first.
    async fn prepare(&mut self) -> Option<PodSources> {
        loop {
            if self.kill_at.is_some() {
                return None;
            }
            let namespace = self.pod.metadata.namespace.clone().unwrap_or_default();
            let read = timeout(REQUEST_LIMIT, sources::read(&self.context.client, &namespace, &self.pod)).await;
            let prepared = match read {
                Ok(Ok(sources)) => PodVolumes::prepare(&self.pod, &self.folder, &self.context.claims, &sources)
                    .map(|made| (sources, made)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {REQUEST_LIMIT:?}")),
            };
            match prepared {
                Ok((sources, volumes)) => {
                    self.volumes = Some(volumes);
                    return Some(sources);
                }
                Err(message) => {
                    let reason = if self.life.init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
                    let waiting = ContainerLife::Waiting { reason: reason.to_owned(), message };
                    let first = self.life.init.first_mut().or(self.life.containers.first_mut());
                    let changed = first.is_some_and(|life| std::mem::replace(life, waiting.clone()) != waiting);
                    self.publish_if_changed(changed);
                    self.pause(RETRY).await;
                }
            }
        }
    }

    /// Starts a container. `None`: it cannot be started, or the pod's end came first.
    async fn start(
        &mut self,
        container: &Container,
        sources: &PodSources,
        life: impl Fn(&mut PodLife) -> &mut ContainerLife,
    ) -> Option<Process> {
        loop {
            if self.kill_at.is_some() {
                return None;
            }
            let mounts = self.volumes.as_ref().map(|volumes| volumes.mounts(container)).unwrap_or_default();
            let forebay = self.context.options.forebay.as_deref();
            match Program::of(&self.pod, container, sources, &mounts, forebay) {
                Ok(program) => {
                    let work = container.working_dir.as_deref().map(|path| PathBuf::from(mounts.rewritten(path)));
                    let started = spawn(&self.folder, &container.name, &program, work.as_deref());
                    let state = match &started {
                        Ok(process) => ContainerLife::Running { since: process.started, process: process.child.id() },
                        Err(why) => unstarted(why),
                    };
                    *life(&mut self.life) = state;
                    self.publish();
                    return started.ok();
                }
                Err(Unstartable::Waits(message)) => {
                    // It is read once for all containers: what comes later needs another pod.
                    *life(&mut self.life) =
                        ContainerLife::Waiting { reason: "CreateContainerConfigError".to_owned(), message };
                    self.publish();
                    self.until_asked_to_end().await;
                }
                Err(Unstartable::Never(why)) => {
                    *life(&mut self.life) = unstarted(&why);
                    self.publish();
                    return None;
                }
            }
        }
    }

    /// Looks at processes a moment later: what has ended is taken note of; if their pod is to end, they are asked, then killed.
    async fn look(
        &mut self,
        running: &mut BTreeMap<usize, Process>,
        life: impl Fn(&mut PodLife, usize) -> &mut ContainerLife,
    ) {
        self.pause(LOOK).await;
        let now = Instant::now();
        let mut ended = Vec::new();
        for (at, process) in running.iter_mut() {
            if self.kill_at.is_some() && !process.asked_to_end {
                process.asked_to_end = true;
                process.child.ask_to_end();
            }
            if self.kill_at.is_some_and(|at| at <= now) && !process.killed {
                process.killed = true;
                process.child.end_at_once();
            }
            if process.log.metadata().is_ok_and(|log| log.len() > MOST_LOG) {
                // It is written at its end, wherever that is.
                let _ = process.log.set_len(0);
            }
            match process.child.ended() {
                Ok(None) => {}
                Ok(Some(status)) => ended.push((*at, code(status))),
                Err(_) => ended.push((*at, 137)),
            }
        }
        for (at, code) in &ended {
            if let Some(process) = running.remove(at) {
                *life(&mut self.life, *at) = ContainerLife::ended(*code, process.started);
            }
        }
        self.publish_if_changed(!ended.is_empty());
    }

    async fn until_asked_to_end(&mut self) {
        while self.kill_at.is_none() && self.updates.changed().await.is_ok() {
            self.take_update();
        }
    }

    /// Waits for so long, or until something is new of the pod.
    async fn pause(&mut self, time: Duration) {
        if let Ok(Ok(())) = timeout(time, self.updates.changed()).await {
            self.take_update();
        }
    }

    /// Takes what is new of the pod: annotations for its volumes, its deletion.
    fn take_update(&mut self) {
        let known = self.updates.borrow_and_update().clone();
        (self.pod, self.gone) = (known.pod, known.gone);
        if let Some(volumes) = &self.volumes
            && let Err(error) = volumes.refresh(&self.pod)
        {
            eprintln!("the downward API of {:?}: {error}", self.pod.metadata.name);
        }
        if self.gone || self.pod.metadata.deletion_timestamp.is_some() {
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(0).max(1);
            let at = Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or(1));
            // A later deletion may only be sooner.
            self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
        }
    }

    fn publish(&self) {
        let status = self.life.status(&self.pod);
        self.report.send_modify(|report| report.status = Some(status));
    }

    fn publish_if_changed(&self, changed: bool) {
        if changed {
            self.publish();
        }
    }
}

/// Why a pod is not run. `None`: it is.
fn refusal(pod: &Pod, full: bool) -> Option<(String, String)> {
    let spec = pod.spec.as_ref()?;
    if full {
        return Some(("OutOfpods".to_owned(), format!("the stand-in runs {MOST_PODS} pods at most")));
    }
    let restarts = spec.restart_policy.as_deref() != Some("Never");
    let sidecar = spec.init_containers.iter().flatten().any(|container| container.restart_policy.is_some());
    (restarts || sidecar).then(|| {
        let why = "the stand-in for kubelets restarts nothing: write restartPolicy: Never, without sidecars";
        ("UnexpectedAdmissionError".to_owned(), why.to_owned())
    })
}

fn unstarted(why: &str) -> ContainerLife {
    let now = Timestamp::now();
    ContainerLife::Terminated {
        code: START_ERROR,
        reason: "StartError".to_owned(),
        message: why.to_owned(),
        started: now,
        finished: now,
    }
}

fn spawn(folder: &Path, name: &str, program: &Program, work: Option<&Path>) -> Result<Process, String> {
    let (logs, own) = (folder.join("logs"), folder.join("work").join(name));
    let made = fs::create_dir_all(&logs).and_then(|()| fs::create_dir_all(&own));
    made.map_err(|e| e.to_string())?;
    let open = || OpenOptions::new().create(true).append(true).open(logs.join(format!("{name}.log")));
    let [log, out, err] = [open(), open(), open()].map(|file| file.map_err(|e| e.to_string()));
    let mut command = guarded(&program.path);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(&program.env)
        .current_dir(work.unwrap_or(&own))
        .stdout(out?)
        .stderr(err?);
    let started = Timestamp::now();
    let child = GuardedChild::start("a container", &mut command).map_err(|e| e.to_string())?;
    Ok(Process { child, started, log: log?, asked_to_end: false, killed: false })
}

/// The exit code as Kubernetes has it.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(137)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_would_be_restarted_is_refused() {
        let pod = |spec: Value| {
            serde_json::from_value::<Pod>(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}))
                .unwrap()
        };
        let never = pod(json!({"restartPolicy": "Never", "containers": []}));
        assert_eq!(refusal(&never, false), None);
        assert_eq!(refusal(&never, true).unwrap().0, "OutOfpods");
        assert!(refusal(&pod(json!({"restartPolicy": "Always", "containers": []})), false).is_some());
        let sidecar = json!({"restartPolicy": "Never", "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": []});
        assert!(refusal(&pod(sidecar), false).is_some());
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!([0, 15, 9, 3 << 8].map(|raw| code(ExitStatus::from_raw(raw))), [0, 143, 137, 3]);
    }
}
