//! Converts a message of SQS. Its body is not looked into.

use aws_sdk_sqs::types::{Message as SqsMessage, MessageAttributeValue, MessageSystemAttributeName};
use forebay_source::Message;

/// The message, and the receipt handle by which it is extended and deleted. `None` if SQS left out the id or the handle: such a message
/// could not be deleted, so it is left to become visible again.
pub(crate) fn to_message(queue: &str, message: SqsMessage) -> Option<(Message, String)> {
    let (id, handle) = (message.message_id?, message.receipt_handle?);
    let sent = message.attributes.as_ref().and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp));
    let sent_ms = sent.and_then(|text| text.parse().ok());
    let mut attributes: Vec<(String, String)> = message
        .message_attributes
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, value)| of_event(name, value))
        .collect();
    attributes.sort();
    let bytes = message.body.unwrap_or_default().into_bytes();
    Some((Message { bytes, attributes, offset: 0, id: Some(format!("{queue}/{id}")), sent_ms }, handle))
}

/// An attribute of a CloudEvent in binary mode. Others belong to the sender and are left out.
fn of_event(name: String, value: MessageAttributeValue) -> Option<(String, String)> {
    let lower = name.to_ascii_lowercase();
    let known = lower.starts_with("ce_") || lower.starts_with("ce-") || lower == "content-type";
    let text = value.data_type == "String" || value.data_type.starts_with("String.");
    if known && text { value.string_value.map(|value| (name, value)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: &str, text: &str) -> MessageAttributeValue {
        MessageAttributeValue::builder().data_type(kind).string_value(text).build().expect("a data type")
    }

    #[test]
    fn attributes_of_the_event_are_kept_and_others_are_not() {
        let received = SqsMessage::builder()
            .message_id("m-1")
            .receipt_handle("h-1")
            .body("{}")
            .attributes(MessageSystemAttributeName::SentTimestamp, "1700000000123")
            .message_attributes("ce_type", value("String", "job.submitted"))
            .message_attributes("ce-id", value("String.uuid", "7"))
            .message_attributes("Content-Type", value("String", "application/json"))
            .message_attributes("ce_time", value("Number", "12"))
            .message_attributes("trace", value("String", "x"));
        let (message, handle) = to_message("jobs", received.build()).expect("a message");
        assert_eq!(
            (message.id.as_deref(), message.sent_ms, handle.as_str()),
            (Some("jobs/m-1"), Some(1_700_000_000_123), "h-1")
        );
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [pair("Content-Type", "application/json"), pair("ce-id", "7"), pair("ce_type", "job.submitted")];
        assert_eq!(message.attributes, wanted);
        assert_eq!(message.bytes, b"{}");
    }

    #[test]
    fn a_message_that_could_not_be_deleted_is_left() {
        assert!(to_message("jobs", SqsMessage::builder().message_id("m").body("{}").build()).is_none());
    }
}
