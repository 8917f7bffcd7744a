//! Checkpoints in S3: a manifest counts only once what it names has been found there.
//!
//! Never: reads a checkpoint's content, or writes.
