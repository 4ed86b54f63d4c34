//! The ledger, and answers that outlive a process.

pub(crate) mod conformance;
pub(crate) mod crash;
pub(crate) mod files;
pub(crate) mod lost_results;
pub(crate) mod pinned_answers;
