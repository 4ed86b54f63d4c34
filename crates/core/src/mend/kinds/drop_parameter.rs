//! A parameter at the top of the body goes. None of them changes what the model reads or may answer.

use crate::mend::{
    body::MendBody,
    candidate::{Candidate, MendChange},
};

/// The parameters that may go.
pub(in crate::mend) const PARAMETERS: [&str; 6] = [
    "context_management",
    "metadata",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
];

/// Returns the removal of a parameter, if it is one that may go.
pub(in crate::mend) fn find(body: &MendBody<'_>, name: &str) -> Vec<Candidate> {
    if !PARAMETERS.contains(&name) {
        return Vec::new();
    }
    let edits = body.json.remove_member(body.root, name);
    let found = (!edits.is_empty()).then(|| Candidate::of_message(0, "", MendChange::Edit(edits)));
    found.into_iter().collect()
}
