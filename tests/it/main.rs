//! The integration tests: one binary; the list of modules is the table of contents.
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

#[path = "../support/mod.rs"]
mod support;

// The house.
mod architecture;

// The repair core.
mod answers;
mod appending;
mod cases;
mod contents;
mod fuzzed;
mod growth;
mod judge_self;
mod judge_self_items;
mod linear;
mod long_session;
mod lost_texts;
mod notify;
mod odd_json;
mod outlines;
mod policy;
mod properties;
mod referee;
mod refusals;
mod scanner;
mod watchers;

// The data path, over raw TCP on both sides.
mod backpressure;
mod bound_sessions;
mod bound_thinking;
mod codings;
mod counted;
mod credentials;
mod drain;
mod echoed_words;
mod error_table;
mod faults;
mod final_words;
mod framing;
mod growing_sessions;
mod guard;
mod http2;
mod journal;
mod last_word;
mod lost_results;
mod malformed;
mod mending;
mod named_ids;
mod other_rules;
mod passthrough;
mod proxied;
mod quiet_paths;
mod retries;
mod simulated_day;
mod smuggling;
mod still_clocks;
mod still_events;
mod stories;
mod streaming;
mod strict_provider;
mod watching;

// The worked sequences of the design, row by row.
mod worked_sequences;
mod worked_sequences_more;

// What silence, errors and leaving cost whom: the decision table, on paused time.
mod decision_clocks;
mod decision_ends;
mod decision_errors;
mod decision_sequences;
mod decision_stories;
mod decision_table;

// Who speaks, and who waits.
mod attachment;
mod chains;
mod sessions;

// What outlives a conversation.
mod cli_store;
mod ledger;
mod ledger_crash;
mod ledger_files;
// Late results, and whose they are.
mod isolation;
mod late_contents;
mod late_entries;
mod late_isolation;
mod late_matching;
mod late_mistaken;
mod late_stories;
mod ledger_api;

// The rooms around it.
mod admin;
mod admin_api;
mod cli_config;
mod cli_files;
mod cli_tools;
mod demo;
mod demo_provider;
mod reload;
mod run;

mod config;
mod metrics;
mod metrics_bound;
mod metrics_page;
mod rotation;
mod rotations;
mod routes;
mod trace_export;
mod trace_settings;
mod traces;

// What the outside relies on, frozen in files under tests/frozen.
mod frozen;
mod frozen_api;
mod frozen_bodies;
mod frozen_cli;
mod frozen_errors;
mod frozen_headers;
mod frozen_ledger;
mod frozen_log;
mod frozen_metrics;
mod frozen_reading;
mod frozen_records;
mod frozen_routes;
mod frozen_scenes;
mod frozen_stage;
mod frozen_texts;
mod frozen_traces;
mod frozen_words;

// Real clients, where they are installed.
mod sdk_still;
