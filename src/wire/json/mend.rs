//! Mends JSON in place: edits that set or remove members, write a list anew, or move a value. Commas are right in every
//! case, and bytes around what stays are left as they are.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::splice::{Edit, Piece, Span};

/// One place of a list that is written anew.
#[derive(Clone, Debug)]
pub enum Slot {
    /// An element that stays, by its index, with edits inside it. Indices of one list only rise.
    Old(usize, Vec<Edit>),
    /// A new element.
    New(Vec<Piece>),
}

/// The edits that turn the `elements` of the list at `list` (brackets included) into `slots`.
/// Bytes around elements that stay are left as they are; commas are right in every case.
pub fn rebuild(list: Span, elements: &[Span], slots: Vec<Slot>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut fresh: Vec<Vec<Piece>> = Vec::new();
    let mut last: Option<usize> = None;
    for slot in slots {
        match slot {
            Slot::New(pieces) => fresh.push(pieces),
            Slot::Old(index, inside) => {
                edits.extend(between(elements, last, index, std::mem::take(&mut fresh)));
                edits.extend(inside);
                last = Some(index);
            }
        }
    }
    edits.extend(behind(list, elements, last, fresh));
    edits
}

/// Replaces what stands between the kept element `last` and the next kept one.
fn between(elements: &[Span], last: Option<usize>, next: usize, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let start = |index: usize| elements.get(index).map_or(0, |span| span.start);
    let end = |index: usize| elements.get(index).map_or(0, |span| span.end);
    let mut pieces = Vec::new();
    let span = match last {
        None => {
            for item in fresh {
                pieces.extend(item);
                pieces.push(Piece::Constant(","));
            }
            Span::new(start(0), start(next))
        }
        Some(last) => {
            for item in fresh {
                pieces.push(Piece::Constant(","));
                pieces.extend(item);
            }
            let gone = next.saturating_sub(1);
            Span::new(end(last), end(gone.max(last)))
        }
    };
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// Replaces what stands behind the last kept element.
fn behind(list: Span, elements: &[Span], last: Option<usize>, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let tail = elements
        .last()
        .map_or_else(|| list.start.saturating_add(1), |span| span.end);
    let mut pieces = Vec::new();
    for (index, item) in fresh.into_iter().enumerate() {
        if index > 0 || last.is_some() {
            pieces.push(Piece::Constant(","));
        }
        pieces.extend(item);
    }
    let from = match last {
        Some(index) => elements.get(index).map_or(tail, |span| span.end),
        None => elements.first().map_or(tail, |span| span.start),
    };
    let span = Span::new(from, tail);
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// The bytes of `span` with `edits` done inside it, as pieces: for a value that moves.
pub fn moved(span: Span, mut edits: Vec<Edit>) -> Vec<Piece> {
    edits.sort_by_key(|edit| edit.span);
    let mut pieces = Vec::new();
    let mut from = span.start;
    for edit in edits {
        pieces.push(Piece::Original(Span::new(from, edit.span.start)));
        pieces.extend(edit.pieces);
        from = edit.span.end;
    }
    pieces.push(Piece::Original(Span::new(from, span.end)));
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// A constant text as a JSON string. It is written as it stands: nothing in it may need an escape.
pub fn constant(text: &'static str) -> Vec<Piece> {
    vec![Piece::Constant("\""), Piece::Constant(text), Piece::Constant("\"")]
}

/// A list of `elements`.
pub fn list(elements: Vec<Vec<Piece>>) -> Vec<Piece> {
    let mut pieces = vec![Piece::Constant("[")];
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            pieces.push(Piece::Constant(","));
        }
        pieces.extend(element);
    }
    pieces.push(Piece::Constant("]"));
    pieces
}
