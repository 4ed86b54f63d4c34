//! What a policy allows: applicability is one comparison, tiers pick the words, hygiene can be switched off.

use antiphon::{
    repair::{Applicability, RepairPolicy, Tier, repair},
    wire::Wire,
};
use bytes::Bytes;

/// One of each: a duplicate that is equal, a missing result, an orphan, a result behind text, a null input.
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
fn less_is_applied_the_safer_the_least_allowed_class() {
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
fn a_tool_that_only_reads_is_said_to_be_safe_to_run_again() {
    let mut policy = RepairPolicy::default();
    let text = |policy: &RepairPolicy| {
        let done = repair(&Bytes::from_static(BODY.as_bytes()), Wire::ANTHROPIC, policy).unwrap();
        String::from_utf8(done.body.to_vec()).unwrap()
    };
    assert!(text(&policy).contains("its outcome is unknown"));
    policy.tiers.insert("cat".to_owned(), Tier::Read);
    assert!(text(&policy).contains("it is safe to run it again"));
}
