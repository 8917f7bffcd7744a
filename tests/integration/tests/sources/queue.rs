//! The SQS that the tests share, spoken to as its HTTP API is, without AWS's library.
//!
//! Never: code of Forebay's, which would test itself.

use forebay_parts::{LocalStack, LocalStackOptions};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Ends with this process.
static SHARED: LazyLock<LocalStack> =
    LazyLock::new(|| LocalStack::start(LocalStackOptions::default()).expect("LocalStack"));

/// Its address.
pub fn shared() -> &'static str {
    SHARED.endpoint()
}

/// Signatures are not looked at; the region is.
const AUTHORIZATION: &str =
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";

/// One call: its answer, or what SQS says against it.
pub fn call(action: &str, body: &Value) -> Result<Value, String> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent = ureq::Agent::from(config);
    let request = agent.post(shared()).header("x-amz-target", format!("AmazonSQS.{action}"));
    let request = request.header("content-type", "application/x-amz-json-1.0").header("authorization", AUTHORIZATION);
    let mut answer = request.send(body.to_string()).unwrap_or_else(|e| panic!("{action}: {e}"));
    let text = answer.body_mut().read_to_string().unwrap_or_else(|e| panic!("{action}: {e}"));
    if answer.status().as_u16() == 200 {
        Ok(serde_json::from_str(&text).unwrap_or_default())
    } else {
        Err(format!("{} {text}", answer.status()))
    }
}

fn done(action: &str, body: &Value) -> Value {
    call(action, body).unwrap_or_else(|e| panic!("{action}: {e}"))
}

/// Creates a standard queue: its URL.
pub fn create(name: &str) -> String {
    create_with(name, &[])
}

/// The same, with attributes.
pub fn create_with(name: &str, pairs: &[(&str, &str)]) -> String {
    let attributes: Value =
        pairs.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect::<serde_json::Map<_, _>>().into();
    let made = done("CreateQueue", &json!({ "QueueName": name, "Attributes": attributes }));
    made["QueueUrl"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

/// Attributes of a message as SQS writes them.
fn attributes(pairs: &[(&str, &str)]) -> Value {
    let one =
        |(name, value): &(&str, &str)| ((*name).to_owned(), json!({ "DataType": "String", "StringValue": value }));
    Value::Object(pairs.iter().map(one).collect())
}

/// Sends one message.
///
/// # Errors
/// What SQS refuses.
pub fn send(url: &str, body: &str, pairs: &[(&str, &str)]) -> Result<(), String> {
    let message = json!({ "QueueUrl": url, "MessageBody": body, "MessageAttributes": attributes(pairs) });
    call("SendMessage", &message).map(drop)
}

/// Takes everything out of a queue that is in it now.
pub fn drain(url: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let got = done("ReceiveMessage", &json!({ "QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1 }));
        let messages = got["Messages"].as_array().cloned().unwrap_or_default();
        if messages.is_empty() {
            return bodies;
        }
        for message in messages {
            bodies.push(message["Body"].as_str().unwrap_or_default().to_owned());
            done("DeleteMessage", &json!({ "QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"] }));
        }
    }
}

/// Messages in a queue, received and not deleted ones included.
pub fn left(url: &str) -> u64 {
    let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    let got = done("GetQueueAttributes", &json!({ "QueueUrl": url, "AttributeNames": names }));
    names.iter().map(|n| got["Attributes"][n].as_str().and_then(|s| s.parse::<u64>().ok()).unwrap_or(0)).sum()
}
