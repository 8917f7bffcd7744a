//! An HTTP response as the machine's: an object, a page, or an error in Kubernetes' own words.
//!
//! Never: a body beyond its limit, or one that is taken for less than it is because it could not be read.

use super::connect::without_output;
use crate::api_call::{KubeCall, KubeObject, KubeResponse, Resource};
use crate::kube_error::KubeError;
use forebay_kernel::units::Span;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;

/// The most of an object: etcd takes 1.5 MiB of one, which as JSON is up to twice that.
const OBJECT_BYTES: usize = 4 << 20;
/// The most of a page: 500 objects of 128 KiB.
const PAGE_BYTES: usize = 64 << 20;
/// The most of an error.
const ERROR_BYTES: usize = 256 << 10;

/// A request that did not get a response.
pub(super) fn unsent(error: &kube::Error) -> KubeError {
    match error {
        // The credentials may be there the next time, as with a 401.
        kube::Error::Auth(_) => KubeError::of_status(401, "Unauthorized", &without_output(error)),
        other => KubeError::no_response(&without_output(other)),
    }
}

/// Reads the response of a call.
pub(super) async fn read(call: &KubeCall, response: Response<Body>) -> Result<KubeResponse, KubeError> {
    if !response.status().is_success() {
        return Err(error(response).await);
    }
    let limit = if matches!(call, KubeCall::List { .. }) { PAGE_BYTES } else { OBJECT_BYTES };
    let bytes = bytes(response.into_body(), limit).await?;
    let unreadable = |e: serde_json::Error| KubeError::no_response(&format!("the response cannot be read: {e}"));
    let object = |resource: Resource| {
        let object = KubeObject::of_slice(resource, &bytes).map_err(unreadable)?;
        Ok(KubeResponse::Object(Box::new(object)))
    };
    match call {
        KubeCall::List { resource, .. } => page(*resource, &bytes).map_err(unreadable),
        KubeCall::Get { resource, .. }
        | KubeCall::Create { resource, .. }
        | KubeCall::Apply { resource, .. }
        | KubeCall::Merge { resource, .. }
        | KubeCall::MergeStatus { resource, .. } => object(*resource),
        KubeCall::CreateSecret { .. } => object(Resource::Secrets),
        // Their bodies are a Status, or the object in its last state; nobody needs either.
        KubeCall::Bind { .. } | KubeCall::Evict { .. } | KubeCall::Delete { .. } | KubeCall::Watch { .. } => {
            Ok(KubeResponse::Done)
        }
    }
}

/// A list as the API server sends it.
#[derive(Deserialize)]
struct ListBody {
    metadata: ListMeta,
    /// Null where there is none.
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
}

fn page(resource: Resource, bytes: &[u8]) -> Result<KubeResponse, serde_json::Error> {
    let list: ListBody = serde_json::from_slice(bytes)?;
    let items = list.items.unwrap_or_default().into_iter();
    Ok(KubeResponse::Page {
        objects: items.map(|item| KubeObject::of_json(resource, item)).collect::<Result<_, _>>()?,
        continue_token: list.metadata.continue_token.filter(|token| !token.is_empty()),
        resource_version: list.metadata.resource_version,
    })
}

/// `Status`, the body of an error. Also the object of a watch's `ERROR`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StatusBody {
    code: u16,
    reason: String,
    message: String,
    details: Option<StatusDetails>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct StatusDetails {
    retry_after_seconds: u64,
}

impl StatusBody {
    pub(super) fn into_error(self) -> KubeError {
        let wait = self.details.map_or(0, |details| details.retry_after_seconds);
        let error = KubeError::of_status(self.code, &self.reason, &self.message);
        error.with_retry_after((wait > 0).then(|| Span::secs(wait)))
    }
}

/// The error that a response is. One without a `Status`, as a proxy between us and the API server sends it, keeps its first words.
pub(super) async fn error(response: Response<Body>) -> KubeError {
    let (code, wait) = (response.status(), retry_after(response.headers()));
    let body = match bytes(response.into_body(), ERROR_BYTES).await {
        Ok(body) => body,
        Err(error) => error.message.into_bytes(),
    };
    let status = serde_json::from_slice::<StatusBody>(&body).ok().filter(|status| status.code != 0);
    let error = match status {
        Some(status) => StatusBody { code: code.as_u16(), ..status }.into_error(),
        None => KubeError::of_status(code.as_u16(), reason_of(code), String::from_utf8_lossy(&body).trim()),
    };
    let wait = wait.or(error.retry_after);
    error.with_retry_after(wait)
}

fn reason_of(code: StatusCode) -> &'static str {
    code.canonical_reason().unwrap_or("Unknown")
}

/// Seconds; the form with a date is not used by Kubernetes.
fn retry_after(headers: &HeaderMap) -> Option<Span> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Span::secs)
}

pub(super) async fn bytes(body: Body, limit: usize) -> Result<Vec<u8>, KubeError> {
    match Limited::new(body, limit).collect().await {
        Ok(all) => Ok(all.to_bytes().to_vec()),
        Err(e) => {
            Err(KubeError::no_response(&format!("the response ended before its end, or exceeds {limit} bytes: {e}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_call::ObjectSelector;
    use crate::kube_error::KubeErrorClass;

    fn response(code: u16, headers: &[(&str, &str)], body: &str) -> Response<Body> {
        let mut response = Response::builder().status(code);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(Body::from(body.as_bytes().to_vec())).unwrap()
    }

    fn list() -> KubeCall {
        KubeCall::List {
            resource: Resource::Pods,
            namespace: None,
            selector: ObjectSelector::All,
            continue_token: None,
        }
    }

    #[tokio::test]
    async fn a_refusal_keeps_kubernetes_words_and_how_long_to_wait() {
        let status = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"exceeded quota: full"}"#;
        let denied = read(&list(), response(403, &[], status)).await.unwrap_err();
        assert_eq!(denied.class, KubeErrorClass::Denied);
        assert_eq!(denied.to_string(), "Forbidden: exceeded quota: full");
        let status = r#"{"code":429,"reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":7}}"#;
        let throttled = read(&list(), response(429, &[], status)).await.unwrap_err();
        assert_eq!((throttled.class, throttled.retry_after), (KubeErrorClass::Throttled, Some(Span::secs(7))));
        let throttled = read(&list(), response(429, &[("retry-after", "1")], status)).await.unwrap_err();
        assert_eq!(throttled.retry_after, Some(Span::secs(1)), "the header is the newer word");
    }

    #[tokio::test]
    async fn what_stands_in_between_is_an_error_with_its_words() {
        let proxy = read(&list(), response(502, &[], "<html>bad gateway</html>\n")).await.unwrap_err();
        assert_eq!((proxy.class, proxy.message.as_str()), (KubeErrorClass::Server, "<html>bad gateway</html>"));
        let half =
            read(&list(), response(200, &[], r#"{"metadata":{"resourceVersion":"1"},"items":[{"#)).await.unwrap_err();
        assert_eq!(half.class, KubeErrorClass::NoResponse, "unknown is never empty");
        let status = read(&list(), response(200, &[], r#"{"kind":"Status"}"#)).await.unwrap_err();
        assert_eq!(status.class, KubeErrorClass::NoResponse, "a list has a resource version");
    }

    #[tokio::test]
    async fn a_page_has_its_token_and_its_version() {
        let body =
            r#"{"metadata":{"resourceVersion":"9","continue":"t"},"items":[{"metadata":{"name":"p","uid":"u"}}]}"#;
        let KubeResponse::Page { objects, continue_token, resource_version } =
            read(&list(), response(200, &[], body)).await.unwrap()
        else {
            panic!("a page")
        };
        assert_eq!((objects.len(), objects[0].metadata().name.as_str()), (1, "p"));
        assert_eq!((continue_token.as_deref(), resource_version.as_str()), (Some("t"), "9"));
        let last = r#"{"metadata":{"resourceVersion":"9","continue":""},"items":null}"#;
        let last = read(&list(), response(200, &[], last)).await.unwrap();
        assert!(matches!(last, KubeResponse::Page { objects, continue_token: None, .. } if objects.is_empty()));
    }
}
