//! Images and documents of a posted content, as blocks of a user's message.

use super::blocks::read_image_block;
use crate::{
    splice::Span,
    wire::{
        Format, HistoryShape,
        json::{Json, JsonKind},
    },
};

/// Returns the images and documents in a list of blocks, as blocks that a user's message of the format takes.
///
/// Those that the format cannot show there are left out.
pub(crate) fn user_media(format: Format, content: &str) -> Vec<String> {
    let json = Json::new(content.as_bytes());
    let list = json.root_span().ok().filter(|root| json.kind(*root) == JsonKind::Array);
    let blocks = list.map_or_else(Vec::new, |list| json.elements(list));
    blocks
        .into_iter()
        .filter_map(|block| media_block(format, json, block))
        .collect()
}

/// Returns the label of an image or a document, for text. `None` for other blocks.
pub(crate) fn media_label(json: Json<'_>, block: Span) -> Option<String> {
    let kind = json.string_member(block, "type").map(|kind| json.decode_string(kind))?;
    let what = match &*kind {
        b"image" => "image",
        b"document" if is_anthropic_document(json, block) => "document",
        _ => return None,
    };
    let source = json.member(block, "source").unwrap_or(block);
    // A document of text is that text.
    if *json.member_text(source, "type") == *b"text" {
        return json
            .string_member(source, "data")
            .map(|data| String::from_utf8_lossy(&json.decode_string(data)).into_owned());
    }
    let text = |names: [&str; 2]| {
        let found = names.into_iter().find_map(|name| json.string_member(source, name));
        found.map(|span| String::from_utf8_lossy(&json.decode_string(span)).into_owned())
    };
    let media = text(["mimeType", "media_type"]);
    let data = json
        .string_member(source, "data")
        .map(|data| (json.string_inside(data).len() / 4).saturating_mul(3));
    match (text(["url", "uri"]), media, data) {
        (Some(url), ..) => Some(format!("({what}: {url})")),
        (None, Some(media), Some(bytes)) => Some(format!("({what}: {media}, {bytes} bytes)")),
        // Without its kind and its bytes it is data of the tool.
        _ => None,
    }
}

/// Returns the label of an image for formats whose results have none. `data` is base64.
pub(crate) fn image_label(media: &str, data: &str) -> String {
    format!("(image: {media}, {} bytes)", (data.len() / 4).saturating_mul(3))
}

fn media_block(format: Format, json: Json<'_>, block: Span) -> Option<String> {
    if let Some((media, data)) = read_image_block(json, block) {
        return Some(match format.history() {
            HistoryShape::Messages => {
                format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"{media}","data":"{data}"}}}}"#)
            }
            HistoryShape::Chat => {
                format!(r#"{{"type":"image_url","image_url":{{"url":"data:{media};base64,{data}"}}}}"#)
            }
            HistoryShape::Items => {
                format!(r#"{{"type":"input_image","image_url":"data:{media};base64,{data}"}}"#)
            }
            HistoryShape::Contents => format!(r#"{{"inlineData":{{"mimeType":"{media}","data":"{data}"}}}}"#),
        });
    }
    let is_own = match format.history() {
        HistoryShape::Messages => is_anthropic_document(json, block),
        HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents => false,
    };
    is_own.then(|| String::from_utf8_lossy(json.bytes(block)).into_owned())
}

/// Returns `true` for a document of Messages with its bytes or its text, and nothing besides its title.
fn is_anthropic_document(json: Json<'_>, block: Span) -> bool {
    let mut is_plain = *json.member_text(block, "type") == *b"document";
    let walked = json.for_each_member(block, |name, _| {
        is_plain &= matches!(name, b"type" | b"source" | b"title");
    });
    let source = json
        .member(block, "source")
        .filter(|source| json.kind(*source) == JsonKind::Object);
    let has_bytes = source.is_some_and(|source| {
        let kind = json.member_text(source, "type");
        matches!(&*kind, b"base64" | b"text") && json.string_member(source, "data").is_some()
    });
    is_plain && walked.is_ok() && has_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MCP: &str = r#"[{"type":"text","text":"a"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]"#;

    #[test]
    fn an_image_becomes_a_block_of_every_format() {
        let blocks = [
            Format::Anthropic,
            Format::OpenAiChat,
            Format::OpenAiResponses,
            Format::Gemini,
        ]
        .map(|format| user_media(format, MCP).join(""));
        assert_eq!(
            blocks,
            [
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}"#,
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}"#,
                r#"{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}"#,
                r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}"#,
            ]
        );
    }

    #[test]
    fn labels_name_media_alone() {
        for (block, label) in [
            (
                r#"{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}"#,
                Some("(image: image/png, 9 bytes)"),
            ),
            (
                r#"{"type":"image","source":{"type":"url","url":"https://e.com/a.png"}}"#,
                Some("(image: https://e.com/a.png)"),
            ),
            (r#"{"type":"text","text":"a"}"#, None),
            ("{}", None),
        ] {
            let json = Json::new(block.as_bytes());
            assert_eq!(
                media_label(json, json.root_span().unwrap()).as_deref(),
                label,
                "{block}"
            );
        }
    }
}
