//! The dashboard's feed.

pub mod feed;
pub mod history;
mod structure;
