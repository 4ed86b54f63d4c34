//! The limit of the answer becomes what the provider's numbers leave for it.

use crate::{
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    splice::Piece,
    wire::HistoryShape,
};

/// The smallest limit that is worth a request.
const LEAST: u64 = 1_024;

/// Returns the word of the mend: what input and limit leave of the model's context. Anthropic names the three in this order:
/// input, `max_tokens`, context.
pub(in crate::mend) fn word_of(numbers: &[u64]) -> Box<str> {
    match numbers {
        [input, _, context, ..] => context.saturating_sub(*input).to_string().into(),
        _ => Box::default(),
    }
}

/// Returns the limits above the number in the word. It must leave room for an answer behind the thinking.
pub(in crate::mend) fn find(body: &MendBody<'_>, word: &str) -> Vec<Candidate> {
    let keys: &[&str] = match body.wire.format.history() {
        HistoryShape::Messages => &["max_tokens"],
        HistoryShape::Chat => &["max_tokens", "max_completion_tokens"],
        HistoryShape::Items | HistoryShape::Contents => &[],
    };
    let json = body.json;
    let number = |object, key: &str| {
        let value = json.member(object, key)?;
        std::str::from_utf8(json.bytes(value)).ok()?.parse::<u64>().ok()
    };
    let budget = json
        .member(body.root, "thinking")
        .and_then(|thinking| number(thinking, "budget_tokens"));
    let Some(limit) = word
        .parse::<u64>()
        .ok()
        .filter(|limit| *limit >= LEAST.max(budget.unwrap_or(0).saturating_add(1)))
    else {
        return Vec::new();
    };
    let higher = keys
        .iter()
        .filter(|key| number(body.root, key).is_some_and(|value| value > limit));
    higher
        .map(|key| {
            let edit = json.set_member(body.root, key, vec![Piece::Made(limit.to_string())]);
            Candidate::of_message(0, "", MendChange::Edit(vec![edit]))
        })
        .collect()
}
