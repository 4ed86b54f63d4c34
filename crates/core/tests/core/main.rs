//! The tests of the repair core: reading, pairing, planning, splicing. They need no server: `cargo test -p antiphon-core`.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "tests may panic, speak, look around and build texts the short way"
)]

#[path = "../../../../tests/support/core.rs"]
mod support;

mod answer_items;
mod cases;
mod continuity_gaps;
mod deepseek_referee;
mod explained_errors;
mod flaw_properties;
mod foreign_thinking_properties;
mod fuzz_checks;
mod invariant_cases;
mod invariant_properties;
mod judge_cases;
mod judge_item_cases;
mod known_results;
mod late_texts;
mod linear_work;
mod long_session;
mod lost_texts;
mod mend_cases;
mod mend_properties;
mod odd_json;
mod outlines;
mod posted_contents;
mod read_only_sessions;
mod refusal_texts;
mod repair_evidence;
mod repair_policy;
mod repair_properties;
mod row_mends;
mod scanned_once;
mod scanner;
mod server_rule_cases;
mod server_rule_properties;
mod session_lines;
mod session_plans;
mod step_growth;
mod stream_watchers;
