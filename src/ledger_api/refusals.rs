//! The refusals of each operation, for the `OpenAPI` document: statuses and texts are those of the codes.

use std::collections::BTreeMap;

use http::StatusCode;
use utoipa::{
    IntoResponses, ToSchema,
    openapi::{Content, Ref, RefOr, Response, ResponseBuilder},
};

use crate::api::{
    ProblemCode,
    problem::{PROBLEM_JSON, ProblemView},
};

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

/// Defines a type for the refusals of an operation, by their codes.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident: $($code:ident),+;)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                refusal_responses(&[$(ProblemCode::$code),+])
            }
        }
    )+};
}

refusals! {
    /// The refusals of the document itself.
        DocumentRefusals: NotFound;
    /// The refusals of a tool service's request.
        ServiceRefusals: NotFound, Conflict, AmbiguousCall, Replayed, Expired, TooLarge, Malformed, Full, Busy,
        Unavailable;
    /// The refusals of a claim, or of a read of an intent.
        IntentRefusals: InFlight, OutcomeUnknown, PayloadMismatch, TierForbids, NoSuchIntent, NoDurableLedger,
        SharedKey, NotOnBehalf, AmbiguousCall, TooLarge, Malformed, Full;
    /// The refusals of a report of a holder.
        IntentReportRefusals: StaleClaim, NoSuchIntent, NoDurableLedger, Conflict, Expired, TooLarge, Malformed, Full;
    /// The refusals of a caller's request that reads.
        ReaderRefusals: NotFound, SharedKey, TooLarge, Malformed, Unavailable;
    /// The refusals of a request for a link to the task page.
        TaskLinkRefusals: NotFound, SharedKey, SeveralPeople, NeedsEncryption, TooLarge, Malformed, Full, Unavailable;
    /// The refusals of a request that the task page sends.
        TaskRefusals: NotFound, NeedsEncryption, Malformed, Full, Unavailable;
    /// The refusals of the report of an outcome.
        TaskResolveRefusals: NotFound, NeedsEncryption, ReadOnlyLink, Conflict, TooLarge, Malformed, Full,
        Unavailable;
    /// The refusals of a request about a cancel.
        CancelRefusals: NotFound, SharedKey, NotUndoable, Conflict, AmbiguousCall, Replayed, TooLarge, Malformed,
        Full, Busy, Unavailable;
    /// The refusals of a feed.
        FeedRefusals: NotFound, SharedKey, TooLarge, Malformed, Busy, Unavailable;
    /// The refusals of an acknowledgement.
        AckRefusals: NotFound, SharedKey, TooLarge, Malformed, Full, Unavailable;
}

/// Returns the responses of an operation with these codes, one for each status, and those of refused heads.
fn refusal_responses(codes: &[ProblemCode]) -> BTreeMap<String, RefOr<Response>> {
    let of_codes = codes
        .iter()
        .map(|code| (code.status(), format!("`{}`: {}", code.label(), code.detail())));
    let of_heads = HEAD_REFUSALS.map(|(status, text)| (status, text.to_owned()));
    let mut texts: BTreeMap<StatusCode, String> = BTreeMap::new();
    for (status, text) in of_codes.chain(of_heads) {
        let texts = texts.entry(status).or_default();
        texts.push_str(if texts.is_empty() { "" } else { "; " });
        texts.push_str(&text);
    }
    let described = |(status, text): (StatusCode, String)| {
        let content = Content::new(Some(Ref::from_schema_name(ProblemView::name())));
        let response = ResponseBuilder::new().description(text).content(PROBLEM_JSON, content);
        (status.as_str().to_owned(), response.build().into())
    };
    texts.into_iter().map(described).collect()
}
