//! Kinds of blocks of Chat Completions.

use super::{BlockKind, Company, object};

pub(super) fn kinds() -> Vec<BlockKind> {
    let calls = |name, write| BlockKind {
        name,
        role: Some("assistant"),
        write,
        company: Company::Results,
    };
    let message = |name, company, write| BlockKind {
        name,
        role: None,
        write,
        company,
    };
    vec![
        calls("calls", |id, content| {
            let function = object(&[("name", r#""f""#), ("arguments", content)]);
            object(&[("id", id), ("type", r#""function""#), ("function", &function)])
        }),
        calls("calls with bad names", |id, content| {
            let function = object(&[("arguments", r#""{}""#), ("name", content)]);
            object(&[("id", id), ("type", r#""function""#), ("function", &function)])
        }),
        message("results", Company::Calls, |id, content| {
            object(&[("role", r#""tool""#), ("tool_call_id", id), ("content", content)])
        }),
        message("messages of the user", Company::Pairs, |_, content| {
            object(&[("role", r#""user""#), ("content", content)])
        }),
        message("messages of the model", Company::Pairs, |_, content| {
            object(&[("role", r#""assistant""#), ("content", content)])
        }),
        message("messages with calls of no list", Company::Pairs, |_, content| {
            object(&[
                ("role", r#""assistant""#),
                ("content", r#""x""#),
                ("tool_calls", content),
            ])
        }),
        message("reasoning", Company::Pairs, |_, content| {
            object(&[("role", r#""assistant""#), ("reasoning_content", content)])
        }),
        message("instructions", Company::Pairs, |_, content| {
            object(&[("role", r#""system""#), ("content", content)])
        }),
    ]
}
