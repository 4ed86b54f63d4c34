//! Images and documents in blocks, as each format writes them.

use super::{
    body::{Block, MendBody},
    pixels,
};
use crate::{
    conversation::Text,
    splice::Span,
    wire::{HistoryShape, frames::decode_base64, json::JsonKind, quote::mark_label},
};

/// The beginning of every text of the proxy.
const MARK: &[u8] = b"[antiphon:";
/// The base64 digits with which a text of the proxy begins.
const MARK_DIGITS: usize = 16;

/// The kinds of media that a block shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Document,
}

/// An image or a document.
#[derive(Debug)]
pub(super) struct Media<'b> {
    pub(super) kind: MediaKind,
    /// The bytes of its media type between the quotes, as the client says it. `None` if it says none.
    pub(super) said: Option<Span>,
    /// Its digits in base64. `None` for a file or an address.
    pub(super) data: Option<Text<'b>>,
    /// Its title, and its address or the id of its file. Empty without one.
    pub(super) labels: Vec<Text<'b>>,
}

/// Returns the image or document that a block is. `None` for other blocks, and for a document that is text.
pub(super) fn read<'b>(body: &MendBody<'b>, block: &Block<'b>) -> Option<Media<'b>> {
    let json = body.json;
    match (body.wire.format.history(), &*block.kind) {
        (HistoryShape::Messages, kind @ (b"image" | b"document")) => {
            let [source, title] = json.members(block.span, ["source", "title"]);
            let [form, said, data, url, file] = json.members(source?, ["type", "media_type", "data", "url", "file_id"]);
            let form = form.map_or_else(Text::default, |form| json.decode_string(form));
            if matches!(&*form, b"text" | b"content") {
                return None;
            }
            let kind = if kind == b"image" {
                MediaKind::Image
            } else {
                MediaKind::Document
            };
            Some(Media {
                kind,
                said: said
                    .and_then(|said| json.only_string(said))
                    .map(|said| json.string_inside(said)),
                data: data
                    .filter(|_| *form == *b"base64")
                    .map(|data| json.decode_string(data)),
                labels: texts(body, [title, url, file]),
            })
        }
        (HistoryShape::Chat, b"image_url") => {
            let image = json.member(block.span, "image_url")?;
            let url = match json.kind(image) {
                JsonKind::Object => json.member(image, "url")?,
                JsonKind::String | JsonKind::Array | JsonKind::Null | JsonKind::Other => image,
            };
            Some(of_url(body, MediaKind::Image, Some(url), [None, None]))
        }
        (HistoryShape::Chat, b"file") => {
            let file = json.member(block.span, "file")?;
            let [data, name, id] = json.members(file, ["file_data", "filename", "file_id"]);
            Some(of_url(body, MediaKind::Document, data, [name, id]))
        }
        (HistoryShape::Items, b"input_image") => {
            let [url, id] = json.members(block.span, ["image_url", "file_id"]);
            Some(of_url(body, MediaKind::Image, url, [None, id]))
        }
        (HistoryShape::Items, b"input_file") => {
            let [data, name, id] = json.members(block.span, ["file_data", "filename", "file_id"]);
            Some(of_url(body, MediaKind::Document, data, [name, id]))
        }
        (HistoryShape::Contents, kind @ (b"inlineData" | b"inline_data" | b"fileData" | b"file_data")) => {
            let source = json.member(block.span, std::str::from_utf8(kind).ok()?)?;
            let names = ["mimeType", "mime_type", "data", "fileUri", "file_uri", "displayName"];
            let [said, snake_said, data, uri, snake_uri, title] = json.members(source, names);
            let said = said.or(snake_said)?;
            let kind = match &*json.decode_string(said) {
                [b'i', b'm', b'a', b'g', b'e', b'/', ..] => MediaKind::Image,
                [b'a', b'p', b'p', b'l', ..] | [b't', b'e', b'x', b't', b'/', ..] => MediaKind::Document,
                _ => return None,
            };
            let media = Media {
                kind,
                said: Some(json.string_inside(said)),
                data: data.map(|data| json.decode_string(data)),
                labels: texts(body, [title, uri, snake_uri]),
            };
            // A text of the proxy stands for media that were refused before.
            (!media.head(MARK_DIGITS).starts_with(MARK)).then_some(media)
        }
        (HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents, _) => None,
    }
}

/// Reads an address, which may contain the data itself: `data:image/png;base64,…`.
fn of_url<'b>(body: &MendBody<'b>, kind: MediaKind, url: Option<Span>, names: [Option<Span>; 2]) -> Media<'b> {
    let json = body.json;
    let [name, id] = names;
    let inside = url.map(|url| json.string_inside(url));
    let raw = inside.map(|inside| json.bytes(inside)).unwrap_or_default();
    let is_data = raw.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"data:"));
    let comma = memchr::memchr(b',', raw).filter(|_| is_data);
    let (Some(url), Some(inside), Some(comma)) = (url, inside, comma) else {
        return Media {
            kind,
            said: None,
            data: None,
            labels: texts(body, [name, id, url]),
        };
    };
    let head = raw.get(..comma).unwrap_or_default();
    let type_end = memchr::memchr(b';', head).unwrap_or(head.len());
    let data = head.ends_with(b";base64").then(|| json.decode_string(url));
    // An escape in the head would move the comma of the decoded text.
    let digits = |text: Text<'b>| match text {
        Text::Borrowed(text) => Text::Borrowed(after_comma(text)),
        Text::Owned(text) => Text::Owned(after_comma(&text).to_vec()),
    };
    Media {
        kind,
        said: Some(Span::new(5, type_end).shifted(inside.start)),
        data: data.map(digits),
        labels: texts(body, [name, id, None]),
    }
}

fn after_comma(text: &[u8]) -> &[u8] {
    let comma = memchr::memchr(b',', text).map_or(text.len(), |comma| comma.saturating_add(1));
    text.get(comma..).unwrap_or_default()
}

fn texts<'b>(body: &MendBody<'b>, values: [Option<Span>; 3]) -> Vec<Text<'b>> {
    let texts = values.into_iter().flatten().map(|value| body.json.decode_string(value));
    texts.filter(|text| !text.is_empty()).collect()
}

impl Media<'_> {
    /// Returns the first bytes of the image. With `digits` of base64 at most.
    pub(super) fn head(&self, digits: usize) -> Vec<u8> {
        let data = self.data.as_deref().unwrap_or_default();
        decode_base64(data.get(..digits.min(data.len())).unwrap_or_default())
    }

    /// Returns `true` for data without a byte.
    pub(super) fn is_empty(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.trim_ascii().is_empty())
    }

    /// Returns the mark that says what stood in its place.
    pub(super) fn mark(&self, body: &MendBody<'_>) -> String {
        let label = |text: &[u8]| mark_label(&String::from_utf8_lossy(text));
        let mut words: Vec<String> = self.labels.iter().map(|text| label(text)).collect();
        let head = self.head(pixels::HEAD_DIGITS);
        let said = self
            .said
            .map(|said| body.json.bytes(said))
            .filter(|said| !said.is_empty());
        match pixels::media_type_of(&head) {
            Some(kind) => words.push(kind.to_owned()),
            None => words.extend(said.map(label)),
        }
        if let Some((width, height)) = pixels::pixels_of(&head) {
            words.push(format!("{width}x{height} pixels"));
        }
        if let Some(data) = &self.data {
            let digits = data
                .trim_ascii()
                .iter()
                .rev()
                .skip_while(|digit| **digit == b'=')
                .count();
            crate::work::count_bytes(digits);
            words.push(format!("{} bytes", digits.saturating_mul(3) / 4));
        }
        let what = match self.kind {
            MediaKind::Image => "an image",
            MediaKind::Document => "a document",
        };
        let words = if words.is_empty() {
            String::new()
        } else {
            format!(" ({})", words.join(", "))
        };
        format!("[antiphon: {what} stood here{words}; this provider refuses it.]")
    }
}
