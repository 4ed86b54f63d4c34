//! The integration tests of the proxy, in one binary. The list of modules is the table of contents.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "tests may panic, speak, look around and build texts the short way"
)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod cli;
mod frozen;
mod house;
mod late;
mod ledger;
mod proxy;
mod replicas;
mod reports;
mod telemetry;
mod timeouts;
