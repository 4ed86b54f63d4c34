//! Pieces of Anthropic Messages histories.

use super::{Piece, long};

const ASSISTANT: &str = "assistant";
const USER: &str = "user";

pub(super) fn pieces() -> Vec<Piece> {
    [calls(), other_blocks(), results(), messages(), large()].concat()
}

fn call(id: &str, rest: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"{id}","name":"f"{rest}}}"#)
}

fn result(id: &str, content: &str) -> String {
    format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{content}"}}"#)
}

fn calls() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, ASSISTANT, write);
    vec![
        of("calls", |n| call(&format!("toolu_{n}"), r#","input":{}"#)),
        of("equal calls", |_| call("a", r#","input":{}"#)),
        of("calls of one id", |n| call("a", &format!(r#","input":{{"n":{n}}}"#))),
        of("calls that have the next names", |n| {
            call(&format!("a_{}", n + 2), r#","input":{}"#)
        }),
        of("rejected ids", |n| call(&format!("t {n}!"), r#","input":{}"#)),
        of("one rejected id", |_| call("t 1!", r#","input":{}"#)),
        of("calls without ids", |_| call("", r#","input":{}"#)),
        of("null inputs", |n| call(&format!("toolu_{n}"), r#","input":null"#)),
        of("missing inputs", |n| call(&format!("toolu_{n}"), "")),
        of("list inputs", |n| call(&format!("toolu_{n}"), r#","input":[]"#)),
        of("text inputs", |n| call(&format!("toolu_{n}"), r#","input":"x""#)),
        of("calls by code", |n| {
            call(&format!("toolu_{n}"), r#","input":{},"caller":{"tool_id":"s"}"#)
        }),
        Piece::block("calls in the user's mouth", USER, |n| call(&format!("u{n}"), "")),
    ]
}

fn other_blocks() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, ASSISTANT, write);
    let server = |n: usize| format!(r#"{{"type":"server_tool_use","id":"srv_{n}","name":"web_search","input":{{}}}}"#);
    vec![
        of("server calls", server),
        of("server results", |n| {
            format!(r#"{{"type":"web_search_tool_result","tool_use_id":"srv_{n}","content":[]}}"#)
        }),
        of("server results of no call", |n| {
            format!(r#"{{"type":"web_search_tool_result","tool_use_id":"no_{n}","content":[]}}"#)
        }),
        of("thinking", |_| {
            r#"{"type":"thinking","thinking":"t","signature":"s"}"#.into()
        }),
        of("compactions", |_| r#"{"type":"compaction","content":"c"}"#.into()),
        of("the model's words", |_| r#"{"type":"text","text":"x"}"#.into()),
        of("the model's blank texts", |_| r#"{"type":"text","text":" "}"#.into()),
        of("results in the model's mouth", |n| result(&format!("toolu_{n}"), "r")),
    ]
}

fn results() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, USER, write);
    vec![
        of("results", |n| result(&format!("toolu_{n}"), "r")),
        of("equal results of one call", |_| result("a", "r")),
        of("results of one call", |n| result("a", &n.to_string())),
        of("results of no call", |n| result(&format!("no_{n}"), "r")),
        of("results without ids", |_| {
            r#"{"type":"tool_result","content":"r"}"#.into()
        }),
        of("empty errors", |n| {
            format!(r#"{{"type":"tool_result","tool_use_id":"toolu_{n}","content":"","is_error":true}}"#)
        }),
        of("the user's words", |_| r#"{"type":"text","text":"x"}"#.into()),
        of("the user's blank texts", |_| r#"{"type":"text","text":""}"#.into()),
        of("blocks of nothing", |_| "{}".into()),
    ]
}

fn messages() -> Vec<Piece> {
    vec![
        Piece::message("empty messages of the user", |_| {
            r#"{"role":"user","content":""}"#.into()
        }),
        Piece::message("empty lists of the user", |_| r#"{"role":"user","content":[]}"#.into()),
        Piece::message("empty messages of the model", |_| {
            r#"{"role":"assistant","content":""}"#.into()
        }),
        Piece::message("empty lists of the model", |_| {
            r#"{"role":"assistant","content":[]}"#.into()
        }),
        Piece::message("messages without content", |_| {
            r#"{"role":"user","content":null}"#.into()
        }),
        Piece::message("instructions", |_| r#"{"role":"system","content":"x"}"#.into()),
        Piece::message("contents that stand twice", |_| {
            r#"{"role":"user","content":[{"type":"compaction"}],"content":"x"}"#.into()
        }),
    ]
}

fn large() -> Vec<Piece> {
    vec![
        Piece::large("a call of a long input", |size| {
            one(ASSISTANT, &call("a", &format!(r#","input":{{"x":"{}"}}"#, long(size))))
        }),
        Piece::large("a call of a long name", |size| {
            one(
                ASSISTANT,
                &format!(r#"{{"type":"tool_use","id":"a","name":"{}","input":{{}}}}"#, long(size)),
            )
        }),
        Piece::large("a call of a long id", |size| {
            one(ASSISTANT, &call(&long(size), r#","input":{}"#))
        }),
        Piece::large("a call of an id and a name of many pieces", |size| {
            let (id, name) = ("a-".repeat(size * 15), "b".repeat(size * 30));
            one(
                ASSISTANT,
                &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#),
            )
        }),
        Piece::large("a call and its long result", |size| {
            let asks = one(ASSISTANT, &call("a", r#","input":{}"#));
            format!("{asks},{}", one(USER, &result("a", &long(size))))
        }),
        Piece::large("many words of the user's", |size| {
            format!(r#"{{"role":"user","content":"{}"}}"#, long(size))
        }),
        Piece::large("deep values", |size| {
            let deep = format!("{}{}", "[".repeat(size * 30), "]".repeat(size * 30));
            one(ASSISTANT, &call("a", &format!(r#","input":{{"x":{deep}}}"#)))
        }),
    ]
}

fn one(role: &str, block: &str) -> String {
    format!(r#"{{"role":"{role}","content":[{block}]}}"#)
}
