//! What `forebay doctor` asks of an API server: its version, our rights by its own word, namespaces, and whether it would take a pod. Nothing is
//! changed.

use super::{CALL_BUDGET, KubeClient, response};
use crate::api_call::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use crate::kube_error::{KubeError, KubeErrorClass};
use crate::objects::KubeDaemonSet;
use crate::trial::TrialPod;
use http::Request;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A right that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Such as `create`.
    pub verb: &'static str,
    /// Such as `pods`, or `pods/binding`.
    pub resource: &'static str,
    /// The API group, such as `batch`; empty for the first one.
    pub group: &'static str,
    /// In which namespace. `None`: in all, or a resource without one.
    pub namespace: Option<String>,
}

impl KubeClient {
    /// The version of the API server, such as `v1.34.4`.
    ///
    /// # Errors
    /// It does not answer, or refuses us.
    pub async fn version(&self) -> Result<String, KubeError> {
        let told = self.ask(Request::get("/version").body(Vec::new())).await?;
        Ok(told.get("gitVersion").and_then(Value::as_str).unwrap_or("unknown").to_owned())
    }

    /// Whether we have a right.
    ///
    /// # Errors
    /// It does not answer, or does not tell.
    pub async fn is_allowed(&self, permission: &Permission) -> Result<bool, KubeError> {
        let (resource, subresource) = permission.resource.split_once('/').unwrap_or((permission.resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": permission.verb,
                "group": permission.group,
                "resource": resource,
                "subresource": subresource,
                "namespace": permission.namespace.as_deref().unwrap_or(""),
            }},
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let body = review.to_string().into_bytes();
        let told = self.ask(request.header("content-type", "application/json").body(body)).await?;
        told.pointer("/status/allowed")
            .and_then(Value::as_bool)
            .ok_or_else(|| KubeError::no_response("the review of a right says nothing"))
    }

    /// Whether a namespace is there and is not being deleted.
    ///
    /// # Errors
    /// It does not answer, or refuses us.
    pub async fn has_namespace(&self, name: &str) -> Result<bool, KubeError> {
        match self.ask(Request::get(format!("/api/v1/namespaces/{name}")).body(Vec::new())).await {
            Ok(namespace) => Ok(namespace.pointer("/metadata/deletionTimestamp").is_none()),
            Err(error) if error.class == KubeErrorClass::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks whether the API server, its admission and its webhooks would take a pod. It creates none.
    ///
    /// # Errors
    /// It would not, or does not answer.
    pub async fn would_take(&self, pod: &TrialPod) -> Result<(), KubeError> {
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All&fieldValidation=Strict", pod.namespace);
        let request = Request::post(path).header("content-type", "application/json");
        self.ask(request.body(pod.body.to_string().into_bytes())).await.map(drop)
    }

    /// The DaemonSets of the cluster.
    ///
    /// # Errors
    /// It does not answer, or refuses us.
    pub async fn daemon_sets(&self) -> Result<Vec<KubeDaemonSet>, KubeError> {
        let (mut all, mut continue_token) = (Vec::new(), None);
        loop {
            let (resource, selector) = (Resource::DaemonSets, ObjectSelector::All);
            let call = KubeCall::List { resource, namespace: None, selector, continue_token };
            match self.execute(&call).await {
                KubeResponse::Page { objects, continue_token: next, .. } => {
                    let set = |object| if let KubeObject::DaemonSet(set) = object { Some(*set) } else { None };
                    all.extend(objects.into_iter().filter_map(set));
                    continue_token = next;
                }
                KubeResponse::Refused(error) => return Err(error),
                _ => return Err(KubeError::no_response("a list is no page")),
            }
            if continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// One question beside the machine's calls.
    pub(super) async fn ask(&self, request: http::Result<Request<Vec<u8>>>) -> Result<Value, KubeError> {
        let request = request.map_err(|error| KubeError::of_status(400, "BadRequest", &error.to_string()))?;
        match timeout(CALL_BUDGET, self.client.request(request)).await {
            Ok(told) => told.map_err(|error| match &error {
                kube::Error::Api(status) => KubeError::of_status(status.code, &status.reason, &status.message),
                _ => response::unsent(&error),
            }),
            Err(_) => Err(KubeError::no_response(&format!("no complete response within {} s", CALL_BUDGET.as_secs()))),
        }
    }
}
