//! Antiphon: a reverse proxy in front of LLM provider APIs that makes sure every tool call has exactly one answer.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
pub mod conversation;
#[cfg(feature = "server")]
pub mod provider;
#[cfg(feature = "server")]
pub mod proxy;
pub mod repair;
#[cfg(feature = "server")]
pub mod server;
pub mod splice;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "server")]
pub mod upstream;
pub mod wire;

pub use repair::{check, repair};
