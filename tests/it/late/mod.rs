//! Late results: posting, matching, and isolation between callers.

pub(crate) mod addresses;
pub(crate) mod api;
pub(crate) mod branches;
pub(crate) mod compactions;
pub(crate) mod content_table;
pub(crate) mod contents;
pub(crate) mod delivery_walk;
pub(crate) mod document;
pub(crate) mod entries;
pub(crate) mod failed_requests;
pub(crate) mod flood;
pub(crate) mod intent_stories;
pub(crate) mod intent_walk;
pub(crate) mod intents;
pub(crate) mod isolation;
pub(crate) mod isolation_walk;
pub(crate) mod lists;
pub(crate) mod loops;
pub(crate) mod matching;
pub(crate) mod mistaken_calls;
pub(crate) mod parking;
pub(crate) mod readers;
pub(crate) mod refused_results;
pub(crate) mod slow_ledger;
pub(crate) mod stories;
pub(crate) mod strict_mode;
