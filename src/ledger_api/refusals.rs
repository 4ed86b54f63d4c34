//! The refusals of each operation, for the `OpenAPI` document: statuses and texts are those of the error codes.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _};

use http::StatusCode;
use utoipa::{
    IntoResponses, PartialSchema, ToSchema,
    openapi::{
        Content, Ref, RefOr, Response, ResponseBuilder,
        schema::{ObjectBuilder, Schema, Type},
    },
};

use super::{
    problem::{IntentProblem, PROBLEM_JSON, ProblemView},
    response::{ApiErrorCode, RefusalView},
};

/// The error that the proxy returns for the head of a request, before the API reads it.
pub(super) struct HeadRefusal;

impl PartialSchema for HeadRefusal {
    fn schema() -> RefOr<Schema> {
        let text = |description| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            text.description(Some(description))
        };
        let detail = ObjectBuilder::new()
            .property("code", text("The stable name of the error, for programs"))
            .property("message", text("The text for people, which may change"))
            .required("code")
            .required("message");
        let refusal = ObjectBuilder::new().property("error", detail).required("error");
        refusal.description(Some("The answer to a refused head.")).into()
    }
}

impl ToSchema for HeadRefusal {
    fn name() -> Cow<'static, str> {
        "HeadError".into()
    }
}

/// The statuses that the proxy returns for the head of a request, whatever its path.
const HEAD_REFUSALS: [(StatusCode, &str); 4] = [
    (
        StatusCode::BAD_REQUEST,
        "the path, the host or the length of the body can be read in two ways",
    ),
    (
        StatusCode::FORBIDDEN,
        "the host or the web page's origin is not configured",
    ),
    (StatusCode::EXPECTATION_FAILED, "the expectation is not `100-continue`"),
    (StatusCode::UPGRADE_REQUIRED, "WebSockets are not supported"),
];

/// The refusals of the document itself.
pub(super) struct DocumentRefusals;

impl IntoResponses for DocumentRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[ApiErrorCode::NotFound])
    }
}

/// The refusals of a tool service's request.
pub(super) struct ServiceRefusals;

impl IntoResponses for ServiceRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::Conflict,
            ApiErrorCode::AmbiguousCall,
            ApiErrorCode::Replayed,
            ApiErrorCode::Expired,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Busy,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of a claim, or of a read of an intent.
pub(super) struct IntentRefusals;

impl IntoResponses for IntentRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(
            &[
                IntentProblem::InFlight,
                IntentProblem::OutcomeUnknown,
                IntentProblem::PayloadMismatch,
                IntentProblem::TierForbids,
                IntentProblem::NotFound,
                IntentProblem::NoDurableLedger,
            ],
            &[
                ApiErrorCode::SharedKey,
                ApiErrorCode::NotOnBehalf,
                ApiErrorCode::AmbiguousCall,
                ApiErrorCode::TooLarge,
                ApiErrorCode::Malformed,
                ApiErrorCode::Full,
            ],
        )
    }
}

/// The refusals of a report of a holder.
pub(super) struct IntentReportRefusals;

impl IntoResponses for IntentReportRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(
            &[
                IntentProblem::StaleClaim,
                IntentProblem::NotFound,
                IntentProblem::NoDurableLedger,
            ],
            &[
                ApiErrorCode::Conflict,
                ApiErrorCode::Expired,
                ApiErrorCode::TooLarge,
                ApiErrorCode::Malformed,
                ApiErrorCode::Full,
            ],
        )
    }
}

/// Describes the problem documents of an operation, beside the refusals of heads.
fn problem_responses(problems: &[IntentProblem], codes: &[ApiErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    let of_problems = problems.iter().map(|problem| {
        let text = format!("`{}`: {}", problem.uri(), problem.title());
        (problem.status(), text)
    });
    let of_codes = codes
        .iter()
        .map(|code| (code.status(), format!("`{}`: {}", code.label(), code.message())));
    let mut texts: BTreeMap<StatusCode, String> = BTreeMap::new();
    for (status, text) in of_problems.chain(of_codes) {
        let texts = texts.entry(status).or_default();
        texts.push_str(if texts.is_empty() { "" } else { "; " });
        texts.push_str(&text);
    }
    let of_heads = HEAD_REFUSALS.map(|(status, text)| (status, text, HeadRefusal::name(), "application/json"));
    let mut responses: BTreeMap<String, RefOr<Response>> = BTreeMap::new();
    let content = |schema: Cow<'static, str>| Content::new(Some(Ref::from_schema_name(schema)));
    for (status, text, schema, media_type) in of_heads {
        let own = texts.remove(&status);
        let text = own
            .as_ref()
            .map_or_else(|| text.to_owned(), |own| format!("{own}; {text}"));
        let mut response = ResponseBuilder::new()
            .description(text)
            .content(media_type, content(schema));
        if own.is_some() {
            response = response.content(PROBLEM_JSON, content(ProblemView::name()));
        }
        responses.insert(status.as_str().to_owned(), response.build().into());
    }
    for (status, text) in texts {
        let response = ResponseBuilder::new().description(text);
        let response = response.content(PROBLEM_JSON, content(ProblemView::name()));
        responses.insert(status.as_str().to_owned(), response.build().into());
    }
    responses
}

/// The refusals of a caller's request that reads.
pub(super) struct ReaderRefusals;

impl IntoResponses for ReaderRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::SharedKey,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of a request for a link to the task page.
pub(super) struct TaskLinkRefusals;

impl IntoResponses for TaskLinkRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::SharedKey,
            ApiErrorCode::SeveralPeople,
            ApiErrorCode::NeedsEncryption,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of a request that the task page sends.
pub(super) struct TaskRefusals;

impl IntoResponses for TaskRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::NeedsEncryption,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of the report of an outcome.
pub(super) struct TaskResolveRefusals;

impl IntoResponses for TaskResolveRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::NeedsEncryption,
            ApiErrorCode::ReadOnlyLink,
            ApiErrorCode::Conflict,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of a request about a cancel.
pub(super) struct CancelRefusals;

impl IntoResponses for CancelRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::SharedKey,
            ApiErrorCode::NotUndoable,
            ApiErrorCode::Conflict,
            ApiErrorCode::AmbiguousCall,
            ApiErrorCode::Replayed,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Busy,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of a feed.
pub(super) struct FeedRefusals;

impl IntoResponses for FeedRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::SharedKey,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Busy,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// The refusals of an acknowledgement.
pub(super) struct AckRefusals;

impl IntoResponses for AckRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusal_responses(&[
            ApiErrorCode::NotFound,
            ApiErrorCode::SharedKey,
            ApiErrorCode::TooLarge,
            ApiErrorCode::Malformed,
            ApiErrorCode::Full,
            ApiErrorCode::Unavailable,
        ])
    }
}

/// Returns the responses of an operation with these error codes, one for each status, and those of refused heads.
fn refusal_responses(codes: &[ApiErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    let mut texts: BTreeMap<StatusCode, String> = BTreeMap::new();
    for code in codes {
        let text = texts.entry(code.status()).or_default();
        if !text.is_empty() {
            text.push_str("; ");
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "`{}`: {}", code.label(), code.message());
    }
    let mut refusals: BTreeMap<StatusCode, (String, Cow<'static, str>)> = texts
        .into_iter()
        .map(|(status, text)| (status, (text, RefusalView::name())))
        .collect();
    for (status, text) in HEAD_REFUSALS {
        let (texts, schema) = refusals.entry(status).or_default();
        // The head's schema permits every code.
        *schema = HeadRefusal::name();
        texts.push_str(if texts.is_empty() { "" } else { "; " });
        texts.push_str(text);
    }
    let described = |(status, (text, schema)): (StatusCode, (String, _))| {
        let content = Content::new(Some(Ref::from_schema_name(schema)));
        let response = ResponseBuilder::new()
            .description(text)
            .content("application/json", content);
        (status.as_str().to_owned(), response.build().into())
    };
    refusals.into_iter().map(described).collect()
}
