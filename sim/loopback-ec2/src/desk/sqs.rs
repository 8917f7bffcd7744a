//! SQS's JSON protocol for the one queue, `interruptions`.
//!
//! Never: a second queue, rates, FIFO. Digests of bodies are left out, as they may be.

use forebay_engine::units::{Millis, Span};
use serde_json::{Value, json};

use super::queue::{Queue, Row};
use super::{Outcome, Request, Response};

/// The queue's name.
const NAME: &str = "interruptions";
/// How long a received message is hidden, unless the request says otherwise.
const HIDDEN_S: u64 = 30;
/// The longest that a message may be hidden, and that a receive may wait.
const MOST_HIDDEN_S: u64 = 43_200;
const MOST_WAIT_S: u64 = 20;
/// The most messages and entries of one request.
const MOST_ENTRIES: u64 = 10;

/// A code in the new protocol, in the old one, and words.
struct Fault(&'static str, &'static str, String);

type Answered = Result<Value, Fault>;

pub(super) fn answer(queue: &mut Queue, now: Millis, request: &Request<'_>, target: &str, may_wait: bool) -> Outcome {
    let Ok(ask) = serde_json::from_slice::<Value>(request.body) else {
        let fault = Fault("SerializationException", "MalformedInput", "the body is not JSON".to_owned());
        return Outcome::Answer(written(Err(fault)));
    };
    let action = target.strip_prefix("AmazonSQS.").unwrap_or(target);
    if action == "ReceiveMessage" {
        return receive(queue, now, &ask, may_wait).unwrap_or_else(|fault| Outcome::Answer(written(Err(fault))));
    }
    Outcome::Answer(written(act(queue, now, request, action, &ask)))
}

fn act(queue: &mut Queue, now: Millis, request: &Request<'_>, action: &str, ask: &Value) -> Answered {
    if action == "GetQueueUrl" {
        check_name(ask["QueueName"].as_str().unwrap_or_default())?;
        let host = request.header("host").unwrap_or("127.0.0.1");
        return Ok(json!({"QueueUrl": format!("http://{host}/000000000000/{NAME}")}));
    }
    check_url(ask)?;
    match action {
        "GetQueueAttributes" => Ok(attributes(queue, now, ask)),
        "SendMessage" => {
            let body = ask["MessageBody"].as_str().ok_or_else(|| missing("MessageBody"))?;
            Ok(json!({"MessageId": queue.push_text(now, body)}))
        }
        "DeleteMessage" => one(ask, |handle, _| queue.delete(handle)),
        "ChangeMessageVisibility" => one(ask, |handle, ask| change(queue, now, handle, ask)),
        "DeleteMessageBatch" => batch(ask, |handle, _| queue.delete(handle)),
        "ChangeMessageVisibilityBatch" => batch(ask, |handle, entry| change(queue, now, handle, entry)),
        other => {
            let words = format!("The action {other} is not valid for this endpoint.");
            Err(Fault("InvalidAction", "InvalidAction", words))
        }
    }
}

fn receive(queue: &mut Queue, now: Millis, ask: &Value, may_wait: bool) -> Result<Outcome, Fault> {
    check_url(ask)?;
    let most = within(ask, "MaxNumberOfMessages", 1, 1..=MOST_ENTRIES)?;
    let wait = within(ask, "WaitTimeSeconds", 0, 0..=MOST_WAIT_S)?;
    let hidden = within(ask, "VisibilityTimeout", HIDDEN_S, 0..=MOST_HIDDEN_S)?;
    let taken = queue.receive(now, usize::try_from(most).unwrap_or(1), Span::secs(hidden));
    if taken.is_empty() && wait > 0 && may_wait {
        return Ok(Outcome::Wait(Span::secs(wait)));
    }
    let messages: Vec<Value> = taken.iter().map(|(handle, row)| message(handle, row)).collect();
    let answer = if messages.is_empty() { json!({}) } else { json!({"Messages": messages}) };
    Ok(Outcome::Answer(written(Ok(answer))))
}

fn message(handle: &str, row: &Row) -> Value {
    json!({
        "MessageId": row.id,
        "ReceiptHandle": handle,
        "Body": row.body,
        "Attributes": {
            "ApproximateFirstReceiveTimestamp": row.first_received.0.to_string(),
            "ApproximateReceiveCount": row.receives.to_string(),
            "SenderId": "events.amazonaws.com",
            "SentTimestamp": row.sent.0.to_string(),
        },
    })
}

fn attributes(queue: &Queue, now: Millis, ask: &Value) -> Value {
    let names: Vec<&str> = ask["AttributeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let waiting = queue.waiting(now);
    let all = [
        ("ApproximateNumberOfMessages", waiting.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", (queue.len() - waiting).to_string()),
        ("MessageRetentionPeriod", "345600".to_owned()),
        ("QueueArn", format!("arn:aws:sqs:us-east-1:000000000000:{NAME}")),
        ("VisibilityTimeout", HIDDEN_S.to_string()),
    ];
    let wanted = all.into_iter().filter(|(name, _)| names.contains(&"All") || names.contains(name));
    json!({"Attributes": wanted.map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<serde_json::Map<_, _>>()})
}

fn one(ask: &Value, mut act: impl FnMut(&str, &Value) -> bool) -> Answered {
    let handle = ask["ReceiptHandle"].as_str().ok_or_else(|| missing("ReceiptHandle"))?;
    if act(handle, ask) { Ok(json!({})) } else { Err(bad_handle(handle)) }
}

fn batch(ask: &Value, mut act: impl FnMut(&str, &Value) -> bool) -> Answered {
    let entries = ask["Entries"].as_array().ok_or_else(|| missing("Entries"))?;
    if entries.is_empty() || entries.len() as u64 > MOST_ENTRIES {
        let words = format!("A batch has from 1 to {MOST_ENTRIES} entries.");
        return Err(Fault(
            "TooManyEntriesInBatchRequest",
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            words,
        ));
    }
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        let handle = entry["ReceiptHandle"].as_str().unwrap_or_default();
        if act(handle, entry) {
            done.push(json!({"Id": entry["Id"]}));
        } else {
            let Fault(code, _, words) = bad_handle(handle);
            failed.push(json!({"Id": entry["Id"], "SenderFault": true, "Code": code, "Message": words}));
        }
    }
    Ok(json!({"Successful": done, "Failed": failed}))
}

fn change(queue: &mut Queue, now: Millis, handle: &str, ask: &Value) -> bool {
    let hidden = ask["VisibilityTimeout"].as_u64().filter(|s| *s <= MOST_HIDDEN_S);
    hidden.is_some_and(|s| queue.change(handle, now + Span::secs(s)))
}

fn within(ask: &Value, name: &str, usual: u64, allowed: std::ops::RangeInclusive<u64>) -> Result<u64, Fault> {
    let value = if ask[name].is_null() { Some(usual) } else { ask[name].as_u64() };
    value.filter(|v| allowed.contains(v)).ok_or_else(|| {
        let words = format!("Value {} for parameter {name} is invalid.", ask[name]);
        Fault("InvalidParameterValueException", "InvalidParameterValue", words)
    })
}

fn check_url(ask: &Value) -> Result<(), Fault> {
    let url = ask["QueueUrl"].as_str().unwrap_or_default();
    check_name(url.rsplit('/').next().unwrap_or_default())
}

fn check_name(name: &str) -> Result<(), Fault> {
    if name == NAME {
        return Ok(());
    }
    let words = format!("The specified queue does not exist: the one here is called {NAME}.");
    Err(Fault("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", words))
}

fn missing(name: &str) -> Fault {
    Fault(
        "MissingRequiredParameterException",
        "MissingParameter",
        format!("The request must contain the parameter {name}."),
    )
}

fn bad_handle(handle: &str) -> Fault {
    Fault(
        "ReceiptHandleIsInvalid",
        "ReceiptHandleIsInvalid",
        format!("The input receipt handle \"{handle}\" is not valid."),
    )
}

fn written(answered: Answered) -> Response {
    let (status, headers, body) = match answered {
        Ok(body) => (200, Vec::new(), body),
        Err(Fault(code, old, words)) => {
            let body = json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": words});
            (400, vec![("x-amzn-query-error", format!("{old};Sender"))], body)
        }
    };
    Response { status, content_type: "application/x-amz-json-1.0", headers, body: body.to_string() }
}
