//! What a pod's task has to tell the API server: its latest status, and the final deletion.
//!
//! ```text
//! task --latest status--> reporter --PATCH status (strategic, with the uid)--> API server
//!                                  '-DELETE with grace 0 and the uid, once all is over and somebody has deleted the pod
//! ```
//!
//! Each is sent again until it is there or the pod is gone; of several statuses that wait, the last one is sent.
//! Never: a finalizer removed, another pod of the same name touched.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::REQUEST_LIMIT;

/// Before it is sent again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is to be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodReport {
    /// The status. `None`: nothing yet.
    pub(crate) status: Option<Value>,
    /// Nothing of the pod runs any more, and it was deleted.
    pub(crate) delete: bool,
}

/// Tells it until nobody has anything to tell, or the pod is gone.
pub(crate) async fn run(api: Api<Pod>, name: String, uid: String, mut reports: watch::Receiver<PodReport>) {
    loop {
        let report = reports.borrow_and_update().clone();
        match tell(&api, &name, &uid, &report).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                reports.mark_changed();
            }
        }
        if reports.changed().await.is_err() {
            return;
        }
    }
}

async fn tell(api: &Api<Pod>, name: &str, uid: &str, report: &PodReport) -> Result<(), kube::Error> {
    let late = || kube::Error::Service(format!("no answer within {REQUEST_LIMIT:?}").into());
    if let Some(status) = &report.status {
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
        let params = PatchParams::default();
        timeout(REQUEST_LIMIT, api.patch_status(name, &params, &patch)).await.map_err(|_| late())??;
    }
    if report.delete {
        let own = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params =
            DeleteParams { grace_period_seconds: Some(0), preconditions: Some(own), ..DeleteParams::default() };
        timeout(REQUEST_LIMIT, api.delete(name, &params)).await.map_err(|_| late())??;
    }
    Ok(())
}
