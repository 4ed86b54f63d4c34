//! What must hold whatever comes in: one check a fuzz target, each over plain bytes.
//!
//! The targets under `fuzz_targets` run these under libFuzzer; `tests/it/fuzzed.rs` includes this file and runs them
//! over the recorded cases and cheap mutations of them on a stable toolchain.
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
#[cfg(feature = "server")]
mod header;
pub mod odd;
#[path = "../../tests/support/oracle/mod.rs"]
mod oracle;
mod splices;
pub mod talk;

pub use body::{agree, conversations, read, repair};
pub use frame::frames;
#[cfg(feature = "server")]
pub use header::headers;
pub use splices::splice;

/// A check by its name: the fuzz target of the same name runs it.
pub type Target = (&'static str, fn(&[u8]));

/// Every check.
pub const TARGETS: &[Target] = &[
    ("read", read),
    ("agree", agree),
    ("repair", repair),
    ("conversations", conversations),
    ("splice", splice),
    ("frames", frames),
    #[cfg(feature = "server")]
    ("headers", headers),
];
