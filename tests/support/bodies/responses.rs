//! Conversations as Responses bodies. A message is one item or several.

use antiphon_core::wire::Dialect;

use super::{Block, CallKind, Conversation, Json, Message, Role, SYSTEM, Said, grow, object, raw, text};

type Members = Vec<(String, Json)>;

/// Returns the members of the body.
pub(super) fn members(talk: &Conversation) -> Members {
    let mut members = vec![
        ("model".to_owned(), text(talk.model)),
        ("max_output_tokens".to_owned(), Json::Number("1024".into())),
        ("tools".to_owned(), tools(talk)),
        ("input".to_owned(), Json::List(talk.written())),
        ("instructions".to_owned(), text(SYSTEM)),
    ];
    if talk.held {
        members.push(("previous_response_id".to_owned(), text("resp_held")));
    } else if talk.wire.dialect == Dialect::Standard {
        members.push(("store".to_owned(), Json::Bool(false)));
        let wanted = Json::List(vec![text("reasoning.encrypted_content")]);
        members.push(("include".to_owned(), wanted));
    }
    members
}

fn tools(talk: &Conversation) -> Json {
    let parameters = || object([("type", text("object")), ("properties", Json::Object(Vec::new()))]);
    let function = |name: &&str| {
        object([
            ("type", text("function")),
            ("name", text(name)),
            ("parameters", parameters()),
        ])
    };
    let mut tools: Vec<Json> = grow::TOOLS.iter().map(function).collect();
    tools.push(object([("type", text("custom")), ("name", text("apply_patch"))]));
    if talk.wire.dialect != Dialect::DeepSeek {
        tools.extend(["shell", "local_shell"].map(|kind| object([("type", text(kind))])));
    }
    if talk.has_server_tools() {
        tools.push(object([("type", text("web_search"))]));
    }
    Json::List(tools)
}

/// Returns the items of one message.
pub(super) fn items(talk: &Conversation, at: usize, message: &Message) -> Vec<Json> {
    if message.role == Role::User || message.role == Role::System {
        return vec![said(message)];
    }
    let blocks = message.blocks.iter().enumerate();
    blocks
        .filter_map(|(number, block)| {
            let mut members = match block {
                Block::Text(words, _) => spoken(words, message.plain),
                Block::Thinking(thought) => reasoning(talk, Some(thought)),
                Block::Redacted(_) => reasoning(talk, None),
                Block::Call { id, name, input, kind } => call(id, name, input, *kind),
                Block::Result { .. } => return output(talk, block).map(Json::Object),
                Block::ServerCall { query, .. } => searched(query),
                Block::Image(_) | Block::ServerResult { .. } => return None,
            };
            // A message without a type has no id either. A local shell call always has one.
            let typed = members.first().and_then(|(key, kind)| (key == "type").then_some(kind));
            if let Some(mark) = typed.and_then(mark)
                && (talk.style.ids || mark == "lsh")
            {
                members.push(("id".to_owned(), text(&format!("{mark}_{:x}_{at}_{number}", talk.seed))));
            }
            Some(Json::Object(members))
        })
        .collect()
}

/// Returns the id prefix of a kind of item.
fn mark(kind: &Json) -> Option<&'static str> {
    let Json::Text(kind) = kind else { return None };
    let marks = [
        ("message", "msg"),
        ("reasoning", "rs"),
        ("function_call", "fc"),
        ("custom_tool_call", "ctc"),
        ("apply_patch_call", "apc"),
        ("shell_call", "sh"),
        ("local_shell_call", "lsh"),
        ("web_search_call", "ws"),
    ];
    marks.iter().find(|(known, _)| known == kind).map(|(_, mark)| *mark)
}

fn object_of(kind: &str, rest: Vec<(&str, Json)>) -> Members {
    let mut members = vec![("type".to_owned(), text(kind))];
    members.extend(rest.into_iter().map(|(key, value)| (key.to_owned(), value)));
    members
}

/// Writes a user or developer message. The short form has no type.
fn said(message: &Message) -> Json {
    let role = text(if message.role == Role::User {
        "user"
    } else {
        "developer"
    });
    if let ([Block::Text(only, _)], true) = (message.blocks.as_slice(), message.plain) {
        return object([("role", role), ("content", text(only))]);
    }
    let part = |block: &Block| match block {
        Block::Text(words, _) => Some(object([("type", text("input_text")), ("text", text(words))])),
        Block::Image(data) => Some(image(data)),
        _ => None,
    };
    let parts = message.blocks.iter().filter_map(part).collect();
    object([
        ("type", text("message")),
        ("role", role),
        ("content", Json::List(parts)),
    ])
}

fn image(data: &str) -> Json {
    object([
        ("type", text("input_image")),
        ("image_url", text(&format!("data:image/png;base64,{data}"))),
    ])
}

/// Writes a model message.
fn spoken(words: &str, plain: bool) -> Members {
    let role = ("role".to_owned(), text("assistant"));
    if plain {
        return vec![role, ("content".to_owned(), text(words))];
    }
    let part = object([("type", text("output_text")), ("text", text(words))]);
    object_of("message", vec![("role", role.1), ("content", Json::List(vec![part]))])
}

fn reasoning(talk: &Conversation, thought: Option<&String>) -> Members {
    if talk.wire.dialect == Dialect::DeepSeek {
        let part = |thought: &String| object([("type", text("reasoning_text")), ("text", text(thought))]);
        let content = Json::List(thought.map(part).into_iter().collect());
        return object_of(
            "reasoning",
            vec![("summary", Json::List(Vec::new())), ("content", content)],
        );
    }
    let part = |thought: &String| object([("type", text("summary_text")), ("text", text(thought))]);
    object_of(
        "reasoning",
        vec![
            ("summary", Json::List(thought.map(part).into_iter().collect())),
            ("encrypted_content", text("gAAAAABEqQBCgIYAg==")),
        ],
    )
}

fn call(id: &str, name: &str, input: &Json, kind: CallKind) -> Members {
    let (id, done) = (("call_id", text(id)), ("status", text("completed")));
    match kind {
        CallKind::Function => object_of(
            "function_call",
            vec![id, ("name", text(name)), ("arguments", text(&raw(input))), done],
        ),
        CallKind::Custom => object_of(
            "custom_tool_call",
            vec![id, ("name", text(name)), ("input", text(&raw(input)))],
        ),
        CallKind::Patch => {
            let operation = object([("type", text("delete_file")), ("path", text(&raw(input)))]);
            object_of("apply_patch_call", vec![id, done, ("operation", operation)])
        }
        CallKind::Shell => {
            let action = object([("commands", Json::List(vec![text(&raw(input))]))]);
            object_of("shell_call", vec![id, done, ("action", action)])
        }
        CallKind::LocalShell => {
            let action = object([
                ("type", text("exec")),
                ("command", Json::List(vec![text("sh"), text("-c"), text(&raw(input))])),
                ("env", Json::Object(Vec::new())),
            ]);
            object_of("local_shell_call", vec![id, done, ("action", action)])
        }
    }
}

/// Writes a web search. Its result stays with the provider.
fn searched(query: &str) -> Members {
    let action = object([("type", text("search")), ("query", text(query))]);
    object_of(
        "web_search_call",
        vec![("status", text("completed")), ("action", action)],
    )
}

fn output(talk: &Conversation, block: &Block) -> Option<Members> {
    let Block::Result {
        id,
        said,
        is_error,
        kind,
        ..
    } = block
    else {
        return None;
    };
    // `true` for the specification's form, `false` for codex's form.
    let local = *kind == CallKind::LocalShell && talk.style.ids;
    let (word, key) = match kind {
        CallKind::LocalShell if local => ("local_shell_call_output", "id"),
        CallKind::Function | CallKind::LocalShell => ("function_call_output", "call_id"),
        CallKind::Custom => ("custom_tool_call_output", "call_id"),
        CallKind::Patch => ("apply_patch_call_output", "call_id"),
        CallKind::Shell => ("shell_call_output", "call_id"),
    };
    let mut rest: Vec<(&str, Json)> = id.iter().map(|id| (key, text(id))).collect();
    let status = text(if *is_error { "failed" } else { "completed" });
    match kind {
        CallKind::Patch => {
            rest.push(("status", status));
            if *said != Said::Nothing {
                rest.push(("output", text(&plainly(said))));
            }
        }
        CallKind::Shell => {
            let code = Json::Number(if *is_error { "1" } else { "0" }.into());
            let part = object([
                ("stdout", text(&plainly(said))),
                ("stderr", text("")),
                ("outcome", object([("type", text("exit")), ("exit_code", code)])),
            ]);
            rest.push(("output", Json::List(vec![part])));
        }
        CallKind::LocalShell if local => rest.push(("output", text(&plainly(said)))),
        _ => rest.push(("output", content(said))),
    }
    Some(object_of(word, rest))
}

/// Returns a result as one text.
fn plainly(said: &Said) -> String {
    match said {
        Said::Nothing => String::new(),
        Said::Text(words) => words.clone(),
        Said::Blocks(texts, _) => texts.join("\n"),
    }
}

/// Returns a result as the output of a function: a string, or a list of parts.
fn content(said: &Said) -> Json {
    let Said::Blocks(texts, picture) = said else {
        return text(&plainly(said));
    };
    let part = |words: &String| object([("type", text("input_text")), ("text", text(words))]);
    let parts = texts.iter().map(part).chain(picture.iter().map(|data| image(data)));
    Json::List(parts.collect())
}
