//! Reading and repairing a body, as every wire.

use antiphon_core::{
    conversation::{Content, Conversation, Message, PartKind, rules::WordsPlace},
    repair::{KnownResults, LearnedRules, PairingContext, RepairPolicy, parse, plan},
    splice::Span,
    wire::{Format, Unreadable, Wire},
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{feed::Feed, oracle, talk};

/// Checks that reading never panics, returns "not JSON" only for invalid JSON, and gives nested spans inside the body.
pub fn read(body: &[u8]) {
    let is_json = is_json(body);
    for (_, wire) in Wire::NAMES {
        match wire.read(body) {
            Ok(conversation) => {
                assert_eq!(conversation.body.as_ptr(), body.as_ptr(), "{wire}: another body");
                check_nesting(&conversation);
            }
            Err(why) => assert_eq!(why != Unreadable::NotJson, is_json, "{wire}: {why}"),
        }
    }
}

/// Checks that valid JSON is read as by the scanner's oracle, a plain reader that parses every level in full.
pub fn agree(body: &[u8]) {
    for format in Format::ALL {
        check_agreement(body, format);
    }
}

fn check_agreement(body: &[u8], format: Format) {
    for (_, wire) in Wire::NAMES.iter().filter(|(_, wire)| wire.format == format) {
        let wanted = oracle::read(body, *wire);
        if wanted.is_none() && !is_json(body) {
            // The scanner may read invalid JSON. The full parse before an edit refuses it.
            return;
        }
        let told = wire.read(body).ok().map(|read| oracle::from_conversation(&read));
        assert_eq!(told, wanted, "{wire}: {}", lossy_text(body));
    }
}

/// Checks that repairing never panics, keeps JSON valid, is idempotent, and returns the same buffer for a healthy body.
pub fn repair(body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    for (_, wire) in Wire::NAMES {
        check_repair(&body, *wire);
        check_learned(&body, *wire);
    }
}

/// As [`repair`], over conversations that the bytes choose, in every format.
pub fn conversations(choices: &[u8]) {
    for format in Format::ALL {
        let body = Bytes::from(talk::body(&mut Feed::new(choices), format));
        assert!(is_json(&body), "the generator wrote no JSON: {}", lossy_text(&body));
        check_agreement(&body, format);
        for (_, wire) in Wire::NAMES.iter().filter(|(_, wire)| wire.format == format) {
            check_nesting(
                &wire
                    .read(&body)
                    .unwrap_or_else(|why| panic!("{wire}: {why}: {}", lossy_text(&body))),
            );
            check_repair(&body, *wire);
            check_learned(&body, *wire);
            check_verdict(&body, *wire);
        }
    }
}

fn check_repair(body: &Bytes, wire: Wire) {
    let policy = RepairPolicy::default();
    let (done, findings) = match (
        antiphon_core::repair(body, wire, &policy),
        antiphon_core::check(body, wire, &policy),
    ) {
        (Ok(done), Ok(findings)) => (done, findings),
        (Err(one), Err(two)) if one == two => return,
        (one, two) => panic!("{wire}: {:?} but {:?}: {}", one.err(), two.err(), lossy_text(body)),
    };
    assert_eq!(done.report.findings, findings, "{wire}: {}", lossy_text(body));
    let parts = done.body.parts();
    let length: usize = parts.iter().map(Bytes::len).sum();
    assert_eq!(done.body.len(), length, "{wire}: {}", lossy_text(body));
    if findings.is_empty() || done.report.actions.is_empty() && done.report.deferred == 0 {
        assert!(
            done.body.is_original(),
            "{wire}: an edit without reason: {}",
            lossy_text(body)
        );
    }
    if done.body.is_original() {
        let same = |part: &Bytes| (part.as_ptr(), part.len()) == (body.as_ptr(), body.len());
        assert!(
            parts.len() == 1 && same(&parts[0]),
            "{wire}: a copy: {}",
            lossy_text(body)
        );
        return;
    }
    let out = Bytes::from(done.body.to_vec());
    let told = || format!("{wire}\n--- in\n{}\n--- out\n{}", lossy_text(body), lossy_text(&out));
    assert!(is_json(&out), "an edit broke the JSON: {}", told());
    match antiphon_core::repair(&out, wire, &policy) {
        Ok(again) => assert!(
            again.body.is_original(),
            "a second repair adds edits: {}\n--- again\n{}",
            told(),
            lossy_text(&again.body.to_vec())
        ),
        Err(why) => panic!("what came out is {why}: {}", told()),
    }
}

/// Checks the same under a rule that a refusal may teach. The length of the body selects the rule.
fn check_learned(body: &Bytes, wire: Wire) {
    let words = |place| LearnedRules {
        words: Some(place),
        ..LearnedRules::NONE
    };
    let rules = [
        LearnedRules {
            strict_calls: true,
            unique_ids: true,
            ..LearnedRules::NONE
        },
        words(WordsPlace::BeforeCalls),
        words(WordsPlace::ApartFromResults),
        words(WordsPlace::Bridged),
    ];
    let learned = rules[body.len() % rules.len()];
    let Some(out) = repair_learned(body, wire, learned) else {
        return;
    };
    let told = || {
        format!(
            "{wire} {learned:?}\n--- in\n{}\n--- out\n{}",
            lossy_text(body),
            lossy_text(&out)
        )
    };
    assert!(out == body || is_json(&out), "an edit broke the JSON: {}", told());
    let again = repair_learned(&out, wire, learned);
    assert!(again.as_ref() == Some(&out), "a second repair adds edits: {}", told());
}

fn repair_learned(body: &Bytes, wire: Wire, learned: LearnedRules) -> Option<Bytes> {
    let policy = RepairPolicy::default();
    let context = PairingContext {
        learned,
        ..PairingContext::new(&policy)
    };
    let paired = parse(body, wire).ok()?.pair(context);
    let plan = plan(&paired, &KnownResults::default(), &policy).ok()?;
    Some(plan.splice(&paired, body).ok()?.to_vec().into())
}

/// A body that the provider accepts is accepted after its repair too.
fn check_verdict(body: &Bytes, wire: Wire) {
    let judge = |body: &[u8]| super::judge::of(wire)(&serde_json::from_slice(body).unwrap_or_default());
    if judge(body).is_err() {
        return;
    }
    let Ok(done) = antiphon_core::repair(body, wire, &RepairPolicy::default()) else {
        return;
    };
    let out = done.body.to_vec();
    if let Err(refusal) = judge(&out) {
        let (before, after) = (lossy_text(body), lossy_text(&out));
        panic!("{wire}: {}\n--- in\n{before}\n--- out\n{after}", refusal.message);
    }
}

fn check_nesting(conversation: &Conversation<'_>) {
    let body = conversation.body;
    let Some(array) = conversation.array else {
        assert!(conversation.messages.is_empty() && conversation.parts.is_empty());
        return;
    };
    check_span(body, array, Span::new(0, body.len()), b"[");
    let (mut at, mut part) = (array.start + 1, 0);
    for (index, message) in conversation.messages.iter().enumerate() {
        assert!(at <= message.span.start, "messages out of order: {}", lossy_text(body));
        check_span(body, message.span, Span::new(array.start + 1, array.end - 1), b"{");
        at = message.span.end;
        assert_eq!(message.parts.start, part, "a part of no message: {}", lossy_text(body));
        part = message.parts.end;
        check_message(conversation, index, message);
    }
    assert_eq!(
        part,
        conversation.parts.len(),
        "a part of no message: {}",
        lossy_text(body)
    );
    for flaw in &conversation.flaws {
        assert!(flaw.message < conversation.messages.len(), "a flaw of no message");
        let message_of = |part| conversation.part(part).map(|part| part.message);
        assert!(
            flaw.part.is_none_or(|part| message_of(part) == Some(flaw.message)),
            "a flaw of no part"
        );
    }
}

/// Checks the content and the parts of one message.
fn check_message(conversation: &Conversation<'_>, index: usize, message: &Message) {
    let body = conversation.body;
    match message.content {
        Content::Blocks(span) => check_span(body, span, message.span, b"["),
        Content::Text(span) => check_span(body, span, message.span, b"\""),
        _ => {}
    }
    let mut at = message.span.start;
    for part in conversation.parts_of(message) {
        assert_eq!(part.message, index, "a part of another message: {}", lossy_text(body));
        assert!(at <= part.span.start, "parts out of order: {}", lossy_text(body));
        check_span(body, part.span, message.span, b"");
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
                    check_span(body, span, part.span, opening);
                }
            }
        }
    }
}

/// Checks that `span` lies inside `outer`, is a whole value without spaces around it, and begins with a byte of
/// `opening`.
fn check_span(body: &[u8], span: Span, outer: Span, opening: &[u8]) {
    assert!(
        outer.start <= span.start && span.start < span.end && span.end <= outer.end,
        "{span:?} is not inside {outer:?}: {}",
        lossy_text(body)
    );
    let bytes = span.of(body);
    assert!(
        bytes.starts_with(opening),
        "{span:?} does not begin as it should: {}",
        lossy_text(body)
    );
    // Of the ASCII blanks, JSON has these four. A form feed is part of a broken value.
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\n' | b'\r' | b'\t'));
    let trimmed = !is_blank(bytes.first()) && !is_blank(bytes.last());
    assert!(trimmed, "{span:?} has spaces around it: {}", lossy_text(body));
    // Skipped parts are not validated, so only a valid body contains values everywhere.
    assert!(
        is_json(bytes) || !is_json(body),
        "{span:?} is no value: {}",
        lossy_text(body)
    );
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(body).is_ok()
}

fn lossy_text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}
