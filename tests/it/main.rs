//! The integration tests: one binary; the list of modules is the table of contents.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may panic and speak"
)]

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod drain;
mod faults;
mod framing;
mod guard;
mod http2;
mod mending;
mod passthrough;
mod proxied;
mod streaming;
