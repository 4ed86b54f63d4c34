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

mod answers;
mod cases;
mod judge_self;
mod long_session;
mod policy;
mod properties;
mod referee;
#[cfg(feature = "server")]
mod strict_provider;
