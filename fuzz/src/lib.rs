//! Checks that must hold for any input: one check per fuzz target, each over plain bytes.
//!
//! The targets under `fuzz_targets` run these under libFuzzer. The tests of the core include this file and
//! runs them over the recorded cases and cheap mutations of them, on a stable toolchain.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::duplicate_mod,
    clippy::match_wildcard_for_single_variants,
    clippy::panic,
    reason = "a check panics; it is shared by two crates, neither of which is shipped; formats are to come"
)]

mod body;
pub mod feed;
mod frame;
#[path = "../../tests/support/judge.rs"]
mod judge;
pub mod odd;
#[path = "../../tests/support/oracle/mod.rs"]
mod oracle;
mod splices;
mod steps;
pub mod talk;

pub use body::{agree, conversations, read, repair};
pub use frame::frames;
pub use splices::splice;
pub use steps::steps;

/// A check and its name, which is also the name of its fuzz target.
pub type Target = (&'static str, fn(&[u8]));

/// Every check of the core. The check of `headers`, which needs the proxy, is in `header.rs`.
pub const TARGETS: &[Target] = &[
    ("read", read),
    ("agree", agree),
    ("repair", repair),
    ("conversations", conversations),
    ("splice", splice),
    ("steps", steps),
    ("frames", frames),
];
