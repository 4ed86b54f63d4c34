//! The integration tests: one binary; the list of modules is the table of contents.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests may panic, speak and look around"
)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "server")]
mod admin;
mod answers;
mod cases;
#[cfg(feature = "server")]
mod cli_config;
#[cfg(feature = "server")]
mod config;
mod judge_self;
mod long_session;
#[cfg(feature = "server")]
mod metrics;
mod policy;
mod properties;
mod referee;
#[cfg(feature = "server")]
mod routes;
#[cfg(feature = "server")]
mod strict_provider;
