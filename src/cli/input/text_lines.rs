//! The lines of JSONL.

use super::faults::describe_fault;
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

    /// Returns `true` if this member of the line is `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        let member = self.json.member(self.root, name);
        member.is_some_and(|value| self.json.bytes(value) == b"true")
    }

    /// Returns `true` if the line has this member.
    pub(super) fn has_member(&self, name: &str) -> bool {
        self.json.member(self.root, name).is_some()
    }
}

/// Splits a text into lines of JSON. An agent that was killed may have cut the last one.
pub(super) fn split_lines(bytes: &[u8]) -> Result<Vec<TextLine<'_>>, String> {
    let mut end = 0;
    let texts: Vec<(usize, usize, &[u8])> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
        .map(|(at, whole)| {
            let text = whole.trim_ascii_start();
            end += whole.len();
            (at + 1, end - text.len(), text.trim_ascii_end())
        })
        .filter(|(.., text)| !text.is_empty())
        .collect();
    let last = texts.last().map_or(0, |(number, ..)| *number);
    let mut lines = Vec::new();
    for (number, start, text) in texts {
        let json = Json::new(text);
        let is_object = json::validate(text).is_ok();
        match json
            .root_span()
            .ok()
            .filter(|root| is_object && json.kind(*root) == JsonKind::Object)
        {
            Some(root) => lines.push(TextLine {
                number,
                start,
                json,
                root,
            }),
            // Cut at the end: what is before it counts. A single line is no JSONL.
            None if number == last && lines.len() > 1 => {}
            // The first line decides if the text is meant as JSONL.
            None if lines.is_empty() => return Err(describe_fault(bytes)),
            None => return Err(format!("line {number}: {}", fault_of_line(text))),
        }
    }
    // One value over several lines is handled by the caller.
    if lines.is_empty() {
        Err(describe_fault(bytes))
    } else {
        Ok(lines)
    }
}

/// Describes the fault of one line, without the number of the line, which is always 1.
fn fault_of_line(text: &[u8]) -> String {
    let fault = describe_fault(text);
    fault
        .strip_prefix("line 1, ")
        .map_or_else(|| fault.clone(), ToOwned::to_owned)
}
