//! Lists of content blocks, whoever's: those that a format takes, and those that it writes in another way.

use super::{
    as_text, is_spoken, kind_of,
    members::{is_base64, is_string, string_of},
};
use crate::{
    splice::Span,
    wire::json::{Json, Kind},
};

/// Members that label a block for the Model Context Protocol and for clients, and that providers refuse.
const LABELS: [&[u8]; 5] = [b"_meta", b"annotations", b"cache_control", b"id", b"index"];

/// Types of images that every provider takes, as services name them and as providers do.
const IMAGES: [(&[u8], &str); 5] = [
    (b"image/png", "image/png"),
    (b"image/jpeg", "image/jpeg"),
    (b"image/jpg", "image/jpeg"),
    (b"image/gif", "image/gif"),
    (b"image/webp", "image/webp"),
];

/// A format's way to write a list of blocks.
pub(crate) trait Blocks {
    /// Reports whether the format takes this block as it stands.
    fn takes(&self, json: Json<'_>, block: Span) -> bool;

    /// Returns a block with this text, which is a JSON string.
    fn text(&self, string: &str) -> String;

    /// Returns a block with this image, or `None` if the format has none. `data` is base64.
    fn image(&self, media: &str, data: &str) -> Option<String>;
}

/// The fate of a list.
pub(crate) enum Fit {
    /// The format takes it as it stands.
    Same,
    /// These blocks say the same.
    Blocks(Vec<String>),
    /// It is no list of content blocks, or the format has none of them.
    Data,
}

/// The content of one block.
enum Said {
    /// A text.
    Text(Span),
    /// An image: its type, and its bytes as base64.
    Image(&'static str, String),
    /// Something else.
    Other,
}

/// Decides the fate of the list at `list`.
pub(crate) fn fit(json: Json<'_>, list: Span, format: &impl Blocks) -> Fit {
    let mut blocks = Vec::new();
    if json.elements(list, |block| blocks.push(block)).is_err() {
        return Fit::Data;
    }
    let is_block = |block: &Span| json.kind(*block) == Kind::Object && string_of(json, *block, "type").is_some();
    if !blocks.iter().all(is_block) {
        return Fit::Data;
    }
    let taken: Vec<bool> = blocks.iter().map(|block| format.takes(json, *block)).collect();
    if taken.iter().all(|taken| *taken) {
        return Fit::Same;
    }
    let (mut written, mut has_content) = (Vec::new(), false);
    for (block, taken) in blocks.into_iter().zip(taken) {
        let raw = json.bytes(block);
        let own = if taken {
            Some(String::from_utf8_lossy(raw).into_owned())
        } else {
            match Said::of(json, block) {
                // A blank text says nothing, and some providers refuse it.
                Said::Text(text) if !is_spoken(json, text) => {
                    has_content = true;
                    continue;
                }
                Said::Text(text) => Some(format.text(&String::from_utf8_lossy(json.bytes(text)))),
                Said::Image(media, data) => format.image(media, &data),
                Said::Other => None,
            }
        };
        has_content |= own.is_some();
        written.push(own.unwrap_or_else(|| format.text(&as_text(raw))));
    }
    if has_content { Fit::Blocks(written) } else { Fit::Data }
}

impl Said {
    /// Reads the block at `block`.
    fn of(json: Json<'_>, block: Span) -> Self {
        let members = telling_members(json, block);
        let member = |name: &str| {
            let found = members.iter().find(|(key, _)| key == name.as_bytes());
            found.map(|(_, value)| *value).filter(|value| is_string(json, *value))
        };
        let kind = kind_of(json, block);
        let said = match (&*kind, members.as_slice()) {
            (b"text" | b"input_text" | b"output_text", [_]) => member("text").map(Self::Text),
            // The form of the Model Context Protocol.
            (b"image", [_, _]) => {
                let found = member("data").zip(member("mimeType"));
                found.and_then(|(data, media)| image(json, data, media))
            }
            // The form of Anthropic.
            (b"image", [(key, source)]) if key == b"source" => anthropic_image(json, *source),
            _ => None,
        };
        said.unwrap_or(Self::Other)
    }
}

/// Returns the members of a block that say something, without its type.
fn telling_members(json: Json<'_>, block: Span) -> Vec<(Vec<u8>, Span)> {
    let mut members = Vec::new();
    let walked = json.members(block, |key, value| {
        let is_empty = match json.kind(value) {
            Kind::Null => true,
            Kind::Array => json.is_empty(value),
            Kind::Object | Kind::String | Kind::Other => false,
        };
        if key != b"type" && !LABELS.contains(&key) && !is_empty {
            members.push((key.to_vec(), value));
        }
    });
    if walked.is_err() {
        members.clear();
    }
    members
}

fn anthropic_image(json: Json<'_>, source: Span) -> Option<Said> {
    if kind_of(json, source) != b"base64".as_slice() {
        return None;
    }
    image(
        json,
        string_of(json, source, "data")?,
        string_of(json, source, "media_type")?,
    )
}

/// Reads an image of its data and its type. `None` if providers do not take such an image.
fn image(json: Json<'_>, data: Span, media: Span) -> Option<Said> {
    let named = json.decode(media);
    let (_, media) = IMAGES.iter().find(|(name, _)| *name == &*named)?;
    // Some encoders break their lines.
    let decoded = json.decode(data);
    let data: Vec<u8> = decoded
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    is_base64(&data).then(|| Said::Image(media, String::from_utf8_lossy(&data).into_owned()))
}
