//! The cases of `mend_cases/`: a body before and after a mend, by bytes.

use std::{fs, path::Path};

use antiphon_core::{
    mend::{Mend, meet_demand, mend_body},
    wire::{Demand, Learning, MendKind, MendReach, Wire},
};
use bytes::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct CaseFile {
    case: Vec<MendCase>,
}

/// A body before and after a mend.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MendCase {
    name: String,
    wire: String,
    /// Name and argument of the mend.
    mend: String,
    /// The place that the refusal names.
    place: Option<String>,
    /// The name that the refusal quotes.
    quoted: Option<String>,
    #[serde(default)]
    numbers: Vec<u64>,
    #[serde(default)]
    ids: Vec<String>,
    /// The places at which the mend acts, if the row says them: `all` or `named`.
    fits: Option<String>,
    before: String,
    /// The same as `before` if it is left out: the mend does not fit.
    after: Option<String>,
    /// `true` if later bodies are not mended without a refusal: the mend is for named blocks or for one body.
    #[serde(default)]
    once: bool,
}

fn cases() -> Vec<MendCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/mend_cases");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        toml::from_str::<CaseFile>(&text)
            .unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
            .case
    };
    files.iter().flat_map(read).collect()
}

fn demand_of(case: &MendCase) -> Demand {
    let (name, word) = case.mend.split_once(' ').unwrap_or((&case.mend, ""));
    let kind = MendKind::from_name(name).unwrap_or_else(|| panic!("{}: {name}", case.name));
    Demand {
        row: case.name.as_str().into(),
        kind,
        word: (!word.is_empty()).then(|| word.into()),
        place: case.place.as_deref().map(Into::into),
        name: case.quoted.as_deref().map(Into::into),
        numbers: case.numbers.clone(),
        reach: match case.fits.as_deref() {
            Some("all") => MendReach::All,
            Some("named") => MendReach::Named,
            _ => kind.reach(),
        },
        learning: if case.once { Learning::Once } else { Learning::Rule },
    }
}

#[test]
fn each_case_is_mended_as_it_says_once_and_for_all() {
    let none = |_: &[u8; 32]| false;
    let mut faults = Vec::new();
    for case in cases() {
        let wire: Wire = case.wire.parse().unwrap();
        let (before, demand) = (Bytes::from(case.before.clone()), demand_of(&case));
        let wanted = case.after.as_ref().unwrap_or(&case.before);
        let mended = meet_demand(&before, wire, &demand, &case.ids, &none).unwrap();
        let text = String::from_utf8_lossy(&mended.body);
        if text != *wanted {
            faults.push(format!("{}: got\n{text}\nwanted\n{wanted}", case.name));
            continue;
        }
        if case.after.is_none() {
            assert!(
                mended.made.is_empty() && mended.body.as_ptr() == before.as_ptr(),
                "{}",
                case.name
            );
            continue;
        }
        let mends: Vec<_> = mended.made.iter().map(|(mend, _)| mend.clone()).collect();
        // Without a second refusal its place says nothing about the mended body.
        let again = if case.once {
            meet_demand(&mended.body, wire, &demand, &case.ids, &none).unwrap()
        } else {
            mend_body(&mended.body, wire, &mends, &none).unwrap()
        };
        if again.body != mended.body {
            faults.push(format!(
                "{}: again\n{}",
                case.name,
                String::from_utf8_lossy(&again.body)
            ));
        }
        if !case.once && mend_body(&before, wire, &mends, &none).unwrap().body != mended.body {
            faults.push(format!("{}: as a rule", case.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn no_mend_changes_a_body_that_it_does_not_fit() {
    let none = |_: &[u8; 32]| false;
    let bodies = [
        ("anthropic", r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        ("openai-chat", r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        ("openai-responses", r#"{"input":"hi"}"#),
        ("gemini", r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#),
        ("anthropic", r#"{"requests":[]}"#),
    ];
    for (wire, body) in bodies {
        let (wire, body): (Wire, Bytes) = (wire.parse().unwrap(), body.into());
        for kind in MendKind::all() {
            let mend = Mend::new(kind, "word").unwrap();
            let mended = mend_body(&body, wire, &[mend], &none).unwrap();
            assert!(mended.made.is_empty(), "{kind:?}: {mended:?}");
        }
    }
}

/// Returns the body with each message, and each block of it, so many times. `None` if it has no list of messages.
#[cfg(debug_assertions)]
fn repeated(body: &str, messages: usize, blocks: usize) -> Option<Bytes> {
    use serde_json::Value;
    let repeat = |list: &mut Vec<Value>, times: usize| {
        let once = list.clone();
        *list = std::iter::repeat_n(once, times).flatten().collect();
    };
    let mut body: Value = serde_json::from_str(body).ok()?;
    let key = ["messages", "input", "contents"]
        .into_iter()
        .find(|key| body[key].is_array())?;
    let history = body[key].as_array_mut()?;
    for message in history.iter_mut() {
        for content in ["content", "parts", "output"] {
            if let Some(list) = message[content].as_array_mut() {
                repeat(list, blocks);
            }
        }
    }
    repeat(history, messages);
    Some(body.to_string().into())
}

#[cfg(debug_assertions)]
#[test]
fn the_steps_of_a_mend_grow_with_the_body() {
    let none = |_: &[u8; 32]| false;
    for case in cases() {
        let (wire, demand): (Wire, _) = (case.wire.parse().unwrap(), demand_of(&case));
        let demand = Demand {
            reach: MendReach::All,
            place: None,
            ..demand
        };
        let steps = |messages, blocks| {
            let body = repeated(&case.before, messages, blocks)?;
            let mended = antiphon_core::work::measure(|| meet_demand(&body, wire, &demand, &case.ids, &none));
            Some(mended.0)
        };
        for (small, large) in [((8, 1), (64, 1)), ((1, 8), (1, 64))] {
            let (Some(small), Some(large)) = (steps(small.0, small.1), steps(large.0, large.1)) else {
                continue;
            };
            assert!(large <= small * 12 + 4_000, "{}: {small}, {large}", case.name);
        }
    }
}

/// A body may have any depth: blocks of results in results are not read as blocks.
#[test]
fn a_deep_body_is_read_without_recursion() {
    let none = |_: &[u8; 32]| false;
    let open = r#"{"type":"tool_result","tool_use_id":"t","extra":1,"content":["#;
    let depth = 20_000;
    let nested = open.repeat(depth) + &"]}".repeat(depth);
    let body = Bytes::from(format!(r#"{{"messages":[{{"role":"user","content":[{nested}]}}]}}"#));
    let demand = demand_of(&MendCase {
        name: "deep".to_owned(),
        wire: "anthropic".to_owned(),
        mend: "drop_member extra".to_owned(),
        place: None,
        quoted: None,
        numbers: Vec::new(),
        ids: Vec::new(),
        fits: None,
        before: String::new(),
        after: None,
        once: false,
    });
    for kind in [MendKind::DropMember, MendKind::QuoteBlock, MendKind::LimitMarkers] {
        let demand = Demand { kind, ..demand.clone() };
        let mended = meet_demand(&body, "anthropic".parse().unwrap(), &demand, &[], &none).unwrap();
        // Of the outer result, and of the one in it.
        let count = if kind == MendKind::DropMember { 2 } else { 0 };
        let made: usize = mended.made.iter().map(|(_, count)| count).sum();
        assert_eq!(made, count, "{kind:?}");
    }
}

/// The memory of a mend is bounded, also where the client has chosen its words.
#[test]
fn a_class_that_is_too_long_to_be_remembered_is_not_mended() {
    let none = |_: &[u8; 32]| false;
    let mended = |kind: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"{kind}","extra":1}}]}}]}}"#);
        let demand = Demand {
            row: "row".into(),
            kind: MendKind::DropMember,
            word: Some("extra".into()),
            place: Some("messages.0.content.0.extra".into()),
            name: None,
            numbers: Vec::new(),
            reach: MendReach::All,
            learning: Learning::Rule,
        };
        let mended = meet_demand(&body.into(), Wire::ANTHROPIC, &demand, &[], &none).unwrap();
        let mends: Vec<Mend> = mended.made.into_iter().map(|(mend, _)| mend).collect();
        assert_eq!(Mend::read_list(&Mend::write_list(&mends)), Some(mends.clone()));
        mends.len()
    };
    assert_eq!((mended(&"x".repeat(128)), mended(&"x".repeat(129))), (1, 0));
}

/// A refusal of every image of a long history teaches a bounded number of blocks.
#[test]
fn one_refusal_teaches_a_bounded_number_of_blocks() {
    let none = |_: &[u8; 32]| false;
    let image = |at: usize| format!(r#"{{"type":"image","source":{{"type":"file","file_id":"f{at}"}}}}"#);
    let images = (0..1_000).map(image).collect::<Vec<_>>().join(",");
    let rest = r#"{"role":"assistant","content":"so"},{"role":"user","content":"go"}"#;
    let body = format!(r#"{{"messages":[{{"role":"user","content":[{images}]}},{rest}]}}"#);
    let demand = Demand {
        row: "row".into(),
        kind: MendKind::QuoteBlock,
        word: Some("image".into()),
        place: None,
        name: None,
        numbers: Vec::new(),
        reach: MendReach::All,
        learning: Learning::Block,
    };
    let mended = meet_demand(&body.into(), Wire::ANTHROPIC, &demand, &[], &none).unwrap();
    assert_eq!((mended.blocks.len(), mended.made[0].1), (256, 256));
    // The next try reaches the next ones.
    let again = meet_demand(&mended.body, Wire::ANTHROPIC, &demand, &[], &none).unwrap();
    assert!(again.blocks.iter().all(|block| !mended.blocks.contains(block)));
}
