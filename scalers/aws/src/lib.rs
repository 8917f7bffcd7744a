//! The way to AWS that its adapters share: region, credentials, TLS, and what its refusals mean.
//!
//! Never: retries by itself (who calls knows what a second try costs), or waits long for a machine's metadata that is not there.
