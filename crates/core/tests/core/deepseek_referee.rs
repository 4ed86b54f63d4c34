//! An independent referee: DeepSeek's own converter reads repaired bodies in its three formats.
//!
//! It is stricter than other providers in some points (it merges no messages) and knows fewer kinds of blocks. Bodies
//! are repaired for its own wires, so it must accept every one of them.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cases comes from the environment"
)]

use std::collections::BTreeMap;
use std::path::Path;

use antiphon_core::repair::RepairPolicy;
use antiphon_core::wire::{Dialect, Format, Wire};
use bytes::Bytes;
use deepseek_recipe::anthropic::MessagesRequest;
use deepseek_recipe::openai::{ChatCompletionRequest, ResponsesRequest};
use deepseek_recipe::request::{ConversionOptions, ProtocolRequest};
use serde_json::{Value, json};

use crate::judge_cases;
use crate::support::{bodies, cases, judge};

const MESSAGES: Wire = Wire {
    format: Format::Anthropic,
    dialect: Dialect::DeepSeek,
};
const CHAT: Wire = Wire {
    format: Format::OpenAiChat,
    dialect: Dialect::DeepSeek,
};
const RESPONSES: Wire = Wire {
    format: Format::OpenAiResponses,
    dialect: Dialect::DeepSeek,
};
/// Wires that the referee can read.
const WIRES: [Wire; 3] = [MESSAGES, CHAT, RESPONSES];

/// Returns the referee's verdict: its error message for a refused body.
pub(crate) fn referee(body: &Value, format: Format) -> Result<(), String> {
    let mut body = body.clone();
    body["model"] = "DeepSeek-V4.1-Flash".into();
    let converted = match format {
        Format::Anthropic => read::<MessagesRequest>(body)?.convert(ConversionOptions::default()),
        Format::OpenAiChat => read::<ChatCompletionRequest>(body)?.convert(ConversionOptions::default()),
        Format::OpenAiResponses => read::<ResponsesRequest>(body)?.convert(ConversionOptions::default()),
        Format::Gemini => return Err("unread: it does not speak Gemini".to_owned()),
    };
    converted.map(drop).map_err(|error| error.to_string())
}

fn read<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|error| format!("unread: {error}"))
}

fn mend(body: &[u8], wire: Wire) -> Option<Value> {
    let out = antiphon_core::repair(&Bytes::copy_from_slice(body), wire, &RepairPolicy::default()).ok()?;
    (out.report.unrepairable == 0).then(|| serde_json::from_slice(&out.body.to_vec()).expect("JSON"))
}

fn cases() -> u64 {
    std::env::var("CASES")
        .ok()
        .map_or(1200, |text| text.parse().expect("a number"))
}

#[test]
fn the_referee_accepts_every_healthy_body() {
    for wire in WIRES {
        for seed in 0..cases() / 4 {
            let body = serde_json::from_slice(&bodies::healthy(seed, wire).bytes()).expect("JSON");
            referee(&body, wire.format).unwrap_or_else(|words| panic!("SEED={seed} {wire}: {words}\n{body:#}"));
        }
    }
}

/// The referee names the place of text after a call, and accepts the message once the text precedes the calls.
#[test]
fn the_referee_refuses_text_after_a_call_until_it_is_moved() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "read_file", "input": {"path": "x"}});
    let words = |said: &str| json!({"type": "text", "text": said});
    let document = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}});
    for (blocks, place) in [
        (
            json!([words("a"), call("t1"), words("b"), call("t2")]),
            "messages.1.2: ",
        ),
        (json!([call("t1"), words("a"), call("t2")]), "messages.1.1: "),
        (json!([call("t1"), call("t2"), words("a")]), "messages.1.2: "),
        (json!([call("t1"), call("t2"), document]), "messages.1.2: "),
        (
            json!([call("t1"), call("t2"), words("a"), words("b"), document]),
            "messages.1.2: ",
        ),
    ] {
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "ok"});
        let body = json!({"messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result("t1"), result("t2")]},
        ]});
        let refused = referee(&body, Format::Anthropic).expect_err("words after a call");
        let missing = "`tool_use` ids were found without `tool_result` blocks immediately after: t1";
        assert!(refused.contains(place) && refused.contains(missing), "{refused}");
        let after = mend(body.to_string().as_bytes(), MESSAGES).expect("a body that can be mended");
        assert_eq!(referee(&after, Format::Anthropic), Ok(()), "{after:#}");
        assert_eq!(judge::lost(&body, &after), [], "{after:#}");
    }
}

/// Hand-written bodies for its wires get the same verdict from the judge and the referee.
#[test]
fn hand_written_bodies_get_equal_verdicts() {
    let mut compared = 0;
    for (wire, short, body, _) in judge_cases::rows().filter(|(wire, ..)| *wire == RESPONSES) {
        let (theirs, ours) = (referee(&body, wire.format), judge::of(wire)(&body));
        assert_eq!(
            theirs.is_ok(),
            ours.is_ok(),
            "{wire} {short}: {theirs:?} against {ours:?}"
        );
        if let (Err(theirs), Err(ours)) = (theirs, ours) {
            assert!(
                theirs.contains(&ours.message),
                "{short}: {theirs} against {}",
                ours.message
            );
        }
        compared += 1;
    }
    assert!(compared > 10, "{compared} rows");
}

/// The judge of the same dialect gives the same verdicts, which supports it for wires without a referee.
#[test]
fn mangled_bodies_get_equal_verdicts() {
    for wire in WIRES {
        let mut refused = 0;
        for seed in 0..cases() {
            let body = serde_json::from_slice(&bodies::mangle(seed, wire).0.bytes()).expect("JSON");
            let (theirs, ours) = (referee(&body, wire.format), judge::of(wire)(&body));
            refused += usize::from(theirs.is_err());
            assert_eq!(
                theirs.is_ok(),
                ours.is_ok(),
                "SEED={seed} {wire}: {theirs:?} against {ours:?}\n{body:#}"
            );
        }
        assert!(refused > 0, "nothing was refused");
    }
}

#[test]
fn the_referee_accepts_every_mangled_body_after_repair() {
    for wire in WIRES {
        let (mut refused, mut given_up) = (0, 0);
        let mut words_of: BTreeMap<String, usize> = BTreeMap::new();
        for seed in 0..cases() {
            let body = bodies::mangle(seed, wire).0.bytes();
            let before: Value = serde_json::from_slice(&body).expect("JSON");
            refused += usize::from(referee(&before, wire.format).is_err());
            let Some(after) = mend(&body, wire) else {
                given_up += 1;
                continue;
            };
            if let Err(words) = referee(&after, wire.format) {
                *words_of.entry(format!("SEED={seed} {words:.200}")).or_default() += 1;
            }
        }
        println!(
            "{wire}: {refused} of {} refused before repair, {given_up} given up",
            cases()
        );
        assert!(
            refused * 2 > usize::try_from(cases()).unwrap(),
            "mangling breaks too little"
        );
        assert!(given_up * 10 < refused, "too much is given up");
        let shown: Vec<&String> = words_of.keys().take(5).collect();
        assert!(
            words_of.is_empty(),
            "{wire}: {} refused after repair, for example {shown:#?}",
            words_of.len()
        );
    }
}

/// Reports whether an error is about unknown kinds of blocks or matters other than tool calls.
fn is_unrelated_to_pairing(words: &str) -> bool {
    [
        "unread: ",
        "not supported",
        "unsupported",
        "prefix",
        "tool_choice",
        "media type",
        "base64",
        "image",
        // A call in a user message: every provider refuses it, and repair leaves it.
        "blocks can only be in `assistant` messages",
    ]
    .iter()
    .any(|known| words.to_lowercase().contains(known))
}

/// Recorded cases. Those of the referee's own wires are read as recorded, all others are repaired for its wire first.
#[test]
fn the_referee_accepts_every_recorded_case() {
    let root = cases::root();
    let (mut taken, mut beside) = (0, 0);
    for group in folders(&root) {
        let name = group.file_name().unwrap().to_string_lossy().replace('_', "-");
        let wire: Option<Wire> = name.parse().ok();
        for case in folders(&group) {
            let Ok(request) = std::fs::read(case.join("request.json")) else {
                continue;
            };
            let format = wire.map_or(Format::Anthropic, |wire| wire.format);
            let own = wire.filter(|wire| wire.dialect == Dialect::DeepSeek);
            let body = match own {
                Some(_) => std::fs::read(case.join("repaired.json"))
                    .ok()
                    .and_then(|b| serde_json::from_slice(&b).ok()),
                None => mend_any(&request, format),
            };
            // The referee has no conversation items: such requests call no model.
            let Some(body) = body.filter(|body: &Value| body.get("items").is_none()) else {
                continue;
            };
            match referee(&body, format) {
                Ok(()) => taken += 1,
                Err(words) if is_unrelated_to_pairing(&words) => beside += 1,
                // The referee does not know refusal content.
                Err(words) if own.is_none() && words.contains("content or tool_calls must be set") => beside += 1,
                Err(words) => panic!("{}: {words}\n{body:#}", case.display()),
            }
        }
    }
    println!("{taken} recorded cases taken, {beside} hold what the referee cannot read");
}

/// Repairs a case of another wire for the referee's wire. `None` for threads and compactions.
fn mend_any(body: &[u8], format: Format) -> Option<Value> {
    let wire = WIRES.into_iter().find(|wire| wire.format == format)?;
    let whole: Value = serde_json::from_slice(body).ok()?;
    let elsewhere = whole.get("thread").is_some() || String::from_utf8_lossy(body).contains("compaction");
    if elsewhere {
        return None;
    }
    mend(body, wire)
}

fn folders(root: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}
