//! The admin listener and reloads.

pub(crate) mod access;
pub(crate) mod api;
pub(crate) mod dashboard;
pub(crate) mod late_results;
pub(crate) mod listener;
pub(crate) mod reload;
