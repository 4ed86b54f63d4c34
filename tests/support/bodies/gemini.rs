//! Conversations as Gemini bodies, in JSON or proto spelling.

use super::{Block, Conversation, Json, Message, Role, SYSTEM, Said, grow, object, text};

/// Returns the members of the body. For a wrapped body, the members around the request.
pub(super) fn members(talk: &Conversation) -> Vec<(String, Json)> {
    let limits = object([(
        key(talk, "maxOutputTokens", "max_output_tokens"),
        Json::Number("1024".into()),
    )]);
    let system = object([("parts", Json::List(vec![object([("text", text(SYSTEM))])]))]);
    let mut request = vec![
        (key(talk, "generationConfig", "generation_config").to_owned(), limits),
        ("tools".to_owned(), tools(talk)),
        ("contents".to_owned(), Json::List(talk.written())),
        (key(talk, "systemInstruction", "system_instruction").to_owned(), system),
    ];
    let model = ("model".to_owned(), text(&format!("models/{}", talk.model)));
    let Some(around) = talk.style.wrap else {
        request.insert(0, model);
        return request;
    };
    vec![model, (around.to_owned(), Json::Object(request))]
}

fn key(talk: &Conversation, camel: &'static str, snake: &'static str) -> &'static str {
    if talk.style.snake { snake } else { camel }
}

fn tools(talk: &Conversation) -> Json {
    let declared = grow::TOOLS.iter().map(|name| object([("name", text(name))]));
    let declared = Json::List(declared.collect());
    let mut tools = vec![object([(
        key(talk, "functionDeclarations", "function_declarations"),
        declared,
    )])];
    if talk.has_server_tools() {
        tools.push(object([(
            key(talk, "codeExecution", "code_execution"),
            Json::Object(Vec::new()),
        )]));
    }
    Json::List(tools)
}

/// Writes one content. The first may lack a role.
pub(super) fn content(talk: &Conversation, at: usize, message: &Message) -> Json {
    let role = match message.role {
        Role::Assistant => "model",
        _ if talk.style.snake && message.blocks.iter().all(Block::is_result) => "function",
        _ => "user",
    };
    let mut signs = talk.signs();
    let mut parts = Vec::new();
    for block in &message.blocks {
        let is_call = matches!(block, Block::Call { .. });
        parts.push(part(talk, block, is_call && signs));
        signs &= !is_call;
    }
    let parts = ("parts".to_owned(), Json::List(parts));
    if at == 0 && role == "user" && !talk.style.ids {
        return Json::Object(vec![parts]);
    }
    Json::Object(vec![("role".to_owned(), text(role)), parts])
}

fn part(talk: &Conversation, block: &Block, signed: bool) -> Json {
    let mut members = match block {
        Block::Text(words, _) => vec![("text".to_owned(), text(words))],
        Block::Thinking(thought) => vec![
            ("text".to_owned(), text(thought)),
            ("thought".to_owned(), Json::Bool(true)),
        ],
        Block::Redacted(_) => vec![("text".to_owned(), text("")), ("thought".to_owned(), Json::Bool(true))],
        Block::Image(data) => {
            let kind = key(talk, "mimeType", "mime_type");
            let picture = object([(kind, text("image/png")), ("data", text(data))]);
            vec![(key(talk, "inlineData", "inline_data").to_owned(), picture)]
        }
        Block::Call { id, name, input, .. } => {
            let mut call = vec![("name".to_owned(), text(name)), ("args".to_owned(), input.clone())];
            call.extend(talk.style.ids.then(|| ("id".to_owned(), text(id))));
            vec![(
                key(talk, "functionCall", "function_call").to_owned(),
                Json::Object(call),
            )]
        }
        Block::Result {
            id,
            name,
            said,
            is_error,
            ..
        } => {
            let mut response = vec![
                ("name".to_owned(), text(name)),
                ("response".to_owned(), answer(said, *is_error)),
            ];
            let id = id.as_ref().filter(|_| talk.style.ids);
            response.extend(id.map(|id| ("id".to_owned(), text(id))));
            vec![(
                key(talk, "functionResponse", "function_response").to_owned(),
                Json::Object(response),
            )]
        }
        Block::ServerCall { query, .. } => {
            let code = object([("language", text("PYTHON")), ("code", text(query))]);
            vec![(key(talk, "executableCode", "executable_code").to_owned(), code)]
        }
        Block::ServerResult { query, .. } => {
            let printed = object([("outcome", text("OUTCOME_OK")), ("output", text(query))]);
            vec![(
                key(talk, "codeExecutionResult", "code_execution_result").to_owned(),
                printed,
            )]
        }
    };
    if signed {
        let signature = key(talk, "thoughtSignature", "thought_signature");
        members.push((signature.to_owned(), text("EqQBCgIYAg==")));
    }
    Json::Object(members)
}

fn answer(said: &Said, is_error: bool) -> Json {
    let key = if is_error { "error" } else { "result" };
    match said {
        Said::Nothing => Json::Object(Vec::new()),
        Said::Text(words) => object([(key, text(words))]),
        Said::Blocks(texts, _) => object([(key, Json::List(texts.iter().map(|words| text(words)).collect()))]),
    }
}
