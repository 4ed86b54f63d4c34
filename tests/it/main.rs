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

// The data path, over raw TCP on both sides.
#[cfg(feature = "server")]
mod codings;
#[cfg(feature = "server")]
mod counted;
#[cfg(feature = "server")]
mod drain;
#[cfg(feature = "server")]
mod faults;
#[cfg(feature = "server")]
mod framing;
#[cfg(feature = "server")]
mod guard;
#[cfg(feature = "server")]
mod http2;
#[cfg(feature = "server")]
mod mending;
#[cfg(feature = "server")]
mod passthrough;
#[cfg(feature = "server")]
mod proxied;
#[cfg(feature = "server")]
mod smuggling;
#[cfg(feature = "server")]
mod streaming;

// The rooms around it.
#[cfg(feature = "server")]
mod admin;
#[cfg(feature = "server")]
mod cli_config;
#[cfg(feature = "server")]
mod config;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
mod routes;
