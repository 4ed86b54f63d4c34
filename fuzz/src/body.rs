//! Reading and repairing a body, as every wire.

use antiphon::{
    conversation::{Content, Conversation, Message, PartKind},
    repair::RepairPolicy,
    splice::Span,
    wire::{Format, Unreadable, Wire},
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{feed::Feed, oracle, talk};

/// Reading never panics, says of nothing but what is no JSON that it is none, and gives spans that lie inside the body and
/// nest.
pub fn read(body: &[u8]) {
    let is_json = is_json(body);
    for (_, wire) in Wire::NAMES {
        match wire.read(body) {
            Ok(conversation) => {
                assert_eq!(conversation.body.as_ptr(), body.as_ptr(), "{wire}: another body");
                nested(&conversation);
            }
            Err(why) => assert_eq!(why != Unreadable::NotJson, is_json, "{wire}: {why}"),
        }
    }
}

/// What is read of JSON is what the oracle of the scanner reads, a plain reader that parses every level in full.
pub fn agree(body: &[u8]) {
    for format in Format::ALL {
        agreed(body, format);
    }
}

fn agreed(body: &[u8], format: Format) {
    for (_, wire) in Wire::NAMES.iter().filter(|(_, wire)| wire.format == format) {
        let wanted = oracle::read(body, *wire);
        if wanted.is_none() && !is_json(body) {
            // What is no JSON may be read all the same: the full parse before an edit refuses it.
            return;
        }
        let told = wire.read(body).ok().map(|read| oracle::from_conversation(&read));
        assert_eq!(told, wanted, "{wire}: {}", shown(body));
    }
}

/// Repairing never panics, keeps JSON JSON, is done after one time, and hands back the same memory if there is nothing
/// to do.
pub fn repair(body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    for (_, wire) in Wire::NAMES {
        mended(&body, *wire);
    }
}

/// The same over conversations that the bytes choose, of every format.
pub fn conversations(choices: &[u8]) {
    for format in Format::ALL {
        let body = Bytes::from(talk::body(&mut Feed::new(choices), format));
        assert!(is_json(&body), "the generator wrote no JSON: {}", shown(&body));
        agreed(&body, format);
        for (_, wire) in Wire::NAMES.iter().filter(|(_, wire)| wire.format == format) {
            nested(
                &wire
                    .read(&body)
                    .unwrap_or_else(|why| panic!("{wire}: {why}: {}", shown(&body))),
            );
            mended(&body, *wire);
        }
    }
}

fn mended(body: &Bytes, wire: Wire) {
    let policy = RepairPolicy::default();
    let (done, findings) = match (
        antiphon::repair(body, wire, &policy),
        antiphon::check(body, wire, &policy),
    ) {
        (Ok(done), Ok(findings)) => (done, findings),
        (Err(one), Err(two)) if one == two => return,
        (one, two) => panic!("{wire}: {:?} but {:?}: {}", one.err(), two.err(), shown(body)),
    };
    assert_eq!(done.report.findings, findings, "{wire}: {}", shown(body));
    let parts = done.body.parts();
    let length: usize = parts.iter().map(Bytes::len).sum();
    assert_eq!(done.body.len(), length, "{wire}: {}", shown(body));
    if findings.is_empty() || done.report.actions.is_empty() && done.report.deferred == 0 {
        assert!(
            done.body.is_original(),
            "{wire}: an edit without reason: {}",
            shown(body)
        );
    }
    if done.body.is_original() {
        let same = |part: &Bytes| (part.as_ptr(), part.len()) == (body.as_ptr(), body.len());
        assert!(parts.len() == 1 && same(&parts[0]), "{wire}: a copy: {}", shown(body));
        return;
    }
    let out = Bytes::from(done.body.to_vec());
    let told = || format!("{wire}\n--- in\n{}\n--- out\n{}", shown(body), shown(&out));
    assert!(is_json(&out), "an edit broke the JSON: {}", told());
    match antiphon::repair(&out, wire, &policy) {
        Ok(again) => assert!(
            again.body.is_original(),
            "a second repair adds edits: {}\n--- again\n{}",
            told(),
            shown(&again.body.to_vec())
        ),
        Err(why) => panic!("what came out is {why}: {}", told()),
    }
}

fn nested(conversation: &Conversation<'_>) {
    let body = conversation.body;
    let Some(array) = conversation.array else {
        assert!(conversation.messages.is_empty() && conversation.parts.is_empty());
        return;
    };
    enclosed(body, array, Span::new(0, body.len()), b"[");
    let (mut at, mut part) = (array.start + 1, 0);
    for (index, message) in conversation.messages.iter().enumerate() {
        assert!(at <= message.span.start, "messages out of order: {}", shown(body));
        enclosed(body, message.span, Span::new(array.start + 1, array.end - 1), b"{");
        at = message.span.end;
        assert_eq!(message.parts.start, part, "a part of no message: {}", shown(body));
        part = message.parts.end;
        inside(conversation, index, message);
    }
    assert_eq!(part, conversation.parts.len(), "a part of no message: {}", shown(body));
    for flaw in &conversation.flaws {
        assert!(flaw.message < conversation.messages.len(), "a flaw of no message");
        let message_of = |part| conversation.part(part).map(|part| part.message);
        assert!(
            flaw.part.is_none_or(|part| message_of(part) == Some(flaw.message)),
            "a flaw of no part"
        );
    }
}

/// The content and the parts of one message.
fn inside(conversation: &Conversation<'_>, index: usize, message: &Message) {
    let body = conversation.body;
    match message.content {
        Content::Blocks(span) => enclosed(body, span, message.span, b"["),
        Content::Text(span) => enclosed(body, span, message.span, b"\""),
        _ => {}
    }
    let mut at = message.span.start;
    for part in conversation.parts_of(message) {
        assert_eq!(part.message, index, "a part of another message: {}", shown(body));
        assert!(at <= part.span.start, "parts out of order: {}", shown(body));
        enclosed(body, part.span, message.span, b"");
        at = part.span.end;
        if let PartKind::Call(_) = &part.kind {
            let details = (conversation.details)(body, part.span);
            let found = [
                (details.name, b"\"".as_slice()),
                (details.input, b""),
                (details.toolset, b"\""),
            ];
            for (span, opening) in found {
                if let Some(span) = span {
                    enclosed(body, span, part.span, opening);
                }
            }
        }
    }
}

/// `span` lies inside `outer`, is a whole value without spaces around it, and begins as `opening` says.
fn enclosed(body: &[u8], span: Span, outer: Span, opening: &[u8]) {
    assert!(
        outer.start <= span.start && span.start < span.end && span.end <= outer.end,
        "{span:?} is not inside {outer:?}: {}",
        shown(body)
    );
    let bytes = span.of(body);
    assert!(
        bytes.starts_with(opening),
        "{span:?} does not begin as it should: {}",
        shown(body)
    );
    let trimmed = bytes.trim_ascii().len() == bytes.len();
    assert!(trimmed, "{span:?} has spaces around it: {}", shown(body));
    // What is skipped is not checked: only in a body that is JSON is everything a value.
    assert!(
        is_json(bytes) || !is_json(body),
        "{span:?} is no value: {}",
        shown(body)
    );
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(body).is_ok()
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}
