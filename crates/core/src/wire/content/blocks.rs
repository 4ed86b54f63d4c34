//! Lists of content blocks in any format: blocks that a format takes, and blocks that it writes differently.

use super::{
    PostedContent, has_visible_text, json_as_text,
    members::{is_base64, is_string},
};
use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Members that are meant for the Model Context Protocol and for clients, and that providers refuse.
const LABEL_MEMBERS: [&[u8]; 5] = [b"_meta", b"annotations", b"cache_control", b"id", b"index"];

/// Types of images that every provider takes: the name that services use, and the name that providers use.
const IMAGE_TYPES: [(&[u8], &str); 5] = [
    (b"image/png", "image/png"),
    (b"image/jpeg", "image/jpeg"),
    (b"image/jpg", "image/jpeg"),
    (b"image/gif", "image/gif"),
    (b"image/webp", "image/webp"),
];

/// The blocks of a format.
pub(crate) trait BlockFormat {
    /// Reports whether the format takes this block unchanged.
    fn takes_block(&self, json: Json<'_>, block: Span) -> bool;

    /// Returns a block that the format takes, beside others that are rewritten.
    fn taken_block(&self, json: Json<'_>, block: Span) -> String {
        String::from_utf8_lossy(json.bytes(block)).into_owned()
    }

    /// Returns a block with the text in `string`, which is a JSON string.
    fn text_block(&self, string: &str) -> String;

    /// Returns a block with this image. `None` if the format has no such block. `data` is base64.
    fn image_block(&self, media: &str, data: &str) -> Option<String>;

    /// Returns a content of rewritten blocks.
    fn write_blocks(&self, blocks: &[String]) -> String {
        // An empty string is safer: some providers refuse an empty list.
        if blocks.is_empty() {
            return "\"\"".to_owned();
        }
        format!("[{}]", blocks.join(","))
    }
}

/// The content of one block.
enum BlockContent {
    /// A text.
    Text(Span),
    /// An image: its media type, and its bytes as base64.
    Image(&'static str, String),
    /// Anything else.
    Other,
}

/// Returns a content as a format takes it.
///
/// A string, and a list whose blocks the format takes, stay in their bytes. Other blocks are rewritten with the same
/// content. Anything else is data, and becomes text.
pub(crate) fn fit_blocks(content: PostedContent<'_>, format: &impl BlockFormat) -> String {
    let json = content.as_json();
    let (list, kind) = content.root_value();
    if kind == JsonKind::String {
        return content.into_json();
    }
    let mut blocks = Vec::new();
    let is_list = kind == JsonKind::Array && json.for_each_element(list, |block| blocks.push(block)).is_ok();
    // A list with any other element is data of the tool.
    let is_block = |block: &Span| json.string_member(*block, "type").is_some();
    if !is_list || !blocks.iter().all(is_block) {
        return content.into_text();
    }
    let taken: Vec<bool> = blocks.iter().map(|block| format.takes_block(json, *block)).collect();
    // The usual case, where not a byte may change.
    if taken.iter().all(|taken| *taken) {
        return content.into_json();
    }
    let (mut written, mut has_content) = (Vec::new(), false);
    for (block, taken) in blocks.into_iter().zip(taken) {
        let raw = json.bytes(block);
        let own = if taken {
            Some(format.taken_block(json, block))
        } else {
            match BlockContent::read_block(json, block) {
                // Some providers refuse a blank text block.
                BlockContent::Text(text) if !has_visible_text(json, text) => {
                    has_content = true;
                    continue;
                }
                BlockContent::Text(text) => Some(format.text_block(&String::from_utf8_lossy(json.bytes(text)))),
                BlockContent::Image(media, data) => format.image_block(media, &data),
                BlockContent::Other => None,
            }
        };
        has_content |= own.is_some();
        written.push(own.unwrap_or_else(|| format.text_block(&json_as_text(raw))));
    }
    // Without a known block the list may be plain data, which is clearer as one text.
    if has_content {
        format.write_blocks(&written)
    } else {
        content.into_text()
    }
}

/// Returns `true` for a list of blocks with an image among them.
pub(crate) fn has_image(json: Json<'_>, list: Span) -> bool {
    let (mut are_blocks, mut has_image) = (json.kind(list) == JsonKind::Array, false);
    let walked = json.for_each_element(list, |block| {
        are_blocks &= json.string_member(block, "type").is_some();
        has_image |= read_image_block(json, block).is_some();
    });
    walked.is_ok() && are_blocks && has_image
}

/// Returns the media type and the base64 data of an image. `None` for other blocks, and for images that providers do not
/// take.
pub(super) fn read_image_block(json: Json<'_>, block: Span) -> Option<(&'static str, String)> {
    match BlockContent::read_block(json, block) {
        BlockContent::Image(media, data) => Some((media, data)),
        BlockContent::Text(_) | BlockContent::Other => None,
    }
}

impl BlockContent {
    /// Reads the block at `block`.
    fn read_block(json: Json<'_>, block: Span) -> Self {
        let members = content_members(json, block);
        let member = |name: &str| {
            let found = members.iter().find(|(key, _)| key == name.as_bytes());
            found.map(|(_, value)| *value).filter(|value| is_string(json, *value))
        };
        let kind = json.member_text(block, "type");
        let said = match (&*kind, members.as_slice()) {
            (b"text" | b"input_text" | b"output_text", [_]) => member("text").map(Self::Text),
            // The Model Context Protocol's form.
            (b"image", [_, _]) => {
                let found = member("data").zip(member("mimeType"));
                found.and_then(|(data, media)| read_image(json, data, media))
            }
            // Anthropic's form.
            (b"image", [(key, source)]) if key == b"source" => read_anthropic_image(json, *source),
            _ => None,
        };
        said.unwrap_or(Self::Other)
    }
}

/// Returns the members of a block that carry content, without its type.
fn content_members(json: Json<'_>, block: Span) -> Vec<(Vec<u8>, Span)> {
    let mut members = Vec::new();
    let walked = json.for_each_member(block, |key, value| {
        let is_empty = match json.kind(value) {
            JsonKind::Null => true,
            JsonKind::Array => json.is_empty(value),
            JsonKind::Object | JsonKind::String | JsonKind::Other => false,
        };
        if key != b"type" && !LABEL_MEMBERS.contains(&key) && !is_empty {
            members.push((key.to_vec(), value));
        }
    });
    // A partial list could make a broken block look like a known one.
    if walked.is_err() {
        members.clear();
    }
    members
}

fn read_anthropic_image(json: Json<'_>, source: Span) -> Option<BlockContent> {
    let is_base64 = *json.member_text(source, "type") == *b"base64";
    let data = json.string_member(source, "data").filter(|_| is_base64)?;
    read_image(json, data, json.string_member(source, "media_type")?)
}

/// Reads an image from its data and its media type. `None` if providers do not take such an image.
fn read_image(json: Json<'_>, data: Span, media: Span) -> Option<BlockContent> {
    let named = json.decode_string(media);
    let (_, media) = IMAGE_TYPES.iter().find(|(name, _)| *name == &*named)?;
    // Some encoders insert line breaks, which providers refuse.
    let decoded = json.decode_string(data);
    let data: Vec<u8> = decoded
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    is_base64(&data).then(|| BlockContent::Image(media, String::from_utf8_lossy(&data).into_owned()))
}
