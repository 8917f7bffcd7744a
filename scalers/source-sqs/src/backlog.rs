//! How many messages wait in a queue.
//!
//! Never: a zero for a question that was not answered.

use crate::context::Context;
use crate::queue::Queue;
use crate::trouble::{Kind, Trouble};
use aws_sdk_sqs::types::QueueAttributeName;
use forebay_source::Backlog;
use std::sync::Arc;

/// Asks every now and then until the source ends. What it learns of the visibility timeout the receivers use.
pub(crate) async fn watch(context: Arc<Context>, queue: Arc<Queue>) {
    let said = |backlog: Backlog| context.board.health.backlog(&queue.name, backlog);
    said(Backlog::Unknown { why: "not asked yet".to_owned() });
    loop {
        match context.or_end(ask(&context, &queue)).await {
            Ok(Ok(waiting)) => said(Backlog::Known(waiting)),
            Ok(Err(trouble)) => said(Backlog::Unknown { why: trouble.why }),
            Err(_) => return,
        }
        if context.pause(context.settings.pace.backlog).await.is_err() {
            return;
        }
    }
}

/// Visible ones and those that others hold. Both figures are approximate, SQS says.
async fn ask(context: &Context, queue: &Queue) -> Result<u64, Trouble> {
    let way = context.way().await?;
    let patience = context.settings.pace.patience;
    let url = queue.url(way, patience).await?;
    let visible = QueueAttributeName::ApproximateNumberOfMessages;
    let hidden = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    let names = [visible.clone(), hidden.clone(), QueueAttributeName::VisibilityTimeout];
    let found = queue.attributes(way, &url, patience, &names).await;
    if found.as_ref().is_err_and(|trouble| trouble.kind == Kind::Missing) {
        queue.lost().await;
    }
    let found = found?;
    let number = |name: &QueueAttributeName| {
        let text = found.get(name.as_str());
        text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| {
            let why = format!("sqs queue `{}`: GetQueueAttributes did not tell {}", queue.name, name.as_str());
            Trouble::new(Kind::Passing, why)
        })
    };
    Ok((number(&visible)? + number(&hidden)?).saturating_sub(queue.held()))
}
