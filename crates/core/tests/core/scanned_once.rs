//! What spares a second scan of a body: a pairing that is taken back, and one splice for everything that is inserted.

use std::fs;

use antiphon_core::{
    repair::{
        ContinuityKind, ContinuityRules, Insertions, LateText, PairingContext, Parsed, PlaceOptions, RemoteCalls,
        RepairPolicy, continuity_gaps, late_places, parse,
    },
    wire::Wire,
};
use bytes::Bytes;
use serde_json::Value;

use crate::support::cases::folders;

/// A pairing leaves nothing behind, whatever was known for it: thinking that was refused, and remote calls.
#[test]
fn a_body_is_paired_again_as_if_it_were_scanned_again() {
    let policy = RepairPolicy::default();
    let (mut marked, mut answered) = (0, 0);
    for (wire, folder) in folders() {
        let body = fs::read(folder.join("request.json")).unwrap();
        let Ok(parsed) = parse(&body, wire) else { continue };
        let plainly = |parsed: Parsed<'_>| format!("{:?}", parsed.pair(PairingContext::new(&policy)));
        let fresh = plainly(parsed.clone());
        let refused = parsed.thinking_hashes();
        let references = parsed.remote_references().into_iter();
        let remote: Vec<RemoteCalls> = references
            .map(|history| RemoteCalls {
                due: Vec::new(),
                answered: history.results.into_iter().collect(),
            })
            .collect();
        let known = parsed.pair(PairingContext {
            refused_thinking: &refused,
            remote: &remote,
            ..PairingContext::new(&policy)
        });
        let text = format!("{known:?}");
        marked += usize::from(!refused.is_empty() && text != fresh);
        answered += usize::from(text.contains("owner: AnsweredCall"));
        assert_eq!(plainly(known.into_parsed()), fresh, "{}", folder.display());
    }
    assert!(
        marked > 5 && answered > 2,
        "{marked} with refused thinking, {answered} with answered calls"
    );
}

/// One splice writes what one after the other would, as long as no text is a message of its own.
#[test]
fn texts_and_values_are_inserted_as_one_after_the_other() {
    let signed = r#"{"functionCall":{"id":"a1","name":"f","args":{}}}"#;
    for (wire, body) in [
        (
            "gemini",
            format!(
                r#"{{"contents":[{{"role":"user","parts":[{{"text":"go"}}]}},{{"role":"model","parts":[{signed}]}},{{"role":"user","parts":[{{"functionResponse":{{"id":"a1","name":"f","response":{{}}}}}},{{"text":"and?"}}]}}]}}"#
            ),
        ),
        (
            "openai-chat-deepseek",
            r#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_00_aB3dE5fG7hJ9","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_00_aB3dE5fG7hJ9","content":"r"},{"role":"user","content":"and?"}]}"#.to_owned(),
        ),
    ] {
        let wire: Wire = wire.parse().unwrap();
        let (policy, body) = (RepairPolicy::default(), Bytes::from(body));
        let kinds = ContinuityRules { wire, is_google: false }.kinds();
        let paired = |body| parse(body, wire).unwrap().pair(PairingContext::new(&policy));
        let first = paired(&body);
        let place = late_places(&first, PlaceOptions::default()).pop().unwrap();
        let texts = [(place.message, LateText::from_text("late".to_owned()))];
        let gaps = continuity_gaps(&first, kinds, None);
        assert_eq!(gaps.len(), 1);
        let values: Vec<_> = gaps.iter().map(|gap| (gap.message, gap.kind, "V")).collect();
        let (only_texts, only_values) = (
            Insertions { texts: &texts, values: &[] },
            Insertions { texts: &[], values: &values },
        );
        let late = only_texts.put_into(&first, &body).unwrap();
        let one_by_one = only_values.put_into(&paired(&late), &late).unwrap();
        let together = Insertions { texts: &texts, values: &values };
        assert_eq!(together.put_into(&first, &body).unwrap(), one_by_one);
        assert_ne!(late, one_by_one);
    }
}

/// The places of values are those of the body without texts: a text that is a message of its own moves none.
#[test]
fn a_text_in_a_message_of_its_own_moves_no_value() {
    let turn = |id: &str| {
        let name = format!(r#""id":"{id}","name":"f""#);
        let result = format!(r#"{{"functionResponse":{{{name},"response":{{}}}}}}"#);
        let call = format!(r#"{{"functionCall":{{{name},"args":{{}}}}}}"#);
        format!(r#"{{"role":"model","parts":[{call}]}},{{"role":"user","parts":[{result}]}}"#)
    };
    let (one, two) = (turn("one"), turn("two"));
    let body = format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"go"}}]}},{one},{two}]}}"#);
    let (policy, body) = (RepairPolicy::default(), Bytes::from(body));
    let wire: Wire = "gemini".parse().unwrap();
    let paired = parse(&body, wire).unwrap().pair(PairingContext::new(&policy));
    let insertions = Insertions {
        texts: &[(2, LateText::from_text("late".to_owned()))],
        values: &[
            (1, ContinuityKind::Signature, "S1"),
            (3, ContinuityKind::Signature, "S2"),
        ],
    };
    let done = insertions.put_into(&paired, &body).unwrap();
    let done: Value = serde_json::from_slice(&done).unwrap();
    let signature = |index: usize| done["contents"][index]["parts"][0]["thoughtSignature"].as_str();
    assert_eq!(done["contents"][3]["parts"][0]["text"], "late", "{done:#}");
    assert_eq!((signature(1), signature(4)), (Some("S1"), Some("S2")), "{done:#}");
}
