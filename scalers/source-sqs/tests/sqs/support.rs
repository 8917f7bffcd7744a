//! A controller of the test's own: a desk, its other side, and an administrator who looks at the queues.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry};
use forebay_parts::LocalStack;
use forebay_source::{Condition, Durable, Health, Incoming, Posted, Receipt, Source, desk};
use forebay_source_sqs::{Keys, Pace, Settings, Sqs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// For anything that should come: two busy cores are slow.
pub const SOON: Duration = Duration::from_secs(20);

/// Polls of a second, short pauses.
pub fn settings(endpoint: &str, queues: &[&str]) -> Settings {
    let pace = Pace {
        wait: Duration::from_secs(1),
        patience: Duration::from_secs(10),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(200),
        slow_pause: Duration::from_millis(500),
        backlog: Duration::from_millis(200),
    };
    let keys = Keys { access_key_id: "test".into(), secret_access_key: "test".into(), session_token: None };
    Settings {
        region: Some("us-east-1".into()),
        endpoint: Some(endpoint.into()),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        receivers: 2,
        keys: Some(keys),
        pace,
    }
}

/// A source that runs, and the other side of its desk.
pub struct Running {
    sqs: Option<Sqs>,
    pub incoming: Incoming,
    pub health: Health,
    pub room: Arc<Semaphore>,
    runtime: Option<Runtime>,
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub fn start(settings: Settings, room: usize) -> Running {
    let (runtime, room, health) = (runtime(), Arc::new(Semaphore::new(room)), Health::default());
    let (desk, incoming) = desk(Arc::clone(&room), Durable::default());
    let sqs = Sqs::start(settings, desk, health.clone(), runtime.handle().clone()).expect("settings that can be");
    Running { sqs: Some(sqs), incoming, health, room, runtime: Some(runtime) }
}

impl Running {
    /// The next parcel, if one comes in time.
    pub fn next_within(&mut self, limit: Duration) -> Option<Posted> {
        let runtime = self.runtime.as_ref().expect("it runs");
        runtime.block_on(async { tokio::time::timeout(limit, self.incoming.from.recv()).await.ok().flatten() })
    }

    pub fn next(&mut self) -> Posted {
        let next = self.next_within(SOON);
        next.unwrap_or_else(|| panic!("no parcel; the source says {:?}", self.health.seen()))
    }

    /// Parcels until there are so many letters: bodies and ids. Each is durable at once.
    pub fn take(&mut self, letters: usize) -> Vec<(String, String)> {
        let mut taken = Vec::new();
        while taken.len() < letters {
            let posted = self.next();
            taken.extend(bodies(&posted));
            durable(posted);
        }
        taken
    }

    pub fn says(&self, what: &str, wanted: impl Fn(&Condition) -> bool) {
        until(what, || wanted(&self.health.seen().condition));
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

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Bodies and ids.
pub fn bodies(posted: &Posted) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    posted.parcel.letters.iter().map(|letter| (text(&letter.bytes), letter.id.clone().expect("an id"))).collect()
}

/// The journal has it.
pub fn durable(posted: Posted) {
    let taken = posted.parcel.letters.len() as u32;
    drop(posted.slot);
    posted.answer.send(Receipt { taken, ..Receipt::default() }).expect("somebody waits for the receipt");
}

/// Looks until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Somebody who may do everything with the queues of a LocalStack.
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
