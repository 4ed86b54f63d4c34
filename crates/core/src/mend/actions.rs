//! The actions of mends, as headers and metrics count them.

use crate::{repair::Action, wire::MendKind};

/// Returns the action that a mend of this kind is.
pub const fn action_of(kind: MendKind) -> Action {
    match kind {
        MendKind::RenameRole
        | MendKind::DropItemId
        | MendKind::MediaType
        | MendKind::LegalNames
        | MendKind::TextContent
        | MendKind::FillContent
        | MendKind::NameResults
        | MendKind::TrimEnd
        | MendKind::LoneSurrogates => Action::Fix,
        MendKind::SystemFirst => Action::Rearrange,
        MendKind::DropMember | MendKind::LimitMarkers | MendKind::DropBeta | MendKind::DropParameter => {
            Action::LeaveOut
        }
        MendKind::DropReasoning => Action::Drop,
        MendKind::QuoteBlock => Action::Quote,
        MendKind::MergeNeighbours => Action::Merge,
        MendKind::EndWithUser => Action::Close,
        MendKind::ThinkingOff => Action::Disable,
        MendKind::LowerMaxTokens => Action::Lower,
    }
}
