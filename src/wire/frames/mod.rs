//! Incremental framers of streamed answers: push bytes as they come, get the ranges of whole events.
//!
//! Server-sent events, and JSON values one after the other or in one array. They never hold or change a byte, and the
//! ranges are the same however the stream was cut.

mod event;
mod events;
mod values;

pub use event::Event;
pub use events::EventFramer;
pub use values::ValueFramer;
