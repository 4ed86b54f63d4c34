//! The `output` of a call: a string, or for most kinds of calls a list of input parts (Responses, 2026-11).

use crate::{
    splice::Span,
    wire::{
        content::{self, Blocks, Check, Content, Fit, has_members, is_spoken, is_string, kind_of, string_of},
        json::{Json, Kind, quoted},
        openai_responses::{items::Form, write::kind_of as call_kind_of},
    },
};

/// The kinds of parts that an output may contain.
struct Parts;

/// Fits a posted content to the output of the call at `call`.
pub(crate) fn fit_content(call_json: Json<'_>, call: Span, posted: &str) -> String {
    let takes_lists = call_kind_of(call_json, call).is_none_or(|kind| kind.form == Form::Text);
    let content = Content::new(posted);
    let (root, kind) = content.root();
    match kind {
        Kind::String => content.into_json(),
        Kind::Array if takes_lists => match content::fit(content.json(), root, &Parts) {
            Fit::Same => content.into_json(),
            Fit::Blocks(parts) => content::list(&parts),
            Fit::Data => content.into_text(),
        },
        // Earlier versions sent such texts as they were posted; providers may have cached them.
        Kind::Object | Kind::Array | Kind::Null | Kind::Other => quoted(posted),
    }
}

impl Blocks for Parts {
    fn takes(&self, json: Json<'_>, part: Span) -> bool {
        const TYPE: (&str, Check) = ("type", is_string);
        const CACHE: (&str, Check) = ("prompt_cache_breakpoint", is_breakpoint);
        // A part with two sources for its bytes is refused.
        let names = |keys: &[&str]| keys.iter().filter(|key| string_of(json, part, key).is_some()).count();
        match kind_of(json, part).as_ref() {
            b"input_text" => has_members(json, part, &[TYPE, ("text", is_string)], &[CACHE]),
            b"input_image" => {
                let file: (&str, Check) = ("file_id", is_name);
                let members = [CACHE, ("image_url", is_image_url), file, ("detail", is_name)];
                names(&["image_url", "file_id"]) == 1 && has_members(json, part, &[TYPE], &members)
            }
            b"input_file" => {
                let keys = ["file_data", "file_id", "file_url", "filename", "detail"];
                let members: Vec<(&str, Check)> = keys.iter().map(|key| (*key, is_name as Check)).collect();
                let members = [&members[..], &[CACHE]].concat();
                names(&["file_data", "file_id", "file_url"]) == 1 && has_members(json, part, &[TYPE], &members)
            }
            _ => false,
        }
    }

    fn text(&self, string: &str) -> String {
        format!(r#"{{"type":"input_text","text":{string}}}"#)
    }

    fn image(&self, media: &str, data: &str) -> Option<String> {
        let url = format!("data:{media};base64,{data}");
        Some(format!(r#"{{"type":"input_image","image_url":"{url}"}}"#))
    }
}

/// Reports whether a value is null or a breakpoint of the prompt cache.
fn is_breakpoint(json: Json<'_>, value: Span) -> bool {
    json.kind(value) == Kind::Null || has_members(json, value, &[("mode", is_string)], &[])
}

/// Reports whether a value is null or a string that is not blank.
fn is_name(json: Json<'_>, value: Span) -> bool {
    json.kind(value) == Kind::Null || is_spoken(json, value)
}

fn is_image_url(json: Json<'_>, value: Span) -> bool {
    let starts: [&[u8]; 3] = [b"https://", b"http://", b"data:image/"];
    let url = json.decode(value);
    json.kind(value) == Kind::Null || starts.iter().any(|start| url.starts_with(start))
}
