//! The repair core of Antiphon: reads the history of a request to an LLM provider, finds tool calls without a result and
//! results without a call, and repairs them by edits of the same bytes.
//!
//! > The bytes of a body are *read* into a conversation of spans, *checked* for findings, *planned* into actions, and
//! > *spliced* over the same bytes.
//!
//! ```
//! let body = bytes::Bytes::from_static(br#"{"messages":[]}"#);
//! let repaired = antiphon_core::repair(&body, antiphon_core::wire::Wire::ANTHROPIC, &Default::default()).unwrap();
//! assert!(repaired.report.findings.is_empty());
//! ```
//!
//! # The map, from the ground up
//!
//! | room | job |
//! |---|---|
//! | [`work`] | counts the steps of work on input, in builds with debug assertions |
//! | [`splice`] | spans, edits, and the segments that result |
//! | [`digest`] | hashes over lists of texts |
//! | [`labels`] | enums whose values have stable names |
//! | [`conversation`] | messages and parts with their byte ranges; turns; the pairing rules and algorithm |
//! | [`wire`] | the formats: reads a body, writes one block; JSON; stream framing; facts about answers; refusals |
//! | [`repair`](mod@repair) | parsed body → known results → plan → edits, and every text that the proxy writes |
//! | [`invariant`] | a guard for authors of agents: each call of a history has its result, on every path |
//! | [`mend`] | a body that meets what a server demands beyond the rules of its format |
//! | [`explain`] | an error of another vendor's server, with the sentence that clients of the format look for |
//! | [`sessions`] | session files of coding agents: their damage, what the client leaves out, and edits that move no byte |
//!
//! A room imports only rooms that come before it.
//!
//! # Invariants
//!
//! * A body is never serialized again: edits are splices, and bytes outside them are identical. Without findings the very
//!   same handle comes back.
//! * A plan is a function of body, rules, policy and known results: not of a clock, counter, random number or host.
//! * Repairing a repaired body adds no edit.
//! * Nothing here opens a socket or a file, logs, or panics on input.

pub mod conversation;
pub mod digest;
pub mod explain;
pub mod invariant;
pub mod labels;
pub mod mend;
pub mod repair;
pub mod sessions;
pub mod splice;
pub mod wire;
pub mod work;

pub use invariant::Invariant;
pub use repair::{check, repair};
