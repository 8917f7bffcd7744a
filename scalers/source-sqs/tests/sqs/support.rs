//! What the tests share: a running source with the controller's end of its handle, and an administrator who inspects the queues.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry};
use forebay_parts::LocalStack;
use forebay_source::{
    Condition, DurablePositions, Health, IncomingBatches, Receipt, Source, SourceHandle, SubmittedBatch,
};
use forebay_source_sqs::{AccessKey, AwsSettings, SqsSettings, SqsSource, SqsTimings};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// For anything that should come: two busy cores are slow.
pub const SOON: Duration = Duration::from_secs(90);

/// Polls of one second and short delays.
pub fn settings(endpoint: &str, queues: &[&str]) -> SqsSettings {
    let timings = SqsTimings {
        poll_wait: Duration::from_secs(1),
        response_timeout: Duration::from_secs(10),
        first_delay: Duration::from_millis(20),
        longest_delay: Duration::from_millis(200),
        operator_delay: Duration::from_millis(500),
        backlog_interval: Duration::from_millis(200),
        send_within: SqsTimings::default().send_within,
    };
    let access_key = AccessKey { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    SqsSettings {
        aws: AwsSettings {
            region: Some("us-east-1".into()),
            endpoint: Some(endpoint.into()),
            access_key: Some(access_key),
        },
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        receivers: 2,
        timings,
    }
}

/// A running source, and the controller's end of its handle.
pub struct RunningSource {
    sqs: Option<SqsSource>,
    pub incoming: IncomingBatches,
    pub health: Health,
    pub permits: Arc<Semaphore>,
    runtime: Option<Runtime>,
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub fn start(settings: SqsSettings, permits: usize) -> RunningSource {
    let (runtime, permits, health) = (runtime(), Arc::new(Semaphore::new(permits)), Health::default());
    let (handle, incoming) = SourceHandle::new(Arc::clone(&permits), DurablePositions::default());
    let sqs =
        SqsSource::start(settings, handle, health.clone(), runtime.handle().clone()).expect("settings that can be");
    RunningSource { sqs: Some(sqs), incoming, health, permits, runtime: Some(runtime) }
}

impl RunningSource {
    /// The next batch, if one is submitted in time.
    pub fn next_within(&mut self, limit: Duration) -> Option<SubmittedBatch> {
        let runtime = self.runtime.as_ref().expect("it runs");
        runtime.block_on(async { tokio::time::timeout(limit, self.incoming.batches.recv()).await.ok().flatten() })
    }

    pub fn next(&mut self) -> SubmittedBatch {
        let next = self.next_within(SOON);
        next.unwrap_or_else(|| panic!("no batch; the source reports {:?}", self.health.snapshot()))
    }

    /// Takes batches until there are this many messages, and makes each durable at once. Returns bodies and ids.
    pub fn take(&mut self, messages: usize) -> Vec<(String, String)> {
        let mut taken = Vec::new();
        while taken.len() < messages {
            let submitted = self.next();
            taken.extend(bodies(&submitted));
            durable(submitted);
        }
        taken
    }

    pub fn wait_for_condition(&self, what: &str, wanted: impl Fn(&Condition) -> bool) {
        until(what, || wanted(&self.health.snapshot().condition));
    }

    pub fn stop(&mut self) -> Duration {
        let began = Instant::now();
        Box::new(self.sqs.take().expect("it runs")).stop();
        began.elapsed()
    }

    /// As a process that is killed: nothing is given back or deleted from here on.
    pub fn crash(mut self) {
        self.runtime.take().expect("it runs").shutdown_background();
    }
}

impl Drop for RunningSource {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Bodies and ids.
pub fn bodies(submitted: &SubmittedBatch) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    submitted.batch.messages.iter().map(|message| (text(&message.bytes), message.id.clone().expect("an id"))).collect()
}

/// The journal has it.
pub fn durable(submitted: SubmittedBatch) {
    let taken = submitted.batch.messages.len() as u32;
    drop(submitted.permit);
    submitted.receipt.send(Receipt { taken, ..Receipt::default() }).expect("the receiver is there");
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A client with all permissions on the queues of a LocalStack.
pub struct Admin {
    endpoint: String,
    _localstack: Option<Arc<LocalStack>>,
    pub client: Client,
    pub runtime: Runtime,
}

impl Admin {
    /// Of the one that all tests share.
    pub fn new() -> Admin {
        let localstack = LocalStack::shared();
        let endpoint = localstack.endpoint().to_owned();
        Admin { _localstack: Some(localstack), ..Admin::at(&endpoint) }
    }

    /// Of another one.
    pub fn at(endpoint: &str) -> Admin {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(endpoint);
        Admin {
            client: Client::from_conf(config.build()),
            runtime: runtime(),
            endpoint: endpoint.to_owned(),
            _localstack: None,
        }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Makes a queue and gives its URL.
    pub fn create(&self, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
        let mut call = self.client.create_queue().queue_name(name);
        for (key, value) in attributes {
            call = call.attributes(key.clone(), *value);
        }
        if name.ends_with(".fifo") {
            call = call.attributes(QueueAttributeName::FifoQueue, "true");
        }
        self.runtime.block_on(call.send()).expect("a queue").queue_url.expect("its URL")
    }

    /// Makes a queue with a dead-letter queue: their URLs.
    pub fn create_with_dead_letters(&self, name: &str, receives: u32, visibility_s: u32) -> (String, String) {
        let dead = self.create(&format!("{name}-dead"), &[]);
        let arn = format!("arn:aws:sqs:us-east-1:000000000000:{name}-dead");
        let policy = format!("{{\"deadLetterTargetArn\":\"{arn}\",\"maxReceiveCount\":\"{receives}\"}}");
        let visibility = visibility_s.to_string();
        let attributes = [
            (QueueAttributeName::RedrivePolicy, policy.as_str()),
            (QueueAttributeName::VisibilityTimeout, &visibility),
        ];
        (self.create(name, &attributes), dead)
    }

    /// Sends texts, in order; with a group to a FIFO queue.
    pub fn send(&self, url: &str, messages: &[(String, Option<String>)]) {
        for (at, chunk) in messages.chunks(10).enumerate() {
            let entries = chunk.iter().enumerate().map(|(number, (body, group))| {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body);
                let id = group.as_ref().map(|group| format!("{group}-{at}-{number}"));
                entry.set_message_group_id(group.clone()).set_message_deduplication_id(id).build().expect("an entry")
            });
            let call = self.client.send_message_batch().queue_url(url).set_entries(Some(entries.collect()));
            let answer = self.runtime.block_on(call.send()).expect("sent");
            assert!(answer.failed.is_empty(), "{:?}", answer.failed);
        }
    }

    /// Messages that are in a queue, visible or not.
    pub fn count(&self, url: &str) -> (u64, u64) {
        let call = self.client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
        let found = self.runtime.block_on(call.send()).expect("attributes").attributes.expect("some");
        let number = |name: QueueAttributeName| found[&name].parse().expect("a number");
        (
            number(QueueAttributeName::ApproximateNumberOfMessages),
            number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }

    /// Receives up to ten messages within a second.
    pub fn receive(&self, url: &str) -> Vec<Message> {
        let call = self.client.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(1);
        let call = call.message_system_attribute_names(MessageSystemAttributeName::All).message_attribute_names("All");
        self.runtime.block_on(call.send()).expect("an answer").messages.unwrap_or_default()
    }

    /// Receives and deletes until so many have come.
    pub fn drain(&self, url: &str, messages: usize) -> Vec<Message> {
        let (mut all, deadline) = (Vec::new(), Instant::now() + SOON);
        while all.len() < messages {
            assert!(Instant::now() < deadline, "{} of {messages} messages came", all.len());
            for message in self.receive(url) {
                let handle = message.receipt_handle.clone();
                let call = self.client.delete_message().queue_url(url).set_receipt_handle(handle);
                self.runtime.block_on(call.send()).expect("deleted");
                all.push(message);
            }
        }
        all
    }
}

/// Texts `NAME-0`, `NAME-1` and so on.
pub fn texts(name: &str, number: usize) -> Vec<(String, Option<String>)> {
    (0..number).map(|n| (format!("{name}-{n}"), None)).collect()
}
