//! Bodies and headers of requests about intents. Inputs and results are never parsed into values here.

use std::{borrow::Cow, time::Duration};

use http::HeaderMap;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Object, ObjectBuilder, Ref, RefOr, Schema, Type,
        schema::{AnyOfBuilder, SchemaType},
    },
};

use super::request_body::{ID_BYTES_MAX, OBJECT, read_duration, read_object, read_text};
use crate::{
    api::Problem,
    auth::{Owner, principal::USER_BYTES_MAX},
    late::{CHOSEN_KEY_BYTES_MAX, INTENT_WINDOW_MAX},
    repair::Tier,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The header with a key that the service has chosen.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header by which the user asks for the effect once more.
pub const REPEAT_HEADER: &str = "x-antiphon-intent";
/// The only value of [`REPEAT_HEADER`].
pub const REPEAT: &str = "new";
/// The members of a claim.
const CLAIM_MEMBERS: [&str; 10] = [
    "call_id",
    "owner",
    "session",
    "user",
    "tool",
    "input",
    "tier",
    "window",
    "lease",
    "retry_failed",
];
/// The longest unknown member whose name is repeated, in bytes.
const SHOWN_NAME_MAX: usize = 64;
/// The shortest and the longest lease.
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));

/// A claim, of a recorded call, on behalf of a user of the service, or of a caller for itself; unknown members are
/// refused. The credential decides which of them a request may be.
pub(super) struct ClaimBody;

impl PartialSchema for ClaimBody {
    fn schema() -> RefOr<Schema> {
        // A body may match several, which the derived `oneOf` forbids.
        AnyOfBuilder::new()
            .item(Ref::from_schema_name(CallClaimBody::name()))
            .item(Ref::from_schema_name(OnBehalfClaimBody::name()))
            .item(Ref::from_schema_name(OwnClaimBody::name()))
            .description(Some(
                "A service claims a recorded call, or on behalf of a user; a caller claims for itself.",
            ))
            .into()
    }
}

impl ToSchema for ClaimBody {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Claim")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend([
            (CallClaimBody::name().into_owned(), CallClaimBody::schema()),
            (OnBehalfClaimBody::name().into_owned(), OnBehalfClaimBody::schema()),
            (OwnClaimBody::name().into_owned(), OwnClaimBody::schema()),
        ]);
    }
}

/// A claim of a recorded call.
#[derive(ToSchema)]
#[schema(as = CallClaim)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "`read_claim_body` reads the bytes; this is their schema")]
pub(super) struct CallClaimBody {
    /// The id of the recorded call
    #[schema(min_length = 1, max_length = 1024)]
    call_id: String,
    /// The owner of the call: the header `x-antiphon-owner` of the answer that contained it
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    owner: Option<String>,
    /// The name of the call's session, which identifies a reusable id together with `owner`
    #[schema(min_length = 1, max_length = 1024)]
    session: Option<String>,
    /// The tool, which identifies a reusable id together with `input`
    #[schema(min_length = 1, max_length = 1024)]
    tool: Option<String>,
    /// The input of the tool: any JSON. It must be that of the recorded call
    input: Option<serde_json::Value>,
    #[schema(schema_with = tier_schema)]
    tier: Option<String>,
    #[schema(schema_with = window_schema)]
    window: Option<String>,
    #[schema(schema_with = lease_schema)]
    lease: Option<String>,
    /// `true` to repeat a run that failed although its effect cannot be undone
    #[serde(default)]
    #[schema(default = false)]
    retry_failed: bool,
}

/// A claim on behalf of a user of the service, which needs `services.NAME.on_behalf`.
#[derive(ToSchema)]
#[schema(as = OnBehalfClaim)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "`read_claim_body` reads the bytes; this is their schema")]
pub(super) struct OnBehalfClaimBody {
    /// The user, within the service
    #[schema(min_length = 1, max_length = 256)]
    user: String,
    /// The tool
    #[schema(min_length = 1, max_length = 1024)]
    tool: String,
    /// The input of the tool: any JSON
    #[schema(required)]
    input: serde_json::Value,
    #[schema(schema_with = tier_schema)]
    tier: Option<String>,
    #[schema(schema_with = window_schema)]
    window: Option<String>,
    #[schema(schema_with = lease_schema)]
    lease: Option<String>,
    /// `true` to repeat a run that failed although its effect cannot be undone
    #[serde(default)]
    #[schema(default = false)]
    retry_failed: bool,
}

/// A claim of a caller that runs the tool itself.
#[derive(ToSchema)]
#[schema(as = OwnClaim)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "`read_claim_body` reads the bytes; this is their schema")]
pub(super) struct OwnClaimBody {
    /// The tool
    #[schema(min_length = 1, max_length = 1024)]
    tool: String,
    /// The input of the tool: any JSON
    #[schema(required)]
    input: serde_json::Value,
    #[schema(schema_with = tier_schema)]
    tier: Option<String>,
    #[schema(schema_with = window_schema)]
    window: Option<String>,
    #[schema(schema_with = lease_schema)]
    lease: Option<String>,
    /// `true` to repeat a run that failed although its effect cannot be undone
    #[serde(default)]
    #[schema(default = false)]
    retry_failed: bool,
}

/// Returns the type of an optional text. `null` is the same as an absent member, as in all bodies of this API.
fn optional_text() -> SchemaType {
    SchemaType::from_iter([Type::String, Type::Null])
}

fn tier_schema() -> Object {
    let tiers = Tier::ALL.map(|tier| Some(tier.label()));
    ObjectBuilder::new()
        .schema_type(optional_text())
        .description(Some(
            "The least tier, of `read`, `revertible`, `durable` and `one_way`. It can only make that of the tool stricter",
        ))
        .enum_values(Some(tiers.into_iter().chain([None])))
        .build()
}

fn window_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(optional_text())
        .description(Some("The least window, at most 30 days. It can only lengthen that of the tool"))
        .pattern(Some(
            "^([0-9]{1,6}s|1[0-9]{6}s|2[0-4][0-9]{5}s|25[0-8][0-9]{4}s|259[01][0-9]{3}s|2592000s|[0-9]{1,4}m|[1-3][0-9]{4}m|\
             4[0-2][0-9]{3}m|43[01][0-9]{2}m|43200m|[0-9]{1,2}h|[1-6][0-9]{2}h|7[01][0-9]h|720h|[12]?[0-9]d|30d)$",
        ))
        .examples(["24h"])
        .build()
}

fn lease_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(optional_text())
        .description(Some(
            "The time after which the holder counts as gone, unless it sends a heartbeat. From 1 second to 24 hours; by \
             default the tool's `max_duration`, or 10 minutes",
        ))
        .pattern(Some(
            "^([1-9][0-9]{0,3}s|[1-7][0-9]{4}s|8[0-5][0-9]{3}s|86[0-3][0-9]{2}s|86400s|[1-9][0-9]{0,2}m|1[0-3][0-9]{2}m|\
             14[0-3][0-9]m|1440m|([1-9]|1[0-9]|2[0-4])h|1d)$",
        ))
        .examples(["10m"])
        .build()
}

/// The claim of a holder; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = HeldClaim)]
#[expect(dead_code, reason = "`read_holder_body` reads the bytes; this is their schema")]
pub(super) struct HolderBody {
    /// The `claim` of the answer that granted it
    #[schema(min_length = 1, max_length = 1024)]
    claim: String,
}

/// The result of a run; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = IntentResult)]
#[expect(dead_code, reason = "`read_holder_body` reads the bytes; this is their schema")]
pub(super) struct HeldResultBody {
    /// The `claim` of the answer that granted it
    #[schema(min_length = 1, max_length = 1024)]
    claim: String,
    /// The result: any JSON, nested at most 64 levels deep
    #[schema(required)]
    content: serde_json::Value,
    /// `true` if the tool reported an error
    #[serde(default)]
    #[schema(default = false)]
    is_error: bool,
}

/// A cancel; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = HeldCancel)]
#[expect(dead_code, reason = "`read_holder_body` reads the bytes; this is their schema")]
pub(super) struct HeldCancelBody {
    /// The `claim` of the answer that granted it
    #[schema(min_length = 1, max_length = 1024)]
    claim: String,
    /// `true` if the effect will not be undone, and the tool goes on
    #[serde(default)]
    #[schema(default = false)]
    refused: bool,
}

/// The content of a claim.
#[derive(Debug, Default)]
pub(super) struct ReadClaim {
    pub(super) call_id: Option<Vec<u8>>,
    pub(super) owner: Option<Owner>,
    pub(super) session: Option<Vec<u8>>,
    pub(super) user: Option<Vec<u8>>,
    pub(super) tool: Option<Vec<u8>>,
    /// The input, in the bytes of the body.
    pub(super) input: Option<Vec<u8>>,
    pub(super) tier: Option<Tier>,
    pub(super) window: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) retry_failed: bool,
}

impl ReadClaim {
    /// Returns `true` if the claim names what only a recorded call has.
    pub(super) const fn names_conversation(&self) -> bool {
        self.owner.is_some() || self.session.is_some()
    }
}

/// Reads the body of a claim.
pub(super) fn read_claim_body(body: &[u8]) -> Result<ReadClaim, Problem> {
    let json = read_object(body)?;
    let mut claim = ReadClaim::default();
    for (name, span) in members_of(&json)? {
        let is_null = json.kind(span) == JsonKind::Null;
        match &name[..] {
            b"input" => claim.input = Some(json.bytes(span).to_vec()),
            b"retry_failed" => claim.retry_failed = read_flag(&json, span, "retry_failed must be true or false")?,
            _ if is_null && CLAIM_MEMBERS.iter().any(|member| member.as_bytes() == name) => {}
            b"call_id" => {
                claim.call_id = Some(read_text(
                    &json,
                    span,
                    ID_BYTES_MAX,
                    "call_id must be a string of 1 to 1024 bytes",
                )?);
            }
            b"owner" => {
                const OWNER: &str = "owner must be a value of the response header x-antiphon-owner";
                let text = read_text(&json, span, ID_BYTES_MAX, OWNER)?;
                let owner = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                claim.owner = Some(owner.ok_or_else(|| Problem::malformed(OWNER))?);
            }
            b"session" => {
                const SESSION: &str = "session must be a string of 1 to 1024 bytes";
                claim.session = Some(read_text(&json, span, ID_BYTES_MAX, SESSION)?);
            }
            b"user" => {
                const USER: &str = "user must be a string of 1 to 256 bytes";
                claim.user = Some(read_text(&json, span, USER_BYTES_MAX, USER)?);
            }
            b"tool" => {
                const TOOL: &str = "tool must be a string of 1 to 1024 bytes";
                claim.tool = Some(read_text(&json, span, ID_BYTES_MAX, TOOL)?);
            }
            b"tier" => {
                const TIER: &str = "tier must be \"read\", \"revertible\", \"durable\" or \"one_way\"";
                let text = read_text(&json, span, ID_BYTES_MAX, TIER)?;
                let tier = Tier::ALL.into_iter().find(|tier| tier.label().as_bytes() == text);
                claim.tier = Some(tier.ok_or_else(|| Problem::malformed(TIER))?);
            }
            b"window" => {
                const WINDOW: &str = "window must be a duration of at most 30 days, such as \"24h\"";
                claim.window = Some(read_duration(&json, span, (Duration::ZERO, INTENT_WINDOW_MAX), WINDOW)?);
            }
            b"lease" => {
                const LEASE: &str = "lease must be a duration from \"1s\" to \"24h\"";
                claim.lease = Some(read_duration(&json, span, LEASE_BOUNDS, LEASE)?);
            }
            // What this version does not know could be a protection that the holder counts on.
            _ => return Err(unknown_member(&name)),
        }
    }
    Ok(claim)
}

/// Returns the refusal of a claim with a member that it cannot have. Only a short name is repeated.
fn unknown_member(name: &[u8]) -> Problem {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let shown = std::str::from_utf8(name).ok();
    let shown =
        shown.filter(|name| (1..=SHOWN_NAME_MAX).contains(&name.len()) && name.bytes().all(|byte| is_name(&byte)));
    let shown = shown.map_or_else(String::new, |name| format!(" `{name}`"));
    Problem::malformed(format!(
        "a claim has no member{shown}; its members are {}",
        CLAIM_MEMBERS.join(", ")
    ))
}

/// The body of a holder's request.
#[derive(Debug, Default)]
pub(super) struct ReadReport {
    pub(super) claim: Vec<u8>,
    /// The content as JSON, in the bytes of the body.
    pub(super) content: Option<String>,
    pub(super) is_error: bool,
    pub(super) is_refused: bool,
}

/// Reads the body of a heartbeat, a result or a cancel.
pub(super) fn read_holder_body(body: &[u8]) -> Result<ReadReport, Problem> {
    const CLAIM: &str = "claim must be the string in the answer that granted the intent";
    let json = read_object(body)?;
    let mut report = ReadReport::default();
    for (name, span) in members_of(&json)? {
        match &name[..] {
            b"claim" => report.claim = read_text(&json, span, ID_BYTES_MAX, CLAIM)?,
            // Copied as bytes: parsing and writing it would change numbers and escapes.
            b"content" => report.content = std::str::from_utf8(json.bytes(span)).ok().map(str::to_owned),
            b"is_error" => report.is_error = read_flag(&json, span, "is_error must be true or false")?,
            b"refused" => report.is_refused = read_flag(&json, span, "refused must be true or false")?,
            _ => {}
        }
    }
    if report.claim.is_empty() {
        return Err(Problem::malformed(CLAIM));
    }
    Ok(report)
}

/// Reads the key that a service has chosen, from `Idempotency-Key`: as it is, or as a quoted string.
pub(super) fn read_chosen_key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    const KEY: &str = "Idempotency-Key must be one value of 1 to 255 printable ASCII characters";
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.as_bytes().trim_ascii();
    let quoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let key = quoted.unwrap_or(text);
    let is_printable = key.iter().all(|byte| (0x20..0x7f).contains(byte));
    if values.next().is_some() || key.is_empty() || key.len() > CHOSEN_KEY_BYTES_MAX || !is_printable {
        return Err(Problem::malformed(KEY));
    }
    Ok(Some(key.to_vec()))
}

/// Returns `true` if the user asks for the effect once more.
pub(super) fn read_repeat(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut values = headers.get_all(REPEAT_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(false),
        (Some(value), None) if value.as_bytes().trim_ascii() == REPEAT.as_bytes() => Ok(true),
        _ => Err(Problem::malformed("x-antiphon-intent must be \"new\", or absent")),
    }
}

fn members_of(json: &Json<'_>) -> Result<Vec<(Vec<u8>, Span)>, Problem> {
    let mut members = Vec::new();
    let root = json.root_span().map_err(|_| Problem::malformed(OBJECT))?;
    json.for_each_member(root, |name, value| members.push((name.to_vec(), value)))
        .map_err(|_| Problem::malformed(OBJECT))?;
    Ok(members)
}

fn read_flag(json: &Json<'_>, span: Span, flaw: &'static str) -> Result<bool, Problem> {
    match json.bytes(span) {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Problem::malformed(flaw)),
    }
}

#[cfg(test)]
mod tests {
    use super::read_claim_body;

    #[test]
    fn null_is_an_absent_text_and_no_flag() {
        let texts = [
            r#"{"window": null}"#,
            r#"{"lease": null}"#,
            r#"{"owner": null}"#,
            r#"{"session": null}"#,
            r#"{"tier": null}"#,
        ];
        for body in texts {
            assert!(read_claim_body(body.as_bytes()).is_ok(), "{body}");
        }
        assert!(read_claim_body(br#"{"retry_failed": null}"#).is_err());
    }

    #[test]
    fn an_unknown_member_is_named_if_it_is_a_short_name() {
        for (body, wanted) in [
            (
                r#"{"tool": "a", "teir": "one_way"}"#,
                "no member `teir`; its members are call_id, owner",
            ),
            (r#"{"ttl": null}"#, "no member `ttl`;"),
            (r#"{"a b": 1}"#, "no member; its members"),
            (r#"{"": 1}"#, "no member; its members"),
        ] {
            let detail = format!("{:?}", read_claim_body(body.as_bytes()).unwrap_err());
            assert!(detail.contains(wanted), "{body}: {detail}");
        }
        let long = format!("{{\"{}\": 1}}", "x".repeat(65));
        let detail = format!("{:?}", read_claim_body(long.as_bytes()).unwrap_err());
        assert!(detail.contains("no member;"), "{detail}");
        assert!(read_claim_body(br#"{"tier": "harmless"}"#).is_err());
    }
}
