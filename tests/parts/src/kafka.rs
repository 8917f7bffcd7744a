//! A real Apache Kafka: one node that is broker and controller (KRaft), its data in a temporary folder.
//!
//! ```text
//! start: install -> free ports -> settings, certificates -> format -> run -> "Kafka Server started" and the port answers
//! restart:                                                            run, on the same ports and the same data
//! ```
//!
//! Never: ZooKeeper, a second node, replicas; a test of what Kafka does when a disk is lost belongs elsewhere.

mod admin;
mod settings;

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::guarded::{GuardedChild, guarded, guarded_in};
use crate::install::{self, Recipe, install, run};
use crate::ports::{self, STARTS};
use crate::secure::Secure;
use crate::wait::{tail, until};
use crate::{PartError, cache, random, tools};

pub use admin::Edge;
use settings::Listeners;

const PART: &str = "Apache Kafka";

/// The one user of a Kafka that asks for a password.
const USER: &str = "forebay";

const POM: &str = include_str!("../kafka/pom.xml");
const LOG4J: &str = include_str!("../kafka/log4j2.properties");

/// A plugin's version is a pin as well; it stands here because a pom of dependencies alone has no place for it.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Six seconds on two idle cores, many times that where others build.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// Formatting an empty folder takes a second, most of it Java's own start.
const FORMAT_LIMIT: Duration = Duration::from_secs(60);

/// A broker that is asked to end closes its logs first, within a second or two.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// How a Kafka is to be started. The default: a free port, no password, no topic but those that are created.
#[derive(Clone, Debug, Default)]
pub struct KafkaOptions {
    /// Whether a topic comes into being when somebody first names it.
    pub auto_create_topics: bool,
    /// Whether clients must use TLS and a password (`SASL_SSL`, `PLAIN`): see [`Kafka::ca_path`], [`Kafka::username`],
    /// [`Kafka::password`].
    pub secure: bool,
    /// Where clients connect; a free port where it is not given.
    pub port: Option<u16>,
    /// Further lines of server.properties, such as `message.max.bytes`; they win over what is set here.
    pub properties: Vec<(String, String)>,
}

/// A Kafka that was started; ended when dropped, and when the process that holds it ends in whatever way.
pub struct Kafka {
    java: PathBuf,
    libs: PathBuf,
    bootstrap: String,
    listeners: Listeners,
    secure: Option<Secure>,
    running: Option<GuardedChild>,
    /// Dropped after `running`: fields go in the order in which they stand.
    folder: TempDir,
}

impl Kafka {
    /// Installs Kafka's files into the cache where they are not there yet, and prints that it does. The folder that has them.
    ///
    /// # Errors
    /// When Maven is missing or cannot fetch them.
    pub fn install() -> Result<PathBuf, PartError> {
        let recipe = Recipe {
            what: "Apache Kafka 4.1.1",
            from: "Maven, 50 MB",
            name: "kafka-4.1.1".to_owned(),
            pins: POM,
            proof: "libs",
        };
        let folder = install(&cache()?, &recipe, |new| {
            let maven = tools::maven()?;
            fs::write(new.join("pom.xml"), POM).map_err(PartError::file(new))?;
            // Maven's own store is needed for this once only.
            let store = new.join("store");
            let mut fetch = guarded(maven);
            fetch
                .current_dir(new)
                .args(["-B", COPY, "-DoutputDirectory=libs"])
                .arg(option("-Dmaven.repo.local=", &store));
            install::step("mvn dependency:copy-dependencies", &mut fetch, &new.join("install.log"))?;
            fs::remove_dir_all(&store).map_err(PartError::file(&store))
        })?;
        Ok(folder.join("libs"))
    }

    /// Installs it if need be, starts it, and waits until it answers.
    ///
    /// # Errors
    /// When something that it needs is missing, when the port that is asked for is taken, or when it does not answer
    /// within two minutes; the error then has the end of its log.
    pub fn start(options: KafkaOptions) -> Result<Self, PartError> {
        let java = tools::java()?;
        let libs = Self::install()?;
        let mut starts = 0;
        loop {
            starts += 1;
            let mut kafka = Self::prepare(&options, java.clone(), libs.clone())?;
            match kafka.run() {
                Ok(()) => return Ok(kafka),
                Err(PartError::NotReady { tail, .. }) if tail.contains("Address already in use") && starts < STARTS => {
                    eprintln!("somebody took one of Kafka's ports before it did; it is started on others");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes its settings and formats its folder, all that is done once.
    fn prepare(options: &KafkaOptions, java: PathBuf, libs: PathBuf) -> Result<Self, PartError> {
        let folder = install::temporary("forebay-kafka-")?;
        let listeners = Listeners::free(options.port)?;
        let secure = if options.secure { Some(Secure::make(folder.path())?) } else { None };
        let kafka = Self {
            java,
            libs,
            bootstrap: format!("127.0.0.1:{}", listeners.client),
            listeners,
            secure,
            running: None,
            folder,
        };
        let settings = settings::text(options, &listeners, &kafka.at("data"), kafka.secure.as_ref());
        kafka.write("server.properties", &settings)?;
        kafka.write("log4j2.properties", LOG4J)?;
        // Libraries that Java unpacks for itself go with the folder.
        fs::create_dir(kafka.at("tmp")).map_err(PartError::file(&kafka.at("tmp")))?;
        let mut format = kafka.java(guarded(&kafka.java), "tools.log", &["-Xmx128m", "-XX:TieredStopAtLevel=1"]);
        format.args(["kafka.tools.StorageTool", "format", "--cluster-id", &cluster_id()?]);
        format.arg("--config").arg(kafka.at("server.properties"));
        run("kafka.tools.StorageTool format", &mut format, &kafka.at("format.log"), FORMAT_LIMIT)?;
        Ok(kafka)
    }

    fn run(&mut self) -> Result<(), PartError> {
        let log = self.at("server.log");
        // A restart appends: only what comes now counts.
        let before = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let out = self.at("out.log");
        let outputs =
            File::create(&out).and_then(|file| Ok((file.try_clone()?, file))).map_err(PartError::file(&out))?;
        let command = guarded_in(self.folder.path(), &self.java);
        let mut command = self.java(command, "server.log", &["-Xmx512m", "-XX:+ExitOnOutOfMemoryError"]);
        command.arg("kafka.Kafka").arg(self.at("server.properties"));
        command.stdout(Stdio::from(outputs.0)).stderr(Stdio::from(outputs.1));
        let running = self.running.insert(GuardedChild::start(PART, &mut command)?);
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, self.listeners.client));
        let up = until(READY_LIMIT, || {
            if let Some(status) = running.ended()? {
                return Ok(Some(Err(format!("ended with {status} instead of starting"))));
            }
            let started = said_since(&log, before).contains("Kafka Server started");
            Ok((started && TcpStream::connect_timeout(&client, Duration::from_secs(1)).is_ok()).then_some(Ok(())))
        })?;
        let why = match up {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why,
            None => format!("did not start within {READY_LIMIT:?}"),
        };
        self.running = None;
        Err(PartError::NotReady { part: PART, why, tail: format!("{}\n{}", tail(&out), tail(&log)) })
    }

    /// Where clients connect, `127.0.0.1:PORT`; the same after a restart.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The authority that signed its certificate, as PEM; nothing where no TLS was asked for.
    #[must_use]
    pub fn ca_path(&self) -> Option<&Path> {
        self.secure.as_ref().map(|secure| secure.ca.as_path())
    }

    /// Who may connect; nothing where everybody may.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.secure.as_ref().map(|_| USER)
    }

    /// The password that belongs to [`Kafka::username`], new for each Kafka.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.secure.as_ref().map(|secure| secure.secret.as_str())
    }

    /// Its log, to read after a failure.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.at("server.log")
    }

    /// The last lines of its log, at most forty.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log_path())
    }

    /// Whether its process is there.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.ended(), Ok(None)))
    }

    /// Ends it in order, by force after 20 s. Its data stay for a [`Kafka::restart`].
    ///
    /// # Errors
    /// When its process cannot be ended.
    pub fn stop(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), |running| running.stop(STOP_LIMIT))
    }

    /// Ends it at once, as a crash would. Its data stay for a [`Kafka::restart`].
    ///
    /// # Errors
    /// When its process cannot be ended.
    pub fn kill(&mut self) -> Result<(), PartError> {
        self.running.take().map_or(Ok(()), GuardedChild::kill)
    }

    /// Starts it again at the same address with the same data; stops it first where it runs.
    ///
    /// # Errors
    /// When it does not answer within two minutes.
    pub fn restart(&mut self) -> Result<(), PartError> {
        self.stop()?;
        // The port was its own a moment ago: whoever holds it now will not let go of it soon.
        if !ports::is_free(self.listeners.client) {
            return Err(PartError::PortTaken { port: self.listeners.client });
        }
        self.run()
    }

    /// Java with Kafka's classes, its temporary files and a log, on a command of the caller; the class comes next.
    fn java(&self, mut command: Command, log: &str, flags: &[&str]) -> Command {
        command.args(flags).args(["-XX:+UseSerialGC", "-XX:+PerfDisableSharedMem"]);
        command.arg(option("-Dforebay.log=", &self.at(log)));
        command.arg(option("-Dlog4j2.configurationFile=", &self.at("log4j2.properties")));
        command.arg(option("-Djava.io.tmpdir=", &self.at("tmp"))).arg("-cp").arg(self.libs.join("*"));
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PartError> {
        let path = self.at(name);
        fs::write(&path, text).map_err(PartError::file(&path))
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("bootstrap", &self.bootstrap)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(path);
    option
}

/// Kafka reads 22 digits of base64; the last one holds two bits, and `g` is one of the four that may stand there.
fn cluster_id() -> Result<String, PartError> {
    Ok(random::word::<21>()? + "g")
}

fn said_since(log: &Path, offset: u64) -> String {
    let mut bytes = Vec::new();
    // Not there yet is the same as empty.
    let _ = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_to_end(&mut bytes)
    });
    String::from_utf8_lossy(&bytes).into_owned()
}
