//! The label of a call for the dashboard.

use crate::{printable::printable_name, telemetry::dashboard::LateCallLabel};

/// Returns the label of a call for the dashboard.
pub(super) fn call_label(call_id: &[u8], tool: Option<&[u8]>) -> LateCallLabel {
    LateCallLabel {
        call_id: printable_name(call_id),
        tool: tool.map(printable_name),
    }
}
