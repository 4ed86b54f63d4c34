//! The mends, one file for each.

mod drop_item_id;
mod drop_member;
mod drop_parameter;
mod drop_reasoning;
mod end_with_user;
mod fill_content;
mod legal_names;
mod limit_markers;
mod lone_surrogates;
mod lower_max_tokens;
mod media_type;
mod merge_neighbours;
mod name_results;
mod quote_block;
mod rename_role;
mod system_first;
mod text_content;
mod thinking_off;
mod trim_end;

pub(super) use drop_parameter::PARAMETERS;
pub(super) use drop_reasoning::REASONING_WORDS;
pub(super) use quote_block::BLOCK_WORDS;
pub(super) use rename_role::KNOWN_ROLES;

use super::{body::MendBody, candidate::Candidate, mend_list::Mend};
use crate::wire::{Demand, Learning, MendKind, MendReach};

/// Returns the places in a body that a mend fits.
pub(super) fn find_candidates(body: &MendBody<'_>, mend: &Mend) -> Vec<Candidate> {
    // Without a list of messages only parameters can change.
    if body.messages.is_empty() && mend.kind != MendKind::DropParameter {
        return Vec::new();
    }
    match mend.kind {
        MendKind::DropMember => drop_member::find(body, &mend.word),
        MendKind::DropReasoning => drop_reasoning::find(body, &mend.word),
        MendKind::DropItemId => drop_item_id::find(body),
        MendKind::MediaType => media_type::find(body),
        MendKind::QuoteBlock => quote_block::find(body, &mend.word),
        MendKind::EndWithUser => end_with_user::find(body),
        MendKind::RenameRole => rename_role::find(body, &mend.word),
        MendKind::SystemFirst => system_first::find(body),
        MendKind::LegalNames => legal_names::find(body),
        MendKind::TextContent => text_content::find(body),
        MendKind::FillContent => fill_content::find(body),
        MendKind::MergeNeighbours => merge_neighbours::find(body),
        MendKind::NameResults => name_results::find(body),
        MendKind::TrimEnd => trim_end::find(body),
        MendKind::LimitMarkers => limit_markers::find(body, &mend.word),
        MendKind::LoneSurrogates => lone_surrogates::find(body),
        MendKind::ThinkingOff => thinking_off::find(body),
        MendKind::LowerMaxTokens => lower_max_tokens::find(body, &mend.word),
        MendKind::DropParameter => drop_parameter::find(body, &mend.word),
        // It changes a header.
        MendKind::DropBeta => Vec::new(),
    }
}

/// Returns the word of the mend that a refusal demands.
pub(super) fn word_of(demand: &Demand) -> Box<str> {
    let word = demand.word.as_deref().unwrap_or_default();
    match demand.kind {
        MendKind::QuoteBlock => quote_block::word_of(word, demand),
        MendKind::LowerMaxTokens if word.is_empty() => lower_max_tokens::word_of(&demand.numbers),
        _ => word.into(),
    }
}

/// Returns the demand that holds if the mend of another fits nowhere. `None` if there is none.
///
/// An image whose bytes are of no known picture, or that is refused with the right media type too, is broken.
pub(super) fn stronger_demand(demand: &Demand) -> Option<Demand> {
    (demand.kind == MendKind::MediaType).then(|| Demand {
        kind: MendKind::QuoteBlock,
        word: Some(quote_block::BROKEN_IMAGE.into()),
        reach: MendReach::Named,
        learning: Learning::Block,
        ..demand.clone()
    })
}

/// Returns `true` if a mend takes away what somebody has said.
///
/// A provider has not read a member that it does not know, and an image without data says nothing.
pub(super) fn takes_content(mend: &Mend) -> bool {
    match mend.kind {
        MendKind::DropMember => false,
        MendKind::QuoteBlock => *mend.word != *quote_block::EMPTY_IMAGE,
        kind => kind.loses_content(),
    }
}
