//! Mends of any histories: those of the rows, generated ones, and both after damage.

use antiphon_core::{
    mend::{Mend, meet_demand, mend_body},
    repair::{RepairPolicy, repair},
    wire::{MendKind, Wire, json},
};
use bytes::Bytes;
use serde_json::Value;

use crate::support::{
    bodies::{self, Rng},
    refusals::{REFUSALS, ROWS, TABLE},
    seed,
};

/// The mends of all rows, with words of kinds that no row teaches as a rule.
fn taught_mends() -> Vec<Mend> {
    let none = |_: &[u8; 32]| false;
    let mut mends = Vec::new();
    for row in ROWS.iter().filter(|row| row.mend.is_some()) {
        let Some(repair) = &row.repair else { continue };
        let text = &REFUSALS.iter().find(|known| known.row == row.name).unwrap().text;
        let refusal = TABLE.read(text.as_bytes()).unwrap().refusal;
        let (demand, wire): (_, Wire) = (refusal.demand.unwrap(), repair.wire.parse().unwrap());
        let mended = meet_demand(&repair.before.clone().into(), wire, &demand, &refusal.ids, &none).unwrap();
        for (mend, _) in mended.made {
            // Of blocks that were refused before there are none here.
            mends.push(Mend {
                only_refused: false,
                ..mend
            });
        }
    }
    mends.push(Mend::new(MendKind::LoneSurrogates, "").unwrap());
    mends.sort();
    mends.dedup();
    mends
}

/// Histories of the rows, and generated ones: 6 of each format, or `STEPS`.
fn histories(rng: &mut Rng) -> Vec<(Wire, String)> {
    let of_rows = ROWS.iter().filter_map(|row| row.repair.as_ref());
    let mut all: Vec<(Wire, String)> = of_rows
        .map(|repair| (repair.wire.parse().unwrap(), repair.before.clone()))
        .collect();
    for name in ["anthropic", "openai-chat", "openai-responses", "gemini"] {
        let wire: Wire = name.parse().unwrap();
        for _ in 0..seed::number("STEPS").unwrap_or(6) {
            let body = bodies::healthy(rng.next(), wire).bytes();
            all.push((wire, String::from_utf8(body).unwrap()));
        }
    }
    all
}

/// Damages a value: a random node goes, or becomes something else.
fn damage(rng: &mut Rng, value: &mut Value, depth: usize) {
    let other = |rng: &mut Rng| match rng.below(7) {
        0 => Value::Null,
        1 => "".into(),
        2 => Value::Array(Vec::new()),
        3 => Value::Object(serde_json::Map::new()),
        4 => 7.into(),
        5 => " ".into(),
        _ => true.into(),
    };
    match value {
        Value::Object(members) if !members.is_empty() && (depth == 0 || rng.chance(80)) => {
            let at = rng.below(members.len());
            let key = members.keys().nth(at).unwrap().clone();
            if rng.chance(15) && depth > 0 {
                members.remove(&key);
            } else {
                damage(rng, &mut members[&key], depth + 1);
            }
        }
        Value::Array(elements) if !elements.is_empty() && rng.chance(90) => {
            let at = rng.below(elements.len());
            if rng.chance(10) {
                elements.remove(at);
            } else {
                damage(rng, &mut elements[at], depth + 1);
            }
        }
        _ => *value = other(rng),
    }
}

/// Returns what no mend may change: tools, and the ids of calls and results.
fn untouchable(body: &Value) -> (Vec<Value>, Vec<String>) {
    let tools = ["tools", "tool_choice", "response_format", "output_config"].map(|key| body[key].clone());
    let mut ids = Vec::new();
    collect_ids(body, &mut ids);
    (tools.into(), ids)
}

fn collect_ids(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if ["tool_use_id", "tool_call_id", "call_id"].contains(&key.as_str()) {
                    ids.extend(value.as_str().map(str::to_owned));
                }
                collect_ids(value, ids);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_ids(element, ids)),
        _ => {}
    }
}

#[test]
fn mends_are_made_once_and_leave_calls_and_tools_alone() {
    let (mends, seed) = (taught_mends(), seed::seed());
    let mut rng = Rng::new(seed);
    let none = |_: &[u8; 32]| false;
    let (mut made, mut tried) = (0, 0);
    for (wire, history) in histories(&mut rng) {
        for round in 0..5 {
            let mut value: Value = serde_json::from_str(&history).unwrap();
            for _ in 0..round.min(4) {
                damage(&mut rng, &mut value, 0);
            }
            let body: Bytes = if round == 0 { history.clone() } else { value.to_string() }.into();
            let one = rng.below(mends.len());
            let other = rng.below(mends.len());
            let mut pair = vec![mends[one].clone(), mends[other].clone()];
            pair.sort();
            for chosen in [&mends[one..=one], &pair, &mends] {
                let told = || format!("seed {seed}: {chosen:?}\n{}", String::from_utf8_lossy(&body));
                let once =
                    mend_body(&body, wire, chosen, &none).unwrap_or_else(|fault| panic!("{fault:?}: {}", told()));
                json::validate(&once.body).unwrap_or_else(|fault| panic!("{fault:?}: {}", told()));
                let again = mend_body(&once.body, wire, chosen, &none).unwrap();
                assert_eq!(again.body, once.body, "{}", told());
                let (before, after): (Value, Value) = (
                    serde_json::from_slice(&body).unwrap(),
                    serde_json::from_slice(&once.body).unwrap(),
                );
                let (mut before, mut after) = (untouchable(&before), untouchable(&after));
                // A quoted pair of a foreign server tool is no pair any more.
                if chosen.iter().any(|mend| *mend.word == *"server_pair") {
                    before.1.retain(|id| after.1.contains(id));
                }
                before.1.sort();
                after.1.sort();
                assert_eq!(after, before, "{}", told());
                // What is mended needs no more repair than before.
                let policy = RepairPolicy::default();
                let findings = |body: &Bytes| repair(body, wire, &policy).map(|done| done.report.findings);
                // Reasoning goes only if it was refused: others need it.
                let takes_reasoning = chosen.iter().any(|mend| mend.kind == MendKind::DropReasoning);
                if let (Ok(before), Ok(after)) = (findings(&body), findings(&once.body))
                    && before.is_empty()
                    && !takes_reasoning
                {
                    assert_eq!(after, [], "{}", told());
                }
                made += usize::from(!once.made.is_empty());
                tried += 1;
            }
        }
    }
    assert!(made * 20 > tried, "{made} of {tried}");
}
