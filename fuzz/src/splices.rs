//! Edit lists against a model that copies byte by byte.

use antiphon_core::splice::{Edit, EditList, Piece, Span};
use bytes::Bytes;

use super::feed::Feed;

/// Checks that a list is refused exactly if two edits overlap or one leaves the body, and that the output equals the
/// model's.
pub fn splice(choices: &[u8]) {
    let mut feed = Feed::new(choices);
    let length = feed.below(64);
    let original: Vec<u8> = (0..length)
        .map(|at| b'a' + u8::try_from(at % 26).unwrap_or_default())
        .collect();
    let mut edits = Vec::new();
    while !feed.is_empty() && edits.len() < 12 {
        edits.push(edit(&mut feed, length));
    }
    let body = Bytes::from(original.clone());
    let list = EditList::new(edits.clone(), length);
    assert_eq!(list.is_ok(), is_sound(&edits, length), "{edits:?} over {length} bytes");
    let Ok(list) = list else { return };
    let out = list.apply(&body);
    assert_eq!(out.to_vec(), model(&original, &edits), "{edits:?} over {length} bytes");
    assert_eq!(out.len(), out.to_vec().len());
    assert_eq!(out.is_empty(), out.to_vec().is_empty());
    assert!(out.parts().iter().all(|part| !part.is_empty()));
    assert_eq!(out.is_original(), edits.is_empty());
    assert_eq!(
        (list.as_slice().len(), list.is_empty()),
        (edits.len(), edits.is_empty())
    );
    if edits.is_empty() {
        assert!(out.parts().iter().all(|part| part.as_ptr() == body.as_ptr()));
    }
}

/// Returns a span, mostly inside the body and with its start first.
fn span(feed: &mut Feed<'_>, length: usize) -> Span {
    let start = feed.below(length + 2);
    match feed.below(8) {
        0 => Span::at(start),
        // Built directly, so the end may precede the start.
        1 => Span {
            start,
            end: feed.below(length + 2),
        },
        more => Span::new(start, start + more - 2),
    }
}

fn edit(feed: &mut Feed<'_>, length: usize) -> Edit {
    let piece = |feed: &mut Feed<'_>| match feed.below(4) {
        0 => Piece::Original(span(feed, length)),
        1 => Piece::Constant(feed.pick::<&'static str>(&["", "1", "22"])),
        _ => Piece::Made((*feed.pick(&["", "X", "YZ"])).to_owned()),
    };
    Edit {
        span: span(feed, length),
        pieces: (0..feed.below(4)).map(|_| piece(feed)).collect(),
    }
}

fn is_sound(edits: &[Edit], length: usize) -> bool {
    let apart = |one: Span, two: Span| one.end <= two.start || two.end <= one.start;
    let inside = |edit: &Edit| edit.span.start <= edit.span.end && edit.span.end <= length;
    let known = |piece: &Piece| !matches!(piece, Piece::Original(span) if span.end > length);
    let pair = |(at, one): (usize, &Edit)| edits.iter().skip(at + 1).all(|two| apart(one.span, two.span));
    edits.iter().all(|edit| inside(edit) && edit.pieces.iter().all(known)) && edits.iter().enumerate().all(pair)
}

/// Copies the body byte by byte. At each offset it writes the insertions, then the replacement that starts there or
/// else one byte.
fn model(original: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        for edit in edits.iter().filter(|edit| edit.span == Span::at(at)) {
            write(&mut out, original, edit);
        }
        match edits.iter().find(|edit| edit.span.start == at && edit.span.end > at) {
            Some(edit) => {
                write(&mut out, original, edit);
                at = edit.span.end;
            }
            None if at < original.len() => {
                out.push(original[at]);
                at += 1;
            }
            None => return out,
        }
    }
}

fn write(out: &mut Vec<u8>, original: &[u8], edit: &Edit) {
    for piece in &edit.pieces {
        match piece {
            Piece::Original(span) => out.extend(original.get(span.range()).unwrap_or_default()),
            Piece::Constant(text) => out.extend(text.bytes()),
            Piece::Made(text) => out.extend(text.bytes()),
        }
    }
}
