//! An endpoint on loopback that speaks SQS's JSON protocol as far as the source and the sink do, and fails as a test wants.
//!
//! Never: looks at a signature.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The response to a call.
pub enum StubResponse {
    /// 200 with this.
    Good(Value),
    /// A status, a code and a message, as an error has them.
    Bad(u16, &'static str, &'static str),
    /// Nothing, ever.
    Hang,
}

type Handler = Box<dyn FnMut(&str, &Value) -> Option<StubResponse> + Send>;

struct StubState {
    handler: Handler,
    calls: Vec<(String, Value)>,
    messages: VecDeque<Value>,
}

/// A running endpoint. Its thread ends with the process.
#[derive(Clone)]
pub struct Stub {
    /// Where it listens, such as `http://127.0.0.1:40000`.
    pub endpoint: String,
    shared: Arc<Mutex<StubState>>,
    empty_poll: Duration,
}

impl Stub {
    /// The handler sees every call first; where it gives nothing, all goes well.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(handler: impl FnMut(&str, &Value) -> Option<StubResponse> + Send + 'static) -> Stub {
        Stub::start_with(Duration::ZERO, handler)
    }

    /// The same, where a poll that finds nothing takes so long.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start_with(
        empty_poll: Duration,
        handler: impl FnMut(&str, &Value) -> Option<StubResponse> + Send + 'static,
    ) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = StubState { handler: Box::new(handler), calls: Vec::new(), messages: VecDeque::new() };
        let stub = Stub { endpoint, shared: Arc::new(Mutex::new(shared)), empty_poll };
        let served = stub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || served.serve(stream));
            }
        });
        stub
    }

    /// Puts messages into the one queue that there is.
    pub fn put(&self, bodies: &[&str]) {
        let mut shared = self.state();
        for body in bodies {
            shared
                .messages
                .push_back(json!({ "MessageId": format!("id-{body}"), "ReceiptHandle": format!("handle-{body}"),
                "Body": body, "Attributes": { "SentTimestamp": "1700000000000" } }));
        }
    }

    /// The calls of an action so far.
    #[must_use]
    pub fn calls(&self, action: &str) -> Vec<Value> {
        let shared = self.state();
        shared.calls.iter().filter(|(of, _)| of == action).map(|(_, body)| body.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, StubState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (action, body) = request(&mut reader)?;
            match self.answer(&action, &body) {
                StubResponse::Good(value) => respond(&stream, 200, "", &value)?,
                StubResponse::Bad(status, code, message) => {
                    let value = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": message });
                    respond(&stream, status, &format!("x-amzn-query-error: {code};Sender\r\n"), &value)?;
                }
                // Until the other side gives up.
                StubResponse::Hang => drop(reader.read(&mut [0; 1])),
            }
        }
    }

    fn answer(&self, action: &str, body: &Value) -> StubResponse {
        let mut shared = self.state();
        shared.calls.push((action.to_owned(), body.clone()));
        if let Some(answer) = (shared.handler)(action, body) {
            return answer;
        }
        StubResponse::Good(match action {
            "GetQueueUrl" => {
                json!({ "QueueUrl": format!("{}/1/{}", self.endpoint, body["QueueName"].as_str().unwrap_or("")) })
            }
            "GetQueueAttributes" => json!({ "Attributes": { "VisibilityTimeout": "2", "MaximumMessageSize": "262144",
                "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0" } }),
            "ReceiveMessage" => {
                let most = shared.messages.len().min(10);
                let messages: Vec<Value> = shared.messages.drain(..most).collect();
                drop(shared);
                if messages.is_empty() && !self.empty_poll.is_zero() {
                    std::thread::park_timeout(self.empty_poll);
                }
                json!({ "Messages": messages })
            }
            _ => batch(body, |_| None),
        })
    }
}

/// The answer to a batch: what the function names fails with (sender's fault, code).
#[must_use]
pub fn batch(body: &Value, fails: impl Fn(&Value) -> Option<(bool, &'static str)>) -> Value {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for entry in body["Entries"].as_array().into_iter().flatten() {
        match fails(entry) {
            None => good.push(json!({ "Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "0" })),
            Some((fault, code)) => {
                bad.push(json!({ "Id": entry["Id"], "SenderFault": fault, "Code": code, "Message": "as told" }))
            }
        }
    }
    json!({ "Successful": good, "Failed": bad })
}

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

fn respond(mut stream: &TcpStream, status: u16, header: &str, body: &Value) -> Option<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/x-amz-json-1.0\r\n{header}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()
}
