//! The ledger, and answers that survive a restart.

pub(crate) mod carried_values;
mod conflict_retries;
pub(crate) mod conformance;
pub(crate) mod crash;
pub(crate) mod disk_faults;
pub(crate) mod files;
pub(crate) mod first_check;
pub(crate) mod health;
mod held_answers;
mod injected_faults;
pub(crate) mod injection;
pub(crate) mod load;
pub(crate) mod lost_results;
pub(crate) mod object_owners;
pub(crate) mod pinned_results;
mod shared;
mod stalled_commits;
pub(crate) mod stored_pins;
pub(crate) mod switchable;
