//! The answers of the API, as types: the `OpenAPI` document is derived from what is written.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use utoipa::{ToSchema, openapi::schema::Object};

use super::delivery_id::format_delivery_id;
use crate::{
    api::json::name_schema,
    clock,
    late::records::{PostedResult, RecordedCall, RecordedCallState},
    ledger::RecordName,
    wire::{
        CONTENT_DEPTH_MAX,
        json::{compact_json, deeper_than, quote_string},
    },
};

/// The state of a result that waits for its call.
const PARKED: &str = "parked";
/// The state of a result that its caller has acknowledged.
const ACKED: &str = "acked";
/// The state of a session in which nobody waits any more.
const CLOSED: &str = "closed";

/// The answer to a post whose result is stored with its call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Settled)]
pub(super) struct SettledView {
    #[schema(schema_with = call_state_schema)]
    pub(super) state: &'static str,
    /// `false` if the same result was posted before
    pub(super) first: bool,
    /// The digest of the result, by which a correction names it
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(super) digest: String,
}

/// The answer to a post whose result waits for its call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Parked)]
pub(super) struct ParkedView {
    #[schema(schema_with = parked_schema)]
    state: &'static str,
    /// The time until which the result waits, in seconds since 1970
    expires_at: u64,
}

impl ParkedView {
    /// Returns the answer for a result that waits until `expires_at`.
    pub(super) const fn until(expires_at: u64) -> Self {
        Self {
            state: PARKED,
            expires_at,
        }
    }
}

/// The answer to a heartbeat.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Extended)]
pub(super) struct ExtendedView {
    #[schema(schema_with = open_schema)]
    state: &'static str,
    /// The time until which the call waits, in seconds since 1970
    deadline: u64,
}

impl ExtendedView {
    /// Returns the answer for a call that waits until `deadline`.
    pub(super) const fn until(deadline: u64) -> Self {
        Self {
            state: RecordedCallState::Open.label(),
            deadline,
        }
    }
}

/// The answer to the withdrawal of a result: its call waits again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Withdrawn)]
pub(super) struct WithdrawnView {
    #[schema(schema_with = open_schema)]
    state: &'static str,
}

impl WithdrawnView {
    /// The only answer.
    pub(super) const OPEN: Self = Self {
        state: RecordedCallState::Open.label(),
    };
}

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Me)]
pub(super) struct CallerView {
    /// The public name of the caller, as in the header `x-antiphon-owner`
    #[schema(pattern = "^[0-9a-f]{32}$")]
    pub(super) owner: String,
    /// The number of results that wait for the caller
    pub(super) outstanding: usize,
}

/// The answer to an acknowledgement.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Acked)]
pub(super) struct AckedView {
    #[schema(schema_with = acked_schema)]
    state: &'static str,
}

impl AckedView {
    /// The only answer.
    pub(super) const ACKED: Self = Self { state: ACKED };
}

/// The answer to an acknowledgement of several results.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AckedResults)]
pub(super) struct AckedListView {
    /// The number of the named results that are the caller's, and acknowledged now
    pub(super) acknowledged: usize,
}

/// The answer to the close of a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Closed)]
pub(super) struct ClosedView {
    #[schema(schema_with = closed_schema)]
    state: &'static str,
}

impl ClosedView {
    /// The only answer, also for an unknown session.
    pub(super) const CLOSED: Self = Self { state: CLOSED };
}

/// A recorded call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Call)]
pub(super) struct RecordedCallView {
    /// The call id; in the answer to a lookup as the request wrote it
    call_id: String,
    /// The name of the tool
    tool: String,
    /// The name of the session; null if the client named none
    #[schema(required)]
    session: Option<String>,
    /// The id by which the result is acknowledged
    #[schema(pattern = "^[0-9a-f]{64}$")]
    delivery: String,
    #[schema(schema_with = call_state_schema)]
    state: &'static str,
}

impl RecordedCallView {
    /// Returns the view of a call, under the id that the reader knows.
    fn of_call(id: &[u8], name: &RecordName, call: &RecordedCall) -> Self {
        Self {
            call_id: String::from_utf8_lossy(id).into_owned(),
            tool: String::from_utf8_lossy(&call.tool).into_owned(),
            session: call.session_label.as_deref().map(str::to_owned),
            delivery: format_delivery_id(name),
            state: call.state.label(),
        }
    }
}

/// A call with a posted result, without the content.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PostedCall)]
pub(super) struct PostedCallView {
    #[serde(flatten)]
    call: RecordedCallView,
    /// The time of the post, in seconds since 1970
    posted_at: u64,
    /// Seconds since the post
    age: u64,
    /// `true` if the tool reported an error
    is_error: bool,
    /// The length of the content in bytes
    bytes: u64,
    /// `true` if a provider refused the result, so that no request contains it until its service corrects it
    withheld: bool,
    /// The digest of the result, by which a correction names it
    #[schema(pattern = "^[0-9a-f]{64}$")]
    digest: String,
}

impl PostedCallView {
    /// Returns the view of a call and its result, under the id that the reader knows.
    fn of_result(id: &[u8], name: &RecordName, call: &RecordedCall, posted: &PostedResult) -> Self {
        Self {
            call: RecordedCallView::of_call(id, name, call),
            posted_at: posted.posted_at.as_secs(),
            age: clock::unix_time().saturating_sub(posted.posted_at).as_secs(),
            is_error: posted.failed,
            bytes: posted.content.byte_len(),
            withheld: call.is_withheld,
            digest: blake3::Hash::from_bytes(posted.digest).to_hex().to_string(),
        }
    }
}

/// A call that still runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenCall)]
pub(super) struct RunningCallView {
    #[serde(flatten)]
    call: RecordedCallView,
    /// The time of the call, in seconds since 1970
    opened_at: u64,
    /// Seconds since the call
    age: u64,
    /// The time until which the call waits, in seconds since 1970
    deadline: u64,
}

/// A call of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ListedCall)]
pub(super) enum ListedCallView<'c> {
    Posted(ListedResultView<'c>),
    Open(RunningCallView),
}

/// A call of a list with a posted result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedResult)]
pub(super) struct ListedResultView<'c> {
    #[serde(flatten)]
    call: PostedCallView,
    /// The content: any JSON, in the bytes that were posted. Only with `content=true`, and missing beyond 8 MiB
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    content: Option<VerbatimJson<'c>>,
}

impl<'c> ListedCallView<'c> {
    /// Returns the view of a call, with what is known of its result.
    pub(super) fn of_call(name: &RecordName, call: &RecordedCall, content: Option<&'c str>) -> Self {
        match &call.posted {
            Some(posted) => Self::Posted(ListedResultView {
                call: PostedCallView::of_result(&call.id, name, call, posted),
                content: content.map(VerbatimJson::of_content),
            }),
            None => Self::Open(RunningCallView {
                call: RecordedCallView::of_call(&call.id, name, call),
                opened_at: call.opened_at.as_secs(),
                age: clock::unix_time().saturating_sub(call.opened_at).as_secs(),
                deadline: call.deadline.as_secs(),
            }),
        }
    }
}

/// A page of calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OutstandingPage)]
pub(super) struct CallListView<'c> {
    /// The calls: those with results in posting order, those that still run in the order of their recording
    pub(super) outstanding: Vec<ListedCallView<'c>>,
    /// The `after` of the next page; null on the last
    #[schema(required, pattern = "^[0-9]{1,20}$")]
    pub(super) next: Option<String>,
}

/// A posted result with its content.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FoundResult)]
pub(super) struct FoundResultView<'c> {
    #[serde(flatten)]
    call: PostedCallView,
    /// The content: any JSON, in the bytes that were posted
    #[schema(value_type = serde_json::Value)]
    content: VerbatimJson<'c>,
}

impl<'c> FoundResultView<'c> {
    /// Returns the view of a call with the content of its result. `None` if the call has no result.
    pub(super) fn of_result(id: &[u8], name: &RecordName, call: &RecordedCall, content: &'c str) -> Option<Self> {
        let posted = call.posted.as_ref()?;
        Some(Self {
            call: PostedCallView::of_result(id, name, call, posted),
            content: VerbatimJson::of_content(content),
        })
    }
}

/// The answer to a lookup.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LookupAnswer)]
pub(super) struct FoundListView<'c> {
    /// The posted results of those calls that have one, in the order of the request
    pub(super) results: Vec<FoundResultView<'c>>,
}

/// The data of the event `settled` in the feed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettledEvent)]
pub(super) struct SettledNotice<'e> {
    /// The call id
    pub(super) call_id: Cow<'e, str>,
    /// The name of the tool
    pub(super) tool: Cow<'e, str>,
    /// The id by which the result is acknowledged; also the id of the event
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(super) delivery: &'e str,
    /// `true` if the tool reported an error
    pub(super) is_error: bool,
}

/// Valid JSON that is written as it is. Only [`write_json`] can write it.
#[derive(Debug)]
pub(super) struct VerbatimJson<'c>(Cow<'c, str>);

impl<'c> VerbatimJson<'c> {
    /// Returns the content of a result. One that is nested too deep for common JSON readers becomes a JSON string.
    pub(super) fn of_content(content: &'c str) -> Self {
        Self(readable_content(content))
    }
}

impl Serialize for VerbatimJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

/// Returns a content as JSON. One that is nested too deep for common JSON readers becomes a JSON string.
fn readable_content(content: &str) -> Cow<'_, str> {
    if deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX).is_none() {
        return Cow::Borrowed(content);
    }
    // Such a content was posted by an earlier version, which did not limit the depth.
    Cow::Owned(quote_string(&compact_json(content.as_bytes())))
}

fn call_state_schema() -> Object {
    name_schema(
        "`open` until a result is posted, `settled` until the caller has it, `delivered` afterwards, `acked` once the \
         caller has confirmed it",
        RecordedCallState::ALL.map(RecordedCallState::label),
    )
}

fn open_schema() -> Object {
    name_schema("The call waits for its result", [RecordedCallState::Open.label()])
}

fn parked_schema() -> Object {
    name_schema("The result waits for its call", [PARKED])
}

fn acked_schema() -> Object {
    name_schema("The result no longer waits", [ACKED])
}

fn closed_schema() -> Object {
    name_schema("No client waits in the session", [CLOSED])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::write_json;

    #[test]
    fn content_is_written_in_its_own_bytes() {
        #[derive(Serialize)]
        struct Outer<'c> {
            #[serde(flatten)]
            inner: Inner<'c>,
        }
        #[derive(Serialize)]
        struct Inner<'c> {
            text: &'static str,
            content: VerbatimJson<'c>,
        }
        let inner = Inner {
            text: "\"",
            content: VerbatimJson(r#"{"a": "\u0041\ud800", "b":1.0e999}"#.into()),
        };
        let written = write_json(&Outer { inner });
        let wanted = r#"{"text":"\"","content":{"a": "\u0041\ud800", "b":1.0e999}}"#;
        assert_eq!(String::from_utf8(written).unwrap(), wanted);
    }
}
