//! The lines of JSONL.

use super::faults::{describe_fault, is_cut_object};
use crate::{
    splice::Span,
    wire::json::{self, Json, JsonKind},
};

/// One line of JSONL: an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextLine<'a> {
    /// Number, counted from 1.
    pub(super) number: usize,
    /// Offset of the object in the file.
    pub(super) start: usize,
    pub(super) json: Json<'a>,
    pub(super) root: Span,
}

impl TextLine<'_> {
    /// Returns a string member of the line, or an empty string.
    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.json.member_text(self.root, name)).into_owned()
    }
}

/// A text that is split into lines.
#[derive(Debug)]
pub(super) struct SplitText<'a> {
    /// The lines, without a cut one.
    pub(super) lines: Vec<TextLine<'a>>,
    /// The fault of the last line if the text ends in its middle: an agent that was killed may have cut it.
    pub(super) cut: Option<String>,
}

/// The fault of a text that is no JSONL.
#[derive(Debug)]
pub(super) enum LineFault {
    /// A line is not JSON. The description has its place.
    NotJson(String),
    /// The line with this number is JSON, but not an object.
    NotObject(usize),
}

/// Splits a text into lines of JSON objects. Returns the fault of the first other line.
pub(super) fn split_lines(bytes: &[u8]) -> Result<SplitText<'_>, LineFault> {
    let mut end = 0;
    let texts = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
        .map(|(at, whole)| {
            let text = whole.trim_ascii_start();
            end += whole.len();
            let has_end = whole.ends_with(b"\n");
            (at + 1, end - text.len(), text.trim_ascii_end(), has_end)
        })
        .filter(|(_, _, text, _)| !text.is_empty());
    let (mut lines, mut cut) = (Vec::new(), None);
    for (number, start, text, has_end) in texts {
        let json = Json::new(text);
        let is_valid = json::validate(text).is_ok();
        match json
            .root_span()
            .ok()
            .filter(|root| is_valid && json.kind(*root) == JsonKind::Object)
        {
            Some(root) => lines.push(TextLine {
                number,
                start,
                json,
                root,
            }),
            // The first line decides if the text is meant as JSONL.
            None if lines.is_empty() => return Err(LineFault::NotJson(describe_fault(bytes))),
            None if is_valid => return Err(LineFault::NotObject(number)),
            None => {
                let fault = format!("line {number}: {}", fault_of_line(text));
                // Only the last line can lack its end.
                if has_end || !is_cut_object(text) {
                    return Err(LineFault::NotJson(fault));
                }
                cut = Some(fault);
            }
        }
    }
    // One value over several lines is handled by the caller.
    if lines.is_empty() {
        Err(LineFault::NotJson(describe_fault(bytes)))
    } else {
        Ok(SplitText { lines, cut })
    }
}

/// Describes the fault of one line, without the number of the line, which is always 1.
fn fault_of_line(text: &[u8]) -> String {
    let fault = describe_fault(text);
    fault
        .strip_prefix("line 1, ")
        .map_or_else(|| fault.clone(), ToOwned::to_owned)
}
