//! The mends, one file for each.

mod drop_member;
mod end_with_user;

use super::{body::MendBody, candidate::Candidate, mend_list::Mend};
use crate::wire::MendKind;

/// Returns the places in a body that a mend fits.
pub(super) fn find_candidates(body: &MendBody<'_>, mend: &Mend) -> Vec<Candidate> {
    match mend.kind {
        MendKind::DropMember => drop_member::find(body, &mend.word),
        MendKind::EndWithUser => end_with_user::find(body),
        MendKind::RenameRole
        | MendKind::SystemFirst
        | MendKind::DropReasoning
        | MendKind::DropItemId
        | MendKind::MediaType
        | MendKind::QuoteBlock
        | MendKind::LegalNames
        | MendKind::TextContent
        | MendKind::FillContent
        | MendKind::MergeNeighbours
        | MendKind::NameResults
        | MendKind::TrimEnd
        | MendKind::LimitMarkers
        | MendKind::LoneSurrogates
        | MendKind::ThinkingOff
        | MendKind::LowerMaxTokens
        | MendKind::DropBeta
        | MendKind::DropParameter => Vec::new(),
    }
}
