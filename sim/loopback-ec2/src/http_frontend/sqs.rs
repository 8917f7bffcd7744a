//! The JSON protocol of SQS for one standard queue, `interruptions`. Digests of bodies are left out, which the protocol allows.

use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};

use super::queue::{MessageQueue, QueuedMessage};
use super::{EmptyReceive, HttpOutcome, HttpRequest, HttpResponse};

/// The queue's name.
const NAME: &str = "interruptions";
/// How long a received message is hidden by default.
const DEFAULT_HIDDEN_S: u64 = 30;
/// The longest time that a message may be hidden.
const MAX_HIDDEN_S: u64 = 43_200;
/// The longest wait of a receive.
const MAX_WAIT_S: u64 = 20;
/// The most messages and entries of one request.
const MAX_ENTRIES: u64 = 10;

struct SqsFault {
    code: &'static str,
    /// The code in the Query protocol.
    query_code: &'static str,
    message: String,
}

type SqsResult = Result<Value, SqsFault>;

pub(super) fn respond(
    queue: &mut MessageQueue,
    now: Timestamp,
    request: &HttpRequest<'_>,
    target: &str,
    empty: EmptyReceive,
) -> HttpOutcome {
    let Ok(arguments) = serde_json::from_slice::<Value>(request.body) else {
        let message = "the body is not JSON".to_owned();
        let fault = SqsFault { code: "SerializationException", query_code: "MalformedInput", message };
        return HttpOutcome::Response(to_response(Err(fault)));
    };
    let action = target.strip_prefix("AmazonSQS.").unwrap_or(target);
    if action == "ReceiveMessage" {
        return receive(queue, now, &arguments, empty)
            .unwrap_or_else(|fault| HttpOutcome::Response(to_response(Err(fault))));
    }
    HttpOutcome::Response(to_response(execute(queue, now, request, action, &arguments)))
}

fn execute(
    queue: &mut MessageQueue,
    now: Timestamp,
    request: &HttpRequest<'_>,
    action: &str,
    arguments: &Value,
) -> SqsResult {
    if action == "GetQueueUrl" {
        check_name(arguments["QueueName"].as_str().unwrap_or_default())?;
        let host = request.header("host").unwrap_or("127.0.0.1");
        return Ok(json!({"QueueUrl": format!("http://{host}/000000000000/{NAME}")}));
    }
    check_url(arguments)?;
    match action {
        "GetQueueAttributes" => Ok(attributes(queue, now, arguments)),
        "SendMessage" => {
            let body = arguments["MessageBody"].as_str().ok_or_else(|| missing("MessageBody"))?;
            Ok(json!({"MessageId": queue.push_text(now, body)}))
        }
        "DeleteMessage" => one(arguments, |handle, _| queue.delete(handle)),
        "ChangeMessageVisibility" => one(arguments, |handle, arguments| change(queue, now, handle, arguments)),
        "DeleteMessageBatch" => batch(arguments, |handle, _| queue.delete(handle)),
        "ChangeMessageVisibilityBatch" => batch(arguments, |handle, entry| change(queue, now, handle, entry)),
        other => {
            let message = format!("The action {other} is not valid for this endpoint.");
            Err(SqsFault { code: "InvalidAction", query_code: "InvalidAction", message })
        }
    }
}

fn receive(
    queue: &mut MessageQueue,
    now: Timestamp,
    arguments: &Value,
    empty: EmptyReceive,
) -> Result<HttpOutcome, SqsFault> {
    check_url(arguments)?;
    let most = number(arguments, "MaxNumberOfMessages", 1, 1..=MAX_ENTRIES)?;
    let wait = number(arguments, "WaitTimeSeconds", 0, 0..=MAX_WAIT_S)?;
    let hidden = number(arguments, "VisibilityTimeout", DEFAULT_HIDDEN_S, 0..=MAX_HIDDEN_S)?;
    let received = queue.receive(now, usize::try_from(most).unwrap_or(1), Span::secs(hidden));
    if received.is_empty() && wait > 0 && empty == EmptyReceive::Wait {
        return Ok(HttpOutcome::Wait(Span::secs(wait)));
    }
    let messages: Vec<Value> = received.iter().map(|(handle, row)| message(handle, row)).collect();
    let respond = if messages.is_empty() { json!({}) } else { json!({"Messages": messages}) };
    Ok(HttpOutcome::Response(to_response(Ok(respond))))
}

fn message(handle: &str, row: &QueuedMessage) -> Value {
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

fn attributes(queue: &MessageQueue, now: Timestamp, arguments: &Value) -> Value {
    let names: Vec<&str> =
        arguments["AttributeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let visible = queue.visible(now);
    let all = [
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", (queue.len() - visible).to_string()),
        ("MessageRetentionPeriod", "345600".to_owned()),
        ("QueueArn", format!("arn:aws:sqs:us-east-1:000000000000:{NAME}")),
        ("VisibilityTimeout", DEFAULT_HIDDEN_S.to_string()),
    ];
    let wanted = all.into_iter().filter(|(name, _)| names.contains(&"All") || names.contains(name));
    json!({"Attributes": wanted.map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<serde_json::Map<_, _>>()})
}

fn one(arguments: &Value, mut action: impl FnMut(&str, &Value) -> bool) -> SqsResult {
    let handle = arguments["ReceiptHandle"].as_str().ok_or_else(|| missing("ReceiptHandle"))?;
    if action(handle, arguments) { Ok(json!({})) } else { Err(invalid_handle(handle)) }
}

fn batch(arguments: &Value, mut action: impl FnMut(&str, &Value) -> bool) -> SqsResult {
    let entries = arguments["Entries"].as_array().ok_or_else(|| missing("Entries"))?;
    if entries.is_empty() || entries.len() as u64 > MAX_ENTRIES {
        let message = format!("A batch has from 1 to {MAX_ENTRIES} entries.");
        let query_code = "AWS.SimpleQueueService.TooManyEntriesInBatchRequest";
        return Err(SqsFault { code: "TooManyEntriesInBatchRequest", query_code, message });
    }
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        let handle = entry["ReceiptHandle"].as_str().unwrap_or_default();
        if action(handle, entry) {
            done.push(json!({"Id": entry["Id"]}));
        } else {
            let SqsFault { code, message, .. } = invalid_handle(handle);
            failed.push(json!({"Id": entry["Id"], "SenderFault": true, "Code": code, "Message": message}));
        }
    }
    Ok(json!({"Successful": done, "Failed": failed}))
}

fn change(queue: &mut MessageQueue, now: Timestamp, handle: &str, arguments: &Value) -> bool {
    let hidden = arguments["VisibilityTimeout"].as_u64().filter(|s| *s <= MAX_HIDDEN_S);
    hidden.is_some_and(|s| queue.set_visible_at(handle, now + Span::secs(s)))
}

fn number(
    arguments: &Value,
    name: &str,
    default: u64,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<u64, SqsFault> {
    let value = if arguments[name].is_null() { Some(default) } else { arguments[name].as_u64() };
    value.filter(|v| allowed.contains(v)).ok_or_else(|| {
        let message = format!("Value {} for parameter {name} is invalid.", arguments[name]);
        SqsFault { code: "InvalidParameterValueException", query_code: "InvalidParameterValue", message }
    })
}

fn check_url(arguments: &Value) -> Result<(), SqsFault> {
    let url = arguments["QueueUrl"].as_str().unwrap_or_default();
    check_name(url.rsplit('/').next().unwrap_or_default())
}

fn check_name(name: &str) -> Result<(), SqsFault> {
    if name == NAME {
        return Ok(());
    }
    let message = format!("The specified queue does not exist. The only queue is {NAME}.");
    Err(SqsFault { code: "QueueDoesNotExist", query_code: "AWS.SimpleQueueService.NonExistentQueue", message })
}

fn missing(name: &str) -> SqsFault {
    let message = format!("The request must contain the parameter {name}.");
    SqsFault { code: "MissingRequiredParameterException", query_code: "MissingParameter", message }
}

fn invalid_handle(handle: &str) -> SqsFault {
    let message = format!("The input receipt handle \"{handle}\" is not valid.");
    SqsFault { code: "ReceiptHandleIsInvalid", query_code: "ReceiptHandleIsInvalid", message }
}

fn to_response(result: SqsResult) -> HttpResponse {
    let (status, headers, body) = match result {
        Ok(body) => (200, Vec::new(), body),
        Err(SqsFault { code, query_code, message }) => {
            let body = json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": message});
            (400, vec![("x-amzn-query-error", format!("{query_code};Sender"))], body)
        }
    };
    HttpResponse { status, content_type: "application/x-amz-json-1.0", headers, body: body.to_string() }
}
