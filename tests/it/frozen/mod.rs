//! Contracts with clients, operators and stored data, pinned in files under `tests/frozen`.

pub(crate) mod api;
pub(crate) mod bodies;
pub(crate) mod cli;
pub(crate) mod errors;
pub(crate) mod golden;
pub(crate) mod headers;
pub(crate) mod ledger;
pub(crate) mod log;
mod memory_rows;
pub(crate) mod metrics;
pub(crate) mod metrics_document;
pub(crate) mod reading;
pub(crate) mod records;
pub(crate) mod routes;
pub(crate) mod scenes;
pub(crate) mod stage;
pub(crate) mod texts;
pub(crate) mod traces;
pub(crate) mod words;
