//! Refusals of providers: every known text in every wrapping, and texts that are not about pairing.

use std::panic;

use antiphon_core::{
    mend::check_argument,
    repair::{RepairPolicy, repair},
    wire::{
        REFUSAL_BYTES_MAX,
        RefusalKind::{self, Unanswered},
        RefusalRow, RefusalTable, RefusalTexts, RowFault, RowTexts,
        json::quote_string,
    },
};
use bytes::Bytes;
use strict_provider::refusal_rule::RefusalCondition;

use crate::support::{
    bodies::Rng,
    refusals::{KnownRefusal, OTHERS, REFUSALS, ROWS, TABLE},
};

fn kind_and_ids(body: &str) -> Option<(RefusalKind, String)> {
    let found = TABLE.read(body.as_bytes())?;
    Some((found.refusal.kind, found.refusal.ids.join(" ")))
}

/// Formats text as Python prints bytes.
fn python_bytes(text: &str) -> String {
    format!("b'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Formats text as Python prints a string.
fn python_text(text: &str) -> String {
    match (text.contains('\''), text.contains('"')) {
        (true, false) => format!("\"{text}\""),
        (quotes, _) => format!(
            "'{}'",
            if quotes {
                text.replace('\'', "\\'")
            } else {
                text.to_owned()
            }
        ),
    }
}

/// Returns the text in every known wrapping.
fn wrapped(text: &str) -> Vec<String> {
    let json = quote_string(text);
    let anthropic = format!(
        "{{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":{json}}},\"request_id\":\"req_1\"}}"
    );
    let openai = format!(
        "{{\n  \"error\": {{\n    \"message\": {json},\n    \"type\": \"invalid_request_error\",\n    \"param\": \
         \"messages.[6].role\",\n    \"code\": null\n  }}\n}}\n"
    );
    let message = format!("{{\"message\":{json}}}");
    let router = |raw: &str| {
        format!(
            "{{\"error\":{{\"message\":\"Provider returned error\",\"code\":400,\"metadata\":{{\"raw\":{},\
             \"provider_name\":\"X\"}}}},\"user_id\":\"user_1\"}}",
            quote_string(raw)
        )
    };
    let litellm = |inner: &str| {
        let text = format!(
            "litellm.BadRequestError: AnthropicException - {inner}No fallback model group found for original \
             model_group=x. Fallbacks=[]. Received Model Group=x\nAvailable Model Group Fallbacks=None"
        );
        format!(
            "{{\"error\":{{\"message\":{},\"type\":null,\"param\":null,\"code\":\"400\"}}}}",
            quote_string(&text)
        )
    };
    let google = |inner: &str| {
        format!(
            "{{\"error\":{{\"code\":400,\"message\":{},\"status\":\"INVALID_ARGUMENT\"}}}}",
            quote_string(inner)
        )
    };
    vec![
        text.to_owned(),
        format!("  {text}\n"),
        format!("[{}]", google(text)),
        format!("{{\"error\":{json}}}"),
        format!("{{\"detail\":{json}}}"),
        format!("{{\"object\":\"error\",\"message\":{json},\"type\":\"x\",\"param\":null,\"code\":\"3230\"}}"),
        format!("{{\"Message\":{json}}}"),
        format!("400 {anthropic}"),
        format!(
            "Error code: 400 - {{'error': {{'message': {}, 'type': 'x'}}}}",
            python_text(text)
        ),
        format!(
            "An error occurred (ValidationException) when calling the ConverseStream operation: The model returned the \
             following errors: {text}"
        ),
        router(text),
        router(&anthropic),
        router(&google(&anthropic)),
        litellm(text),
        litellm(&anthropic),
        litellm(&python_bytes(&anthropic)),
        litellm(&python_bytes(&openai)),
        google(&anthropic),
        anthropic,
        openai,
        message,
    ]
}

#[test]
fn every_text_is_read_by_its_row_in_every_wrapping() {
    for KnownRefusal { row, text, kind, ids } in &*REFUSALS {
        for body in wrapped(text) {
            let found = TABLE.read(body.as_bytes());
            let found = found.unwrap_or_else(|| panic!("{row}: {body}"));
            assert_eq!((found.row.name.as_str(), found.refusal.kind), (*row, *kind), "{body}");
            if let Some(ids) = ids {
                assert_eq!(found.refusal.ids.join(" "), *ids, "{body}");
            }
        }
    }
}

#[test]
fn every_lead_is_passed() {
    let texts = file_texts();
    assert!(texts.leads.len() > 20);
    for lead in texts.leads {
        let lead = lead
            .replace("<place>", "3.content.0")
            .replace("<word>", "x")
            .replace("messages[3.content.0", "messages[3]");
        for between in ["", " "] {
            let text = format!("{lead}{between}No tool output found for function call call_1.");
            assert_eq!(kind_and_ids(&text), Some((Unanswered, "call_1".to_owned())), "{text}");
        }
    }
    assert_eq!(
        kind_and_ids("Somebody said: No tool output found for function call call_1."),
        None
    );
}

/// Every row has a text to test it by, and names of its own.
#[test]
fn every_row_is_tested() {
    for row in &*ROWS {
        assert!(!row.seen.is_empty(), "{} names no source", row.name);
        assert!(
            !(row.example.is_empty() && row.heading.is_empty()),
            "{} has no example",
            row.name
        );
        let named = ROWS.iter().filter(|other| other.name == row.name);
        assert_eq!(named.count(), 1, "{}", row.name);
    }
    for row in TABLE.rows() {
        assert!(
            row.statuses.iter().all(|status| (400..600).contains(status)),
            "{}",
            row.name
        );
    }
}

/// The pairs of rows that match one text. The one with more text counts, wherever it stands in the file.
#[test]
fn the_order_of_rows_does_not_decide() {
    let only = |name: &str| {
        let mut texts: RefusalTexts = file_texts();
        texts.row.retain(|row| row.name == name);
        RefusalTable::compile(&texts).unwrap()
    };
    let tables: Vec<(&str, RefusalTable)> = ROWS.iter().map(|row| (row.name.as_str(), only(&row.name))).collect();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for KnownRefusal { row, text, .. } in &*REFUSALS {
        let others = tables.iter().filter(|(name, _)| name != row);
        let matching = others.filter(|(_, table)| table.read(text.as_bytes()).is_some());
        pairs.extend(matching.map(|(name, _)| (*row, *name)));
    }
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, DECIDED_PAIRS);
    let mut texts = file_texts();
    texts.row.reverse();
    let reversed = RefusalTable::compile(&texts).unwrap();
    for KnownRefusal { row, text, .. } in &*REFUSALS {
        assert_eq!(reversed.read(text.as_bytes()).unwrap().row.name, *row, "{text}");
    }
}

/// The row that counts, and one that also matches some of its texts.
const DECIDED_PAIRS: &[(&str, &str)] = &[
    (
        "assistant_message_with_stray_result",
        "assistant_message_with_insufficient_results",
    ),
    (
        "assistant_message_without_results",
        "assistant_message_with_insufficient_results",
    ),
    ("invalid_input_id_of_reasoning", "invalid_input_id"),
    (
        "unexpected_tool_use_id_found_tool_result_blocks",
        "unexpected_tool_use_id_found_blocks",
    ),
];

#[test]
fn other_texts_are_no_refusals_of_a_history() {
    for text in OTHERS {
        for body in wrapped(text) {
            assert_eq!(kind_and_ids(&body), None, "{body}");
        }
    }
}

#[test]
fn text_outside_the_message_is_ignored() {
    let phrase = quote_string("No tool output found for function call call_1.");
    for body in [
        format!("{{\"error\":{{\"message\":\"bad\",\"param\":{phrase}}}}}"),
        format!("{{\"detail\":[{{\"msg\":\"too long\",\"input\":{{\"message\":{phrase}}}}}]}}"),
        format!("{{\"messages\":[{{\"message\":{phrase}}}]}}"),
        format!("{{\"error\":[{phrase}]}}"),
    ] {
        assert_eq!(kind_and_ids(&body), None, "{body}");
    }
}

#[test]
fn lone_surrogates_and_cut_bodies_are_read() {
    let text = "No tool output found for function call call_1.";
    for body in [
        format!("{{\"hint\":\"\\ud83d\",\"error\":{{\"message\":\"{text} \\ud83d\"}}}}"),
        format!("{{\"error\":{{\"message\":\"{text}\"}},\"request_id\":\"req"),
        r#"{"\u0065rror":{"message":"No\u0020tool output found for function call call\u005f1."}}"#.to_owned(),
        format!("\r\n\t{{\"message\" : \"{text}\" }}"),
    ] {
        assert_eq!(kind_and_ids(&body), Some((Unanswered, "call_1".to_owned())), "{body}");
    }
    let unknown = "{\"message\":\"No tool output found for function call call_\\ud83d.\"}";
    assert_eq!(kind_and_ids(unknown), Some((Unanswered, String::new())));
}

#[test]
fn id_lists_end_at_the_right_place() {
    let head = "tool_use ids were found without tool_result blocks immediately after:";
    for (tail, ids) in [
        (" a, b, c", "a b c"),
        (" 'a', 'b'.", "a b"),
        (" a_1 b_2 please", "a_1 b_2"),
        (" a. b", "a"),
        (" ,", ""),
        (" , a", "a"),
        (" a, a, b", "a b"),
        (" a\nb_1", "a"),
        (" a\\\"},\\\"request_id\\\":\\\"req_1\\\"}", "a"),
        (" a.b.c:1|d.", "a.b.c:1|d"),
    ] {
        assert_eq!(
            kind_and_ids(&format!("{head}{tail}")),
            Some((Unanswered, ids.to_owned())),
            "{tail}"
        );
    }
}

#[test]
fn sizes_are_bounded() {
    let head = "tool_use ids were found without tool_result blocks immediately after: ";
    let many: Vec<String> = (0..1000).map(|number| format!("toolu_{number}")).collect();
    let read = TABLE.read(format!("{head}{}", many.join(", ")).as_bytes()).unwrap();
    assert_eq!(read.refusal.ids, many[..64]);
    let (fits, long) = ("x".repeat(256), "y".repeat(257));
    let read = TABLE.read(format!("{head}{long}, {fits}.").as_bytes()).unwrap();
    assert_eq!(read.refusal.ids, [fits]);

    let text = "`tool_use` ids must be unique";
    let fill = " ".repeat(REFUSAL_BYTES_MAX - text.len());
    assert!(TABLE.read(format!("{text}{fill}").as_bytes()).is_some());
    assert!(TABLE.read(format!("{text}{fill} ").as_bytes()).is_none());
}

#[test]
fn deep_and_hostile_bodies_are_harmless() {
    let mut nested = "`tool_use` ids must be unique".to_owned();
    for _ in 0..9 {
        nested = format!("{{\"message\":{}}}", quote_string(&nested));
    }
    for body in [
        nested,
        "[".repeat(REFUSAL_BYTES_MAX),
        "{\"error\":".repeat(7000),
        "b'".repeat(30_000),
        "`".repeat(REFUSAL_BYTES_MAX),
        "messages.1:".repeat(5000),
        format!("[{}]", vec!["{\"message\":\"{}\"}"; 3500].join(",")),
        "{error: {message: ".repeat(3000),
        format!("No tool output found for {}", " call".repeat(12_000)),
    ] {
        assert!(kind_and_ids(&body).is_none_or(|(_, ids)| ids.len() < 1000));
    }
}

/// Mangled bodies never panic. `SEED=` replays one.
#[test]
fn mangled_bodies_never_panic() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let bodies: Vec<String> = REFUSALS.iter().flat_map(|known| wrapped(&known.text)).collect();
    let only: Option<u64> = number("SEED");
    for seed in only.map_or(0..20_000, |seed| seed..seed + 1) {
        let mut rng = Rng::new(seed);
        let mut body = rng.pick(&bodies).clone().into_bytes();
        for _ in 0..rng.within(1, 5) {
            let at = rng.below(body.len() + 1);
            let end = (at + rng.within(1, 30)).min(body.len());
            match rng.below(5) {
                0 => drop(body.drain(at..end)),
                1 if at < body.len() => body[at] = u8::try_from(rng.below(256)).unwrap(),
                2 => drop(body.splice(at..at, rng.pick(&bodies).bytes().take(40).collect::<Vec<_>>())),
                3 => drop(body.splice(
                    at..at,
                    rng.pick(&["\\", "\"", "'", "`", "b'", "{", "\\ud83d", "\n"]).bytes(),
                )),
                _ => body.truncate(at.max(1)),
            }
        }
        let read = panic::catch_unwind(|| TABLE.read(&body).map(|found| found.refusal.ids)).unwrap_or_else(|failure| {
            println!("SEED={seed}\n{}", String::from_utf8_lossy(&body));
            panic::resume_unwind(failure)
        });
        let ids = read.unwrap_or_default();
        assert!(
            ids.len() <= 64
                && ids
                    .iter()
                    .all(|id| !id.is_empty() && id.len() <= 256 && !id.contains(['"', '\n', ' '])),
            "SEED={seed} {ids:?}"
        );
    }
}

fn file_texts() -> RefusalTexts {
    toml::from_str(include_str!("../../../../src/refusals/rows.toml")).unwrap()
}

/// Texts that a client may write so that a provider repeats them before its own words, or after them.
#[test]
fn names_of_members_are_no_places() {
    for text in [
        "messages.0.zz: `tool_use` ids must be unique: Extra inputs are not permitted",
        "messages.0.zz: `tool_use` ids must be unique",
        "messages.0.content.0.zz: Invalid `signature` in `thinking` block: Extra inputs are not permitted",
        "messages[0].zz: missing field `tool_call_id`",
        "messages.x.tool_use.input: Input should be an object",
        "messages.0.zz: Could not process image",
        "messages.0.zz: Could not process image: Extra inputs are not permitted",
        "messages.0.content.0.zz.text: Extra inputs are not permitted",
    ] {
        for body in wrapped(text) {
            assert_eq!(kind_and_ids(&body), None, "{body}");
        }
    }
}

#[test]
fn a_text_whose_repair_loses_something_is_the_whole_message() {
    let loses = |name: &str| {
        let row = TABLE.rows().iter().find(|row| row.name == name);
        row.is_some_and(RefusalRow::fills_message)
    };
    for KnownRefusal { row, text, kind, .. } in REFUSALS.iter().filter(|known| loses(known.row)) {
        for tail in [
            ": Extra inputs are not permitted",
            ". But see below",
            " zz",
            "\nzz",
            "', 'x': {'y': Extra",
        ] {
            for body in wrapped(&format!("{}{tail}", text.trim_end_matches('.'))) {
                let found = TABLE.read(body.as_bytes());
                // Another row whose repair loses nothing may still match.
                let found = found.filter(|found| found.row.fills_message());
                assert!(found.is_none(), "{row} {kind:?}: {body}");
            }
        }
    }
}

/// Texts with the name of the mend that they demand, its argument, and the place that they name.
const DEMANDS: &[(&str, &str, Option<&str>, Option<&str>)] = &[
    (
        "messages.1.content.0.tool_use.text: Extra inputs are not permitted",
        "drop_member",
        Some("text"),
        Some("1.content.0.tool_use"),
    ),
    (
        r#"{"loc":["body","messages",2,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}"#,
        "drop_member",
        Some("reasoning_content"),
        Some("2.assistant"),
    ),
    (
        "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
        "drop_member",
        Some("reasoning_content"),
        Some("1.assistant"),
    ),
    (
        "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property \
             'reasoning_content' is unsupported)]",
        "drop_member",
        Some("reasoning_content"),
        Some("1"),
    ),
    (
        "[ObjectParam] [input[1].namespace] [unknown_parameter] Unknown parameter: 'input[1].namespace'.",
        "drop_member",
        Some("namespace"),
        Some("1]"),
    ),
    (
        "Unknown parameter: 'input[1].content[0].logprobs'.",
        "drop_member",
        Some("logprobs"),
        Some("1].content[0]"),
    ),
    (
        r#"Invalid JSON payload received. Unknown name "id" at 'contents[1].parts[0].function_call': Cannot find field."#,
        "drop_member",
        Some("id"),
        Some("1].parts[0].function_call"),
    ),
    (
        "messages.2.content.0: tool reference 'DesignSync' not found in available tools",
        "quote_block",
        Some("tool_reference"),
        Some("2.content.0"),
    ),
    (
        "messages.2.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size \
             for many-image requests: 2000 pixels",
        "quote_block",
        Some("large_image"),
        Some("2.content.0.image.source.base64.data"),
    ),
    (
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        "limit_markers",
        Some("4"),
        None,
    ),
    (
        r#"{"detail":[{"loc":["body","messages",1,"role"],"msg":"Input should be 'user' or 'assistant'"}]}"#,
        "system_first",
        None,
        Some("1"),
    ),
    ("Could not process image", "quote_block", Some("broken_image"), None),
    (
        r#"{"detail":[{"loc":["body","context_management"],"msg":"Extra inputs are not permitted"}]}"#,
        "drop_parameter",
        Some("context_management"),
        None,
    ),
];

/// The texts that mends need: the argument, and the place without its last step if that is the argument.
#[test]
fn demands_have_their_arguments_and_places() {
    let demand_of = |body: &str| TABLE.read(body.as_bytes()).and_then(|found| found.refusal.demand);
    for (text, mend, word, place) in DEMANDS {
        let demand = demand_of(text).unwrap_or_else(|| panic!("{text}"));
        let read = (demand.kind.name(), demand.word.as_deref(), demand.place.as_deref());
        assert_eq!(read, (*mend, *word, *place), "{text}");
    }
    // What a mend takes from the text besides its argument.
    let demand = demand_of("Tool reference 'DesignSync' not found in available tools").unwrap();
    assert_eq!(demand.name.as_deref(), Some("DesignSync"));
    let large = "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels";
    assert_eq!(demand_of(large).unwrap().numbers, [2000]);
}

/// The history of a demand is sent as it is, the server refuses it, and what is sent then meets the demand.
#[test]
fn repairs_of_demands_begin_with_what_the_provider_refuses() {
    let mut faults = Vec::new();
    for row in ROWS.iter().filter(|row| row.fault == "demand") {
        let Some(texts) = &row.repair else { continue };
        let condition = RefusalCondition::parse(&texts.refused_if).unwrap();
        let holds = |body: &str| condition.holds(body.as_bytes());
        if !holds(&texts.before) {
            faults.push(format!("{}: the server accepts `before`", row.name));
        }
        // Until the row has one.
        if texts.after != "TODO" && holds(&texts.after) {
            faults.push(format!("{}: the server refuses `after`", row.name));
        }
        let before = Bytes::copy_from_slice(texts.before.as_bytes());
        let sent = repair(&before, texts.wire.parse().unwrap(), &RepairPolicy::default()).unwrap();
        if sent.body.to_vec() != texts.before.as_bytes() {
            faults.push(format!(
                "{}: sent as {}",
                row.name,
                String::from_utf8_lossy(&sent.body.to_vec())
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Gateways append their own number.
#[test]
fn a_tail_of_a_gateway_ends_the_message() {
    let text = "messages.1.content.0: Invalid `signature` in `thinking` block (request id: 20261129_x1)";
    for body in wrapped(text) {
        assert_eq!(
            kind_and_ids(&body),
            Some((RefusalKind::ForeignThinking, String::new())),
            "{body}"
        );
    }
}

#[test]
fn a_row_counts_with_its_statuses_only() {
    let text = b"Previous response with id 'resp_1' not found.";
    assert!(TABLE.read_with_status(404, text).is_some());
    assert!(TABLE.read_with_status(500, text).is_none());
    assert!([400, 404, 422, 500].iter().all(|status| TABLE.has_status(*status)));
    assert!(!TABLE.has_status(429));
}

#[test]
fn places_are_read_from_other_members() {
    let malformed = Some((RefusalKind::MalformedCall, String::new()));
    let id = "Input should be a valid string";
    for (body, wanted) in [
        (
            format!(
                r#"{{"detail":[{{"type":"string_type","loc":["body","messages",1,"tool_calls",0,"id"],"msg":"{id}","input":null}}]}}"#
            ),
            malformed.clone(),
        ),
        (
            format!(r#"{{"error":{{"message":"{id}","param":"messages.1.tool_calls.0.id"}}}}"#),
            malformed.clone(),
        ),
        (
            format!(
                r#"{{"error":{{"code":400,"message":"bad","details":[{{"fieldViolations":[{{"field":"messages.1.tool_calls.0.id","description":"{id}"}}]}}]}}}}"#
            ),
            malformed,
        ),
        // A place that no text begins with, and what Google calls it.
        (
            r#"{"detail":[{"loc":["body","input",3],"msg":"No tool output found for function call call_1."}]}"#.to_owned(),
            Some((Unanswered, "call_1".to_owned())),
        ),
        (
            r#"{"error":{"message":"bad","details":[{"fieldViolations":[{"field":"contents[1].parts[0]","description":"Corrupted thought signature."}]}]}}"#.to_owned(),
            Some((RefusalKind::ForeignThinking, String::new())),
        ),
        // A place that the client has named, no place, and another member.
        (
            format!(r#"{{"detail":[{{"loc":["body","messages",1,"zz","id"],"msg":"{id}"}}]}}"#),
            None,
        ),
        (
            format!(r#"{{"detail":[{{"loc":["body","temperature"],"msg":"{id}"}}]}}"#),
            None,
        ),
        (format!(r#"{{"detail":[{{"loc":{{}},"msg":"{id}"}}]}}"#), None),
        (
            r#"{"detail":[{"loc":["body","`tool_use` ids must be unique"],"msg":"Extra inputs are not permitted"}]}"#
                .to_owned(),
            None,
        ),
    ] {
        assert_eq!(kind_and_ids(&body), wanted, "{body}");
    }
}

#[test]
fn faulty_rows_are_named() {
    let fault = |fault: &str, text: &str| {
        let texts = RefusalTexts {
            row: vec![RowTexts {
                name: "x".to_owned(),
                fault: fault.to_owned(),
                status: vec![400],
                text: vec![text.to_owned()],
                then: Vec::new(),
                mend: None,
                fits: None,
                learn: None,
                note: false,
            }],
            leads: Vec::new(),
            tails: Vec::new(),
            place_names: Vec::new(),
        };
        RefusalTable::compile(&texts).unwrap_err()
    };
    let text = |text: &str| text.to_owned();
    let row = "a text of some length <";
    assert_eq!(
        fault("orphan", &format!("{row}x>")),
        RowFault::UnknownVariable(format!("{row}x>"))
    );
    assert_eq!(fault("orphan", row), RowFault::UnknownVariable(text(row)));
    assert_eq!(
        fault("orphan", "<word><ids> is a pair"),
        RowFault::JoinedVariables(text("<word><ids> is a pair"))
    );
    assert_eq!(
        fault("orphan", "too short <word>"),
        RowFault::TooShort(text("too short <word>"))
    );
    assert_eq!(
        fault("bound", &format!("{row}words>")),
        RowFault::OpenEnd(format!("{row}words>"))
    );
    assert!(matches!(fault("nothing", row), RowFault::UnknownFault { .. }));
    let unused = |kind: &str| {
        let mut texts = file_texts();
        texts.row.retain(|row| row.fault == kind);
        texts.row[0].then = vec!["Reason: a reason".to_owned()];
        RefusalTable::compile(&texts).err()
    };
    assert!(matches!(unused("orphan"), Some(RowFault::UnusedSentences(_))));
    assert_eq!(unused("bound"), None);
    let many = format!("{row}word>{}", " and <word>".repeat(9));
    assert_eq!(fault("orphan", &many), RowFault::TooManyVariables(many.clone()));
}

#[test]
fn faulty_mends_are_named() {
    let compile = |mend: Option<&str>, fits: Option<&str>, learn: Option<&str>| {
        let text = |text: &str| text.to_owned();
        RefusalTable::compile(&RefusalTexts {
            row: vec![RowTexts {
                name: "x".to_owned(),
                fault: "demand".to_owned(),
                status: vec![400],
                text: vec!["a text with <number> pixels".to_owned()],
                then: Vec::new(),
                mend: mend.map(text),
                fits: fits.map(text),
                learn: learn.map(text),
                note: false,
            }],
            leads: Vec::new(),
            tails: Vec::new(),
            place_names: Vec::new(),
        })
        .err()
    };
    for mend in ["trim_end", "quote_block image", "limit_markers <number>"] {
        assert_eq!(compile(Some(mend), Some("all"), Some("once")), None, "{mend}");
    }
    for mend in [
        "",
        "no_mend",
        "quote_block <word>",
        "quote_block a b",
        "quote_block a <number>",
    ] {
        let fault = compile(Some(mend), None, None);
        assert!(
            matches!(
                fault,
                Some(RowFault::UnknownMend { .. } | RowFault::UnknownMendWord { .. })
            ),
            "{mend}: {fault:?}"
        );
    }
    assert!(matches!(
        compile(None, None, None),
        Some(RowFault::DemandWithoutMend(_))
    ));
    for (fits, learn) in [(Some("some"), None), (None, Some("never"))] {
        let fault = compile(Some("trim_end"), fits, learn);
        assert!(
            matches!(fault, Some(RowFault::UnknownMendWord { .. })),
            "{fits:?} {learn:?}"
        );
    }
    // A rule of one place would mend all others too, and only blocks that have a hash are told apart.
    for (mend, fits, learn) in [
        ("quote_block image", None, Some("rule")),
        ("quote_block image", Some("named"), Some("once")),
        ("drop_reasoning item", None, Some("rule")),
        ("drop_member mood", Some("named"), None),
        ("media_type", None, Some("block")),
        ("drop_beta <name>", None, Some("once")),
    ] {
        let fault = compile(Some(mend), fits, learn);
        assert!(matches!(fault, Some(RowFault::UnfitLearning(_))), "{mend} {fault:?}");
    }
    for mend in ["quote_block image", "drop_reasoning item", "drop_item_id"] {
        assert_eq!(compile(Some(mend), None, None), None, "{mend}");
        assert_eq!(compile(Some(mend), None, Some("block")), None, "{mend}");
    }
}

#[test]
fn the_mends_of_rows_have_arguments_that_make_sense() {
    let faults: Vec<String> = TABLE
        .rows()
        .iter()
        .filter_map(|row| Some(format!("{}: {}", row.name, check_argument(row.mend.as_ref()?).err()?)))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
