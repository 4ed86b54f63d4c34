//! Antiphon: a reverse proxy in front of LLM provider APIs that makes sure every tool call has exactly one answer.

pub mod conversation;
pub mod repair;
pub mod splice;
pub mod wire;

pub use repair::{check, repair};
