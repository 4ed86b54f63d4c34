//! Refusals in words that the proxy does not know: reported, so that operators see the sessions that they stop.

use http::StatusCode;

use super::{AttemptResult, Attempts};
use crate::{
    policy::{Class, ProviderErrorInfo},
    proxy::{exchange_log::ExchangeLog, response::ProviderAnswer},
    refusals::RefusalReader,
    telemetry::events::{AskedConversation, UnknownRefusal},
    wire::names_history,
};

/// Codes of errors about a model that does not exist, with any status.
const MODEL_CODES: &[&str] = &[
    "model_not_found",
    "invalid_model",
    "model_not_available",
    "DeploymentNotFound",
];

/// Reports a refusal that the client gets, if its text was read and the proxy does not know it.
pub(super) fn report_unknown(attempts: &Attempts<'_>, tried: &AttemptResult, log: &ExchangeLog) {
    let text = tried
        .result
        .as_ref()
        .ok()
        .filter(|_| asks_for_turn(attempts))
        .and_then(|answer| unknown_text(&attempts.path.settings.refusals, answer, tried.verdict.class));
    let Some((status, text)) = text else { return };
    let refusal = UnknownRefusal {
        conversation: asked_conversation(attempts),
        text: text.into(),
        status: status.as_u16(),
    };
    log.telemetry().record_unknown_refusal(refusal, &log.event);
}

/// Reports that the provider accepted the request, so that its conversation goes on.
pub(super) fn report_success(attempts: &Attempts<'_>, log: &ExchangeLog) {
    let conversation = || asks_for_turn(attempts).then(|| asked_conversation(attempts));
    log.telemetry().record_success(conversation);
}

/// Returns `true` if the request has a history and asks a model to go on with it.
fn asks_for_turn(attempts: &Attempts<'_>) -> bool {
    attempts.route.wire.is_some() && attempts.route.asks_for_turn()
}

fn asked_conversation(attempts: &Attempts<'_>) -> AskedConversation {
    let context = &attempts.outgoing.body.context;
    AskedConversation {
        caller: context.caller,
        lane: context.lane.map(|lane| lane.id),
        upstream: attempts.upstream_name().into(),
        mark: context.turn_mark,
    }
}

/// Returns status and masked text of an answer that may refuse a history for ever. `None` for every other answer, and
/// for a refusal that the proxy knows.
fn unknown_text(refusals: &RefusalReader, answer: &ProviderAnswer, class: Class) -> Option<(StatusCode, String)> {
    let status = answer.status();
    let must_name_history = match (status, class) {
        (StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY, Class::Request | Class::Affinity) => false,
        // A wrong path or model is also a 404, and an outage a 500. Only their words tell what is at fault.
        (StatusCode::NOT_FOUND, Class::NotFound) | (StatusCode::INTERNAL_SERVER_ERROR, Class::ProviderFault) => true,
        _ => return None,
    };
    let error_info: ProviderErrorInfo = answer.error_info();
    if error_info.has_code(MODEL_CODES) {
        return None;
    }
    let body = answer.whole_body()?;
    // A known text that does not count with this status is not resent, so it stops the session too. And so does one about
    // anything but the history.
    let known = refusals.read_with_status(status.as_u16(), body);
    if known.is_some_and(|found| found.row.kind.is_about_history()) {
        return None;
    }
    let text = refusals.mask(body)?;
    (!must_name_history || names_history(&text)).then_some((status, text))
}
