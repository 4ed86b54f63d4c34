//! Timeouts, retries and profile rotation, mostly on paused time.

pub(crate) mod broken_answers;
mod cooldown_lines;
pub(crate) mod decision_answers;
pub(crate) mod decision_clocks;
pub(crate) mod decision_ends;
pub(crate) mod decision_errors;
pub(crate) mod decision_sequences;
pub(crate) mod decision_stories;
pub(crate) mod decision_table;
pub(crate) mod exchange_timeouts;
pub(crate) mod keys_document;
pub(crate) mod limited_pools;
pub(crate) mod profile_choice;
pub(crate) mod profile_moves;
pub(crate) mod refused_histories;
pub(crate) mod renewals;
pub(crate) mod rotation;
pub(crate) mod rotation_stories;
pub(crate) mod sdk_on_paused_time;
pub(crate) mod simulated_day;
pub(crate) mod still_world;
