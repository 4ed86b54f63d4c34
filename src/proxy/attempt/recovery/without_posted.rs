//! Recovery from a refusal of a posted result: one resend without the results that no provider has accepted yet.
//!
//! Without it such a result would be put into every later request of its conversation, and each would be refused.

use bytes::Bytes;

use super::{
    objection::{Objection, Recovery},
    proposal::{LeftOutResults, Proposal, ResendStep, Trial},
    refused_exchange::RefusedExchange,
    sent_history::SentHistory,
};
use crate::{
    ledger::RecordName,
    policy::Class,
    proxy::request::PendingPins,
    repair::{BodyCall, CallKey, PinnedResult, parse},
};

/// The recovery without posted results.
pub(super) struct WithoutPosted;

impl Recovery for WithoutPosted {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let is_about_body = matches!(objection.class, Class::Request | Class::TooLarge);
        let is_tried = exchange.history.has_tried(ResendStep::WithoutPosted);
        let has_posted = || {
            let pins = exchange.body.pins.as_deref();
            exchange.body.last_text.is_some() || pins.is_some_and(|pins| !first_restored(pins).is_empty())
        };
        is_about_body && !is_tried && objection.status.is_client_error() && has_posted()
    }

    /// Twice, since the body that was sent is searched first.
    fn bodies(&self) -> usize {
        2
    }

    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let context = exchange.context();
        let restored = first_restored(exchange.body.pins.as_deref()?);
        let text = exchange.body.last_text.as_deref().cloned();
        let history = &mut *exchange.history;
        let calls: Vec<CallKey> = restored.iter().map(|(call, _)| *call).collect();
        let is_about = objection.class == Class::TooLarge
            || names_media(&objection.message)
            || named_message(&objection.message).is_some_and(|at| holds_at(history, at, &calls, text.is_some()));
        if !is_about {
            return None;
        }
        let in_text = text.iter().flat_map(|text| text.appended.calls.iter().copied());
        let body = text.as_ref().map(|text| text.body_without.clone());
        let left_out = LeftOutResults {
            body: body.unwrap_or_else(|| history.base.body.clone()),
            records: restored.into_iter().map(|(_, name)| name).chain(in_text).collect(),
            restored: calls,
            text,
        };
        // The results are known again until the provider has accepted the body without them.
        let known = history.base.sent.lookup.known.clone();
        let before = history.leave_out(&left_out);
        let proposal = history.base.plan_resend(context, ResendStep::WithoutPosted);
        history.base.put_back(before);
        history.base.sent.lookup.known = known;
        Some(Proposal {
            trial: Some(Trial::WithoutPosted(left_out)),
            ..proposal?
        })
    }
}

/// Returns `true` if the message at this index of the last sent body holds a result of these calls. The last message
/// counts too if it has a late text.
fn holds_at(history: &SentHistory, message: usize, calls: &[CallKey], has_late_text: bool) -> bool {
    let sent = Bytes::from(history.base.sent.body.to_vec());
    let Ok(parsed) = parse(&sent, history.base.sent.wire) else {
        return false;
    };
    let paired = history.base.pair_sent(parsed);
    let is_its = |call: &&BodyCall| calls.contains(&call.key);
    let answered = paired.answered_calls();
    let results = answered.iter().filter(is_its).filter_map(|call| call.result);
    let mut messages = results.filter_map(|result| paired.message_at(result.content.start));
    messages.any(|at| at == message) || (has_late_text && message.saturating_add(1) == paired.message_count())
}

/// Returns the calls whose posted results this request is the first to contain in their places.
fn first_restored(pins: &PendingPins) -> Vec<(CallKey, RecordName)> {
    let assigned = pins.results.assigned.iter();
    let real = assigned.filter(|(_, result)| matches!(result, PinnedResult::Result(_)));
    real.filter_map(|(call, _)| Some((*call, *pins.posted_calls.get(call)?)))
        .collect()
}

/// Returns `true` if an error text is about an image or a document. Providers do not say in which message it stands.
///
/// Another image of the body may be meant. The results are withheld only if the body is accepted without them.
fn names_media(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["image", "document", "pdf"].iter().any(|word| text.contains(word))
}

/// Returns the index of the message that an error text names: `messages.2.content.0`, `input[3]`, `contents[1].parts`.
fn named_message(text: &str) -> Option<usize> {
    for list in ["messages", "input", "contents"] {
        for (at, _) in text.match_indices(list) {
            let rest = text.get(at + list.len()..).unwrap_or_default();
            let digits = rest.trim_start_matches(['.', '[']);
            let end = digits
                .find(|letter: char| !letter.is_ascii_digit())
                .unwrap_or(digits.len());
            if digits.len() < rest.len()
                && let Some(index) = digits.get(..end).and_then(|digits| digits.parse().ok())
            {
                return Some(index);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::named_message;

    #[test]
    fn texts_of_every_provider_name_a_message() {
        for (text, wanted) in [
            (
                "messages.2.content.0.tool_result.content: Input should be a valid string",
                Some(2),
            ),
            ("Invalid type for 'messages[12].content': expected a string", Some(12)),
            ("Invalid value: 'input[3].output[0].type'", Some(3)),
            ("* GenerateContentRequest.contents[1].parts[0]: invalid", Some(1)),
            ("the messages are too many; see messages.7.role", Some(7)),
            ("max_tokens: too large", None),
            ("messages: at least one message is required", None),
        ] {
            assert_eq!(named_message(text), wanted, "{text}");
        }
    }
}
