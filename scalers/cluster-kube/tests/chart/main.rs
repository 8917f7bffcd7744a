//! The chart `deploy/helm/forebay` against Helm and a real API server: its objects, its rights, and its admission policies.
//!
//! ```text
//! objects     every object is taken by the API server; values that do not fit are refused
//! rights      the adapter does all that it does with the service account: what is granted is what was used, by the audit log
//! uninstall   what is left after the release is deleted can go
//! admission   what is not Forebay's cannot be changed by it, and could be without the policies
//! ```
//!
//! Never: a container that runs; kwok stands in for kubelets.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real API server is waited for by the real clock"
)]

mod admission;
mod installed;
mod objects;
mod rendered;
mod rights;
mod uninstall;
