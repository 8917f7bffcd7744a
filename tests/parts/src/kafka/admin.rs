//! What a test asks of Kafka without a client of its own: topics, records, offsets, through Kafka's own tools.
//!
//! Each call starts a Java and takes one or two seconds. Never: a client of Forebay's, which would test itself.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use super::{Kafka, PART};
use crate::PartError;
use crate::guarded::{GuardedChild, guarded};
use crate::wait::tail;

/// Many times what a tool takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// One end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The offset of the first record that is still there.
    First,
    /// The offset that the next record will get.
    End,
}

impl Kafka {
    /// Creates a topic.
    ///
    /// # Errors
    /// When it is there already, or Kafka refuses its name.
    pub fn create_topic(&self, topic: &str, partitions: u32) -> Result<(), PartError> {
        let partitions = partitions.to_string();
        self.admin("TopicCommand", &["--create", "--topic", topic, "--partitions", &partitions]).map(drop)
    }

    /// Deletes a topic with its records. Kafka acknowledges before the last of it is gone.
    ///
    /// # Errors
    /// When there is none.
    pub fn delete_topic(&self, topic: &str) -> Result<(), PartError> {
        self.admin("TopicCommand", &["--delete", "--topic", topic]).map(drop)
    }

    /// The names of its topics, in order, without its own.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn topics(&self) -> Result<Vec<String>, PartError> {
        let output = self.admin("TopicCommand", &["--list", "--exclude-internal"])?;
        Ok(output.lines().map(str::to_owned).collect())
    }

    /// Deletes the records of a partition below an offset, as the end of their retention would. Kafka notes it on its
    /// disk once a minute: a [`Kafka::kill`] before that brings them back.
    ///
    /// # Errors
    /// When there is no such partition, or it has no such offset.
    pub fn delete_records(&self, topic: &str, partition: u32, below: u64) -> Result<(), PartError> {
        let wanted = self.at("delete-records.json");
        // A topic's name has no character that JSON writes otherwise than Rust.
        let text =
            format!(r#"{{"version":1,"partitions":[{{"topic":{topic:?},"partition":{partition},"offset":{below}}}]}}"#);
        fs::write(&wanted, text).map_err(PartError::file(&wanted))?;
        let file = wanted.to_string_lossy().into_owned();
        let output = self.admin("DeleteRecordsCommand", &["--offset-json-file", &file])?;
        // This tool exits with 0 whatever comes of it.
        if output.contains("low_watermark") && !output.contains("error") {
            Ok(())
        } else {
            let tail = output.lines().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n");
            Err(PartError::Command { command: "DeleteRecordsCommand".into(), ended: "deleted nothing".into(), tail })
        }
    }

    /// The offset at one end of each partition of a topic, in order.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn offsets(&self, topic: &str, edge: Edge) -> Result<Vec<u64>, PartError> {
        let time = match edge {
            Edge::First => "-2",
            Edge::End => "-1",
        };
        let output = self.admin("GetOffsetShell", &["--topic", topic, "--time", time])?;
        let parse = |line: &str| {
            let (partition, offset) = line.strip_prefix(topic)?.strip_prefix(':')?.split_once(':')?;
            Some((partition.parse::<u32>().ok()?, offset.parse::<u64>().ok()?))
        };
        let mut rows: Vec<_> = output.lines().filter_map(parse).collect();
        rows.sort_unstable();
        Ok(rows.into_iter().map(|(_, offset)| offset).collect())
    }

    /// Publishes each line of a text as a record without a key.
    ///
    /// # Errors
    /// When Kafka does not take one of them.
    pub fn send_lines(&self, topic: &str, lines: &str) -> Result<(), PartError> {
        let internal = self.internal();
        self.tool("ConsoleProducer", &["--bootstrap-server", &internal, "--topic", topic], lines).map(drop)
    }

    /// Runs one of Kafka's own tools, a class of `org.apache.kafka.tools` such as `TopicCommand`, and returns what it printed
    /// on its standard output. `input` is what it may read; the address is the caller's to name among the arguments.
    ///
    /// # Errors
    /// When it does not exit with 0 within a minute; the error has what it printed.
    pub fn tool(&self, class: &str, args: &[&str], input: &str) -> Result<String, PartError> {
        if self.running.is_none() {
            return Err(PartError::NotRunning { part: PART });
        }
        // Of its own, since tests ask from many threads.
        let folder = tempfile::tempdir_in(self.folder.path()).map_err(PartError::file(self.folder.path()))?;
        let [read, out, err] = ["in", "out", "err"].map(|name| folder.path().join(name));
        fs::write(&read, input).map_err(PartError::file(&read))?;
        // It runs for a second: what makes Java faster later only makes it slower here.
        let mut command = guarded("/bin/sh");
        command.args(["-c", r#"exec "$@" <"$0""#]).arg(&read).arg(&self.java);
        let mut command = self.java(command, "tools.log", &["-Xmx128m", "-XX:TieredStopAtLevel=1"]);
        command.arg(format!("org.apache.kafka.tools.{class}")).args(args);
        command.stdout(Stdio::from(File::create(&out).map_err(PartError::file(&out))?));
        command.stderr(Stdio::from(File::create(&err).map_err(PartError::file(&err))?));
        let ended = match GuardedChild::start(PART, &mut command)?.wait(LIMIT)? {
            Some(status) if status.success() => return fs::read_to_string(&out).map_err(PartError::file(&out)),
            Some(status) => format!("ended with {status}"),
            None => format!("did not end within {LIMIT:?}"),
        };
        Err(PartError::Command { command: class.to_owned(), ended, tail: format!("{}\n{}", tail(&out), tail(&err)) })
    }

    fn admin(&self, class: &str, args: &[&str]) -> Result<String, PartError> {
        let internal = self.internal();
        let all: Vec<&str> = ["--bootstrap-server", &internal].into_iter().chain(args.iter().copied()).collect();
        self.tool(class, &all, "")
    }

    fn internal(&self) -> String {
        format!("127.0.0.1:{}", self.listeners.internal)
    }
}
