//! An SQS on loopback, as far as a source and two sinks need one: it hands out the bodies that it was given, once, and takes what it is sent.

use forebay_parts::sqs_stub::Stub;
use std::time::Duration;

/// The variables that [`LoopbackQueues::config`] names.
pub const KEYS: [(&str, &str); 2] = [("SQS_ID", "test"), ("SQS_SECRET", "test")];

/// How long a poll that finds nothing takes: short beside the end of a controller, which waits for it.
const EMPTY_POLL: Duration = Duration::from_millis(100);

/// It serves until this process ends.
#[derive(Clone)]
pub struct LoopbackQueues(Stub);

impl LoopbackQueues {
    /// With these bodies in the queue that is read.
    pub fn with(bodies: impl Iterator<Item = String>) -> LoopbackQueues {
        let stub = Stub::start_with(EMPTY_POLL, |_, _| None);
        bodies.for_each(|body| stub.put(&[&body]));
        LoopbackQueues(stub)
    }

    /// A configuration that reads one queue, and sends statuses and rejected events to two others.
    pub fn config(&self) -> String {
        format!(
            "apiVersion: forebay/v1\nkind: Config\nsqs:\n  - region: us-east-1\n    endpoint: {}\n    \
             keys: {{id: {{env: SQS_ID}}, secret: {{env: SQS_SECRET}}}}\n    \
             queues: [{{name: jobs, principal: by-queue}}]\n    receivers: 1\n    \
             status: statuses\n    rejected: rejected\n",
            self.0.endpoint
        )
    }
}
