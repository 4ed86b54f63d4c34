//! Lists for operators.

mod operator_list;
mod record_summary;
mod wait_reason;

pub use operator_list::{ListedResult, OperatorList, OperatorLists};
pub use record_summary::{RecordSummary, call_of_record, summarize_record};
pub use wait_reason::WaitReason;
