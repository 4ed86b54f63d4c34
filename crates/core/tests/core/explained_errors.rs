//! Errors of other vendors' servers, and what clients of each format read instead.

use antiphon_core::{
    explain::{explain_error, tool_name},
    wire::{ErrorMeaning, Format, TokenCounts, json::validate},
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{
    bodies::Rng,
    refusals::{ExampleTokens, ROWS, TABLE},
};

const FORMATS: [Format; 4] = [
    Format::Anthropic,
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Gemini,
];

fn meaning_of(text: &str) -> ErrorMeaning {
    TABLE.read(text.as_bytes()).unwrap().meaning.unwrap()
}

/// Explains an error body in the way of the proxy. The tool of the index is called `calendar`.
fn explain(format: Format, body: &str) -> Option<String> {
    let meaning = TABLE.read(body.as_bytes())?.meaning?;
    let explained = explain_error(
        &Bytes::copy_from_slice(body.as_bytes()),
        format,
        meaning,
        Some("calendar"),
    );
    explained.map(|body| String::from_utf8(body.to_vec()).unwrap())
}

/// Every row that is explained says what its examples declare.
#[test]
fn numbers_are_those_of_the_text() {
    let mut rows = 0;
    for row in ROWS.iter().filter(|row| row.fault == "overflow") {
        rows += 1;
        for example in &row.example {
            let ExampleTokens {
                limit,
                prompt,
                output,
                total,
            } = example.tokens;
            let counts = TokenCounts {
                limit,
                prompt,
                output,
                total,
            };
            assert_eq!(
                meaning_of(&example.text),
                ErrorMeaning::Overflow(counts),
                "{}",
                example.text
            );
        }
    }
    assert!(rows >= 20, "{rows}");
    for row in ROWS.iter().filter(|row| row.fault == "bad_tool") {
        for example in &row.example {
            let ErrorMeaning::BadTool(index) = meaning_of(&example.text) else {
                panic!("{}", example.text)
            };
            assert!(example.text.contains(&format!("{index}")), "{}", example.text);
        }
    }
    // Of a demand that no mend has met.
    let demand = "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or \
                  `max_tokens` and try again";
    let counts = TokenCounts {
        limit: Some(200_000),
        prompt: Some(188_240),
        output: Some(21_333),
        total: None,
    };
    assert_eq!(meaning_of(demand), ErrorMeaning::Overflow(counts));
    assert_eq!(counts.completed().total, Some(209_573));
}

const VLLM: &str = "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 \
                    in the messages, 8192 in the completion). Please reduce the length of the messages or completion.";
const OF_ANTHROPIC: &str = "input length and `max_tokens` exceed context limit: 122942 + 8192 > 131072, decrease input \
                            length or `max_tokens` and try again";
const SGLANG: &str = "The input (61709 tokens) is longer than the model's context length (40960 tokens).";
const MINIMAX: &str = "invalid params, context window exceeds limit (2013)";
const SCHEMA: &str = "tools.17.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12";

/// A format, a text, the sentence that is appended, and `true` if the error gets the code of an overflow.
const SENTENCES: &[(Format, &str, Option<&str>, bool)] = &[
    (Format::Anthropic, VLLM, Some(OF_ANTHROPIC), false),
    (
        Format::Anthropic,
        SGLANG,
        Some("prompt is too long: 61709 tokens > 40960 maximum"),
        false,
    ),
    (Format::Anthropic, MINIMAX, Some("prompt is too long"), false),
    (
        Format::Anthropic,
        "Your request exceeded model token limit: 262144 (requested: 269030)",
        Some("prompt is too long"),
        false,
    ),
    // Anthropic's own words, through a gateway.
    (
        Format::Anthropic,
        "prompt is too long: 214512 tokens > 200000 maximum",
        None,
        false,
    ),
    (Format::Anthropic, OF_ANTHROPIC, None, false),
    (Format::Anthropic, SCHEMA, Some("tools[17] is \"calendar\""), false),
    (Format::OpenAiChat, VLLM, None, true),
    (
        Format::OpenAiChat,
        SGLANG,
        Some("This model's maximum context length is 40960 tokens. However, your messages resulted in 61709 tokens."),
        true,
    ),
    (
        Format::OpenAiResponses,
        OF_ANTHROPIC,
        Some(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the \
             messages, 8192 in the completion).",
        ),
        true,
    ),
    (
        Format::OpenAiResponses,
        "Range of input length should be [1, 204800]",
        Some("This model's maximum context length is 204800 tokens."),
        true,
    ),
    (
        Format::OpenAiChat,
        MINIMAX,
        Some("Your input exceeds the context window of this model."),
        true,
    ),
    (
        Format::OpenAiChat,
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        None,
        true,
    ),
    (Format::OpenAiChat, SCHEMA, Some("tools[17] is \"calendar\""), false),
    (
        Format::Gemini,
        SGLANG,
        Some("The input token count (61709) exceeds the maximum number of tokens allowed (40960)."),
        false,
    ),
    (
        Format::Gemini,
        MINIMAX,
        Some("The input token count exceeds the maximum number of tokens allowed."),
        false,
    ),
    (
        Format::Gemini,
        SCHEMA,
        Some("functionDeclarations[17] is \"calendar\""),
        false,
    ),
];

#[test]
fn each_format_gets_the_sentence_of_its_author() {
    for (format, text, sentence, has_code) in SENTENCES {
        let body = json!({"error": {"message": text, "type": "x"}}).to_string();
        let explained = explain(*format, &body);
        assert_eq!(
            explained.is_some(),
            sentence.is_some() || *has_code,
            "{format:?} {text}"
        );
        let Some(explained) = explained else { continue };
        let value: Value = serde_json::from_str(&explained).unwrap();
        let message = sentence.map_or_else(|| (*text).to_owned(), |sentence| format!("{text} ({sentence})"));
        assert_eq!(value["error"]["message"], message, "{format:?} {text}");
        let code = has_code.then_some("context_length_exceeded");
        assert_eq!(value["error"]["code"].as_str(), code, "{format:?} {text}");
        // Read again, the words are no longer a known text: another proxy adds nothing.
        assert_eq!(explain(*format, &explained), None, "{format:?} {explained}");
    }
}

/// Error bodies as servers write them, before and after. `TEXT` is the message.
const SHAPES: &[(Format, &str, &str)] = &[
    (
        Format::OpenAiChat,
        r#"{"object":"error","message":"TEXT","type":"BadRequestError","param":null,"code":400}"#,
        r#"{"object":"error","message":"TEXT (SENTENCE)","type":"BadRequestError","param":null,"code":"context_length_exceeded"}"#,
    ),
    (
        Format::OpenAiChat,
        r#"{"error":{"message":"TEXT","code":"400"}}"#,
        r#"{"error":{"message":"TEXT (SENTENCE)","code":"context_length_exceeded"}}"#,
    ),
    (
        Format::OpenAiChat,
        r#"{"error":{"message":"TEXT","code":null}}"#,
        r#"{"error":{"message":"TEXT (SENTENCE)","code":"context_length_exceeded"}}"#,
    ),
    (
        Format::OpenAiChat,
        r#"{"error":{"message":"TEXT","code":"1261"}}"#,
        r#"{"error":{"message":"TEXT (SENTENCE)","code":"1261"}}"#,
    ),
    (
        Format::OpenAiChat,
        r#"{"error":"TEXT"}"#,
        r#"{"error":"TEXT (SENTENCE)"}"#,
    ),
    (
        Format::OpenAiChat,
        "[ {\"error\" : { \"message\":\"TEXT\" } } ]\n",
        "[ {\"error\" : {\"code\":\"context_length_exceeded\", \"message\":\"TEXT (SENTENCE)\" } } ]\n",
    ),
    (
        Format::OpenAiChat,
        r#"{"detail":"TEXT","error":null,"ok":false}"#,
        r#"{"detail":"TEXT (SENTENCE)","error":null,"ok":false}"#,
    ),
    (
        Format::OpenAiChat,
        r#"{"note":"\u00e9 \ud83d","error":{"\u006dessage":"TEXT\u0020","x":"ünï"}}"#,
        r#"{"note":"\u00e9 \ud83d","error":{"code":"context_length_exceeded","\u006dessage":"TEXT\u0020 (SENTENCE)","x":"ünï"}}"#,
    ),
    // The words are in another member than the one that clients read.
    (
        Format::OpenAiChat,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"TEXT\"}}"}}}"#,
        r#"{"error":{"message":"Provider returned error (SENTENCE)","code":"context_length_exceeded","metadata":{"raw":"{\"error\":{\"message\":\"TEXT\"}}"}}}"#,
    ),
];

#[test]
fn only_the_message_and_the_code_change() {
    let sentence =
        "This model's maximum context length is 40960 tokens. However, your messages resulted in 61709 tokens.";
    for (format, before, after) in SHAPES {
        let fill = |body: &str| body.replace("TEXT", SGLANG).replace("SENTENCE", sentence);
        assert_eq!(explain(*format, &fill(before)), Some(fill(after)), "{before}");
    }
}

#[test]
fn a_body_without_exactly_one_message_stays() {
    for body in [
        "TEXT",
        r#""TEXT""#,
        r#"{"error":{"message":"TEXT"}"#,
        r#"{"error":{"message":"TEXT"}} x"#,
        r#"{"error":{"message":"TEXT"},"message":"TEXT"}"#,
        r#"{"error":{"message":"x","message":"TEXT"}}"#,
        r#"{"error":{"message":"TEXT"},"error":{"message":"TEXT"}}"#,
        r#"{"error":{"message":"TEXT","message":1}}"#,
        r#"{"error":{"message":"TEXT","detail":"x"}}"#,
        r#"[{"error":{"message":"TEXT"}},{"error":{"message":"TEXT"}}]"#,
        r#"{"detail":[{"msg":"TEXT","loc":["body"]}]}"#,
        r#"{"error":{"error":{"error":{"message":"TEXT"}}}}"#,
        r#"{"error":{"message":"TEXT and more"}}"#,
        r#"{"error":{"message":"somebody wrote: TEXT"}}"#,
        "",
    ] {
        for format in FORMATS {
            assert_eq!(explain(format, &body.replace("TEXT", SGLANG)), None, "{body}");
        }
    }
}

/// The words stay first, and what comes out is JSON, for every row, and for bodies with random faults. `SEED=` replays one.
#[test]
fn no_error_becomes_invalid() {
    let examples = ROWS.iter().flat_map(|row| &row.example);
    let bodies: Vec<String> = examples
        .map(|example| json!({"type": "error", "error": {"message": example.text}, "id": "é\"\\"}).to_string())
        .collect();
    let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let mut explained = 0;
    for seed in only.map_or(0..20_000, |seed| seed..seed + 1) {
        let mut rng = Rng::new(seed);
        let mut body = rng.pick(&bodies).clone().into_bytes();
        for _ in 0..rng.below(4) {
            let at = rng.below(body.len() + 1);
            let end = (at + rng.within(1, 12)).min(body.len());
            match rng.below(4) {
                0 => drop(body.drain(at..end)),
                1 if at < body.len() => body[at] = u8::try_from(rng.below(256)).unwrap(),
                2 => drop(
                    body.splice(
                        at..at,
                        rng.pick(&["\\", "\"", "}", "\\ud83d", ",\"message\":1", "é", "\n"])
                            .bytes(),
                    ),
                ),
                _ => {}
            }
        }
        let Some(meaning) = TABLE.read(&body).and_then(|found| found.meaning) else {
            continue;
        };
        for format in FORMATS {
            for tool in [None, Some("a\"b\\\u{1}é")] {
                let Some(after) = explain_error(&Bytes::from(body.clone()), format, meaning, tool) else {
                    continue;
                };
                let text = |bytes: &[u8]| {
                    let value: Value = serde_json::from_str(&String::from_utf8_lossy(bytes)).ok()?;
                    Some(value["error"]["message"].as_str().expect("a message").to_owned())
                };
                assert!(validate(&after).is_ok(), "SEED={seed}");
                // A strict reader refuses half of a character, before and after.
                let (before, after) = (text(&body), text(&after));
                assert_eq!(before.is_some(), after.is_some(), "SEED={seed}");
                assert!(
                    after.unwrap_or_default().starts_with(&before.unwrap_or_default()),
                    "SEED={seed}"
                );
                explained += 1;
            }
        }
    }
    assert!(only.is_some() || explained > 1000, "{explained}");
}

#[test]
fn tools_have_their_names() {
    for (format, body, index, name) in [
        (
            Format::Anthropic,
            r#"{"tools":[{"name":"a"},{"name":"b\"é"}]}"#,
            1,
            Some("b\"é"),
        ),
        (
            Format::OpenAiResponses,
            r#"{"tools":[{"type":"function","name":"a"}]}"#,
            0,
            Some("a"),
        ),
        (
            Format::OpenAiChat,
            r#"{"tools":[{"function":{"name":"a"}},{"type":"x"}]}"#,
            0,
            Some("a"),
        ),
        (
            Format::OpenAiChat,
            r#"{"tools":[{"function":{"name":"a"}},{"type":"x"}]}"#,
            1,
            None,
        ),
        (
            Format::Gemini,
            r#"{"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"a"}]},{"function_declarations":[{"name":"b"}]}]}"#,
            1,
            Some("b"),
        ),
        (Format::Anthropic, r#"{"tools":[{"name":""}]}"#, 0, None),
        (Format::Anthropic, r#"{"tools":[{"name":3}]}"#, 0, None),
        (Format::Anthropic, r#"{"tools":{}}"#, 0, None),
        (Format::Anthropic, "{}", 0, None),
        (Format::Anthropic, "[", 0, None),
        (Format::Anthropic, r#"{"tools":[{"name":"a"}]}"#, usize::MAX, None),
    ] {
        assert_eq!(tool_name(body.as_bytes(), format, index).as_deref(), name, "{body}");
    }
    let long = |bytes| format!(r#"{{"tools":[{{"name":"{}"}}]}}"#, "x".repeat(bytes));
    assert!(tool_name(long(128).as_bytes(), Format::Anthropic, 0).is_some());
    assert!(tool_name(long(129).as_bytes(), Format::Anthropic, 0).is_none());
}
