//! The content of a tool message: a string, or a list of text parts (Chat Completions, 2026-11).

use crate::{
    splice::Span,
    wire::{
        Dialect,
        content::{BlockFormat, MemberCheck, PostedContent, fit_blocks, has_members, image_label, is_string},
        json::{Json, JsonKind, quote_string},
    },
};

/// The kinds of parts that a tool message may contain.
struct ToolMessageParts {
    /// Set if images are allowed: OpenAI refuses them in tool messages, other servers take them.
    images: bool,
}

/// Fits a posted content to a tool message.
pub(crate) fn fit_content(dialect: Dialect, content: &str) -> String {
    let parts = ToolMessageParts {
        images: dialect != Dialect::Standard,
    };
    let content = PostedContent::new(content);
    let (root, kind) = content.root_value();
    // OpenAI: "Expected an array with minimum length 1."
    if kind == JsonKind::Array && content.as_json().is_empty(root) {
        return "\"\"".to_owned();
    }
    fit_blocks(content, &parts)
}

impl BlockFormat for ToolMessageParts {
    fn takes_block(&self, json: Json<'_>, part: Span) -> bool {
        const TYPE: (&str, MemberCheck) = ("type", is_string);
        match json.member_text(part, "type").as_ref() {
            b"text" => {
                let cache: (&str, MemberCheck) = ("prompt_cache_breakpoint", is_breakpoint);
                has_members(json, part, &[TYPE, ("text", is_string)], &[cache])
            }
            b"image_url" if self.images => has_members(json, part, &[TYPE, ("image_url", is_image)], &[]),
            _ => false,
        }
    }

    /// Returns the text of a text part, since the caller joins the parts to one string.
    fn taken_block(&self, json: Json<'_>, part: Span) -> String {
        let text = json.string_member(part, "text").map(|text| json.decode_string(text));
        let said = text.unwrap_or_else(|| json.bytes(part).into());
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Returns the text itself, like [`taken_block`](Self::taken_block).
    fn text_block(&self, string: &str) -> String {
        let json = Json::new(string.as_bytes());
        let text = json
            .root_span()
            .map(|root| json.decode_string(root))
            .unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the label of the image: its base64 would be read as text.
    fn image_block(&self, media: &str, data: &str) -> Option<String> {
        Some(image_label(media, data))
    }

    fn write_blocks(&self, texts: &[String]) -> String {
        // Every server takes a string, but not every server takes a list.
        quote_string(&texts.join("\n"))
    }
}

fn is_breakpoint(json: Json<'_>, value: Span) -> bool {
    has_members(json, value, &[("mode", is_string)], &[])
}

fn is_image(json: Json<'_>, image: Span) -> bool {
    has_members(json, image, &[("url", is_string)], &[("detail", is_string)])
}
