//! Errors about a credential: the types and codes by which providers name them, under 401, 402, 403 and 429.
//!
//! A status alone proves nothing about a key. Firewalls, captive portals and moderation use the same statuses.
//! Sources: the error pages of Anthropic, OpenAI, Google, Amazon, Mistral, Moonshot and OpenRouter (2026-10).

use super::{
    account_sentences::AccountSentence,
    class::Class,
    provider_error::ProviderErrorInfo,
    verdict::{Verdict, VerdictScope},
};
use crate::provider::ProviderKind;

/// A credential that is unknown, expired or revoked.
const REJECTED: &[&str] = &[
    "authentication_error",
    "invalid_api_key",
    "account_deactivated",
    "UNAUTHENTICATED",
    // Moonshot, LiteLLM and Azure.
    "invalid_authentication_error",
    "auth_error",
    "token_expired",
    "invalid_token",
    "unauthorized",
    "Unauthorized",
];
/// The same, as Amazon answers it under 403.
const REJECTED_BY_AMAZON: &[&str] = &[
    "ExpiredTokenException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignatureException",
];
/// A credential that may not use this model or path.
const NOT_PERMITTED: &[&str] = &[
    "permission_error",
    "permission_denied",
    "PERMISSION_DENIED",
    "PermissionDenied",
    "AccessDeniedException",
    "insufficient_permissions",
    // OpenAI names a model that the project may not use.
    "model_not_found",
];
/// A refusal of the client's content, under whatever status.
const FILTERED: &[&str] = &["content_filter", "content_policy_violation", "moderation"];
/// A block of a country or address, which hits every credential.
const BLOCKED: &[&str] = &["unsupported_country_region_territory", "request_forbidden", "forbidden"];
/// A limit of hours or days.
const EXHAUSTED: &[&str] = &[
    "insufficient_quota",
    "usage_limit_reached",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
];
/// A limit on requests or tokens at once. OpenAI's type is the name of the bucket.
const LIMITED: &[&str] = &[
    "rate_limit_error",
    "rate_limit_exceeded",
    "rate_limit_reached_error",
    "rate_limit",
    "rate_limited",
    "too_many_requests",
    "requests",
    "tokens",
    "RESOURCE_EXHAUSTED",
    "ThrottlingException",
    "TooManyRequestsException",
    "ServiceQuotaExceededException",
];
/// Capacity of the provider that is used up, whichever credential is sent (Moonshot, Mistral, OpenAI).
const OVERLOADED: &[&str] = &[
    "engine_overloaded_error",
    "service_tier_capacity_exceeded",
    "server_error",
];
/// Phrases of refusals that a smaller request would not get. They only spare a key, so an echo does no harm.
const REQUEST_TOO_LARGE: &[&str] = &[
    // OpenAI, 429: more tokens than the limit of a whole minute.
    "request too large for",
    // Anthropic, 429: the long-context tier.
    "extra usage is required for long context",
    // OpenRouter, 402.
    "fewer max_tokens",
    "can only afford",
];

/// Judges a 401, 402, 403 or 429.
pub(super) fn judge_key_status(kind: ProviderKind, status: u16, said: &ProviderErrorInfo) -> Verdict {
    let none = |class| Verdict::from_class(class).with_scope(VerdictScope::Surface);
    let once = |class| Verdict::from_class(class).with_scope(VerdictScope::Exchange);
    if said.has_code(FILTERED) {
        return Verdict::from_class(Class::Filtered);
    }
    // OpenRouter and others repeat the status as a number, in place of a type.
    let is_numbered = said.status_code == Some(status);
    match status {
        // The key works, but not on this path: other paths have other scopes.
        401 | 403 if lacks_scope(said) => once(Class::Permission),
        401 if said.has_code(REJECTED) || is_numbered || is_bare_rejection(kind, said) => {
            Verdict::from_class(Class::Auth)
        }
        // Another profile may have a key that this server knows.
        401 => once(Class::Auth),
        402 | 429 if said.contains_phrase(REQUEST_TOO_LARGE) => Verdict::from_class(Class::TooLarge),
        402 if said.is_described => Verdict::from_class(Class::Billing),
        402 => once(Class::Billing),
        403 if said.has_code(REJECTED_BY_AMAZON) || said.is_key_invalid => Verdict::from_class(Class::Auth),
        403 if is_google(kind) && said.sentence == Some(AccountSentence::LeakedKey) => {
            Verdict::from_class(Class::Auth).with_scope(VerdictScope::Text)
        }
        403 if said.has_code(BLOCKED) => none(Class::Permission),
        403 if said.has_code(NOT_PERMITTED) => Verdict::from_class(Class::Permission),
        // OpenRouter's 403 is moderation of the input.
        403 if is_numbered => Verdict::from_class(Class::Filtered),
        403 if said.is_described => once(Class::Permission),
        // A page of a firewall: every key would get it.
        403 => none(Class::Permission),
        429 if said.is_daily_quota || said.has_code(EXHAUSTED) => Verdict::from_class(Class::Quota),
        429 if said.has_code(LIMITED) || is_numbered => Verdict::from_class(Class::RateLimit),
        429 if said.has_code(OVERLOADED) => Verdict::from_class(Class::Overloaded),
        _ => Verdict::from_class(Class::RateLimit).with_scope(VerdictScope::Brief),
    }
}

/// Returns `true` if a restricted OpenAI key lacks the scope of the path. An echo of these words only spares a key.
fn lacks_scope(said: &ProviderErrorInfo) -> bool {
    said.has_code(&["missing_scope"]) || said.contains_phrase(&["missing scopes"])
}

/// Returns `true` for Mistral's answer to an unknown key, which is a message alone: `{"detail":"Unauthorized"}`.
fn is_bare_rejection(kind: ProviderKind, said: &ProviderErrorInfo) -> bool {
    kind == ProviderKind::Mistral && &*said.message == "unauthorized"
}

const fn is_google(kind: ProviderKind) -> bool {
    matches!(kind, ProviderKind::Gemini | ProviderKind::Vertex)
}
