//! Ids in a request body: the string values of members that name objects, wherever they stand.
//!
//! The bytes are searched for the names, and only the values after them are read. In valid JSON a name between
//! unescaped quotes with a colon after it can only be a member: a quote inside a string is escaped.

use memchr::memmem;

use super::{ObjectId, in_path::id_in_name};
use crate::wire::{
    Format,
    json::{Json, JsonKind},
};

/// The most members that are read in one body.
const MEMBERS_MAX: usize = 1024;
/// The most ids of one body.
const IDS_MAX: usize = 64;
/// Bytes after a name that are read: the work for a body is bounded, however its values are nested.
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Members whose values are ids, lists of ids, or objects with an `id`.
const MEMBERS: [&str; 29] = [
    "assistant_id",
    "batch_id",
    "cachedContent",
    "cached_content",
    "container",
    "container_id",
    "conversation",
    "conversation_id",
    "environment_id",
    "fileName",
    "fileSearchStoreNames",
    "fileUri",
    "file_id",
    "file_ids",
    "file_name",
    "file_search_store_names",
    "file_uri",
    "input_file_id",
    "previous_interaction_id",
    "previous_response_id",
    "response_id",
    "session_id",
    "skill_id",
    "thread_id",
    "training_file",
    "validation_file",
    "vector_store_id",
    "vector_store_ids",
    "video_id",
];

/// Beginnings of the members that bodies of a format may have, each with its quote. One search for each.
const fn openings(format: Option<Format>) -> &'static [&'static [u8]] {
    match format {
        Some(Format::Anthropic) => &[b"\"file_id\"", b"\"container\""],
        Some(Format::OpenAiChat) => &[b"\"file_id\""],
        Some(Format::OpenAiResponses) => &[
            b"\"file_id",
            b"\"vector_store_id",
            b"\"container",
            b"\"conversation\"",
            b"\"previous_response_id\"",
        ],
        Some(Format::Gemini) => &[b"\"file", b"\"cached"],
        // Bodies of other paths are short: every quote is looked at.
        None => &[b"\""],
    }
}

/// Returns the ids that a body names, each once, in order.
pub(super) fn ids_in_body(body: &[u8], format: Option<Format>) -> Vec<ObjectId> {
    let mut members: Vec<usize> = Vec::new();
    for opening in openings(format) {
        let found = memmem::find_iter(body, opening).filter(|at| value_start(body, *at).is_some());
        members.extend(found.take(MEMBERS_MAX));
    }
    members.sort_unstable();
    members.truncate(MEMBERS_MAX);
    let mut ids: Vec<ObjectId> = Vec::new();
    for value in members.into_iter().filter_map(|at| value_start(body, at)) {
        if ids.len() >= IDS_MAX {
            break;
        }
        read_value(body, value, &mut ids);
    }
    ids.truncate(IDS_MAX);
    ids
}

/// Returns the start of the value of a known member whose opening quote is at `at`.
fn value_start(body: &[u8], at: usize) -> Option<usize> {
    let is_escaped = at.checked_sub(1).and_then(|before| body.get(before)) == Some(&b'\\');
    let inside = at.saturating_add(1);
    let rest = body.get(inside..).filter(|_| !is_escaped)?;
    // The longest name is far shorter.
    let name_end = rest.iter().take(40).position(|byte| *byte == b'"')?;
    let name = std::str::from_utf8(rest.get(..name_end)?).ok()?;
    MEMBERS.binary_search(&name).ok()?;
    let after = inside.saturating_add(name_end).saturating_add(1);
    let colon = skip_space(body, after)?;
    (body.get(colon) == Some(&b':')).then(|| skip_space(body, colon.saturating_add(1)))?
}

/// Returns the place of the next byte that is no white space.
fn skip_space(body: &[u8], at: usize) -> Option<usize> {
    let offset = body.get(at..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
    Some(at.saturating_add(offset))
}

/// Adds the ids in the value at `at`: a string, a list of strings, or an object with an `id`.
fn read_value(body: &[u8], at: usize, ids: &mut Vec<ObjectId>) {
    let end = at.saturating_add(VALUE_BYTES_MAX).min(body.len());
    let json = Json::new(body.get(at..end).unwrap_or_default());
    let Ok(root) = json.root_span() else { return };
    let mut add = |span| {
        let text = json.decode_string(span);
        if let Some(id) = id_in_name(&text).filter(|id| !ids.iter().any(|known| **known == **id)) {
            ids.push(id.into());
        }
    };
    match json.kind(root) {
        JsonKind::String => add(root),
        JsonKind::Array => json.elements(root).into_iter().take(IDS_MAX).for_each(add),
        JsonKind::Object => json.string_member(root, "id").into_iter().for_each(add),
        JsonKind::Null | JsonKind::Other => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(body: &str, format: Option<Format>) -> Vec<String> {
        let ids = ids_in_body(body.as_bytes(), format);
        ids.iter().map(|id| String::from_utf8_lossy(id).into_owned()).collect()
    }

    #[test]
    fn the_names_are_sorted() {
        assert!(MEMBERS.is_sorted());
    }

    #[test]
    fn ids_are_read_where_the_formats_have_them() {
        use Format::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
        for (format, body, expected) in [
            (
                Some(Anthropic),
                r#"{"container":{"id":"container_1","skills":[]},"messages":[{"content":[{"source":{"type":"file","file_id":"file_1"}}]}]}"#,
                &["container_1", "file_1"][..],
            ),
            (Some(Anthropic), r#"{"container" : "container_1"}"#, &["container_1"]),
            (
                Some(OpenAiChat),
                r#"{"messages":[{"content":[{"file":{"file_id":"file-1"}}]}]}"#,
                &["file-1"],
            ),
            (
                Some(OpenAiResponses),
                r#"{"conversation":{"id":"conv_1"},"previous_response_id":"resp_1","tools":[{"vector_store_ids":["vs_1","vs_2"]},{"container":{"type":"auto","file_ids":["file-2"]}},{"container":"cntr_1"}],"input":[{"file_id":"file-1"},{"file_id":"file-1"}]}"#,
                &["conv_1", "resp_1", "vs_1", "vs_2", "file-2", "cntr_1", "file-1"],
            ),
            (
                Some(Gemini),
                r#"{"cachedContent":"cachedContents/c1","contents":[{"parts":[{"fileData":{"fileUri":"https://x/v1beta/files/f1"}},{"file_data":{"file_uri":"gs://bucket/f2"}}]}]}"#,
                &["c1", "f1"],
            ),
            (
                None,
                "{\n  \"input_file_id\" :\n \"file-1\", \"training_file\":\"file-2\", \"thread_id\":null}",
                &["file-1", "file-2"],
            ),
        ] {
            assert_eq!(ids(body, format), expected, "{body}");
        }
    }

    #[test]
    fn text_that_looks_like_a_member_is_none() {
        for body in [
            r#"{"text":"{\"file_id\":\"file-1\"}"}"#,
            r#"{"list":["file_id","file-1"]}"#,
            r#"{"foo\"file_id":"file-1"}"#,
            r#"{"file_id":7,"file_ids":[7,{"a":"b"}]}"#,
            r#"{"file_identity":"file-1"}"#,
            r#"{"file_id""#,
            r#"{"file_id":"#,
            r#"{"file_id":"file-1"#,
        ] {
            assert_eq!(ids(body, Some(Format::OpenAiResponses)), Vec::<String>::new(), "{body}");
            assert_eq!(ids(body, None), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn the_work_for_a_body_is_bounded() {
        let nested = r#"{"container":"#.repeat(50_000);
        assert_eq!(ids(&nested, None), Vec::<String>::new());
        let many: Vec<String> = (0..5000)
            .map(|number| format!(r#""file_id":"file-{number}","#))
            .collect();
        let many = many.concat();
        assert_eq!(ids(&many, Some(Format::OpenAiChat)).len(), IDS_MAX);
    }
}
