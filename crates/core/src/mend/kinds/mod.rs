//! The mends, one file for each.

mod drop_member;
mod end_with_user;
mod fill_content;
mod legal_names;
mod merge_neighbours;
mod name_results;
mod rename_role;
mod system_first;
mod text_content;
mod trim_end;

use super::{body::MendBody, candidate::Candidate, mend_list::Mend};
use crate::wire::MendKind;

/// Returns the places in a body that a mend fits.
pub(super) fn find_candidates(body: &MendBody<'_>, mend: &Mend) -> Vec<Candidate> {
    match mend.kind {
        MendKind::DropMember => drop_member::find(body, &mend.word),
        MendKind::EndWithUser => end_with_user::find(body),
        MendKind::RenameRole => rename_role::find(body, &mend.word),
        MendKind::SystemFirst => system_first::find(body),
        MendKind::LegalNames => legal_names::find(body),
        MendKind::TextContent => text_content::find(body),
        MendKind::FillContent => fill_content::find(body),
        MendKind::MergeNeighbours => merge_neighbours::find(body),
        MendKind::NameResults => name_results::find(body),
        MendKind::TrimEnd => trim_end::find(body),
        MendKind::DropReasoning
        | MendKind::DropItemId
        | MendKind::MediaType
        | MendKind::QuoteBlock
        | MendKind::LimitMarkers
        | MendKind::LoneSurrogates
        | MendKind::ThinkingOff
        | MendKind::LowerMaxTokens
        | MendKind::DropBeta
        | MendKind::DropParameter => Vec::new(),
    }
}
