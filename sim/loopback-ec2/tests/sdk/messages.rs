//! The message queue with SQS's own client.

use std::time::Duration;

use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, QueueAttributeName,
};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::Span;
use forebay_loopback_ec2::RegionOptions;

use super::{Stage, code};

fn quiet() -> Stage {
    Stage::new(RegionOptions { state_messages: false, ..RegionOptions::default() })
}

/// Launches a spot instance of another user.
fn foreign(stage: &Stage) -> String {
    let mut region = stage.loopback.region();
    let now = region.now();
    region.launch_foreign(now, "g5.xlarge", "us-east-1a", CapacityType::Spot, Default::default()).unwrap()
}

#[tokio::test]
async fn a_warning_is_received_hidden_and_deleted() {
    let stage = quiet();
    let id = foreign(&stage);
    let url = stage.sqs.get_queue_url().queue_name("interruptions").send().await.unwrap();
    let url = url.queue_url().unwrap();
    assert_eq!(url, stage.loopback.queue_url());
    let receive = || stage.sqs.receive_message().queue_url(url).max_number_of_messages(10);
    assert!(receive().send().await.unwrap().messages().is_empty());
    {
        let mut region = stage.loopback.region();
        let now = region.now();
        assert!(region.reclaim(now, &id, Some(Span::secs(120))));
    }
    let got = receive().send().await.unwrap();
    let [message] = got.messages() else { panic!("{got:?}") };
    assert!(message.body().unwrap().contains(&id));
    assert!(receive().send().await.unwrap().messages().is_empty());
    stage.pass(Span::secs(30));
    let again = receive().send().await.unwrap();
    assert_eq!(again.messages()[0].message_id(), message.message_id());
    let handle = again.messages()[0].receipt_handle().unwrap();
    stage
        .sqs
        .change_message_visibility()
        .queue_url(url)
        .receipt_handle(handle)
        .visibility_timeout(0)
        .send()
        .await
        .unwrap();
    let third = receive().send().await.unwrap();
    let attributes = stage.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    let attributes = attributes.send().await.unwrap();
    let hidden = &attributes.attributes().unwrap()[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible];
    assert_eq!(hidden, "1");
    let handle = third.messages()[0].receipt_handle().unwrap();
    stage.sqs.delete_message().queue_url(url).receipt_handle(handle).send().await.unwrap();
    stage.pass(Span::mins(1));
    assert!(receive().send().await.unwrap().messages().is_empty());
    let bad = stage.sqs.delete_message().queue_url(url).receipt_handle("no handle").send().await;
    assert_eq!(code(bad), "ReceiptHandleIsInvalid");
    let none = stage.sqs.get_queue_url().queue_name("others").send().await;
    assert!(none.unwrap_err().as_service_error().unwrap().is_queue_does_not_exist());
}

#[tokio::test]
async fn batches_have_a_result_for_each_entry() {
    let stage = quiet();
    for n in 0..3 {
        stage.loopback.send(&format!("text {n}"));
    }
    let url = stage.loopback.queue_url();
    let got = stage.sqs.receive_message().queue_url(&url).max_number_of_messages(3).send().await.unwrap();
    let handles: Vec<&str> = got.messages().iter().filter_map(|m| m.receipt_handle()).collect();
    assert_eq!(handles.len(), 3);
    let entry = |n: usize, handle: &str| {
        DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(handle).build().unwrap()
    };
    let terminated_at =
        stage.sqs.delete_message_batch().queue_url(&url).entries(entry(0, handles[0])).entries(entry(1, "bad"));
    let terminated_at = terminated_at.send().await.unwrap();
    assert_eq!((terminated_at.successful()[0].id(), terminated_at.failed()[0].id()), ("0", "1"));
    let later = ChangeMessageVisibilityBatchRequestEntry::builder().id("0").receipt_handle(handles[1]);
    let later = later.visibility_timeout(0).build().unwrap();
    stage.sqs.change_message_visibility_batch().queue_url(&url).entries(later).send().await.unwrap();
    let again = stage.sqs.receive_message().queue_url(&url).max_number_of_messages(10).send().await.unwrap();
    assert_eq!(again.messages().iter().filter_map(|m| m.body()).collect::<Vec<_>>(), ["text 1"]);
}

#[tokio::test]
async fn a_waiting_receive_gets_new_messages() {
    let stage = quiet();
    let id = foreign(&stage);
    let url = stage.loopback.queue_url();
    let wait = stage.sqs.receive_message().queue_url(&url).wait_time_seconds(20).send();
    let wait = tokio::spawn(wait);
    // The message is received whether the reclaim or the request comes first.
    {
        let mut region = stage.loopback.region();
        let now = region.now();
        assert!(region.reclaim(now, &id, Some(Span::secs(120))));
    }
    let got =
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("the receive was not woken").unwrap().unwrap();
    assert_eq!(got.messages().len(), 1);
    let handle = got.messages()[0].receipt_handle().unwrap();
    stage.sqs.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    // Without a message, the receive ends when the virtual time has passed, before the wall clock ends it.
    let wait = tokio::spawn(stage.sqs.receive_message().queue_url(&url).wait_time_seconds(20).send());
    let clock = stage.clock.clone();
    let pass = async {
        while !wait.is_finished() {
            clock.set(clock.now() + Span::secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), pass).await.expect("the receive did not end");
    assert!(wait.await.unwrap().unwrap().messages().is_empty());
}
