//! Problem documents (RFC 9457) and the closed list of their codes: the answer of both APIs to a refused request.

use std::{borrow::Cow, time::Duration};

use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use super::{
    ApiBody,
    json::{name_schema, write_json},
    private_response,
};

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The type of a problem that its status and its code describe completely.
const BLANK: &str = "about:blank";
/// Time after which a client may ask again while the ledger is away.
const AWAY_RETRY: Duration = Duration::from_secs(5);
/// The longest pause between two claims while another holder runs the tool: it may end at any time.
const IN_FLIGHT_RETRY_MAX: Duration = Duration::from_secs(30);

/// Defines the codes: for each a row with its name in the document, its status, and its usual detail. The row of a
/// problem of intents has its type and its title in front. A name with two statuses or types has a row for each, since
/// the document lists refusals by status: `bad_body`, `not_found`, `several_people`.
macro_rules! problem_codes {
    ($(
        #[doc = $doc:literal]
        $code:ident: $([$uri:literal, $title:literal])? $label:literal, $status:ident, $detail:literal;
    )+) => {
        /// The code of a refused request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemCode {
            $(#[doc = $doc] $code,)+
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code),+];

            const fn row(self) -> (&'static str, StatusCode, &'static str) {
                match self {
                    $(Self::$code => ($label, StatusCode::$status, $detail),)+
                }
            }

            /// Returns the type and the title of a problem of intents. Empty for any other, whose code is enough.
            const fn intent_types(self) -> &'static [(&'static str, &'static str)] {
                match self {
                    $(Self::$code => &[$(($uri, $title))?],)+
                }
            }
        }
    };
}

problem_codes! {
    /// The path, the credential or the record is unknown, or the record belongs to another caller.
    NotFound: "not_found", NOT_FOUND,
        "not found, or not available with this credential";
    /// The path takes another method.
    WrongMethod: "wrong_method", METHOD_NOT_ALLOWED,
        "the path takes another method: see the header allow";
    /// The key of the reader is one that many clients send.
    SharedKey: "shared_key", FORBIDDEN,
        "many clients send this key, so it identifies nobody: send a client token in x-antiphon-client-token";
    /// The service may claim no intent without a recorded call.
    NotOnBehalf: "not_on_behalf", FORBIDDEN,
        "this service may not claim for users of its own: the operator can set services.NAME.on_behalf";
    /// Several people may have the credential of the caller, so that nobody can claim with it.
    SeveralPeople: "several_people", FORBIDDEN,
        "several people may have this credential, and one must not get the result of another: the operator can \
         set client_tokens.NAME.personal for a token that one person uses";
    /// Others could read the connection.
    NeedsEncryption: "needs_encryption", FORBIDDEN,
        "the task page is served over TLS, or to this machine: the operator can set server.tls";
    /// The link to the task page may not report outcomes.
    ReadOnlyLink: "read_only_link", FORBIDDEN,
        "this link reads and acknowledges only: an operator can make one with `antiphon tasks link`";
    /// The effect of the call cannot be undone.
    NotUndoable: "not_undoable", CONFLICT,
        "the effect of this tool cannot be undone: tools.NAME needs tier = \"revertible\", and cancel_url for \
         requests of its callers";
    /// The call has a different result, or no longer waits for one.
    Conflict: "conflict", CONFLICT,
        "the call already has a different result, or no longer waits for one";
    /// The id does not identify one call.
    AmbiguousCall: "ambiguous_call", CONFLICT,
        "the call id is ambiguous: send the owner from the response header x-antiphon-owner, and for a reusable \
         id such as call_0 also its session, or its tool and input";
    /// The call has expired or was undone.
    Expired: "expired", GONE,
        "the call has expired or was cancelled, and no longer accepts a result";
    /// The body is too large.
    TooLarge: "too_large", PAYLOAD_TOO_LARGE,
        "the body is too large: the limit is 8 MiB for a result, 1 MiB for a claim, and 64 KiB for any other \
         request";
    /// The body cannot be read, or lacks something.
    Malformed: "malformed", UNPROCESSABLE_ENTITY,
        "the body cannot be read, or is not the expected JSON object";
    /// The `webhook-id` was used for another signed message.
    Replayed: "replayed", CONFLICT,
        "this webhook-id was used for a different message: send each message under its own id";
    /// The ledger is full.
    Full: "full", INSUFFICIENT_STORAGE,
        "the ledger is full: the operator can raise ledger.bytes_max or ledger.principal_bytes_max";
    /// The limit of feed listeners, or of bodies with an unverified signature, is reached.
    Busy: "busy", SERVICE_UNAVAILABLE,
        "too many feed listeners or signed bodies at once: retry later";
    /// The ledger failed, or did not answer in time.
    Unavailable: "unavailable", SERVICE_UNAVAILABLE,
        "the ledger failed or timed out: retry";
    /// Another holder runs the tool of the intent.
    InFlight: ["urn:antiphon:intent:in-flight", "the tool is running"]
        "in_flight", CONFLICT,
        "another claim holds this intent: do not run the tool, and claim again after the time in retry-after";
    /// The tool of the intent may have run, and its effect cannot be undone.
    OutcomeUnknown: ["urn:antiphon:intent:outcome-unknown", "the tool may have run"]
        "outcome_unknown", CONFLICT,
        "the holder disappeared, and the effect cannot be undone: find out whether it happened, and let the operator \
         resolve the intent: antiphon intents resolve ID done|not-run";
    /// The key of the intent was used for another input.
    PayloadMismatch: ["urn:antiphon:intent:payload-mismatch", "the key was used for another input"]
        "payload_mismatch", UNPROCESSABLE_ENTITY,
        "do not run the tool: send another Idempotency-Key for another input, and the recorded input of a call";
    /// The effect of the intent cannot be undone, and only a session could take the result.
    TierForbids: ["urn:antiphon:intent:tier-forbids", "the effect cannot be undone, and only a session waits for it"]
        "tier_forbids", FORBIDDEN,
        "do not run the tool: its caller must learn of the result without its conversation. Configure a webhook \
         for the caller, or let it read /ledger/v1/outstanding or /ledger/v1/feed once a week";
    /// The claim of the intent is not the latest one.
    StaleClaim: ["urn:antiphon:intent:stale-claim", "the claim is not the latest one"]
        "stale_claim", CONFLICT,
        "another claim holds this intent, or it was resolved: stop, and report nothing for it";
    /// There is no such intent or call, or the credential does not reach it.
    NoSuchIntent: ["urn:antiphon:intent:not-found", "not found, or not available with this credential"]
        "not_found", NOT_FOUND,
        "check the id, the owner, and the token of the service";
    /// No ledger that survives a restart answers.
    NoDurableLedger: ["urn:antiphon:intent:no-durable-ledger", "no ledger that survives a restart answers"]
        "no_durable_ledger", SERVICE_UNAVAILABLE,
        "do not run the tool: intents need ledger.store = \"sqlite\" or \"postgres\", and a ledger that works";
    /// A parameter of an operator's query is invalid.
    BadQuery: "bad_query", BAD_REQUEST,
        "a parameter of the query is invalid";
    /// The body of an operator cannot be read, or lacks something.
    BadBody: "bad_body", BAD_REQUEST,
        "the body cannot be read, or lacks something";
    /// The body of an operator is too long.
    BodyLength: "bad_body", PAYLOAD_TOO_LARGE,
        "the body is too large: the limit is 64 KiB";
    /// The body of an operator is not declared as JSON.
    BodyType: "bad_body", UNSUPPORTED_MEDIA_TYPE,
        "the body must be JSON, with content-type: application/json";
    /// Several people may use the client that an operator named. It may make links for others: this is no 403.
    SharedClient: "several_people", CONFLICT,
        "several people may use this client: set client_tokens.NAME.personal, or name the user";
    /// The host name or the origin is not one of the admin listener.
    Forbidden: "forbidden", FORBIDDEN,
        "Host or Origin not allowed: use a loopback name or address, or add the host name to \
         server.allow_hosts; pages of other origins may not call this listener";
    /// The admin token is missing or wrong.
    Unauthorized: "unauthorized", UNAUTHORIZED,
        "the admin token is missing or wrong: send the token of server.admin_token as Authorization: Bearer …";
    /// The address has sent too many wrong tokens.
    TooManyAttempts: "too_many_attempts", TOO_MANY_REQUESTS,
        "too many wrong tokens from this address: wait, then send the token of server.admin_token";
    /// The configuration was not reloaded.
    NotReloaded: "not_reloaded", UNPROCESSABLE_ENTITY,
        "the reload failed, and the old configuration stays in force";
    /// The text is not a log level.
    BadLevel: "bad_level", UNPROCESSABLE_ENTITY,
        "the level is invalid";
    /// The metrics page could not be written.
    MetricsFailed: "metrics_failed", INTERNAL_SERVER_ERROR,
        "the metrics page could not be written; the log has the reason";
    /// The ledger failed, or did not answer an operator in time.
    LedgerUnavailable: "ledger_unavailable", SERVICE_UNAVAILABLE,
        "the ledger failed, or did not answer within 3 s; retry later";
    /// The limit of event streams is reached.
    TooManyListeners: "too_many_listeners", SERVICE_UNAVAILABLE,
        "all 32 event streams are in use: close another dashboard and retry";
    /// There are too many links to the task page.
    TooManyLinks: "too_many_links", CONFLICT,
        "there are too many links: wait until some of them expire";
    /// The outcome of the intent is known.
    NotUnknown: "not_unknown", CONFLICT,
        "the outcome is not unknown";
}

impl ProblemCode {
    /// Returns the stable name, which is `code` in the document.
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// Returns the status of the answer.
    pub const fn status(self) -> StatusCode {
        self.row().1
    }

    /// Returns the usual detail: the fault, and what to do.
    pub const fn detail(self) -> &'static str {
        self.row().2
    }

    /// Returns the status with the code and its usual detail, for the document of an API.
    pub fn described(self) -> (StatusCode, String) {
        (self.status(), format!("`{}`: {}", self.label(), self.detail()))
    }
}

/// Lists codes by the names of their variants.
macro_rules! codes {
    ($($code:ident),* $(,)?) => {{
        const CODES: &[$crate::api::ProblemCode] = &[$($crate::api::ProblemCode::$code),*];
        CODES
    }};
}
pub(crate) use codes;

/// A problem document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemView<'p> {
    #[serde(rename = "type")]
    #[schema(schema_with = type_schema)]
    uri: &'static str,
    /// The text for people, which may change: the kind of fault
    title: &'p str,
    /// The status of the answer
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The text for people, which may change: the fault, and what to do
    detail: &'p str,
    /// The stable name of the fault, for programs
    #[schema(pattern = "^[a-z_]+$")]
    code: &'p str,
    /// The intent, if another claim holds it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    intent: Option<&'p str>,
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
    let types = ProblemCode::ALL.iter().flat_map(|code| code.intent_types());
    let types = types.map(|(uri, _)| *uri).chain([BLANK]);
    let text = "The stable type of a problem of intents, for programs. Any other is `about:blank`, and has its code";
    name_schema(text, types)
}

/// A refused request.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The code.
    pub code: ProblemCode,
    /// The exact fault. `None` if the code's own detail is enough. Never contains posted content.
    detail: Option<Cow<'static, str>>,
    /// The methods that the path takes. `None` unless the method is the fault.
    allow: Option<HeaderValue>,
    /// `None` if the same request may be sent again at once.
    retry_after: Option<Duration>,
    claim: Option<Box<HoldingClaim>>,
}

/// The claim that holds an intent.
#[derive(Clone, Debug)]
struct HoldingClaim {
    intent: String,
    since: Duration,
    /// The end of the lease, and `true` if the same service has claimed it. `None` if the holder is gone.
    lease: Option<(Duration, bool)>,
}

impl Problem {
    /// Creates a problem with the code's own detail.
    pub const fn from_code(code: ProblemCode) -> Self {
        Self {
            code,
            detail: None,
            allow: None,
            retry_after: None,
            claim: None,
        }
    }

    /// Creates a problem with an exact detail.
    pub fn new(code: ProblemCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..Self::from_code(code)
        }
    }

    /// Creates the problem of a body that cannot be read or lacks something.
    pub fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ProblemCode::Malformed, detail)
    }

    /// Creates the problem of a method that the path does not take. `allow` are those that it takes.
    pub fn wrong_method(allow: &str) -> Self {
        Self {
            allow: allow.try_into().ok(),
            ..Self::from_code(ProblemCode::WrongMethod)
        }
    }

    /// Adds the time after which the request may be sent again.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// Returns the problem as requests about intents get it: a record that is unknown, and a ledger that is away, have
    /// types of their own there.
    #[must_use]
    pub fn of_intents(self) -> Self {
        match self.code {
            ProblemCode::NotFound => Self::from_code(ProblemCode::NoSuchIntent),
            ProblemCode::Unavailable | ProblemCode::NoDurableLedger => {
                Self::from_code(ProblemCode::NoDurableLedger).with_retry_after(AWAY_RETRY)
            }
            _ => self,
        }
    }

    /// Adds the intent, and the time of the claim that holds it.
    #[must_use]
    pub fn about_intent(self, intent: String, since: Duration) -> Self {
        let claim = HoldingClaim {
            intent,
            since,
            lease: None,
        };
        Self {
            claim: Some(Box::new(claim)),
            ..self
        }
    }

    /// Adds the end of the lease of the claim that holds the intent, as seen at `now`.
    #[must_use]
    pub fn held_until(mut self, lease_until: Duration, is_own: bool, now: Duration) -> Self {
        if let Some(claim) = &mut self.claim {
            claim.lease = Some((lease_until, is_own));
        }
        let pause = lease_until.saturating_sub(now).min(IN_FLIGHT_RETRY_MAX);
        self.with_retry_after(Duration::from_secs(pause.as_secs().max(1)))
    }

    /// Builds the answer.
    pub fn into_response(self) -> Response<ApiBody> {
        let detail = self.detail.as_deref().unwrap_or_else(|| self.code.detail());
        let mut view = ProblemView::blank(self.code.status(), self.code.label(), detail);
        if let [(uri, title)] = self.code.intent_types() {
            (view.uri, view.title) = (uri, title);
        }
        if let Some(claim) = &self.claim {
            view.intent = Some(&claim.intent);
            view.since = Some(claim.since.as_secs());
            view.lease_until = claim.lease.map(|(until, _)| until.as_secs());
            view.claimed_by_you = claim.lease.map(|(_, is_own)| is_own);
        }
        let mut answer = private_response(self.code.status(), PROBLEM_JSON, view.to_json());
        let headers = answer.headers_mut();
        // RFC 9110 demands a challenge on every 401.
        if self.code == ProblemCode::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, methods);
        }
        if let Some(wait) = self.retry_after {
            // Rounded up, so that a client that waits for as long is not refused again.
            let seconds = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, seconds.into());
        }
        answer
    }
}

impl From<ProblemCode> for Problem {
    fn from(code: ProblemCode) -> Self {
        Self::from_code(code)
    }
}

impl<'p> ProblemView<'p> {
    fn blank(status: StatusCode, code: &'p str, detail: &'p str) -> Self {
        Self {
            uri: BLANK,
            title: status.canonical_reason().unwrap_or("Refused"),
            status: status.as_u16(),
            detail,
            code,
            intent: None,
            since: None,
            lease_until: None,
            claimed_by_you: None,
        }
    }

    fn to_json(&self) -> Vec<u8> {
        write_json(self)
    }
}

/// Returns the document of a refusal without a [`ProblemCode`]: the proxy refuses some heads before an API reads them.
pub fn proxy_problem(status: StatusCode, code: &str, detail: &str) -> Vec<u8> {
    ProblemView::blank(status, code, detail).to_json()
}
