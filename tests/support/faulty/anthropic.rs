//! Kinds of blocks of Anthropic Messages.

use super::{BlockKind, Company, object};

pub(super) fn kinds() -> Vec<BlockKind> {
    let of = |name, role, company, write| BlockKind {
        name,
        role: Some(role),
        write,
        company,
    };
    let message = |name, write| BlockKind {
        name,
        role: None,
        write,
        company: Company::Pairs,
    };
    vec![
        of("calls", "assistant", Company::Results, |id, content| {
            object(&[
                ("type", r#""tool_use""#),
                ("id", id),
                ("name", r#""f""#),
                ("input", content),
            ])
        }),
        of("results", "user", Company::Calls, |id, content| {
            object(&[("type", r#""tool_result""#), ("tool_use_id", id), ("content", content)])
        }),
        of("errors", "user", Company::Calls, |id, content| {
            let members = [("type", r#""tool_result""#), ("tool_use_id", id), ("is_error", "true")];
            object(&[&members[..], &[("content", content)]].concat())
        }),
        of("calls with bad names", "assistant", Company::Results, |id, content| {
            object(&[
                ("type", r#""tool_use""#),
                ("id", id),
                ("input", "{}"),
                ("name", content),
            ])
        }),
        of("the user's texts", "user", Company::Pairs, |_, content| {
            object(&[("type", r#""text""#), ("text", content)])
        }),
        of("the model's texts", "assistant", Company::Pairs, |_, content| {
            object(&[("type", r#""text""#), ("text", content)])
        }),
        of("thinking", "assistant", Company::Pairs, |id, content| {
            object(&[("type", r#""thinking""#), ("thinking", content), ("signature", id)])
        }),
        of("foreign thinking", "assistant", Company::Pairs, |_, content| {
            let signature = r#""gAAAAA""#;
            object(&[
                ("type", r#""thinking""#),
                ("thinking", content),
                ("signature", signature),
            ])
        }),
        of("server calls", "assistant", Company::Pairs, |id, content| {
            object(&[("type", r#""server_tool_use""#), ("id", id), ("input", content)])
        }),
        of("server results", "assistant", Company::Pairs, |id, content| {
            object(&[
                ("type", r#""web_search_tool_result""#),
                ("tool_use_id", id),
                ("content", content),
            ])
        }),
        of("calls in the user's mouth", "user", Company::Pairs, |id, content| {
            object(&[("type", r#""tool_use""#), ("id", id), ("input", content)])
        }),
        of(
            "results in the model's mouth",
            "assistant",
            Company::Pairs,
            |id, content| object(&[("type", r#""tool_result""#), ("tool_use_id", id), ("content", content)]),
        ),
        of("compactions", "assistant", Company::Pairs, |_, content| {
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
