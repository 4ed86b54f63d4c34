//! Incremental framers of streamed answers. The caller pushes bytes and gets the ranges of complete events.
//!
//! They divide server-sent events, and JSON values in sequence or in one array. They never buffer or change a byte. The
//! ranges do not depend on how the stream is cut into chunks.

mod event;
mod events;
mod values;

pub use event::Event;
pub use events::EventFramer;
pub use values::ValueFramer;
