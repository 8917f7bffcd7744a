//! An SQS on loopback, as far as a source and two sinks need one: it hands out the bodies that it was given, once, and takes what it is sent.
//!
//! Never: looks at a signature, or keeps what it takes.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The variables that [`LoopbackQueues::config`] names.
pub const KEYS: [(&str, &str); 2] = [("SQS_ID", "test"), ("SQS_SECRET", "test")];

/// How long a poll that finds nothing takes: short beside the end of a controller, which waits for it.
const EMPTY_POLL: Duration = Duration::from_millis(100);

/// Messages that one poll brings at most, as in SQS.
const POLLED: usize = 10;

/// It serves until this process ends.
#[derive(Clone)]
pub struct LoopbackQueues {
    endpoint: String,
    messages: Arc<Mutex<VecDeque<Value>>>,
}

impl LoopbackQueues {
    /// With these bodies in the queue that is read.
    pub fn with(bodies: impl Iterator<Item = String>) -> LoopbackQueues {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let message = |(nth, body): (usize, String)| json!({ "MessageId": format!("m-{nth}"), "ReceiptHandle": format!("h-{nth}"), "Body": body });
        let messages = Arc::new(Mutex::new(bodies.enumerate().map(message).collect()));
        let queues = LoopbackQueues { endpoint, messages };
        let serving = queues.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(&stream));
            }
        });
        queues
    }

    /// A configuration that reads one queue, and sends statuses and rejected events to two others.
    pub fn config(&self) -> String {
        format!(
            "apiVersion: forebay/v1\nkind: Config\nsqs:\n  - region: us-east-1\n    endpoint: {}\n    \
             keys: {{id: {{env: SQS_ID}}, secret: {{env: SQS_SECRET}}}}\n    \
             queues: [{{name: jobs, principal: by-queue}}]\n    receivers: 1\n    \
             status: statuses\n    rejected: rejected\n",
            self.endpoint
        )
    }

    /// Answers on a connection until it ends.
    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (action, body) = request(&mut reader)?;
            let answer = self.answer(&action, &body).to_string();
            let length = answer.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n"
            );
            stream.write_all((head + &answer).as_bytes()).ok()?;
        }
    }

    fn answer(&self, action: &str, body: &Value) -> Value {
        match action {
            "GetQueueUrl" => {
                let name = body["QueueName"].as_str().unwrap_or_default();
                json!({ "QueueUrl": format!("{}/1/{name}", self.endpoint) })
            }
            "GetQueueAttributes" => json!({ "Attributes": { "VisibilityTimeout": "30", "MaximumMessageSize": "262144",
                "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0" } }),
            "ReceiveMessage" => json!({ "Messages": self.received() }),
            // Batches of what is sent, deleted or kept hidden: each entry is done.
            _ => {
                let done =
                    |entry: &Value| json!({ "Id": entry["Id"], "MessageId": "sent", "MD5OfMessageBody": "none" });
                let done: Vec<Value> = body["Entries"].as_array().into_iter().flatten().map(done).collect();
                json!({ "Successful": done, "Failed": [] })
            }
        }
    }

    fn received(&self) -> Vec<Value> {
        let mut messages = self.messages.lock().expect("nobody failed who had it");
        let some = messages.len().min(POLLED);
        let received: Vec<Value> = messages.drain(..some).collect();
        drop(messages);
        if received.is_empty() {
            std::thread::park_timeout(EMPTY_POLL);
        }
        received
    }
}

/// The next request on a connection: its action and its body. `None`: there is none.
fn request(reader: &mut impl BufRead) -> Option<(String, Value)> {
    let (mut action, mut length, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "x-amz-target" => action = value.rsplit('.').next()?.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((action, serde_json::from_slice(&body).ok()?))
}
