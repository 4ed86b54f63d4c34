//! Refusals of providers: every known text in every wrapping, and texts that are not about pairing.

use std::panic;

use antiphon::wire::{
    REFUSAL_BYTES_MAX, Refusal,
    RefusalKind::{self, Unanswered},
    json::quote_string,
    read_refusal,
};

use crate::support::{
    bodies::Rng,
    refusals::{OTHERS, REFUSALS},
};

fn kind_and_ids(body: &str) -> Option<(RefusalKind, String)> {
    read_refusal(body.as_bytes()).map(|Refusal { kind, ids }| (kind, ids.join(" ")))
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
fn every_text_is_read_in_every_wrapping() {
    for (text, kind, ids) in REFUSALS {
        for body in wrapped(text) {
            assert_eq!(kind_and_ids(&body), Some((*kind, (*ids).to_owned())), "{body}");
        }
    }
}

#[test]
fn other_texts_are_not_pairing_refusals() {
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
    let read = read_refusal(format!("{head}{}", many.join(", ")).as_bytes()).unwrap();
    assert_eq!(read.ids, many[..64]);
    let (fits, long) = ("x".repeat(256), "y".repeat(257));
    let read = read_refusal(format!("{head}{long}, {fits}.").as_bytes()).unwrap();
    assert_eq!(read.ids, [fits]);

    let text = "`tool_use` ids must be unique";
    let fill = " ".repeat(REFUSAL_BYTES_MAX - text.len());
    assert!(read_refusal(format!("{text}{fill}").as_bytes()).is_some());
    assert!(read_refusal(format!("{text}{fill} ").as_bytes()).is_none());
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
    let bodies: Vec<String> = REFUSALS.iter().flat_map(|(text, ..)| wrapped(text)).collect();
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
        let read = panic::catch_unwind(|| read_refusal(&body)).unwrap_or_else(|failure| {
            println!("SEED={seed}\n{}", String::from_utf8_lossy(&body));
            panic::resume_unwind(failure)
        });
        let ids = read.map(|refusal| refusal.ids).unwrap_or_default();
        assert!(
            ids.len() <= 64
                && ids
                    .iter()
                    .all(|id| !id.is_empty() && id.len() <= 256 && !id.contains(['"', '\n', ' '])),
            "SEED={seed} {ids:?}"
        );
    }
}
