//! Problem documents (RFC 9457) for requests about intents.

use std::time::Duration;

use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use super::{
    LedgerBody,
    answers::name_schema,
    response::{ApiErrorCode, ApiRefusal, json_response},
};

/// The media type of a problem document.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";
/// The type of a problem that its status describes completely.
const BLANK: &str = "about:blank";
/// Seconds after which a client may ask again while the ledger is away.
const AWAY_RETRY_SECONDS: u64 = 5;
/// The longest pause between two claims while another holder runs the tool: it may end at any time.
const IN_FLIGHT_RETRY_MAX: Duration = Duration::from_secs(30);

/// A problem of a request about intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntentProblem {
    /// Another holder runs the tool.
    InFlight,
    /// The tool may have run, and its effect cannot be undone.
    OutcomeUnknown,
    /// The key was used for another input.
    PayloadMismatch,
    /// The effect cannot be undone, and only a session could take the result.
    TierForbids,
    /// The claim is not the latest one.
    StaleClaim,
    /// There is no such intent or call, or the credential does not reach it.
    NotFound,
    /// No ledger that survives a restart answers.
    NoDurableLedger,
}

impl IntentProblem {
    /// Every problem.
    pub(super) const ALL: [Self; 7] = [
        Self::InFlight,
        Self::OutcomeUnknown,
        Self::PayloadMismatch,
        Self::TierForbids,
        Self::StaleClaim,
        Self::NotFound,
        Self::NoDurableLedger,
    ];

    /// Returns the type of the problem document.
    pub(super) const fn uri(self) -> &'static str {
        match self {
            Self::InFlight => "urn:antiphon:intent:in-flight",
            Self::OutcomeUnknown => "urn:antiphon:intent:outcome-unknown",
            Self::PayloadMismatch => "urn:antiphon:intent:payload-mismatch",
            Self::TierForbids => "urn:antiphon:intent:tier-forbids",
            Self::StaleClaim => "urn:antiphon:intent:stale-claim",
            Self::NotFound => "urn:antiphon:intent:not-found",
            Self::NoDurableLedger => "urn:antiphon:intent:no-durable-ledger",
        }
    }

    /// Returns the status of the answer.
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::InFlight | Self::OutcomeUnknown | Self::StaleClaim => StatusCode::CONFLICT,
            Self::PayloadMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TierForbids => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::NoDurableLedger => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the title: the fault.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::InFlight => "the tool is running",
            Self::OutcomeUnknown => "the tool may have run",
            Self::PayloadMismatch => "the key was used for another input",
            Self::TierForbids => "the effect cannot be undone, and only a session waits for it",
            Self::StaleClaim => "the claim is not the latest one",
            Self::NotFound => "not found, or not available with this credential",
            Self::NoDurableLedger => "no ledger that survives a restart answers",
        }
    }

    /// Returns the detail: what to do.
    const fn detail(self) -> &'static str {
        match self {
            Self::InFlight => {
                "another claim holds this intent: do not run the tool, and claim again after the time in retry-after"
            }
            Self::OutcomeUnknown => {
                "the holder disappeared, and the effect cannot be undone: find out if it happened, and let the operator \
                 resolve the intent: antiphon intents resolve ID done|not-run"
            }
            Self::PayloadMismatch => {
                "do not run the tool: send another Idempotency-Key for another input, and the recorded input of a call"
            }
            Self::TierForbids => {
                "do not run the tool: its caller must learn of the result without its conversation. Configure a webhook for \
                 the caller, or let it read /ledger/v1/outstanding or /ledger/v1/feed once a week"
            }
            Self::StaleClaim => "another claim holds this intent, or it was resolved: stop, and report nothing for it",
            Self::NotFound => "check the id, the owner, and the token of the service",
            Self::NoDurableLedger => {
                "do not run the tool: intents need ledger.store = \"sqlite\", and a ledger that works"
            }
        }
    }
}

/// A problem document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemView {
    #[serde(rename = "type")]
    #[schema(schema_with = type_schema)]
    uri: &'static str,
    /// The text for people, which may change: the fault
    title: String,
    /// The status of the answer
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The text for people, which may change: what to do
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The name of the fault, if it is not one of intents
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// The intent, if it is known
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    intent: Option<String>,
    /// The time of the claim that holds the intent, in seconds since 1970
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// The time from which its holder counts as gone, in seconds since 1970
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<u64>,
    /// `true` if the same service has claimed it
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_by_you: Option<bool>,
}

fn type_schema() -> Object {
    let types = IntentProblem::ALL.map(IntentProblem::uri).into_iter().chain([BLANK]);
    name_schema("The stable type of the problem, for programs", types)
}

/// A problem with what is known about its intent.
#[derive(Debug)]
pub(super) struct ProblemAnswer {
    view: ProblemView,
    status: StatusCode,
    allow: Option<Method>,
    retry_after: Option<u64>,
}

impl ProblemAnswer {
    /// Creates the answer to a problem of intents.
    pub(super) fn new(problem: IntentProblem) -> Self {
        let retry_after = (problem == IntentProblem::NoDurableLedger).then_some(AWAY_RETRY_SECONDS);
        Self {
            view: ProblemView {
                uri: problem.uri(),
                title: problem.title().to_owned(),
                status: problem.status().as_u16(),
                detail: Some(problem.detail().to_owned()),
                code: None,
                intent: None,
                since: None,
                lease_until: None,
                claimed_by_you: None,
            },
            status: problem.status(),
            allow: None,
            retry_after,
        }
    }

    /// Creates the answer to a refusal that other requests of the API get, too.
    pub(super) fn from_refusal(refusal: &ApiRefusal) -> Self {
        let problem = match refusal.code {
            ApiErrorCode::NotFound => Some(IntentProblem::NotFound),
            ApiErrorCode::Unavailable => Some(IntentProblem::NoDurableLedger),
            _ => None,
        };
        if let Some(problem) = problem {
            return Self::new(problem);
        }
        let status = refusal.code.status();
        Self {
            view: ProblemView {
                uri: BLANK,
                title: refusal.message().to_owned(),
                status: status.as_u16(),
                detail: None,
                code: Some(refusal.code.label()),
                intent: None,
                since: None,
                lease_until: None,
                claimed_by_you: None,
            },
            status,
            allow: refusal.allowed_method().cloned(),
            retry_after: None,
        }
    }

    /// Adds the intent, and the time of the claim that holds it.
    pub(super) fn about(mut self, intent: &str, since: Duration) -> Self {
        self.view.intent = Some(intent.to_owned());
        self.view.since = Some(since.as_secs());
        self
    }

    /// Adds the end of the lease, as seen at `now`.
    pub(super) fn held_until(mut self, lease_until: Duration, is_own: bool, now: Duration) -> Self {
        self.view.lease_until = Some(lease_until.as_secs());
        self.view.claimed_by_you = Some(is_own);
        let pause = lease_until.saturating_sub(now).min(IN_FLIGHT_RETRY_MAX);
        self.retry_after = Some(pause.as_secs().max(1));
        self
    }

    /// Builds the response.
    pub(super) fn into_response(self) -> Response<LedgerBody> {
        let mut answer = json_response(self.status, &self.view);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(method) = self.allow.and_then(|method| method.as_str().try_into().ok()) {
            headers.insert(ALLOW, method);
        }
        answer
    }
}

impl From<ApiRefusal> for ProblemAnswer {
    fn from(refusal: ApiRefusal) -> Self {
        Self::from_refusal(&refusal)
    }
}

impl From<IntentProblem> for ProblemAnswer {
    fn from(problem: IntentProblem) -> Self {
        Self::new(problem)
    }
}
