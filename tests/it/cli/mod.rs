//! The command line, the configuration and the demonstration.

pub(crate) mod check_and_repair;
pub(crate) mod closed_pipes;
pub(crate) mod config_command;
pub(crate) mod configuration;
pub(crate) mod container;
pub(crate) mod credentials;
pub(crate) mod demo;
pub(crate) mod demo_provider;
#[cfg(unix)]
mod doctor;
pub(crate) mod env;
#[cfg(unix)]
mod mcp;
#[cfg(unix)]
mod mcp_bad_input;
#[cfg(unix)]
mod mcp_wrap;
pub(crate) mod once;
mod own_rules;
pub(crate) mod repair_in_place;
pub(crate) mod result_command;
pub(crate) mod run;
mod run_terminal;
pub(crate) mod service_manager;
pub(crate) mod silent_files;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod tools;
mod unread_files;
