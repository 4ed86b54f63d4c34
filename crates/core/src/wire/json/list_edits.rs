//! Edits of JSON lists and values in place. Commas are right in every case, and bytes around what stays do not change.

use crate::{
    splice::{Edit, Piece, Span},
    work,
};

/// One element of a list that is rebuilt.
#[derive(Clone, Debug)]
pub enum ListElement {
    /// An element that stays, by its index, with edits inside it. The indices in one list must rise.
    Kept(usize, Vec<Edit>),
    /// A new element.
    New(Vec<Piece>),
}

/// Returns the edits that turn the `elements` of the list at `list`, which includes the brackets, into `wanted`.
pub fn rebuild_list(list: Span, elements: &[Span], wanted: Vec<ListElement>) -> Vec<Edit> {
    work::count(wanted.len());
    let mut edits = Vec::new();
    let mut fresh: Vec<Vec<Piece>> = Vec::new();
    let mut last: Option<usize> = None;
    for element in wanted {
        match element {
            // New elements wait for the next one that stays: one edit then replaces everything between the two.
            ListElement::New(pieces) => fresh.push(pieces),
            ListElement::Kept(index, inside) => {
                edits.extend(replace_between(elements, last, index, std::mem::take(&mut fresh)));
                work::count(inside.len());
                edits.extend(inside);
                last = Some(index);
            }
        }
    }
    edits.extend(replace_after(list, elements, last, fresh));
    edits
}

/// Replaces everything between the kept elements `last` and `next`.
fn replace_between(elements: &[Span], last: Option<usize>, next: usize, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let start = |index: usize| elements.get(index).map_or(0, |span| span.start);
    let end = |index: usize| elements.get(index).map_or(0, |span| span.end);
    let mut pieces = Vec::new();
    let span = match last {
        None => {
            for item in fresh {
                work::count(item.len());
                pieces.extend(item);
                pieces.push(Piece::Constant(","));
            }
            Span::new(start(0), start(next))
        }
        Some(last) => {
            for item in fresh {
                work::count(item.len());
                pieces.push(Piece::Constant(","));
                pieces.extend(item);
            }
            // The comma before `next` stays, so that its bytes and the white space do not change.
            let gone = next.saturating_sub(1);
            Span::new(end(last), end(gone.max(last)))
        }
    };
    // Without a removed or new element there is nothing to edit.
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// Replaces everything after the last kept element.
fn replace_after(list: Span, elements: &[Span], last: Option<usize>, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let tail = elements
        .last()
        .map_or_else(|| list.start.saturating_add(1), |span| span.end);
    let mut pieces = join_elements(fresh);
    // Only the first element of a list has no comma before it.
    if last.is_some() && !pieces.is_empty() {
        work::count(pieces.len());
        pieces.insert(0, Piece::Constant(","));
    }
    let from = match last {
        Some(index) => elements.get(index).map_or(tail, |span| span.end),
        None => elements.first().map_or(tail, |span| span.start),
    };
    let span = Span::new(from, tail);
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// Returns the bytes of a value that moves, with `edits` applied inside its `span`.
pub fn edited_value(span: Span, mut edits: Vec<Edit>) -> Vec<Piece> {
    work::count(edits.len());
    edits.sort_by_key(|edit| edit.span);
    let mut pieces = Vec::new();
    let mut from = span.start;
    for edit in edits {
        pieces.push(Piece::Original(Span::new(from, edit.span.start)));
        pieces.extend(edit.pieces);
        from = edit.span.end;
    }
    pieces.push(Piece::Original(Span::new(from, span.end)));
    work::count(pieces.len());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Writes a constant text as a JSON string. The text must not need escapes.
pub fn constant_string(text: &'static str) -> Vec<Piece> {
    enclose("\"", vec![Piece::Constant(text)], "\"")
}

/// Writes a list of `elements`.
pub fn write_list(elements: Vec<Vec<Piece>>) -> Vec<Piece> {
    enclose("[", join_elements(elements), "]")
}

/// Writes `elements` with commas between them.
pub fn join_elements(elements: Vec<Vec<Piece>>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, element) in elements.into_iter().enumerate() {
        work::count(element.len());
        if index > 0 {
            pieces.push(Piece::Constant(","));
        }
        pieces.extend(element);
    }
    pieces
}

/// Writes `inside` between two constants.
pub fn enclose(before: &'static str, inside: Vec<Piece>, after: &'static str) -> Vec<Piece> {
    work::count(inside.len());
    let mut pieces = vec![Piece::Constant(before)];
    pieces.extend(inside);
    pieces.push(Piece::Constant(after));
    pieces
}
