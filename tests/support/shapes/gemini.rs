//! Pieces of Gemini histories.

use super::{Piece, long};

pub(super) fn pieces() -> Vec<Piece> {
    [calls(), answers(), messages(), large()].concat()
}

fn calls() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, "model", write);
    vec![
        of("calls", |n| {
            format!(r#"{{"functionCall":{{"id":"c{n}","name":"f","args":{{}}}}}}"#)
        }),
        of("calls without ids", |_| r#"{"functionCall":{"name":"f"}}"#.into()),
        of("calls of many tools", |n| {
            format!(r#"{{"functionCall":{{"name":"f{n}"}}}}"#)
        }),
        of("equal calls", |_| r#"{"functionCall":{"id":"a","name":"f"}}"#.into()),
        of("signed calls", |n| {
            format!(r#"{{"functionCall":{{"id":"c{n}","name":"f"}},"thoughtSignature":"s"}}"#)
        }),
        of("thoughts", |_| r#"{"text":"t","thoughtSignature":"s"}"#.into()),
        of("the model's words", |_| r#"{"text":"x"}"#.into()),
        of("results in the model's mouth", |n| answer(&format!("c{n}"), "r")),
    ]
}

fn answer(id: &str, said: &str) -> String {
    format!(r#"{{"functionResponse":{{"id":"{id}","name":"f","response":{{"result":"{said}"}}}}}}"#)
}

fn answers() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, "user", write);
    vec![
        of("results", |n| answer(&format!("c{n}"), "r")),
        of("equal results of one call", |_| answer("a", "r")),
        of("results of one call", |n| answer("a", &n.to_string())),
        of("results of no call", |n| answer(&format!("no_{n}"), "r")),
        of("results without ids", |_| {
            r#"{"functionResponse":{"name":"f","response":{}}}"#.into()
        }),
        of("results of many tools", |n| {
            format!(r#"{{"functionResponse":{{"name":"f{n}","response":{{}}}}}}"#)
        }),
        of("the user's words", |_| r#"{"text":"x"}"#.into()),
        of("parts of nothing", |_| "{}".into()),
    ]
}

fn messages() -> Vec<Piece> {
    vec![
        Piece::message("contents of nothing", |_| "{}".into()),
        Piece::message("empty contents of the user", |_| r#"{"role":"user","parts":[]}"#.into()),
        Piece::message("empty contents of the model", |_| {
            r#"{"role":"model","parts":[]}"#.into()
        }),
        Piece::message("parts that stand twice", |_| {
            r#"{"role":"user","parts":[{"text":"x"}],"parts":[{"text":"y"}]}"#.into()
        }),
    ]
}

fn large() -> Vec<Piece> {
    vec![
        Piece::large("a call of a long input", |size| {
            one(
                "model",
                &format!(
                    r#"{{"functionCall":{{"id":"a","name":"f","args":{{"x":"{}"}}}}}}"#,
                    long(size)
                ),
            )
        }),
        Piece::large("a call of a long name", |size| {
            one(
                "model",
                &format!(r#"{{"functionCall":{{"id":"a","name":"{}"}}}}"#, long(size)),
            )
        }),
        Piece::large("a call of a long id", |size| {
            one(
                "model",
                &format!(r#"{{"functionCall":{{"id":"{}","name":"f"}}}}"#, long(size)),
            )
        }),
        Piece::large("a call and its long result", |size| {
            let asks = one("model", r#"{"functionCall":{"id":"a","name":"f"}}"#);
            format!("{asks},{}", one("user", &answer("a", &long(size))))
        }),
    ]
}

fn one(role: &str, part: &str) -> String {
    format!(r#"{{"role":"{role}","parts":[{part}]}}"#)
}
