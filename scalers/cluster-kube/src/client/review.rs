//! Whose a service account's token is, by the API server's own word, and on which node the pod is that it was made for.
//!
//! Never: a token in an error, or kept.

use super::KubeClient;
use crate::api_call::{KubeCall, KubeObject, KubeResponse, Resource};
use crate::kube_error::{KubeError, KubeErrorClass};
use http::Request;
use serde_json::{Value, json};

/// Under this key a token says the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What the names of service accounts begin with.
const ACCOUNT: &str = "system:serviceaccount:";

/// What the API server says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedToken {
    /// The service account, as `NAMESPACE/NAME`. `None`: another kind of user.
    pub account: Option<String>,
    /// The node of the pod that the token was made for. `None`: it was made for none.
    pub node: Option<String>,
}

impl KubeClient {
    /// Asks whose a token is. `None`: it is not valid, or not for this audience.
    ///
    /// # Errors
    /// The API server does not answer, or refuses us.
    pub async fn review(&self, token: &str, audience: &str) -> Result<Option<ReviewedToken>, KubeError> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]}});
        let request = Request::post("/apis/authentication.k8s.io/v1/tokenreviews");
        let request = request.header("content-type", "application/json").body(body.to_string().into_bytes());
        let told = self.ask(request).await?;
        Ok(read(&told, audience))
    }

    /// The id of a node's instance at the cloud, by its `providerID`. `None`: there is no such node, or it has none.
    ///
    /// # Errors
    /// The API server does not answer, or refuses us.
    pub async fn instance_of(&self, node: &str) -> Result<Option<String>, KubeError> {
        let call = KubeCall::Get { resource: Resource::Nodes, namespace: None, name: node.to_owned() };
        match self.execute(&call).await {
            KubeResponse::Object(object) => match *object {
                KubeObject::Node(node) => Ok(node.instance().map(str::to_owned)),
                _ => Err(KubeError::no_response("what came is no node")),
            },
            KubeResponse::Refused(error) if error.class == KubeErrorClass::NotFound => Ok(None),
            KubeResponse::Refused(error) => Err(error),
            _ => Err(KubeError::no_response("what came is no node")),
        }
    }
}

fn read(told: &Value, audience: &str) -> Option<ReviewedToken> {
    let status = told.get("status")?;
    if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    // An API server that does not know audiences answers for itself.
    let audiences = status.get("audiences").and_then(Value::as_array)?;
    audiences.iter().any(|one| one == audience).then_some(())?;
    let user = status.get("user")?;
    let name = user.get("username").and_then(Value::as_str)?;
    let account = name.strip_prefix(ACCOUNT).and_then(|name| {
        let (namespace, name) = name.split_once(':')?;
        Some(format!("{namespace}/{name}"))
    });
    let node = user.get("extra").and_then(|extra| extra.get(NODE_NAME)?.get(0)?.as_str());
    // It becomes part of a path: what is no name of a node is none.
    let plain = |name: &&str| {
        name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.')
            && (1..=253).contains(&name.len())
    };
    Some(ReviewedToken { account, node: node.filter(plain).map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_for_its_audience_alone_and_its_node_is_a_name() {
        let told = |node: &str| {
            json!({"status": {"authenticated": true, "audiences": ["forebay"],
                "user": {"username": "system:serviceaccount:gpu:agent", "extra": {NODE_NAME: [node]}}}})
        };
        let (account, node) = (Some("gpu/agent".to_owned()), Some("ip-10-0-0-1.ec2".to_owned()));
        assert_eq!(read(&told("ip-10-0-0-1.ec2"), "forebay"), Some(ReviewedToken { account: account.clone(), node }));
        assert_eq!(read(&told("ip-10-0-0-1.ec2"), "api"), None);
        for hostile in ["../secrets", "", "a/b", "A", "a?b"] {
            let found = read(&told(hostile), "forebay");
            assert_eq!(found, Some(ReviewedToken { account: account.clone(), node: None }), "{hostile}");
        }
        let refused = json!({"status": {"authenticated": false, "error": "expired"}});
        assert_eq!(read(&refused, "forebay"), None);
        let without_audience =
            json!({"status": {"authenticated": true, "user": {"username": "system:serviceaccount:gpu:agent"}}});
        assert_eq!(read(&without_audience, "forebay"), None);
        let person = json!({"status": {"authenticated": true, "audiences": ["forebay"], "user": {"username": "ann"}}});
        assert_eq!(read(&person, "forebay"), Some(ReviewedToken { account: None, node: None }));
    }
}
