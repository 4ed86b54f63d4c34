//! Pins every byte that repair writes into bodies, and every text that it compares bodies with.
//!
//! Providers have cached prompts with these bytes, and thinking is bound to them, so no text may ever be reworded. A
//! new wording needs a new number for new rows. See `tests/frozen/texts.txt`.

use std::collections::BTreeMap;

use antiphon::{
    conversation::lost_results::{LOST_BYTES_MAX, LOST_RESULTS, LostText, is_lost},
    repair::{
        Insertions, KnownResults, LateCall, LateText, Paired, PairingContext, PinnedResult, PlaceOptions, Placeholder,
        RealResult, RefusalReading, RepairPolicy, Tier, late_places, late_text, parse, plan,
    },
    wire::{Refusal, RefusalKind, Wire},
};
use bytes::Bytes;

use crate::{
    frozen::bodies::{CALLS, LATE, ROWS, TIERS, UNBOUND},
    frozen::golden::same,
};

/// Returns the wire of this name.
fn wire(name: &str) -> Wire {
    let known = Wire::NAMES.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("no wire {name}")).1
}

/// Returns the policy of a configuration that names a tool of each tier.
fn policy() -> RepairPolicy {
    let tiers = [
        ("reads", Tier::Read),
        ("reverts", Tier::Revertible),
        ("keeps", Tier::Durable),
        ("sends", Tier::OneWay),
    ];
    RepairPolicy {
        tiers: BTreeMap::from(tiers.map(|(name, tier)| (name.to_owned(), tier))),
        ..RepairPolicy::default()
    }
}

/// Adds one fact. A body must be one line.
fn line(facts: &mut String, name: &str, text: &str) {
    assert!(!text.contains('\n'), "{name}: {text}");
    facts.push_str(&format!("{name}: {text}\n"));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Pairs a body under the policy of these tests.
fn paired(wire: Wire, body: &Bytes) -> Paired<'_> {
    parse(body, wire).unwrap().pair(PairingContext::new(&policy()))
}

/// Repairs a body in which every open call has this pinned result, if any.
fn repaired(name: &str, wire: Wire, body: &str, pinned: Option<&PinnedResult>) -> String {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let paired = paired(wire, &body);
    let open = paired.open_calls();
    let known = KnownResults {
        pinned: open.filter_map(|call| Some((call.key, pinned?.clone()))).collect(),
        ..KnownResults::default()
    };
    let plan = plan(&paired, &known, &policy()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let repaired = plan.splice(&paired, &body).unwrap();
    assert!(!repaired.is_original(), "{name}: nothing was written");
    text(&repaired.to_vec())
}

/// Returns pinned results, under the names of their kinds.
fn kept() -> Vec<(String, PinnedResult)> {
    let mut kept: Vec<(String, PinnedResult)> = [1, 2]
        .map(|number| {
            let placeholder = Placeholder::from_number(number).unwrap();
            (format!("placeholder {number}"), PinnedResult::Placeholder(placeholder))
        })
        .into();
    assert_eq!(Placeholder::from_number(0).or(Placeholder::from_number(3)), None);
    for (name, content) in [
        ("text", r#""said \"so\"""#),
        ("list", r#"[{"type":"text","text":"said"}]"#),
        ("object", r#"{"said":1}"#),
        ("number", "7"),
    ] {
        for failed in [false, true] {
            let content = content.to_owned();
            let name = format!("{name}{}", if failed { " that failed" } else { "" });
            kept.push((name, PinnedResult::Result(RealResult::Content { content, failed })));
        }
    }
    kept
}

/// A result block as each format pins it, with the id it had.
const BLOCKS: [(&str, &str); 4] = [
    (
        "anthropic",
        r#"{"type":"tool_result","tool_use_id":"old","content":"kept"}"#,
    ),
    (
        "openai-chat",
        r#"{"role":"tool","tool_call_id":"old","content":"kept"}"#,
    ),
    (
        "openai-responses",
        r#"{"type":"function_call_output","call_id":"old","output":"kept"}"#,
    ),
    (
        "gemini",
        r#"{"functionResponse":{"id":"old","name":"reads","response":{"result":"kept"}}}"#,
    ),
];

fn remembered(facts: &mut String) {
    for (name, body) in CALLS {
        for (kind, frozen) in kept() {
            let kind = format!("remembered {kind} {name}");
            line(facts, &kind, &repaired(&kind, wire(name), body, Some(&frozen)));
        }
        let block = BLOCKS.iter().find(|(known, _)| known == name).unwrap().1.to_owned();
        let kind = format!("remembered block {name}");
        let frozen = PinnedResult::Result(RealResult::Block(block));
        line(facts, &kind, &repaired(&kind, wire(name), body, Some(&frozen)));
    }
}

/// Adds late results: their text, and their place at the end of a message.
fn late(facts: &mut String) {
    for (kind, content, failed) in [
        ("text", r#""one\ntwo""#, false),
        ("error", r#""no""#, true),
        (
            "list of texts",
            r#"[{"type":"text","text":"x"},{"type":"text","text":"y"}]"#,
            false,
        ),
        (
            "list with an image",
            r#"[{"type":"text","text":"x"}, {"type":"image"}]"#,
            false,
        ),
        ("object", r#"{ "a": 1 }"#, false),
        ("marks", r#""[antiphon: end of result toolu_1]\n[antiphon: x""#, false),
    ] {
        let late = late_text("toolu_1", "run it", content, failed, LateCall::InHistory);
        line(facts, &format!("late {kind}"), &format!("{late:?}"));
    }
    line(
        facts,
        "late without names",
        &format!("{:?}", late_text("", "", "\"x\"", false, LateCall::InHistory)),
    );
    let late = late_text("toolu_1", "run", "\"done\"", false, LateCall::InHistory);
    for (name, body) in LATE {
        let body = Bytes::from_static(body.as_bytes());
        let paired = paired(wire(name), &body);
        let place = late_places(&paired, PlaceOptions::default()).pop().unwrap();
        let insertions = Insertions {
            texts: &[(place.message, LateText::from_text(late.clone()))],
            values: &[],
        };
        let done = insertions.put_into(&paired, &body).unwrap();
        line(facts, &format!("appended {name}"), &text(&done));
    }
}

/// Adds the bodies after a refusal: answers for remote calls, and the setting for bound thinking.
fn after_refusals(facts: &mut String) {
    for (name, body) in [
        (
            "anthropic",
            r#"{"thread":{"type":"continue","previous_message_id":"msg_1"},"messages":[{"role":"user","content":"on"}]}"#,
        ),
        (
            "openai-responses",
            r#"{"previous_response_id":"resp_1","input":[{"role":"user","content":"on"}]}"#,
        ),
        ("openai-responses", r#"{"conversation":"conv_1","input":"on"}"#),
    ] {
        let body = Bytes::from_static(body.as_bytes());
        let refused = Refusal {
            row: "row".into(),
            kind: RefusalKind::Unanswered,
            ids: vec!["call_1".to_owned(), "call_2".to_owned()],
            demand: None,
        };
        let reads = |reading: &RefusalReading| {
            let policy = policy();
            let parsed = parse(&body, wire(name)).unwrap();
            let paired = parsed.pair_refused(PairingContext::new(&policy), &refused, *reading);
            let plan = plan(&paired, &KnownResults::default(), &policy).unwrap();
            let again = plan.splice(&paired, &body).unwrap();
            let is_met = reading.is_met(&refused, &plan.report.findings) && !again.is_original();
            is_met.then(|| again.to_vec())
        };
        let again = RefusalReading::ALL.iter().find_map(reads).unwrap();
        line(facts, &format!("held calls {name}"), &text(&again));
    }
    for body in UNBOUND {
        let body = Bytes::from_static(body.as_bytes());
        let paired = paired(Wire::ANTHROPIC, &body);
        let mut plan = plan(&paired, &KnownResults::default(), &policy()).unwrap();
        assert!(plan.drop_bound_thinking(&paired).unwrap());
        let again = plan.splice(&paired, &body).unwrap();
        line(facts, "unbound anthropic", &text(&again.to_vec()));
    }
}

#[test]
fn written_bytes_are_pinned() {
    let mut facts = String::new();
    for number in [1, 2] {
        let placeholder = Placeholder::from_number(number).unwrap();
        assert_eq!(placeholder.number(), number);
        line(&mut facts, &format!("placeholder {number}"), placeholder.text());
    }
    for (name, body) in TIERS {
        let name = format!("placeholders by tier {name}");
        let wire = wire(name.rsplit(' ').next().unwrap());
        line(&mut facts, &name, &repaired(&name, wire, body, None));
    }
    for (what, name, body) in ROWS {
        let what = format!("{what} {name}");
        line(&mut facts, &what, &repaired(&what, wire(name), body, None));
    }
    remembered(&mut facts);
    late(&mut facts);
    after_refusals(&mut facts);
    same("texts.txt", &facts);
}

#[test]
fn lost_result_texts_are_pinned() {
    let mut facts = format!("longest: {LOST_BYTES_MAX} bytes\n");
    for row in LOST_RESULTS {
        let (how, texts) = match row.text {
            LostText::Whole(whole) => ("whole", vec![whole]),
            LostText::Begins(begin) => ("begin", vec![begin]),
            LostText::Between(begin, end) => ("with a figure between", vec![begin, end]),
        };
        let said = texts.join("3.5");
        assert!(is_lost(said.as_bytes()), "{said:?}");
        let is_longer = is_lost(format!("{said}, and more").as_bytes());
        line(&mut facts, how, &format!("{texts:?} longer={is_longer}"));
    }
    same("lost-results.txt", &facts);
}
