//! A pod's status as a kubelet writes it: the phase, the conditions, and a state for each container.
//!
//! Never: a container that has ended and runs again; what others write, such as `DisruptionTarget`, for the patch is strategic.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerLife {
    /// It has not started.
    Waiting {
        /// As one word.
        reason: String,
        /// As a text; empty where there is nothing to say.
        message: String,
    },
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// The id of its process.
        process: u32,
    },
    /// It has ended.
    Terminated {
        /// Its exit code; 128 and the signal's number for one that a signal ended.
        code: i32,
        /// As one word.
        reason: String,
        /// As a text; empty where there is nothing to say.
        message: String,
        /// When it started.
        started: Timestamp,
        /// When it ended.
        finished: Timestamp,
    },
}

impl ContainerLife {
    /// One that waits, without a message.
    #[must_use]
    pub fn waiting(reason: &str) -> ContainerLife {
        ContainerLife::Waiting { reason: reason.to_owned(), message: String::new() }
    }

    /// One that has ended by itself or by a signal.
    #[must_use]
    pub fn ended(code: i32, started: Timestamp) -> ContainerLife {
        let reason = if code == 0 { "Completed" } else { "Error" };
        let finished = Timestamp::now();
        ContainerLife::Terminated { code, reason: reason.to_owned(), message: String::new(), started, finished }
    }

    /// One of which nobody knows how it ended: kubelets write this code then.
    #[must_use]
    pub fn unknown() -> ContainerLife {
        let now = Timestamp::now();
        ContainerLife::Terminated {
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            started: now,
            finished: now,
        }
    }

    /// The exit code of one that has ended.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        if let ContainerLife::Terminated { code, .. } = self { Some(*code) } else { None }
    }

    fn is_running(&self) -> bool {
        matches!(self, ContainerLife::Running { .. })
    }

    fn state(&self) -> Value {
        match self {
            ContainerLife::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            ContainerLife::Running { since, .. } => json!({"running": {"startedAt": seconds(*since)}}),
            ContainerLife::Terminated { code, reason, message, started, finished } => json!({"terminated": {
                "exitCode": code, "reason": reason, "message": message, "startedAt": seconds(*started), "finishedAt": seconds(*finished)}}),
        }
    }
}

/// A time as Kubernetes writes it.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How far a pod is.
#[derive(Clone, Debug)]
pub struct PodLife {
    /// When it was seen first.
    pub since: Timestamp,
    /// Its init containers, in their order.
    pub init: Vec<ContainerLife>,
    /// Its containers.
    pub containers: Vec<ContainerLife>,
    /// Whether nothing of it will start any more.
    pub ended: bool,
    /// Why it was refused: a word and a text.
    pub refused: Option<(String, String)>,
}

impl PodLife {
    /// Nothing has started.
    #[must_use]
    pub fn new(pod: &Pod) -> PodLife {
        let spec = pod.spec.as_ref();
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).map_or(0, Vec::len);
        let containers = spec.map_or(0, |spec| spec.containers.len());
        let reason = if init > 0 { "PodInitializing" } else { "ContainerCreating" };
        PodLife {
            since: Timestamp::now(),
            init: vec![ContainerLife::waiting("PodInitializing"); init],
            containers: vec![ContainerLife::waiting(reason); containers],
            ended: false,
            refused: None,
        }
    }

    /// Nothing of it starts any more. What has not started is written as kubelets do: of init containers the first one that waits has failed, if
    /// none has started; without init containers, all have.
    pub fn end(&mut self) {
        self.ended = true;
        if self.refused.is_some() {
            return;
        }
        let waits = |life: &ContainerLife| matches!(life, ContainerLife::Waiting { .. });
        if self.init.iter().all(waits)
            && let Some(first) = self.init.first_mut()
        {
            *first = ContainerLife::unknown();
        }
        if self.init.is_empty() || self.containers.iter().any(|life| !waits(life)) {
            for life in self.containers.iter_mut().filter(|life| waits(life)) {
                *life = ContainerLife::unknown();
            }
        }
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        let done = |life: &ContainerLife| life.code() == Some(0);
        if self.ended {
            let succeeded = self.refused.is_none() && self.init.iter().chain(&self.containers).all(done);
            return if succeeded { "Succeeded" } else { "Failed" };
        }
        let started = |life: &ContainerLife| !matches!(life, ContainerLife::Waiting { .. });
        if self.containers.iter().any(started) { "Running" } else { "Pending" }
    }

    /// The whole status, for a strategic merge patch.
    #[must_use]
    pub fn status(&self, pod: &Pod) -> Value {
        let initialized = self.init.iter().all(|life| life.code() == Some(0));
        let ready = !self.ended && !self.containers.is_empty() && self.containers.iter().all(ContainerLife::is_running);
        let now = seconds(Timestamp::now());
        let condition = |kind: &str, holds: bool, reason: &str| {
            let status = if holds { "True" } else { "False" };
            let reason = if holds { "" } else { reason };
            json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now})
        };
        let unready = match self.phase() {
            "Succeeded" => "PodCompleted",
            "Failed" => "PodFailed",
            _ => "ContainersNotReady",
        };
        let mut status = json!({
            "phase": self.phase(),
            "startTime": seconds(self.since),
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "conditions": [
                condition("PodScheduled", true, ""),
                condition("PodReadyToStartContainers", !self.ended, "PodEnded"),
                condition("Initialized", initialized, "ContainersNotInitialized"),
                condition("ContainersReady", ready, unready),
                condition("Ready", ready, unready),
            ],
        });
        if let Some((reason, message)) = &self.refused {
            status["reason"] = json!(reason);
            status["message"] = json!(message);
            return status;
        }
        let spec = pod.spec.as_ref();
        let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        status["initContainerStatuses"] = statuses(init, &self.init);
        status["containerStatuses"] = statuses(containers, &self.containers);
        status
    }
}

fn statuses(containers: &[Container], lives: &[ContainerLife]) -> Value {
    let one = |(container, life): (&Container, &ContainerLife)| {
        let running = life.is_running();
        let mut status = json!({"name": container.name, "image": container.image.as_deref().unwrap_or("none"), "imageID": "", "ready": running,
            "started": running, "restartCount": 0, "state": life.state()});
        if let ContainerLife::Running { process, .. } = life {
            status["containerID"] = json!(format!("process://{process}"));
        }
        status
    };
    containers.iter().zip(lives).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(init: &[&str], containers: &[&str]) -> Pod {
        let named = |names: &[&str]| names.iter().map(|name| json!({"name": name, "image": "i"})).collect::<Vec<_>>();
        let spec = json!({"initContainers": named(init), "containers": named(containers)});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
            .unwrap()
    }

    fn running() -> ContainerLife {
        ContainerLife::Running { since: Timestamp::now(), process: 7 }
    }

    #[test]
    fn the_phase_is_that_of_its_containers() {
        let ended = |code| ContainerLife::ended(code, Timestamp::now());
        let pod = pod(&["gate"], &["a", "b"]);
        let new = PodLife::new(&pod);
        assert_eq!(new.phase(), "Pending");
        for (init, containers, over, phase) in [
            (running(), vec![ContainerLife::waiting("PodInitializing"); 2], false, "Pending"),
            (ended(0), vec![running(), running()], false, "Running"),
            (ended(0), vec![running(), ended(3)], false, "Running"),
            (ended(0), vec![ended(0), ended(3)], true, "Failed"),
            (ended(0), vec![ended(0), ended(0)], true, "Succeeded"),
            (ended(1), vec![ContainerLife::waiting("PodInitializing"); 2], true, "Failed"),
        ] {
            let life = PodLife { init: vec![init], containers, ended: over, ..new.clone() };
            assert_eq!(life.phase(), phase, "{life:?}");
        }
    }

    #[test]
    fn the_status_has_a_state_for_each_container_and_the_conditions() {
        let pod = pod(&["gate"], &["a"]);
        let mut life = PodLife::new(&pod);
        life.init[0] = ContainerLife::ended(0, Timestamp::now());
        life.containers[0] = running();
        let status = life.status(&pod);
        assert_eq!(status["containerStatuses"][0]["containerID"], "process://7");
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
        let ready = |status: &Value| {
            status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap()["status"].clone()
        };
        assert_eq!(ready(&status), "True");
        life.containers[0] = ContainerLife::ended(143, Timestamp::now());
        life.end();
        let status = life.status(&pod);
        assert_eq!((ready(&status), &status["phase"]), (json!("False"), &json!("Failed")));
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    }

    #[test]
    fn what_never_started_ends_as_kubelets_write_it() {
        let gated = pod(&["gate", "second"], &["a"]);
        let mut life = PodLife::new(&gated);
        life.end();
        assert_eq!((life.init[0].code(), life.init[1].code(), life.containers[0].code()), (Some(137), None, None));
        let plain = pod(&[], &["a"]);
        let mut life = PodLife::new(&plain);
        life.end();
        assert_eq!((life.containers[0].code(), life.phase()), (Some(137), "Failed"));
        let mut life = PodLife::new(&plain);
        life.refused = Some(("OutOfpods".to_owned(), "no".to_owned()));
        life.end();
        let status = life.status(&plain);
        assert_eq!((&status["reason"], status.get("containerStatuses")), (&json!("OutOfpods"), None));
    }
}
