//! The value of a delivery record: the format version, the kind, and its state. The key contains everything else.

use bytes::Bytes;

/// A result that waits for its caller.
pub(in crate::late) const WAITING: Bytes = Bytes::from_static(&[1, 4]);
/// A result that the caller has received. It may still belong into another branch of the conversation.
pub(in crate::late) const RECEIVED: Bytes = Bytes::from_static(&[1, 5]);
