//! The source and the sink against a real Apache Kafka.
//!
//! Never: a stand-in for the broker. The controller is one for tests: it keeps a journal in memory.

mod broker;
mod controller;
mod group;
mod reading;
mod restarts;
mod secure;
mod sink;
mod topics;
