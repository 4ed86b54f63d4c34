//! Recorded calls and their results.

pub(super) mod awaited_calls;
mod carry_over;
mod marks;
pub(super) mod match_queue;
mod observed;
pub(super) mod parking;
pub(super) mod posted_results;
pub(super) mod posting;
pub(super) mod queries;
mod read_result;
mod recording;
pub(super) mod request_marks;
pub(super) mod settling;

pub use awaited_calls::AwaitedCalls;
pub use carry_over::CarryOver;
pub use observed::{FoundResult, ObservedCall};
pub use posting::{HeartbeatOutcome, WithdrawOutcome};
pub use queries::{CallFilter, FoundCall, NamedCallRecord};
pub use read_result::ReadResult;
pub use settling::PostOutcome;
