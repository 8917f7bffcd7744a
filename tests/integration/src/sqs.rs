//! A pipeline's side of SQS for tests: the few calls, as JSON to an emulator that checks no signature.
//!
//! Never: a call to AWS.

use serde_json::{Value, json};

/// An emulated SQS.
pub struct SqsClient {
    agent: ureq::Agent,
    endpoint: String,
}

impl SqsClient {
    /// At this endpoint.
    #[must_use]
    pub fn at(endpoint: &str) -> SqsClient {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        SqsClient { agent: config.into(), endpoint: endpoint.to_owned() }
    }

    /// One call, by its action.
    ///
    /// # Panics
    /// When it is refused.
    pub fn call(&self, action: &str, body: &Value) -> Value {
        let key =
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
        let sent = self
            .agent
            .post(&self.endpoint)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header("authorization", key)
            .send(body.to_string().as_bytes());
        let mut answer = sent.unwrap_or_else(|e| panic!("{action}: {e}"));
        let text = answer.body_mut().read_to_string().unwrap_or_else(|e| panic!("{action}: {e}"));
        assert!(answer.status().is_success(), "{action}: {} {text}", answer.status());
        if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{action}: {e}"))
        }
    }

    /// Makes a queue; its URL.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn create(&self, name: &str, attributes: &Value) -> String {
        let made = self.call("CreateQueue", &json!({"QueueName": name, "Attributes": attributes}));
        made["QueueUrl"].as_str().unwrap_or_else(|| panic!("no URL in {made}")).to_owned()
    }

    /// Sends bodies, ten a call.
    ///
    /// # Panics
    /// When one is not taken.
    pub fn send(&self, url: &str, bodies: &[String]) {
        for ten in bodies.chunks(10) {
            let entry = |(at, body): (usize, &String)| json!({"Id": at.to_string(), "MessageBody": body});
            let entries: Vec<Value> = ten.iter().enumerate().map(entry).collect();
            let answer = self.call("SendMessageBatch", &json!({"QueueUrl": url, "Entries": entries}));
            assert_eq!(answer["Successful"].as_array().map(Vec::len), Some(ten.len()), "{answer}");
        }
    }

    /// Messages in a queue: those that may be received, and those that are on their way.
    ///
    /// # Panics
    /// When it cannot be told.
    #[must_use]
    pub fn messages(&self, url: &str) -> [u64; 2] {
        let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
        let answer = self.call("GetQueueAttributes", &json!({"QueueUrl": url, "AttributeNames": names}));
        names.map(|name| {
            let text = answer["Attributes"][name].as_str().unwrap_or_else(|| panic!("no {name} in {answer}"));
            text.parse().expect("a number")
        })
    }
}
