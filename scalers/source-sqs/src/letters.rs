//! A message of SQS as a letter.
//!
//! Never: a look into its body.

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use forebay_source::Letter;

/// The letter, and the handle by which the message is extended and deleted. `None`: SQS left out its id or its handle, so that it
/// could be neither; it becomes visible again.
pub(crate) fn letter(queue: &str, message: Message) -> Option<(Letter, String)> {
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
    Some((Letter { bytes, attributes, offset: 0, id: Some(format!("{queue}/{id}")), sent_ms }, handle))
}

/// Attributes of a CloudEvent in binary mode; others are the sender's own.
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
    fn what_belongs_to_the_event_is_kept_and_the_rest_is_not() {
        let message = Message::builder()
            .message_id("m-1")
            .receipt_handle("h-1")
            .body("{}")
            .attributes(MessageSystemAttributeName::SentTimestamp, "1700000000123")
            .message_attributes("ce_type", value("String", "job.submitted"))
            .message_attributes("ce-id", value("String.uuid", "7"))
            .message_attributes("Content-Type", value("String", "application/json"))
            .message_attributes("ce_time", value("Number", "12"))
            .message_attributes("trace", value("String", "x"));
        let (letter, handle) = letter("jobs", message.build()).expect("a letter");
        assert_eq!(
            (letter.id.as_deref(), letter.sent_ms, handle.as_str()),
            (Some("jobs/m-1"), Some(1_700_000_000_123), "h-1")
        );
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [pair("Content-Type", "application/json"), pair("ce-id", "7"), pair("ce_type", "job.submitted")];
        assert_eq!(letter.attributes, wanted);
        assert_eq!(letter.bytes, b"{}");
    }

    #[test]
    fn a_message_that_could_never_be_deleted_is_left() {
        assert!(letter("jobs", Message::builder().message_id("m").body("{}").build()).is_none());
    }
}
