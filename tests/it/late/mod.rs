//! Late results: posting, matching, and isolation between callers.
//!
//! The promises about intents, reversibility and delivery have numbers, which the doc comments of their stories name:
//!
//! | | promise | stories with the real binary |
//! |---|---|---|
//! | R1 | a tool is claimed before it runs, for a call, a user or a caller | `intent_stories`, `cli::once` |
//! | R2 | one claim is granted, also of 32 at once and after `kill -9` | `intent_stories`, `cli::once`; `intent_walk` |
//! | R3 | a lease ends; what cannot be undone then waits for a person | `intent_stories`; `intent_walk` |
//! | R4 | a result settles its intent, and a second call gets it, marked | `intent_stories` |
//! | R5 | without a known person the scope is the session, and never another caller | `intent_stories`, `cli::once` |
//! | R6 | tools have windows, scopes and ignored inputs | `intent_stories`; `intents`, `cli::configuration` |
//! | R7 | a left conversation has its effect undone, at least once, over restarts | `cancels`; `cancel_walk`, `side_requests` |
//! | R8 | the owner cancels, and a request that goes on within the grace revokes | `cancels`; `cancel_walk`, `side_requests` |
//! | R9 | what cannot be undone needs another way to its user than the session | `intent_stories`, `carry_over` |
//! | R10 | the next conversation of the same person gets the result, once | `carry_over`; `side_requests` |
//! | R11 | webhooks learn of results, conflicts, deadlines, unknown outcomes and cancels | `webhooks` |
//! | R12 | calls that run and results that wait are listed, and followed by a feed | `task_page`; `lists` |
//! | R13 | everything that waits is read and acknowledged at once, or on a page | `stories`, `task_page` |
//! | R14 | a session lives as long as its slowest tool | `cli::configuration` |
//! | R15 | results that came when nobody waited are counted by tool | `carry_over` |
//! | R16 | results that reach nobody are counted and kept | `cancels`; `parking`, `mistaken_calls` |

pub(crate) mod addresses;
pub(crate) mod amazon_streams;
pub(crate) mod api;
pub(crate) mod behind_answers;
pub(crate) mod branches;
pub(crate) mod bursts;
pub(crate) mod cancel_walk;
pub(crate) mod cancels;
pub(crate) mod carry_over;
pub(crate) mod compactions;
pub(crate) mod content_table;
pub(crate) mod contents;
pub(crate) mod delivery_walk;
pub(crate) mod document;
pub(crate) mod entries;
pub(crate) mod failed_requests;
pub(crate) mod flood;
pub(crate) mod intent_conflicts;
pub(crate) mod intent_stories;
pub(crate) mod intent_walk;
pub(crate) mod intents;
pub(crate) mod isolation;
pub(crate) mod isolation_walk;
pub(crate) mod lists;
pub(crate) mod local_service;
pub(crate) mod loops;
pub(crate) mod matching;
pub(crate) mod message_tries;
pub(crate) mod mistaken_calls;
pub(crate) mod parking;
pub(crate) mod readers;
pub(crate) mod refused_results;
pub(crate) mod replica_races;
pub(crate) mod restored_results;
pub(crate) mod side_requests;
pub(crate) mod slow_ledger;
pub(crate) mod stories;
pub(crate) mod strict_mode;
pub(crate) mod task_page;
pub(crate) mod webhooks;
