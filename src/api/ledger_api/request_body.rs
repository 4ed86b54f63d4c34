//! Request bodies. Content is never parsed into values, so that its bytes stay as they were posted.

use std::time::Duration;

use utoipa::ToSchema;

use super::delivery_id::parse_delivery_id;
use crate::{
    api::Problem,
    auth::Owner,
    ledger::RecordName,
    repair::input_hash,
    splice::Span,
    wire::json::{Json, JsonKind, validate},
};

/// Call ids of one lookup.
const IDS_MAX: usize = 256;
/// The longest call id, in bytes.
pub(super) const ID_BYTES_MAX: usize = 1024;
/// The longest name of a program whose result is posted, in characters.
const SOURCE_CHARS_MAX: usize = 64;

/// The result of a call; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = PostedResult)]
#[expect(dead_code, reason = "`read_service_body` reads the bytes; this is their schema")]
pub(super) struct ResultBody {
    /// The result: any JSON, nested at most 64 levels deep
    #[schema(required)]
    content: serde_json::Value,
    /// `true` if the tool reported an error
    #[serde(default)]
    #[schema(default = false)]
    is_error: bool,
    /// The digest of the stored result that this one corrects
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    replaces: Option<String>,
    /// `true` if the result is restored in the place of its call if it is missing there, and never appended to a message.
    /// A correction is treated as the result that it corrects
    #[serde(default)]
    #[schema(default = false)]
    only_if_missing: bool,
    /// The program whose result it is, such as `mcp:toy`: ASCII without control characters. It is shown in the log and in
    /// the recent events of the dashboard, and not stored with the result
    #[schema(min_length = 1, max_length = 64, pattern = "^[ -~]+$")]
    source: Option<String>,
    #[serde(flatten)]
    named: NamedCallBody,
}

/// The members that name a call; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = NamedCall)]
#[expect(dead_code, reason = "`read_service_body` reads the bytes; this is their schema")]
pub(super) struct NamedCallBody {
    /// The call id of the path; a signed body must contain it
    #[schema(max_length = 1024)]
    call_id: Option<String>,
    /// The owner of the call: the header `x-antiphon-owner` of the answer that contained it
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    owner: Option<String>,
    /// The name of the call's session, which identifies a reusable id together with `owner`
    session: Option<String>,
    /// The name of the tool, which identifies a reusable id together with `owner` and `input`
    tool: Option<String>,
    /// The input of the call: any JSON
    input: Option<serde_json::Value>,
}

/// The report of a cancel; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = Cancel)]
#[expect(dead_code, reason = "`read_service_body` reads the bytes; this is their schema")]
pub(super) struct CancelBody {
    /// `true` if the effect will not be undone, and the tool goes on
    #[serde(default)]
    #[schema(default = false)]
    refused: bool,
    #[serde(flatten)]
    named: NamedCallBody,
}

/// The calls of a lookup; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = Lookup)]
#[expect(dead_code, reason = "`read_call_ids` reads the bytes; this is their schema")]
pub(super) struct LookupBody {
    /// The call ids, each at most 1024 bytes long
    #[schema(min_items = 1, max_items = 256)]
    call_ids: Vec<String>,
}

/// The results of an acknowledgement; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = Acks)]
#[expect(dead_code, reason = "`read_deliveries` reads the bytes; this is their schema")]
pub(super) struct AcksBody {
    /// The `delivery` of each result
    #[schema(min_items = 1, max_items = 256, pattern = "^[0-9a-f]{64}$")]
    deliveries: Vec<String>,
}

/// The body of a service's request.
#[derive(Debug, Default)]
pub(super) struct ServiceBody {
    /// The call id. `None` if the body does not contain it.
    pub(super) call_id: Option<Vec<u8>>,
    /// The owner of the call. `None` if the body does not contain it.
    pub(super) owner: Option<Owner>,
    /// The name of the call's session. `None` if the body does not contain it.
    pub(super) session: Option<Vec<u8>>,
    /// The name of the tool. `None` if the body does not contain it.
    pub(super) tool: Option<Vec<u8>>,
    /// The hash of the canonical input. `None` if the body does not contain it.
    pub(super) input: Option<[u8; 32]>,
    /// The digest of the stored result that this one corrects. `None` if the body does not contain it.
    pub(super) replaces: Option<[u8; 32]>,
    /// The content as JSON, in the bytes of the body.
    pub(super) content: Option<String>,
    /// `true` if the tool reported an error.
    pub(super) is_error: bool,
    /// `true` if the effect will not be undone.
    pub(super) is_refused: bool,
    /// `true` if the result is never appended.
    pub(super) only_if_missing: bool,
    /// The program whose result it is. `None` if the body does not contain it.
    pub(super) source: Option<String>,
}

/// Reads the body of a result or a heartbeat. It may be empty.
pub(super) fn read_service_body(body: &[u8]) -> Result<ServiceBody, Problem> {
    let mut said = ServiceBody::default();
    if body.trim_ascii().is_empty() {
        return Ok(said);
    }
    let json = read_object(body)?;
    let mut flaw = None;
    let mut members = Vec::new();
    let root = json.root_span().map_err(|_| Problem::malformed(OBJECT))?;
    json.for_each_member(root, |name, value| members.push((name.to_vec(), value)))
        .map_err(|_| Problem::malformed(OBJECT))?;
    for (name, span) in members {
        match (&name[..], json.kind(span)) {
            (b"owner" | b"call_id" | b"session" | b"tool" | b"replaces" | b"source", JsonKind::Null) => {}
            (b"session", JsonKind::String) => said.session = Some(json.decode_string(span).to_vec()),
            (b"tool", JsonKind::String) => said.tool = Some(json.decode_string(span).to_vec()),
            (b"replaces", JsonKind::String) => {
                let digest = blake3::Hash::from_hex(&*json.decode_string(span));
                if digest.is_err() {
                    flaw = Some("replaces must be the digest of the stored result: 64 hexadecimal digits");
                }
                said.replaces = digest.ok().map(|digest| *digest.as_bytes());
            }
            (b"input", _) => said.input = Some(input_hash(json.bytes(span))),
            (b"call_id", JsonKind::String) => said.call_id = Some(json.decode_string(span).to_vec()),
            (b"owner", JsonKind::String) => {
                let owner = std::str::from_utf8(&json.decode_string(span))
                    .ok()
                    .and_then(|text| text.parse().ok());
                if owner.is_none() {
                    flaw = Some("owner must be a value of the response header x-antiphon-owner");
                }
                said.owner = owner;
            }
            (b"source", JsonKind::String) => {
                said.source = read_source(&json.decode_string(span));
                if said.source.is_none() {
                    flaw = Some("source must have 1 to 64 characters of ASCII, without control characters");
                }
            }
            (b"is_error", _) if json.bytes(span) == b"true" => said.is_error = true,
            (b"is_error", _) if json.bytes(span) == b"false" => said.is_error = false,
            (b"only_if_missing", _) if json.bytes(span) == b"true" => said.only_if_missing = true,
            (b"only_if_missing", _) if json.bytes(span) == b"false" => said.only_if_missing = false,
            (b"refused", _) if json.bytes(span) == b"true" => said.is_refused = true,
            (b"refused", _) if json.bytes(span) == b"false" => said.is_refused = false,
            // Copied as bytes: parsing and writing it would change numbers and escapes.
            (b"content", _) => said.content = std::str::from_utf8(json.bytes(span)).ok().map(str::to_owned),
            (
                b"owner" | b"call_id" | b"session" | b"tool" | b"replaces" | b"source" | b"is_error" | b"refused"
                | b"only_if_missing",
                _,
            ) => {
                flaw = Some(
                    "owner, call_id, session, tool, replaces and source must be strings, is_error, refused and \
                     only_if_missing true or false",
                );
            }
            // Unknown members are ignored, so that services may send more than this version reads.
            _ => {}
        }
    }
    flaw.map_or(Ok(said), |flaw| Err(Problem::malformed(flaw)))
}

/// Reads the name of the program whose result was posted. `None` if it is too long, empty or not printable.
fn read_source(text: &[u8]) -> Option<String> {
    let is_printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let is_good = is_printable && (1..=SOURCE_CHARS_MAX).contains(&text.len());
    is_good.then(|| String::from_utf8_lossy(text).into_owned())
}

/// Reads the call ids of a lookup.
pub(super) fn read_call_ids(body: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
    const IDS: &str = "call_ids must be an array of 1 to 256 strings, each at most 1024 bytes long";
    read_ids(body, "call_ids", IDS)
}

/// Reads the delivery ids of an acknowledgement.
pub(super) fn read_deliveries(body: &[u8]) -> Result<Vec<RecordName>, Problem> {
    const DELIVERIES: &str = "deliveries must be an array of 1 to 256 delivery ids";
    let ids = read_ids(body, "deliveries", DELIVERIES)?;
    let names = ids
        .iter()
        .map(|id| parse_delivery_id(id).ok_or_else(|| Problem::malformed(DELIVERIES)));
    names.collect()
}

fn read_ids(body: &[u8], member: &str, flaw: &'static str) -> Result<Vec<Vec<u8>>, Problem> {
    let json = read_object(body)?;
    let list = json.root_span().ok().and_then(|root| json.member(root, member));
    let list = list.filter(|list| json.kind(*list) == JsonKind::Array);
    let list = list.ok_or_else(|| Problem::malformed(flaw))?;
    let mut ids = Vec::new();
    let mut is_good = true;
    // Once one element is wrong nothing more is copied: the body may be 64 KiB of tiny strings.
    let walked = json.for_each_element(list, |id| {
        is_good &= json.kind(id) == JsonKind::String && ids.len() < IDS_MAX;
        if is_good {
            let id = json.decode_string(id);
            // The decoded bytes count, as in a path: quotes and escapes are no part of an id.
            is_good = id.len() <= ID_BYTES_MAX;
            ids.push(id.to_vec());
        }
    });
    if walked.is_err() || !is_good || ids.is_empty() {
        return Err(Problem::malformed(flaw));
    }
    Ok(ids)
}

pub(super) const OBJECT: &str = "the body must be one JSON object";

/// Validates a body as one JSON object.
pub(super) fn read_object(body: &[u8]) -> Result<Json<'_>, Problem> {
    // The scanner below expects valid JSON.
    validate(body).map_err(|_| Problem::malformed(OBJECT))?;
    let json = Json::new(body);
    let is_object = json.root_span().is_ok_and(|root| json.kind(root) == JsonKind::Object);
    is_object.then_some(json).ok_or_else(|| Problem::malformed(OBJECT))
}

/// Reads a string of at most `bytes_max` bytes, but not an empty one.
pub(super) fn read_text(json: &Json<'_>, span: Span, bytes_max: usize, flaw: &'static str) -> Result<Vec<u8>, Problem> {
    let text = (json.kind(span) == JsonKind::String).then(|| json.decode_string(span).to_vec());
    let text = text.filter(|text| (1..=bytes_max).contains(&text.len()));
    text.ok_or_else(|| Problem::malformed(flaw))
}

/// Reads a duration.
pub(super) fn read_duration(
    json: &Json<'_>,
    span: Span,
    (min, max): (Duration, Duration),
    flaw: &'static str,
) -> Result<Duration, Problem> {
    let text = read_text(json, span, ID_BYTES_MAX, flaw)?;
    let duration = std::str::from_utf8(&text).ok().and_then(parse_duration);
    duration
        .filter(|duration| (min..=max).contains(duration))
        .ok_or_else(|| Problem::malformed(flaw))
}

/// Parses a duration of one number and one unit: `90s`, `15m`, `24h` or `7d`.
fn parse_duration(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    let is_one_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // The library also reads other units, fractions and sums.
    let is_plain = is_one_number && matches!(unit, 's' | 'm' | 'h' | 'd');
    humantime::parse_duration(text).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use utoipa::{PartialSchema, openapi::RefOr};

    use super::*;

    /// Returns the members of a documented body, with the types of each. No types mean any JSON.
    fn documented_members<T: PartialSchema>() -> Vec<(String, Vec<String>)> {
        let RefOr::T(schema) = T::schema() else {
            panic!("the schema is a reference");
        };
        let schema = serde_json::to_value(schema).unwrap();
        let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema]);
        let members = parts.iter().filter_map(|part| part["properties"].as_object()).flatten();
        let types = |schema: &Value| match &schema["type"] {
            Value::Array(types) => types.iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
            Value::String(name) => vec![name.clone()],
            _ => Vec::new(),
        };
        members.map(|(name, schema)| (name.clone(), types(schema))).collect()
    }

    #[test]
    fn members_have_the_documented_types() {
        let samples = [
            ("null", json!(null)),
            ("boolean", json!(true)),
            ("number", json!(7)),
            ("string", json!("0123456789abcdef0123456789abcdef")),
            ("array", json!([])),
            ("object", json!({})),
        ];
        let mut members = documented_members::<NamedCallBody>();
        members.extend(documented_members::<ResultBody>());
        members.extend(documented_members::<CancelBody>());
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        let read = [
            "call_id",
            "owner",
            "session",
            "tool",
            "input",
            "content",
            "is_error",
            "replaces",
            "refused",
            "only_if_missing",
            "source",
        ];
        assert_eq!(names.len(), read.len(), "{names:?}");
        assert!(read.iter().all(|name| names.contains(name)), "{names:?}");
        for (name, types) in members {
            for (kind, sample) in &samples {
                let sample = if name == "replaces" && *kind == "string" {
                    json!("a".repeat(64))
                } else {
                    sample.clone()
                };
                let is_documented = types.is_empty() || types.iter().any(|one| one == kind);
                let is_read = read_service_body(json!({ &name: sample }).to_string().as_bytes()).is_ok();
                assert_eq!(is_read, is_documented, "{name}: {sample}");
            }
        }
    }

    #[test]
    fn ids_of_a_lookup_are_as_long_as_those_of_paths() {
        let read = |id: &str| read_call_ids(json!({ "call_ids": [id] }).to_string().as_bytes());
        let longest = "\u{1}".repeat(ID_BYTES_MAX);
        assert_eq!(read(&longest).unwrap(), [longest.as_bytes()]);
        assert!(read(&"a".repeat(ID_BYTES_MAX + 1)).is_err());
    }
}
