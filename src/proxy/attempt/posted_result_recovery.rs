//! Recovery from a refusal of a posted result: one resend without the results that no provider has accepted yet.
//!
//! Without it such a result would be put into every later request of its conversation, and each would be refused.

use super::{Attempts, resend_base::RecoveryContext, resend_plan::Resend};
use crate::{
    ledger::RecordName,
    policy::{Class, Observation, classify, retry::SENDS_MAX},
    proxy::{
        catch_core_panic::catch_core_panic, exchange_log::ExchangeLog, late_delivery::LastText, request::PendingPins,
        response::ProviderAnswer,
    },
    repair::{CallKey, PinnedAnswer},
};

/// Posted results that a provider may have refused.
pub(super) struct RefusedResults {
    class: Class,
    /// Text of the error.
    message: Box<str>,
    /// Calls whose results the request is the first to contain in their places.
    restored: Vec<(CallKey, RecordName)>,
    /// Late text of the last message. `None` if it has none.
    text: Option<LastText>,
}

/// A resend without posted results.
pub(super) struct ResendWithout {
    pub(super) resend: Resend,
    /// Calls of the results that are left out.
    left_out: Vec<RecordName>,
    /// The late text that is left out. `None` if there is none.
    text: Option<LastText>,
}

impl ResendWithout {
    /// Withholds the results, since the provider has accepted the body without them.
    pub(super) fn withhold(self, attempts: &mut Attempts<'_>) {
        let caller = attempts.outgoing.body.context.caller;
        if let Some(text) = self.text {
            // The accepted body does not contain the text, so that the end of the request must not accept it.
            if let Some(pins) = attempts.outgoing.body.pins.as_mut() {
                pins.last_text = None;
            }
            attempts.path.recall.remove_text(caller, text.anchor);
        }
        attempts.path.late.note_withheld(caller, self.left_out);
    }
}

/// Finds the posted results that an answer may refuse. `None` if there are none, or the answer is about something else.
pub(super) fn find_refused(
    attempts: &Attempts<'_>,
    answer: &ProviderAnswer,
    log: &ExchangeLog,
) -> Option<RefusedResults> {
    if log.event.sends >= SENDS_MAX || !answer.status().is_client_error() {
        return None;
    }
    let error = answer.error_info();
    let verdict = classify(Observation::Response {
        kind: attempts.route.upstream.kind,
        status: answer.status().as_u16(),
        error: &error,
    });
    if !matches!(verdict.class, Class::Request | Class::TooLarge) {
        return None;
    }
    let pins = attempts.outgoing.body.pins.as_deref()?;
    let restored = first_restored(pins);
    let text = attempts.outgoing.body.last_text.as_deref().cloned();
    if restored.is_empty() && text.is_none() {
        return None;
    }
    Some(RefusedResults {
        class: verdict.class,
        message: error.message,
        restored,
        text,
    })
}

/// Plans the resend without these results. `None` if the refusal is about something else.
pub(super) fn plan_resend(attempts: &mut Attempts<'_>, refused: RefusedResults) -> Option<ResendWithout> {
    let RefusedResults {
        class,
        message,
        restored,
        text,
    } = refused;
    let context = RecoveryContext {
        path: attempts.path,
        policy: &attempts.path.settings.policy,
    };
    let recovery = attempts.recovery.as_mut()?;
    let calls: Vec<CallKey> = restored.iter().map(|(call, _)| *call).collect();
    let is_about = class == Class::TooLarge
        || names_media(&message)
        || named_message(&message).is_some_and(|at| recovery.holds_at(at, &calls, text.is_some()));
    if !is_about {
        return None;
    }
    let resend = catch_core_panic(|| recovery.resend_without(&calls, text.as_ref(), context))?;
    let left_out = restored.into_iter().map(|(_, name)| name);
    let in_text = text.iter().flat_map(|text| text.appended.calls.iter().copied());
    Some(ResendWithout {
        left_out: left_out.chain(in_text).collect(),
        resend,
        text,
    })
}

/// Returns the calls whose posted results this request is the first to contain in their places.
fn first_restored(pins: &PendingPins) -> Vec<(CallKey, RecordName)> {
    let assigned = pins.answers.assigned.iter();
    let real = assigned.filter(|(_, answer)| matches!(answer, PinnedAnswer::Result(_)));
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
