//! Results for a provider that binds thinking to the prefix in which it was generated.

use super::{Applicability, BodyCall, CallKey, KnownResults, PinnedResult, Placeholder, RepairPolicy};

/// Replaces results by placeholders if signed thinking after them was generated without them.
///
/// Returns the calls whose results have changed. Pinned placeholders stay as they are.
pub fn replace_unseen_results<'c>(
    calls: impl IntoIterator<Item = &'c BodyCall>,
    known: &mut KnownResults,
    policy: &RepairPolicy,
) -> Vec<(CallKey, Placeholder)> {
    let mut replaced = Vec::new();
    // A placeholder is an invented result, which this policy does not permit.
    if policy.least_safe > Applicability::Inventive {
        return replaced;
    }
    for call in calls {
        let pinned = known.pinned.get(&call.key);
        // An unknown call gets a placeholder anyway. Only a real result would be new to the thinking.
        let is_real = match pinned {
            Some(pinned) => matches!(pinned, PinnedResult::Result(_)),
            None => known.results.contains_key(&call.key),
        };
        let is_unseen = call.crosses_thinking || (call.has_thinking_after && is_real);
        // A pinned placeholder is already what the thinking has seen.
        if !is_unseen || matches!(pinned, Some(PinnedResult::Placeholder(_))) {
            continue;
        }
        let placeholder = policy.placeholder(&call.tool);
        known.pinned.insert(call.key, PinnedResult::Placeholder(placeholder));
        replaced.push((call.key, placeholder));
    }
    replaced
}
