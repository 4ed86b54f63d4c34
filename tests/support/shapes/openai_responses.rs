//! Pieces of Responses histories.

use super::{Piece, long};

pub(super) fn pieces() -> Vec<Piece> {
    [calls(), results(), others(), large()].concat()
}

fn call(id: &str, rest: &str) -> String {
    format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":""{rest}}}"#)
}

fn output(id: &str, text: &str) -> String {
    format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"{text}"}}"#)
}

fn calls() -> Vec<Piece> {
    vec![
        Piece::message("calls", |n| call(&format!("call_{n}"), "")),
        Piece::message("equal calls", |_| call("a", "")),
        Piece::message("calls of one id", |n| call("a", &format!(r#","arguments":"{n}""#))),
        Piece::message("calls that have the next names", |n| call(&format!("a_{}", n + 2), "")),
        Piece::message("rejected ids", |n| call(&format!("{n:080}"), "")),
        Piece::message("calls without ids", |_| call("", "")),
        Piece::message("calls of one item id", |n| call(&format!("call_{n}"), r#","id":"fc""#)),
        Piece::message("custom calls", |n| {
            format!(r#"{{"type":"custom_tool_call","call_id":"call_{n}","name":"f","input":""}}"#)
        }),
        Piece::message("screens", |n| {
            format!(r#"{{"type":"computer_call","call_id":"call_{n}"}}"#)
        }),
        Piece::message("shells", |n| {
            format!(r#"{{"type":"local_shell_call","id":"sh_{n}","call_id":"call_{n}","action":{{}}}}"#)
        }),
        Piece::message("approvals", |n| {
            format!(r#"{{"type":"mcp_approval_request","id":"call_{n}"}}"#)
        }),
        Piece::message("programs", |n| format!(r#"{{"type":"program","call_id":"call_{n}"}}"#)),
    ]
}

fn results() -> Vec<Piece> {
    vec![
        Piece::message("results", |n| output(&format!("call_{n}"), "r")),
        Piece::message("equal results of one call", |_| output("a", "r")),
        Piece::message("results of one call", |n| output("a", &n.to_string())),
        Piece::message("results of no call", |n| output(&format!("no_{n}"), "r")),
        Piece::message("results without ids", |_| {
            r#"{"type":"function_call_output","output":"r"}"#.into()
        }),
        Piece::message("results of another kind", |n| {
            format!(r#"{{"type":"custom_tool_call_output","call_id":"call_{n}","output":"r"}}"#)
        }),
        Piece::message("results of shells", |n| {
            format!(r#"{{"type":"local_shell_call_output","id":"sh_{n}","output":"r"}}"#)
        }),
        Piece::message("results of one shell", |_| {
            r#"{"type":"local_shell_call_output","id":"a","output":"r"}"#.into()
        }),
    ]
}

fn others() -> Vec<Piece> {
    vec![
        Piece::message("reasoning", |_| r#"{"type":"reasoning","summary":[]}"#.into()),
        Piece::message("the user's words", |_| r#"{"role":"user","content":"x"}"#.into()),
        Piece::message("the model's words", |_| {
            r#"{"type":"message","role":"assistant","content":[]}"#.into()
        }),
        Piece::message("searches", |_| r#"{"type":"web_search_call","id":"ws"}"#.into()),
        Piece::message("references", |_| r#"{"type":"item_reference","id":"fc"}"#.into()),
        Piece::message("compactions", |_| r#"{"type":"compaction"}"#.into()),
        Piece::message("items of nothing", |_| "{}".into()),
    ]
}

fn large() -> Vec<Piece> {
    vec![
        Piece::large("a call of a long input", |size| {
            call("a", &format!(r#","arguments":"{}""#, long(size)))
        }),
        Piece::large("a call of a long name", |size| {
            call("a", &format!(r#","name":"{}""#, long(size)))
        }),
        Piece::large("a call of a long id", |size| call(&long(size), "")),
        Piece::large("a call and its long result", |size| {
            format!("{},{}", call("a", ""), output("a", &long(size)))
        }),
        Piece::large("a shell of a long id", |size| {
            // With an escape, each copy of the id has to copy its bytes, not only its span.
            let id = format!(r"\u0078{}", long(size));
            format!(r#"{{"type":"local_shell_call","id":"a","call_id":"{id}","action":{{}}}}"#)
        }),
    ]
}
