//! Kinds of blocks of Anthropic Messages.

use super::{BlockKind, Company, object};

pub(super) fn kinds() -> Vec<BlockKind> {
    [calls_and_results(), others()].concat()
}

/// Returns a kind of blocks of a message of `role`.
const fn block(name: &'static str, role: &'static str, company: Company, write: fn(&str, &str) -> String) -> BlockKind {
    BlockKind {
        name,
        role: Some(role),
        write,
        company,
    }
}

/// Returns a kind of whole messages.
const fn message(name: &'static str, write: fn(&str, &str) -> String) -> BlockKind {
    BlockKind {
        name,
        role: None,
        write,
        company: Company::Pairs,
    }
}

fn calls_and_results() -> Vec<BlockKind> {
    vec![
        block("calls", "assistant", Company::Results, |id, content| {
            object(&[
                ("type", r#""tool_use""#),
                ("id", id),
                ("name", r#""f""#),
                ("input", content),
            ])
        }),
        block("results", "user", Company::Calls, |id, content| {
            object(&[("type", r#""tool_result""#), ("tool_use_id", id), ("content", content)])
        }),
        block("errors", "user", Company::Calls, |id, content| {
            let members = [("type", r#""tool_result""#), ("tool_use_id", id), ("is_error", "true")];
            object(&[&members[..], &[("content", content)]].concat())
        }),
        block("calls with bad names", "assistant", Company::Results, |id, content| {
            object(&[
                ("type", r#""tool_use""#),
                ("id", id),
                ("input", "{}"),
                ("name", content),
            ])
        }),
    ]
}

fn others() -> Vec<BlockKind> {
    vec![
        block("the user's texts", "user", Company::Pairs, |_, content| {
            object(&[("type", r#""text""#), ("text", content)])
        }),
        block("the model's texts", "assistant", Company::Pairs, |_, content| {
            object(&[("type", r#""text""#), ("text", content)])
        }),
        block("thinking", "assistant", Company::Pairs, |id, content| {
            object(&[("type", r#""thinking""#), ("thinking", content), ("signature", id)])
        }),
        block("foreign thinking", "assistant", Company::Pairs, |_, content| {
            let signature = r#""gAAAAA""#;
            object(&[
                ("type", r#""thinking""#),
                ("thinking", content),
                ("signature", signature),
            ])
        }),
        block("server calls", "assistant", Company::Pairs, |id, content| {
            object(&[("type", r#""server_tool_use""#), ("id", id), ("input", content)])
        }),
        block("server results", "assistant", Company::Pairs, |id, content| {
            object(&[
                ("type", r#""web_search_tool_result""#),
                ("tool_use_id", id),
                ("content", content),
            ])
        }),
        block("calls in the user's mouth", "user", Company::Pairs, |id, content| {
            object(&[("type", r#""tool_use""#), ("id", id), ("input", content)])
        }),
        block(
            "results in the model's mouth",
            "assistant",
            Company::Pairs,
            |id, content| object(&[("type", r#""tool_result""#), ("tool_use_id", id), ("content", content)]),
        ),
        block("compactions", "assistant", Company::Pairs, |_, content| {
            object(&[("type", r#""compaction""#), ("content", content)])
        }),
        message("messages of the user", |_, content| {
            object(&[("role", r#""user""#), ("content", content)])
        }),
        message("messages of the model", |_, content| {
            object(&[("role", r#""assistant""#), ("content", content)])
        }),
        message("instructions", |_, content| {
            object(&[("role", r#""system""#), ("content", content)])
        }),
    ]
}
