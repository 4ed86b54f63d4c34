//! Blocks of the Model Context Protocol that no format has, as text: audio, embedded resources and links to resources.

use std::borrow::Cow;

use super::blocks::read_image_block;
use crate::{
    splice::Span,
    wire::json::{Json, JsonKind, quote_string},
};

/// Members of a whole result of a tool.
const RESULT_MEMBERS: [&[u8]; 4] = [b"content", b"structuredContent", b"isError", b"_meta"];

/// Returns a posted content with text in the place of each block that no format has. Other blocks, and contents without
/// such a block, stay in their bytes.
///
/// A whole result of the protocol stands for its list of blocks, and for its structured content if that list is empty.
pub(crate) fn readable_blocks(content: &str) -> Cow<'_, str> {
    let json = Json::new(content.as_bytes());
    let Ok(root) = json.root_span() else {
        return Cow::Borrowed(content);
    };
    let said = match json.kind(root) {
        JsonKind::Object => read_result(json, root),
        JsonKind::Array => Some(root),
        JsonKind::String | JsonKind::Null | JsonKind::Other => None,
    };
    let Some(said) = said else {
        return Cow::Borrowed(content);
    };
    // Not even the white space around a list changes.
    let part = content.get(said.start..said.end).filter(|_| said != root);
    let text = part.unwrap_or(content);
    let blocks = if json.kind(said) == JsonKind::Array {
        json.elements(said)
    } else {
        Vec::new()
    };
    let texts: Vec<Option<String>> = blocks.iter().map(|block| block_text(json, *block)).collect();
    // A list with any other element is data of the tool.
    let are_blocks = blocks.iter().all(|block| json.string_member(*block, "type").is_some());
    if !are_blocks || texts.iter().all(Option::is_none) {
        return Cow::Borrowed(text);
    }
    let written = blocks.iter().zip(texts).map(|(block, text)| match text {
        Some(text) => format!("{{\"type\":\"text\",\"text\":{}}}", quote_string(&text)),
        None => String::from_utf8_lossy(json.bytes(*block)).into_owned(),
    });
    Cow::Owned(format!("[{}]", written.collect::<Vec<_>>().join(",")))
}

/// Returns the value that a whole result stands for. `None` if the object is none, or says that the tool failed.
fn read_result(json: Json<'_>, object: Span) -> Option<Span> {
    let mut are_known = true;
    let walked = json.for_each_member(object, |name, _| are_known &= RESULT_MEMBERS.contains(&name));
    walked.ok().filter(|()| are_known)?;
    let [list, structured, failed] = json.members(object, ["content", "structuredContent", "isError"]);
    // Without the object nothing would say that it failed.
    if failed.is_some_and(|failed| json.bytes(failed) != b"false") {
        return None;
    }
    let list = list.filter(|list| json.kind(*list) == JsonKind::Array)?;
    let blocks = json.elements(list);
    if blocks.is_empty() {
        return structured.filter(|value| json.kind(*value) == JsonKind::Object);
    }
    let is_block = |block: &Span| KINDS.contains(&&*json.member_text(*block, "type"));
    blocks.iter().all(is_block).then_some(list)
}

/// The blocks of the protocol (2025-11-25).
const KINDS: [&[u8]; 5] = [b"text", b"image", b"audio", b"resource", b"resource_link"];

/// Returns the text for a block that no format has. `None` for any other.
fn block_text(json: Json<'_>, block: Span) -> Option<String> {
    let text = |of: Span, name: &str| {
        let found = json.string_member(of, name)?;
        Some(String::from_utf8_lossy(&json.decode_string(found)).into_owned())
    };
    match &*json.member_text(block, "type") {
        // Formats have the usual images.
        b"image" if read_image_block(json, block).is_some() => None,
        kind @ (b"image" | b"audio") => {
            let (media, data) = (text(block, "mimeType")?, json.string_member(block, "data")?);
            let kind = String::from_utf8_lossy(kind);
            Some(format!("({kind}: {media}, {} bytes)", decoded_length(json, data)))
        }
        b"resource" => {
            let resource = json.member(block, "resource")?;
            if json.kind(resource) != JsonKind::Object {
                return None;
            }
            let place = text(resource, "uri")?;
            if let Some(said) = text(resource, "text") {
                return Some(said);
            }
            let size = format!("{} bytes", decoded_length(json, json.string_member(resource, "blob")?));
            let facts = [named_place(place), text(resource, "mimeType"), Some(size)];
            let facts: Vec<String> = facts.into_iter().flatten().collect();
            Some(format!("(resource: {})", facts.join(", ")))
        }
        b"resource_link" => {
            let (name, place) = (text(block, "name")?, text(block, "uri")?);
            let size = place.len();
            Some(match named_place(place) {
                Some(place) => format!("{name}: {place}"),
                None => format!("{name}: (data: {size} bytes)"),
            })
        }
        _ => None,
    }
}

/// Returns the URI of a resource. `None` for one that contains the resource itself.
fn named_place(uri: String) -> Option<String> {
    let scheme = uri.get(..5).unwrap_or_default();
    (!scheme.eq_ignore_ascii_case("data:")).then_some(uri)
}

/// Returns the number of bytes that a base64 text stands for.
fn decoded_length(json: Json<'_>, data: Span) -> usize {
    (json.string_inside(data).len() / 4).saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use super::readable_blocks;

    #[test]
    fn blocks_that_no_format_has_become_text() {
        for (content, wanted) in [
            (
                r#"[{"type":"text","text":"a","annotations":{}},{"type":"audio","data":"QUJDREVG","mimeType":"audio/wav"}]"#,
                r#"[{"type":"text","text":"a","annotations":{}},{"type":"text","text":"(audio: audio/wav, 6 bytes)"}]"#,
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"file:///a","text":"x\n\"y\"","mimeType":"text/plain"}}]"#,
                r#"[{"type":"text","text":"x\n\"y\""}]"#,
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"file:///a.pdf","blob":"QUJD","mimeType":"application/pdf"}}]"#,
                r#"[{"type":"text","text":"(resource: file:///a.pdf, application/pdf, 3 bytes)"}]"#,
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"DATA:x;base64,QUJD","blob":"QUJD"}}]"#,
                r#"[{"type":"text","text":"(resource: 3 bytes)"}]"#,
            ),
            (
                r#"[{"type":"resource_link","name":"plan","uri":"https://e.com/p","mimeType":"text/html"}]"#,
                r#"[{"type":"text","text":"plan: https://e.com/p"}]"#,
            ),
            (
                r#"[{"type":"resource_link","name":"plan","uri":"data:text/plain,abc"}]"#,
                r#"[{"type":"text","text":"plan: (data: 19 bytes)"}]"#,
            ),
            (
                r#"[{"type":"image","data":"QUJD","mimeType":"image/svg+xml"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#,
                r#"[{"type":"text","text":"(image: image/svg+xml, 3 bytes)"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#,
            ),
            // A whole result.
            (
                r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{"b":1},"isError":false}"#,
                r#"[{"type":"text","text":"a"}]"#,
            ),
            (r#"{"content":[],"structuredContent":{"b":1.0}}"#, r#"{"b":1.0}"#),
            (
                r#"{"content":[{"type":"resource_link","name":"n","uri":"a:b"}],"_meta":{}}"#,
                r#"[{"type":"text","text":"n: a:b"}]"#,
            ),
        ] {
            assert_eq!(readable_blocks(content), wanted, "{content}");
        }
    }

    #[test]
    fn everything_else_stays_in_its_bytes() {
        for content in [
            r#""audio""#,
            "null",
            "[]",
            " [1 , 2] ",
            r#"[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#,
            // Not blocks of the protocol, or data with one among it.
            r#"[{"type":"audio","data":7,"mimeType":"audio/wav"}]"#,
            r#"[{"type":"audio","data":"QUJD"}]"#,
            r#"[{"type":"resource","resource":{"uri":"a:b"}}]"#,
            r#"[{"type":"resource","resource":"a:b"}]"#,
            r#"[{"type":"resource_link","uri":"a:b"}]"#,
            r#"[{"type":"audio","data":"QUJD","mimeType":"audio/wav"},{"row":1}]"#,
            r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#,
            r#"{"content":[{"type":"text","text":"a"}],"more":1}"#,
            r#"{"content":[{"type":"row"}]}"#,
            r#"{"content":[]}"#,
            r#"{"content":"a"}"#,
            "{}",
            "[",
        ] {
            assert_eq!(readable_blocks(content), content);
        }
    }
}
