//! Reports how many messages wait in a queue. A backlog that could not be read is unknown, never zero.

use crate::call_failure::{CallFailure, FailureKind};
use crate::context::Context;
use crate::queue::Queue;
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_source::Backlog;
use std::sync::Arc;

/// Reads the backlog at intervals until the source stops. The receivers use the visibility timeout that is read with it.
pub(crate) async fn watch(context: Arc<Context>, queue: Arc<Queue>) {
    let report = |backlog: Backlog| context.conditions.health.set_backlog(&queue.name, backlog);
    report(Backlog::Unknown { why: "not read yet".to_owned() });
    loop {
        match context.unless_stopping(read(&context, &queue)).await {
            Ok(Ok(waiting)) => report(Backlog::Known(waiting)),
            Ok(Err(failure)) => report(Backlog::Unknown { why: failure.why }),
            Err(_) => return,
        }
        if context.sleep(context.settings.timings.backlog_interval).await.is_err() {
            return;
        }
    }
}

/// Visible messages and those that other consumers have in flight. SQS documents both figures as approximate.
async fn read(context: &Context, queue: &Queue) -> Result<u64, CallFailure> {
    let connection = context.connection().await?;
    let response_timeout = context.settings.timings.response_timeout;
    let url = queue.url(connection, response_timeout).await?;
    let visible = QueueAttributeName::ApproximateNumberOfMessages;
    let hidden = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    let names = [visible.clone(), hidden.clone(), QueueAttributeName::VisibilityTimeout];
    let found = queue.attributes(connection, &url, response_timeout, &names).await;
    if found.as_ref().is_err_and(|failure| failure.kind == FailureKind::NotFound) {
        queue.forget_url().await;
    }
    let found = found?;
    let number = |name: &QueueAttributeName| {
        let text = found.get(name.as_str());
        text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| {
            let why = format!("sqs queue `{}`: GetQueueAttributes did not return {}", queue.name, name.as_str());
            CallFailure::new(FailureKind::Transient, why)
        })
    };
    Ok((number(&visible)? + number(&hidden)?).saturating_sub(queue.in_flight()))
}
