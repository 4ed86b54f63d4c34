//! The cases of `mend_cases/`: a body before and after a mend, by bytes.

use std::{fs, path::Path};

use antiphon_core::{
    mend::{meet_demand, mend_body},
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
        is_own: false,
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
            let mend = antiphon_core::mend::Mend::new(kind, "word").unwrap();
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
