//! Repair policies: applicability is one comparison, tiers choose the text, and hygiene can be switched off.

use antiphon_core::{
    repair::{Applicability, RepairPolicy, Tier, repair},
    wire::Wire,
};
use bytes::Bytes;

/// One of each: an equal duplicate, a missing result, an orphan, a result after text, and a null input.
const BODY: &str = r#"{"messages":[{"role":"user","content":"go"},
{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01A","name":"cat","input":null},{"type":"tool_use","id":"toolu_01B","name":"cat","input":{}},{"type":"tool_use","id":"toolu_01C","name":"cat","input":{}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01A","content":"a"},{"type":"tool_result","tool_use_id":"toolu_01A","content":"a"},{"type":"tool_result","tool_use_id":"toolu_00Z","content":"z"},{"type":"text","text":"hm"},{"type":"tool_result","tool_use_id":"toolu_01C","content":"c"}]}]}"#;

fn labels(policy: &RepairPolicy) -> Vec<String> {
    let done = repair(&Bytes::from_static(BODY.as_bytes()), Wire::ANTHROPIC, policy).unwrap();
    done.report
        .actions
        .iter()
        .map(|(action, count)| format!("{}={count}", action.label()))
        .collect()
}

#[test]
fn a_safer_least_class_applies_fewer_actions() {
    let rows = [
        (
            Applicability::Lossy,
            vec!["moved=1", "quoted=1", "dropped=1", "placeholder=1", "fixed=1"],
        ),
        (
            Applicability::Inventive,
            vec!["moved=1", "quoted=2", "placeholder=1", "fixed=1"],
        ),
        (Applicability::Salvage, vec!["moved=1", "quoted=2", "fixed=1"]),
        (Applicability::Lossless, vec!["moved=1", "fixed=1"]),
    ];
    for (least, wanted) in rows {
        assert_eq!(
            labels(&RepairPolicy {
                least_safe: least,
                ..RepairPolicy::default()
            }),
            wanted,
            "{least:?}"
        );
    }
}

#[test]
fn hygiene_can_be_switched_off() {
    let policy = RepairPolicy {
        hygiene: false,
        ..RepairPolicy::default()
    };
    assert!(!labels(&policy).contains(&"fixed=1".to_owned()));
}

#[test]
fn the_placeholder_of_a_read_tool_allows_a_rerun() {
    let mut policy = RepairPolicy::default();
    let text = |policy: &RepairPolicy| {
        let done = repair(&Bytes::from_static(BODY.as_bytes()), Wire::ANTHROPIC, policy).unwrap();
        String::from_utf8(done.body.to_vec()).unwrap()
    };
    assert!(text(&policy).contains("its outcome is unknown"));
    policy.tiers.insert("cat".to_owned(), Tier::Read);
    assert!(text(&policy).contains("it is safe to run it again"));
}
