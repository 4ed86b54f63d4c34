//! Errors about a credential: the types and codes by which providers name them, under 401, 402, 403 and 429, and what
//! Google, Anthropic and Bedrock report with 400.
//!
//! A status alone proves nothing about a key. Firewalls, captive portals and moderation use the same statuses.
//! Sources: the error pages of Anthropic, OpenAI, Google, Amazon, Azure, Mistral, Moonshot, `LiteLLM` and `OpenRouter`
//! (2026-10).

use super::{
    account_sentences::AccountSentence,
    class::Class,
    provider_error::ProviderErrorInfo,
    verdict::{KeyEvidence, Verdict, VerdictScope},
};
use crate::provider::ProviderKind;

/// An error type or code that says something about the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStatement {
    /// The status with which it counts.
    pub status: u16,
    /// The type or code, exactly as the provider writes it.
    pub name: &'static str,
    /// The class of the answer.
    pub class: Class,
}

const fn row(status: u16, name: &'static str, class: Class) -> KeyStatement {
    KeyStatement { status, name, class }
}

/// Every statement. The first that matches an answer counts.
pub const KEY_STATEMENTS: &[KeyStatement] = &[
    // A credential that is unknown, expired or revoked.
    row(401, "authentication_error", Class::Auth),
    row(401, "invalid_api_key", Class::Auth),
    row(401, "account_deactivated", Class::Auth),
    row(401, "UNAUTHENTICATED", Class::Auth),
    row(401, "invalid_authentication_error", Class::Auth),
    row(401, "auth_error", Class::Auth),
    row(401, "token_expired", Class::Auth),
    row(401, "invalid_token", Class::Auth),
    row(401, "unauthorized", Class::Auth),
    row(401, "Unauthorized", Class::Auth),
    // Amazon answers such a credential with 403.
    row(403, "ExpiredTokenException", Class::Auth),
    row(403, "UnrecognizedClientException", Class::Auth),
    row(403, "InvalidSignatureException", Class::Auth),
    row(403, "IncompleteSignatureException", Class::Auth),
    row(402, "billing_error", Class::Billing),
    // A credential that may not use this model. OpenAI names the model as not found.
    row(403, "permission_error", Class::Permission),
    row(403, "permission_denied", Class::Permission),
    row(403, "PERMISSION_DENIED", Class::Permission),
    row(403, "PermissionDenied", Class::Permission),
    row(403, "AccessDeniedException", Class::Permission),
    row(403, "insufficient_permissions", Class::Permission),
    row(403, "model_not_found", Class::Permission),
    // LiteLLM answers with 401.
    row(401, "key_model_access_denied", Class::Permission),
    row(401, "team_model_access_denied", Class::Permission),
    row(401, "user_model_access_denied", Class::Permission),
    // A limit of hours or days.
    row(429, "insufficient_quota", Class::Quota),
    row(429, "usage_limit_reached", Class::Quota),
    row(429, "billing_hard_limit_reached", Class::Quota),
    row(429, "exceeded_current_quota_error", Class::Quota),
    // A limit on requests or tokens at once. OpenAI's type is the name of the limit.
    row(429, "rate_limit_error", Class::RateLimit),
    row(429, "rate_limit_exceeded", Class::RateLimit),
    row(429, "rate_limit_reached_error", Class::RateLimit),
    row(429, "rate_limit", Class::RateLimit),
    row(429, "rate_limited", Class::RateLimit),
    row(429, "too_many_requests", Class::RateLimit),
    row(429, "requests", Class::RateLimit),
    row(429, "tokens", Class::RateLimit),
    row(429, "RESOURCE_EXHAUSTED", Class::RateLimit),
    row(429, "ThrottlingException", Class::RateLimit),
    row(429, "TooManyRequestsException", Class::RateLimit),
    row(429, "ServiceQuotaExceededException", Class::RateLimit),
    // Bedrock's status of this quota of the account, outside of streams (botocore 1.44, bedrock-runtime).
    row(400, "ServiceQuotaExceededException", Class::RateLimit),
    // Capacity of the provider, whichever credential is sent (Moonshot, Mistral, OpenAI).
    row(429, "engine_overloaded_error", Class::Overloaded),
    row(429, "service_tier_capacity_exceeded", Class::Overloaded),
    row(429, "server_error", Class::Overloaded),
];

/// A refusal of the client's content, under whatever status.
const FILTERED: &[&str] = &["content_filter", "content_policy_violation", "moderation"];
/// A block of a country or address, which hits every credential.
const BLOCKED: &[&str] = &["unsupported_country_region_territory", "request_forbidden", "forbidden"];
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

/// Phrases of Google's answer to a file of another key, or to none. The key may use every model (python-genai#1218).
const FOREIGN_FILE: &[&str] = &["permission to access the file", "or it may not exist"];

/// Judges an answer that may be about a credential. `None` for all others.
pub(super) fn judge_key_error(kind: ProviderKind, status: u16, said: &ProviderErrorInfo) -> Option<Verdict> {
    match status {
        401 | 402 | 403 | 429 => Some(judge_key_or_limit(kind, status, said)),
        // Google answers an unknown key with 400. Its message may repeat text of the client, its reason cannot.
        400 if said.is_key_invalid && is_google(kind) => Some(proven(Class::Auth, 400, "API_KEY_INVALID")),
        // Anthropic reports accounts that cannot pay with 400, like any faulty request.
        400 => judge_account_error(kind, said).or_else(|| {
            let row = named_statement(400, said)?;
            Some(proven(row.class, 400, row.name))
        }),
        _ => None,
    }
}

/// Judges Anthropic's sentences about an account; `None` for any other error, and for other providers.
fn judge_account_error(kind: ProviderKind, said: &ProviderErrorInfo) -> Option<Verdict> {
    // The message of any other provider may repeat text of the client.
    if kind != ProviderKind::Anthropic || said.kind != "invalid_request_error" {
        return None;
    }
    let (class, statement) = match said.sentence? {
        AccountSentence::NoCredit => (Class::Billing, "sentence: no credit"),
        AccountSentence::SpendLimit { .. } => (Class::SpendLimit, "sentence: spending limit"),
        AccountSentence::LeakedKey => return None,
    };
    // Evidence from text is weaker than a status, so it moves the exchange only once.
    Some(proven(class, 400, statement).with_scope(VerdictScope::Text))
}

/// Returns the verdict of a statement about the credential.
fn proven(class: Class, status: u16, statement: &'static str) -> Verdict {
    Verdict::from_class(class).with_evidence(KeyEvidence { status, statement })
}

/// Judges a 401, 402, 403 or 429.
fn judge_key_or_limit(kind: ProviderKind, status: u16, said: &ProviderErrorInfo) -> Verdict {
    let scoped = |class, scope| Verdict::from_class(class).with_scope(scope);
    let proven = |class, statement| proven(class, status, statement);
    if said.has_code(FILTERED) {
        return Verdict::from_class(Class::Filtered);
    }
    // The key works, but not on this path: other paths have other scopes.
    let is_of_path = lacks_scope(said) || said.contains_phrase(FOREIGN_FILE);
    if matches!(status, 401 | 403) && is_of_path {
        return scoped(Class::Permission, VerdictScope::Exchange);
    }
    if matches!(status, 402 | 429) && said.contains_phrase(REQUEST_TOO_LARGE) {
        return Verdict::from_class(Class::TooLarge);
    }
    // OpenRouter and others repeat the status as a number, in place of a type.
    let is_numbered = said.status_code == Some(status) && (said.kind.is_empty() || is_google(kind));
    match (status, named_statement(status, said)) {
        (403, _) if said.is_key_invalid => proven(Class::Auth, "API_KEY_INVALID"),
        (403, _) if is_google(kind) && said.sentence == Some(AccountSentence::LeakedKey) => {
            proven(Class::Auth, "sentence: leaked key").with_scope(VerdictScope::Text)
        }
        (429, _) if said.daily_quota.is_some() => proven(Class::Quota, "quotaId: PerDay"),
        (_, Some(row)) => proven(row.class, row.name),
        (401, _) if is_numbered || is_bare_rejection(kind, said) => proven(Class::Auth, "status in the body"),
        // Another profile may have a key that this server knows.
        (401, _) => scoped(Class::Auth, VerdictScope::Exchange),
        (402, _) if said.is_described => proven(Class::Billing, "error in the body"),
        (402, _) => scoped(Class::Billing, VerdictScope::Exchange),
        (403, _) if said.has_code(BLOCKED) => scoped(Class::Permission, VerdictScope::Nothing),
        // OpenRouter's 403 is moderation of the input.
        (403, _) if is_numbered => Verdict::from_class(Class::Filtered),
        (403, _) if said.is_described => scoped(Class::Permission, VerdictScope::Exchange),
        // A page of a firewall: every key would get it.
        (403, _) => scoped(Class::Permission, VerdictScope::Nothing),
        (429, _) if is_numbered => proven(Class::RateLimit, "status in the body"),
        _ => proven(Class::RateLimit, "wait in a header").with_scope(VerdictScope::UnnamedLimit),
    }
}

/// Returns the statement that an answer makes. `None` if it makes none.
fn named_statement(status: u16, said: &ProviderErrorInfo) -> Option<&'static KeyStatement> {
    let mut rows = KEY_STATEMENTS.iter();
    rows.find(|row| row.status == status && said.has_code(&[row.name]))
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
