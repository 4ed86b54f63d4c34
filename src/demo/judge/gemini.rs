//! Gemini: the responses of a turn of calls stand in the one next content, as many as there are calls.

use serde_json::Value;

use super::{Verdict, list, text};

const CALL_TURN: &str =
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
const RESPONSE_TURN: &str = "Please ensure that function response turn comes immediately after a function call turn.";
const COUNT: &str = "Please ensure that the number of function response parts is equal to the number of function \
call parts of the \
                     function call turn.";

/// A content, and what it holds of calls and responses.
struct Content<'a> {
    role: &'a str,
    calls: Vec<&'a Value>,
    responses: Vec<&'a Value>,
}

pub(super) fn judge(body: &Value) -> Verdict {
    // Code Assist wraps the request.
    let body = body.get("request").unwrap_or(body);
    let list = list(body, "contents");
    if list.is_empty() {
        return Err("* GenerateContentRequest.contents: contents is not specified".to_owned());
    }
    let contents = list
        .iter()
        .enumerate()
        .map(|(index, value)| read(index, value))
        .collect::<Result<Vec<_>, _>>()?;
    for (at, content) in contents.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| contents.get(before));
        let may_call = content.role == "model" && before.is_some_and(|before| before.role != "model");
        if !content.calls.is_empty() && !may_call {
            return Err(CALL_TURN.to_owned());
        }
        let may_respond = content.role != "model" && before.is_some_and(|before| !before.calls.is_empty());
        if !content.responses.is_empty() && !may_respond {
            return Err(RESPONSE_TURN.to_owned());
        }
        if let Some(next) = contents.get(at + 1).filter(|_| !content.calls.is_empty()) {
            paired(content, next)?;
        }
    }
    Ok(())
}

fn read(index: usize, value: &Value) -> Result<Content<'_>, String> {
    let role = value.get("role").map_or("user", |role| role.as_str().unwrap_or("user"));
    if !["user", "model", "function"].contains(&role) {
        return Err("Please use a valid role: user, model.".to_owned());
    }
    let parts = list(value, "parts");
    if parts.is_empty() {
        return Err(format!(
            "* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty."
        ));
    }
    let of = |camel: &str, snake: &str| {
        let found = parts
            .iter()
            .filter_map(|part| part.get(camel).or_else(|| part.get(snake)));
        found.filter(|inner| inner.is_object()).collect()
    };
    Ok(Content {
        role,
        calls: of("functionCall", "function_call"),
        responses: of("functionResponse", "function_response"),
    })
}

/// As many responses as calls, each for a call of its own: by id where both have one, else by name. Those with an id
/// choose first, so that none of them finds its call taken by name.
fn paired(calls: &Content<'_>, next: &Content<'_>) -> Verdict {
    let mut responses = next.responses.clone();
    responses.sort_by_key(|response| text(response, "id").is_empty());
    let mut open = calls.calls.clone();
    for response in responses {
        let (id, name) = (text(response, "id"), text(response, "name"));
        let exact = open.iter().position(|call| !id.is_empty() && text(call, "id") == id);
        let named = || {
            open.iter()
                .position(|call| text(call, "name") == name && (id.is_empty() || text(call, "id").is_empty()))
        };
        let Some(at) = exact.or_else(named) else {
            return Err(COUNT.to_owned());
        };
        open.remove(at);
    }
    if open.is_empty() { Ok(()) } else { Err(COUNT.to_owned()) }
}
