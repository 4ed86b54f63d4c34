//! Kinds of parts of Gemini.

use super::{BlockKind, Company, object};

pub(super) fn kinds() -> Vec<BlockKind> {
    let of = |name, role, company, write| BlockKind {
        name,
        role: Some(role),
        write,
        company,
    };
    vec![
        of("calls", "model", Company::Results, |id, content| {
            let call = object(&[("id", id), ("name", r#""f""#), ("args", content)]);
            object(&[("functionCall", &call)])
        }),
        of("results", "user", Company::Calls, |id, content| {
            let response = object(&[("result", content)]);
            let result = object(&[("id", id), ("name", r#""f""#), ("response", &response)]);
            object(&[("functionResponse", &result)])
        }),
        of("calls by their names", "model", Company::Results, |id, content| {
            let call = object(&[("name", id), ("args", content)]);
            object(&[("functionCall", &call)])
        }),
        of("results by their names", "user", Company::Calls, |id, content| {
            let response = object(&[("result", content)]);
            let result = object(&[("name", id), ("response", &response)]);
            object(&[("functionResponse", &result)])
        }),
        of("signed calls", "model", Company::Results, |id, content| {
            let call = object(&[("id", id), ("name", r#""f""#)]);
            object(&[("functionCall", &call), ("thoughtSignature", content)])
        }),
        of("thoughts", "model", Company::Pairs, |id, content| {
            object(&[("text", content), ("thought", "true"), ("thoughtSignature", id)])
        }),
        of("the user's texts", "user", Company::Pairs, |_, content| {
            object(&[("text", content)])
        }),
        of("the model's texts", "model", Company::Pairs, |_, content| {
            object(&[("text", content)])
        }),
        of(
            "results in the model's mouth",
            "model",
            Company::Pairs,
            |id, content| {
                let response = object(&[("result", content)]);
                let result = object(&[("id", id), ("name", r#""f""#), ("response", &response)]);
                object(&[("functionResponse", &result)])
            },
        ),
    ]
}
