//! Messages: each call is answered among the first blocks of the next turn of the user, once.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, list, text};

/// One block and where it stands.
struct Block<'a> {
    kind: &'a str,
    value: &'a Value,
    message: usize,
    index: usize,
}

/// Messages of one role in a row.
struct Turn<'a> {
    role: &'a str,
    blocks: Vec<Block<'a>>,
    /// The last of its messages.
    last: usize,
}

impl Turn<'_> {
    fn calls(&self) -> impl Iterator<Item = &Block<'_>> {
        self.blocks.iter().filter(|block| block.kind == "tool_use")
    }

    fn results(&self) -> impl Iterator<Item = &Block<'_>> {
        self.blocks.iter().filter(|block| block.kind == "tool_result")
    }
}

pub(super) fn judge(body: &Value) -> Verdict {
    if list(body, "messages").is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    // What the provider holds, or has compacted, answers what this body cannot show.
    let continues = body.pointer("/thread/type").and_then(Value::as_str) == Some("continue");
    let mut hidden = HashSet::new();
    let turns = turns(list(body, "messages"), &mut hidden)?;
    let opens = turns.first().map_or("user", |turn| turn.role);
    if opens == "assistant" && !continues && hidden.is_empty() && !is_compacted(&turns) {
        return Err("messages: first message must use the \"user\" role".to_owned());
    }
    for (at, turn) in turns.iter().enumerate() {
        let next = turns.get(at + 1).filter(|next| next.role == "user");
        let before = at.checked_sub(1).and_then(|before| turns.get(before));
        answered(turn, next)?;
        let known: HashSet<&str> = before.iter().flat_map(|turn| turn.calls()).map(id).collect();
        owned(turn, &known, &|id| hidden.contains(id) || (at == 0 && continues))?;
    }
    Ok(())
}

fn id<'a>(call: &Block<'a>) -> &'a str {
    text(call.value, "id")
}

fn is_compacted(turns: &[Turn<'_>]) -> bool {
    let first = turns.first().and_then(|turn| turn.blocks.first());
    first.is_some_and(|block| block.kind == "compaction")
}

/// The turns behind the last compaction; ids of the calls before it go into `hidden`.
fn turns<'a>(messages: &'a [Value], hidden: &mut HashSet<&'a str>) -> Result<Vec<Turn<'a>>, String> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        if !["user", "assistant", "system"].contains(&role) {
            return Err(format!("messages.{index}.role: Input should be 'user' or 'assistant'"));
        }
        let mut blocks = blocks(message, index)?;
        if blocks.is_empty() && !(role == "assistant" && index + 1 == messages.len()) {
            return Err(format!(
                "messages.{index}: all messages must have non-empty content except for the optional final assistant \
                 message"
            ));
        }
        blocks.iter().try_for_each(|block| shape(role, block))?;
        if let Some(at) = blocks.iter().rposition(|block| block.kind == "compaction") {
            let old = turns
                .iter()
                .flat_map(|turn| &turn.blocks)
                .chain(blocks.get(..at).unwrap_or_default());
            hidden.extend(old.filter(|block| block.kind == "tool_use").map(id));
            turns.clear();
            blocks.drain(..at);
        }
        match turns.last_mut().filter(|turn| turn.role == role) {
            Some(turn) => {
                turn.blocks.extend(blocks);
                turn.last = index;
            }
            None => turns.push(Turn {
                role,
                blocks,
                last: index,
            }),
        }
    }
    Ok(turns)
}

fn blocks(message: &Value, index: usize) -> Result<Vec<Block<'_>>, String> {
    let block = |(at, value)| Block {
        kind: text(value, "type"),
        value,
        message: index,
        index: at,
    };
    match message.get("content") {
        Some(Value::Array(blocks)) => Ok(blocks.iter().enumerate().map(block).collect()),
        Some(Value::String(words)) if words.is_empty() => Ok(Vec::new()),
        Some(Value::String(_)) => Ok(vec![Block {
            kind: "text",
            value: message,
            message: index,
            index: 0,
        }]),
        _ => Err(format!("messages.{index}.content: Input should be a valid list")),
    }
}

/// What is wrong with a call or a result wherever its turn stands.
fn shape(role: &str, block: &Block<'_>) -> Verdict {
    let (key, home) = match block.kind {
        "tool_use" => ("id", "assistant"),
        "tool_result" => ("tool_use_id", "user"),
        _ => return Ok(()),
    };
    let (n, m, kind) = (block.message, block.index, block.kind);
    if role != home {
        return Err(format!(
            "messages.{n}: `{kind}` blocks can only be in `{home}` messages"
        ));
    }
    let Some(id) = block.value.get(key).and_then(Value::as_str) else {
        return Err(format!("messages.{n}.content.{m}.{kind}.{key}: Field required"));
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if id.is_empty() || !id.bytes().all(legal) {
        return Err(format!(
            "messages.{n}.content.{m}.{kind}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'"
        ));
    }
    if block.kind == "tool_use" && !block.value.get("input").is_some_and(Value::is_object) {
        return Err(format!(
            "messages.{n}.content.{m}.tool_use.input: Input should be a valid dictionary"
        ));
    }
    Ok(())
}

/// Each call of the turn has its own id, and a result among the first blocks of the next turn.
fn answered(turn: &Turn<'_>, next: Option<&Turn<'_>>) -> Verdict {
    let mut seen = HashSet::new();
    if let Some(twice) = turn.calls().find(|call| !seen.insert(id(call))) {
        let (n, m) = (twice.message, twice.index);
        return Err(format!("messages.{n}.content.{m}: `tool_use` ids must be unique"));
    }
    let leading = next
        .iter()
        .flat_map(|next| next.blocks.iter().take_while(|block| block.kind == "tool_result"));
    let answers: HashSet<&str> = leading.map(|result| text(result.value, "tool_use_id")).collect();
    let open: Vec<&str> = turn.calls().map(id).filter(|id| !answers.contains(id)).collect();
    if open.is_empty() {
        return Ok(());
    }
    Err(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` \
         block must have a \
         corresponding `tool_result` block in the next message.",
        turn.last,
        open.join(", ")
    ))
}

/// Each result has its call in the turn before, and is the only one.
fn owned(turn: &Turn<'_>, known: &HashSet<&str>, elsewhere: &dyn Fn(&str) -> bool) -> Verdict {
    let mut seen = HashSet::new();
    for result in turn.results() {
        let (n, m, id) = (result.message, result.index, text(result.value, "tool_use_id"));
        if !seen.insert(id) {
            return Err(format!(
                "messages.{n}.content.{m}: each tool_use must have a single result. Found multiple `tool_result` \
                 blocks with id: {id}"
            ));
        }
        if !known.contains(id) && !elsewhere(id) {
            return Err(format!(
                "messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
                 `tool_result` block must \
                 have a corresponding `tool_use` block in the previous message."
            ));
        }
    }
    Ok(())
}
