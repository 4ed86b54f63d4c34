//! The `output` of a call: a string, or for most kinds of calls a list of input parts (Responses, 2026-11).

use crate::{
    splice::Span,
    wire::{
        content::{BlockFormat, MemberCheck, PostedContent, fit_blocks, has_members, has_visible_text, is_string},
        json::{Json, JsonKind, quote_string},
        openai_responses::{items::OutputForm, write::call_kind_at as call_kind_of},
    },
};

/// The kinds of parts that an output may contain.
struct OutputParts;

/// Fits a posted content to the output of the call at `call`.
pub(crate) fn fit_content(call_json: Json<'_>, call: Span, posted: &str) -> String {
    let takes_lists = call_kind_of(call_json, call).is_none_or(|kind| kind.form == OutputForm::Text);
    let content = PostedContent::new(posted);
    match content.root_value() {
        (_, JsonKind::Array) if takes_lists => fit_blocks(content, &OutputParts),
        (_, JsonKind::String) => content.into_json(),
        // Earlier versions sent such texts as they were posted; providers may have cached them.
        _ => quote_string(posted),
    }
}

impl BlockFormat for OutputParts {
    fn takes_block(&self, json: Json<'_>, part: Span) -> bool {
        const TYPE: (&str, MemberCheck) = ("type", is_string);
        const CACHE: (&str, MemberCheck) = ("prompt_cache_breakpoint", is_breakpoint);
        // A part with two sources for its bytes is refused.
        let names = |keys: &[&str]| {
            keys.iter()
                .filter(|key| json.string_member(part, key).is_some())
                .count()
        };
        match json.member_text(part, "type").as_ref() {
            b"input_text" => has_members(json, part, &[TYPE, ("text", is_string)], &[CACHE]),
            b"input_image" => {
                let file: (&str, MemberCheck) = ("file_id", is_name);
                let members = [CACHE, ("image_url", is_image_url), file, ("detail", is_name)];
                names(&["image_url", "file_id"]) == 1 && has_members(json, part, &[TYPE], &members)
            }
            b"input_file" => {
                let keys = ["file_data", "file_id", "file_url", "filename", "detail"];
                let members: Vec<(&str, MemberCheck)> = keys.iter().map(|key| (*key, is_name as MemberCheck)).collect();
                let members = [&members[..], &[CACHE]].concat();
                names(&["file_data", "file_id", "file_url"]) == 1 && has_members(json, part, &[TYPE], &members)
            }
            _ => false,
        }
    }

    fn text_block(&self, string: &str) -> String {
        format!(r#"{{"type":"input_text","text":{string}}}"#)
    }

    fn image_block(&self, media: &str, data: &str) -> Option<String> {
        let url = format!("data:{media};base64,{data}");
        Some(format!(r#"{{"type":"input_image","image_url":"{url}"}}"#))
    }
}

/// Reports whether a value is null or a breakpoint of the prompt cache.
fn is_breakpoint(json: Json<'_>, value: Span) -> bool {
    json.kind(value) == JsonKind::Null || has_members(json, value, &[("mode", is_string)], &[])
}

/// Reports whether a value is null or a string that is not blank.
fn is_name(json: Json<'_>, value: Span) -> bool {
    json.kind(value) == JsonKind::Null || has_visible_text(json, value)
}

fn is_image_url(json: Json<'_>, value: Span) -> bool {
    let starts: [&[u8]; 3] = [b"https://", b"http://", b"data:image/"];
    let url = json.decode_string(value);
    json.kind(value) == JsonKind::Null || starts.iter().any(|start| url.starts_with(start))
}
