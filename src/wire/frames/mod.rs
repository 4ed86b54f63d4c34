//! Incremental framers of streamed answers. The caller pushes bytes and gets the ranges of complete events.
//!
//! They divide server-sent events, and JSON values in sequence or in one array. They never buffer or change a byte. The
//! ranges do not depend on how the stream is cut into chunks.

mod event;
mod event_framer;
mod value_framer;

pub use event::SseEvent;
pub use event_framer::EventFramer;
pub use value_framer::ValueFramer;
