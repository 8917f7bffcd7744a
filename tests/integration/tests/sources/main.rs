//! Sources of job events against real servers: Apache Kafka, and LocalStack for SQS. One file a story.
//!
//! Never: a test that another one's topics, queues or broker could disturb.

mod killed;
