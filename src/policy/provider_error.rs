//! A provider's error in any dialect: type, code, message, and time to wait.
//!
//! Shapes: Anthropic `{"type":"error","error":{…}}`; OpenAI `{"error":{type,code,message}}`. The Codex backend adds
//! `resets_at` and `resets_in_seconds`. Google: `{"error":{code,status,message,details[]}}`, in a list or not. Amazon:
//! `{"message"}` with the type in a header. Members that cannot be read are empty.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{account_sentences::AccountSentence, time_formats::parse_go_duration};
use crate::{refusals::RefusalReader, wire::ErrorMeaning};

/// The readable parts of a provider's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderErrorInfo {
    /// `error.type`, or Google's `status`, or Amazon's error type.
    pub kind: String,
    /// `error.code`, if it is a text.
    pub code: String,
    /// The message in lower case.
    pub message: Box<str>,
    /// The wait that a member of the body names.
    pub retry_after: Option<Duration>,
    /// The time at which the provider accepts requests again, in seconds since 1970, as the body names it.
    pub reset_at: Option<Duration>,
    /// The quota of a day or more that the error names; `None` if it names none.
    pub daily_quota: Option<DailyQuota>,
    /// `error.code`, if it is a number: `OpenRouter` and Google repeat the status there.
    pub status_code: Option<u16>,
    /// `true` if the body is a JSON object that describes an error: it has a type, a code or a message.
    pub is_described: bool,
    /// The sentence about the account that makes up the whole message; `None` for any other message.
    pub sentence: Option<AccountSentence>,
    /// `true` if Google's details name the API key as invalid.
    pub is_key_invalid: bool,
    /// The matter of the text, if it is a known refusal of the request. The client may have written it.
    pub refused: Option<RefusedMatter>,
}

/// The part of a request that a provider refuses, by a text that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMatter {
    /// The length of the prompt, alone or with the answer.
    Length,
    /// Anything else.
    Content,
}

/// The extent of a quota of a day or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DailyQuota {
    /// One model.
    OneModel,
    /// Every model.
    EveryModel,
}

/// The relevant members. Any of them may be missing or of another type.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ErrorMembers {
    #[serde(rename = "type")]
    kind: Value,
    code: Value,
    status: Value,
    message: Value,
    detail: Value,
    details: Value,
    resets_at: Value,
    resets_in_seconds: Value,
}

impl ProviderErrorInfo {
    /// Reads an error's body, or the data of an error event, which has no `status`. `refusals` knows the refusals of a
    /// history.
    pub fn parse_body(status: Option<u16>, body: &[u8], refusals: &RefusalReader) -> Self {
        // Also in a text that is no JSON.
        let refused = refusals.read(status, body).map(|found| match found.meaning {
            Some(ErrorMeaning::Overflow(_)) => RefusedMatter::Length,
            Some(ErrorMeaning::BadTool(_)) | None => RefusedMatter::Content,
        });
        Self {
            refused,
            ..Self::parse_json(body)
        }
    }

    fn parse_json(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self::default();
        };
        let value = match &value {
            Value::Array(list) => list.first().unwrap_or(&Value::Null),
            value => value,
        };
        // Responses nests the error in the response that failed.
        let nested = value.get("response").and_then(|response| response.get("error"));
        let error = nested.or_else(|| value.get("error")).filter(|error| error.is_object());
        let fields = ErrorMembers::deserialize(error.unwrap_or(value)).unwrap_or_default();
        Self::from_members(&fields)
    }

    /// Reads the data of an error event. The watcher's `kind` and `code` fill in what the data lacks.
    pub fn parse_event(data: &[u8], kind: &str, code: &str, refusals: &RefusalReader) -> Self {
        let mut said = Self::parse_body(None, data, refusals);
        for (own, told) in [(&mut said.kind, kind), (&mut said.code, code)] {
            if own.is_empty() {
                told.clone_into(own);
            }
        }
        said
    }

    fn from_members(fields: &ErrorMembers) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // LiteLLM and Azure write the number as a text.
        let number = fields.code.as_u64().or_else(|| fields.code.as_str()?.parse().ok());
        let status = text(&fields.status);
        // Mistral and FastAPI call it `detail`.
        let message = fields.message.as_str().or_else(|| fields.detail.as_str());
        let message = message.unwrap_or_default().to_owned();
        // Before the message becomes lower case: a sentence counts only in its exact bytes.
        let sentence = AccountSentence::parse_message(&message);
        let message = message.to_lowercase();
        let details = fields.details.as_array().map(Vec::as_slice).unwrap_or_default();
        // Google's `RetryInfo`.
        let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str());
        let invalid = |detail: &Value| detail.get("reason").and_then(Value::as_str) == Some("API_KEY_INVALID");
        let violations = details.iter().filter_map(|detail| detail.get("violations")?.as_array());
        let quotas: Vec<&str> = violations
            .flatten()
            .filter_map(|one| one.get("quotaId")?.as_str())
            // The quota's id is the only member that distinguishes a day from a minute.
            .filter(|id| id.contains("PerDay"))
            .collect();
        let seconds = |value: &Value| {
            value
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        };
        let wait = [delay.and_then(parse_go_duration), seconds(&fields.resets_in_seconds)];
        // Google's `status` is its error type; other dialects have no text there.
        let kind = if status.is_empty() { text(&fields.kind) } else { status };
        Self {
            is_described: !(kind.is_empty() && fields.code.is_null() && message.is_empty()),
            kind,
            code: text(&fields.code),
            status_code: number.and_then(|number| u16::try_from(number).ok()),
            retry_after: wait.into_iter().flatten().max(),
            reset_at: seconds(&fields.resets_at),
            daily_quota: (!quotas.is_empty()).then(|| {
                let is_of_model = quotas.iter().all(|id| id.contains("PerModel"));
                if is_of_model {
                    DailyQuota::OneModel
                } else {
                    DailyQuota::EveryModel
                }
            }),
            sentence,
            is_key_invalid: details.iter().any(invalid),
            refused: None,
            message: message.into_boxed_str(),
        }
    }

    /// Returns `true` if the type or the code is one of `names`.
    pub fn has_code(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.kind == *name || self.code == *name)
    }

    /// Returns `true` if the message contains one of `phrases`, which must be in lower case.
    pub fn contains_phrase(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.message.contains(phrase))
    }
}
