//! What a body says and where it stands in the bytes: conversation, messages, parts. Nothing is copied.

mod finding;

pub use finding::{Finding, FindingKind};
