//! Kinds of items of Responses.

use super::{BlockKind, Company, object};

pub(super) fn kinds() -> Vec<BlockKind> {
    [calls_and_results(), others()].concat()
}

const fn item(name: &'static str, company: Company, write: fn(&str, &str) -> String) -> BlockKind {
    BlockKind {
        name,
        role: None,
        write,
        company,
    }
}

fn calls_and_results() -> Vec<BlockKind> {
    vec![
        item("calls", Company::Results, |id, content| {
            let members = [("type", r#""function_call""#), ("call_id", id), ("name", r#""f""#)];
            object(&[&members[..], &[("arguments", content)]].concat())
        }),
        item("results", Company::Calls, |id, content| {
            object(&[
                ("type", r#""function_call_output""#),
                ("call_id", id),
                ("output", content),
            ])
        }),
        item("calls of item ids", Company::Results, |id, content| {
            object(&[
                ("type", r#""function_call""#),
                ("id", id),
                ("call_id", id),
                ("arguments", content),
            ])
        }),
        item("custom calls", Company::Results, |id, content| {
            object(&[("type", r#""custom_tool_call""#), ("call_id", id), ("input", content)])
        }),
        item("custom results", Company::Calls, |id, content| {
            object(&[
                ("type", r#""custom_tool_call_output""#),
                ("call_id", id),
                ("output", content),
            ])
        }),
        item("local shells", Company::Results, |id, content| {
            object(&[("type", r#""local_shell_call""#), ("id", id), ("action", content)])
        }),
        item("results of local shells", Company::Calls, |id, content| {
            object(&[
                ("type", r#""local_shell_call_output""#),
                ("id", id),
                ("output", content),
            ])
        }),
        item("shells", Company::Results, |id, content| {
            object(&[("type", r#""shell_call""#), ("call_id", id), ("action", content)])
        }),
        item("screens", Company::Results, |id, content| {
            object(&[("type", r#""computer_call""#), ("call_id", id), ("action", content)])
        }),
    ]
}

fn others() -> Vec<BlockKind> {
    vec![
        item("approvals", Company::Pairs, |id, content| {
            object(&[
                ("type", r#""mcp_approval_request""#),
                ("id", id),
                ("arguments", content),
            ])
        }),
        item("reasoning", Company::Pairs, |id, content| {
            object(&[("type", r#""reasoning""#), ("id", id), ("encrypted_content", content)])
        }),
        item("references", Company::Pairs, |id, _| {
            object(&[("type", r#""item_reference""#), ("id", id)])
        }),
        item("messages of the user", Company::Pairs, |_, content| {
            object(&[("role", r#""user""#), ("content", content)])
        }),
        item("messages of the model", Company::Pairs, |id, content| {
            let members = [("type", r#""message""#), ("role", r#""assistant""#), ("id", id)];
            object(&[&members[..], &[("content", content)]].concat())
        }),
        item("searches", Company::Pairs, |id, content| {
            object(&[("type", r#""web_search_call""#), ("id", id), ("action", content)])
        }),
        item("compactions", Company::Pairs, |id, content| {
            object(&[("type", r#""compaction""#), ("id", id), ("encrypted_content", content)])
        }),
    ]
}
