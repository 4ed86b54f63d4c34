//! Incremental framers of streamed answers. The caller pushes bytes and gets the ranges of complete events.
//!
//! They divide server-sent events, JSON values in sequence or in one array, and Amazon's binary frames. They never
//! buffer or change a byte. The ranges do not depend on how the stream is cut into chunks.

mod amazon_frame;
mod amazon_framer;
mod event;
mod event_framer;
mod value_framer;

pub use amazon_frame::AmazonFrame;
pub(crate) use amazon_frame::decode_base64;
pub use amazon_framer::AmazonFramer;
pub use event::SseEvent;
pub use event_framer::EventFramer;
pub use value_framer::ValueFramer;
