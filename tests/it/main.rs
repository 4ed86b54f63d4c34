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

mod admin;
mod cli_config;
mod config;
mod metrics;
mod routes;
