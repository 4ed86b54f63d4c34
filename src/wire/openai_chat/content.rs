//! The content of a tool message: a string, or a list of text parts (Chat Completions, 2026-11).

use crate::{
    splice::Span,
    wire::{
        Dialect,
        content::{self, Blocks, Check, Content, Fit, has_members, is_string, kind_of},
        json::{Json, Kind, quoted},
    },
};

/// The kinds of parts that a tool message may contain.
struct Parts {
    /// Set if images are allowed: OpenAI refuses them in tool messages, other servers take them.
    images: bool,
}

/// Fits a posted content to a tool message.
pub(crate) fn fit_content(dialect: Dialect, content: &str) -> String {
    let parts = Parts {
        images: dialect != Dialect::Standard,
    };
    let content = Content::new(content);
    let (root, kind) = content.root();
    match kind {
        Kind::String => content.into_json(),
        // OpenAI: "Expected an array with minimum length 1."
        Kind::Array if content.json().is_empty(root) => "\"\"".to_owned(),
        Kind::Array => match content::fit(content.json(), root, &parts) {
            Fit::Same => content.into_json(),
            // Every server takes a string, but not every server takes a list.
            Fit::Blocks(texts) => quoted(&texts.join("\n")),
            Fit::Data => content.into_text(),
        },
        Kind::Object | Kind::Null | Kind::Other => content.into_text(),
    }
}

impl Blocks for Parts {
    fn takes(&self, json: Json<'_>, part: Span) -> bool {
        const TYPE: (&str, Check) = ("type", is_string);
        match kind_of(json, part).as_ref() {
            b"text" => {
                let cache: (&str, Check) = ("prompt_cache_breakpoint", is_breakpoint);
                has_members(json, part, &[TYPE, ("text", is_string)], &[cache])
            }
            b"image_url" if self.images => has_members(json, part, &[TYPE, ("image_url", is_image)], &[]),
            _ => false,
        }
    }

    /// Returns the text itself, since the caller joins the parts to one string.
    fn text(&self, string: &str) -> String {
        let json = Json::new(string.as_bytes());
        let text = json.root().map(|root| json.decode(root)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn image(&self, _: &str, _: &str) -> Option<String> {
        None
    }
}

fn is_breakpoint(json: Json<'_>, value: Span) -> bool {
    has_members(json, value, &[("mode", is_string)], &[])
}

fn is_image(json: Json<'_>, image: Span) -> bool {
    has_members(json, image, &[("url", is_string)], &[("detail", is_string)])
}
