//! The admin listener and reloads.

pub(crate) mod api;
pub(crate) mod listener;
pub(crate) mod reload;
