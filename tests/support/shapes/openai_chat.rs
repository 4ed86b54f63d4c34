//! Pieces of Chat Completions histories.

use super::{Piece, long};

pub(super) fn pieces() -> Vec<Piece> {
    [calls(), messages(), large()].concat()
}

fn call(id: &str, name: &str, arguments: &str) -> String {
    format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#)
}

fn result(id: &str, content: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{content}"}}"#)
}

fn calls() -> Vec<Piece> {
    let of = |name, write| Piece::block(name, "assistant", write);
    vec![
        of("calls", |n| call(&format!("call_{n}"), "f", "")),
        of("equal calls", |_| call("a", "f", "")),
        of("calls of one id", |n| call("a", "f", &n.to_string())),
        of("calls that have the next names", |n| {
            call(&format!("a_{}", n + 2), "f", "")
        }),
        of("rejected ids", |n| call(&format!("{n:050}"), "f", "")),
        of("calls without ids", |_| call("", "f", "")),
        of("entries of nothing", |_| "{}".into()),
    ]
}

fn messages() -> Vec<Piece> {
    vec![
        Piece::message("results", |n| result(&format!("call_{n}"), "r")),
        Piece::message("equal results of one call", |_| result("a", "r")),
        Piece::message("results of one call", |n| result("a", &n.to_string())),
        Piece::message("results of no call", |n| result(&format!("no_{n}"), "r")),
        Piece::message("results without ids", |_| r#"{"role":"tool","content":"r"}"#.into()),
        Piece::message("the user's words", |_| r#"{"role":"user","content":"x"}"#.into()),
        Piece::message("the model's words", |_| r#"{"role":"assistant","content":"x"}"#.into()),
        Piece::message("instructions", |_| r#"{"role":"system","content":"x"}"#.into()),
        Piece::message("empty messages of the model", |_| {
            r#"{"role":"assistant","content":null}"#.into()
        }),
        Piece::message("empty lists of calls", |_| {
            r#"{"role":"assistant","content":"x","tool_calls":[]}"#.into()
        }),
        Piece::message("calls in the user's mouth", |_| {
            r#"{"role":"user","content":"x","tool_calls":[{"id":"a"}]}"#.into()
        }),
        Piece::message("calls that stand twice", |_| {
            r#"{"role":"assistant","tool_calls":[{"id":"a"}],"tool_calls":[{"id":"b"}]}"#.into()
        }),
        Piece::message("messages of nothing", |_| "{}".into()),
    ]
}

fn large() -> Vec<Piece> {
    vec![
        Piece::large("a call of a long input", |size| one_call(&call("a", "f", &long(size)))),
        Piece::large("a call of a long name", |size| one_call(&call("a", &long(size), ""))),
        Piece::large("a call of a long id", |size| one_call(&call(&long(size), "f", ""))),
        Piece::large("a call of an id and a name of many pieces", |size| {
            one_call(&call(&"a-".repeat(size * 15), &"b".repeat(size * 30), ""))
        }),
        Piece::large("a call and its long result", |size| {
            format!("{},{}", one_call(&call("a", "f", "")), result("a", &long(size)))
        }),
    ]
}

fn one_call(call: &str) -> String {
    format!(r#"{{"role":"assistant","tool_calls":[{call}]}}"#)
}
