//! Anthropic Messages. A call is answered in the next user turn, with results first. Server tools pair by id.

use std::collections::HashSet;

use serde_json::Value;

use crate::Dialect;

use super::{Refusal, Verdict, contents, history::batch, messages, refuse, refuse_plainly};

/// The requirements of one reader of the format.
#[expect(clippy::struct_excessive_bools, reason = "a table of independent demands")]
pub(super) struct Rules {
    /// `true` if consecutive messages of one role are one turn.
    combine: bool,
    /// `true` if ids must match `^[a-zA-Z0-9_-]+$`.
    id_pattern: bool,
    /// `true` if inputs must be objects, texts must not be blank, the user must come first, and cache markers are
    /// limited.
    careful: bool,
    /// `true` if text may follow a call in its message.
    text_after_call: bool,
    /// `true` if any other block may follow a call in its message.
    block_after_call: bool,
    /// `true` if a message with results may contain other blocks too.
    text_beside_results: bool,
    /// `true` if thinking must be signed. Servers that only speak the format take it without a signature.
    signed_thinking: bool,
}

impl Rules {
    pub(super) const STANDARD: Self = Self {
        combine: true,
        id_pattern: true,
        careful: true,
        text_after_call: true,
        block_after_call: true,
        text_beside_results: true,
        signed_thinking: true,
    };
    pub(super) const BEDROCK: Self = Self {
        combine: false,
        ..Self::STANDARD
    };
    pub(super) const COMPATIBLE: Self = Self {
        id_pattern: false,
        signed_thinking: false,
        ..Self::STANDARD
    };
    pub(super) const DEEPSEEK: Self = Self {
        combine: false,
        id_pattern: false,
        careful: false,
        text_after_call: false,
        signed_thinking: false,
        ..Self::STANDARD
    };
    pub(super) const MINIMAX: Self = Self {
        text_beside_results: false,
        ..Self::COMPATIBLE
    };

    /// Returns the rules of a dialect.
    pub(super) const fn of_dialect(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Author => Self::STANDARD,
            Dialect::Bedrock => Self::BEDROCK,
            Dialect::DeepSeek => Self::DEEPSEEK,
            Dialect::MiniMax => Self::MINIMAX,
            Dialect::Mistral | Dialect::Xai | Dialect::Compatible => Self::COMPATIBLE,
        }
    }

    /// Returns these rules with calls at the end of their message, and with nothing beside results.
    pub(super) const fn and_strictly(self, calls_last: bool, only_results: bool) -> Self {
        Self {
            text_after_call: self.text_after_call && !calls_last,
            block_after_call: self.block_after_call && !calls_last,
            text_beside_results: self.text_beside_results && !only_results,
            ..self
        }
    }
}

/// A block and its place. String content is one text block.
struct Block<'a> {
    kind: &'a str,
    text: Option<&'a str>,
    value: &'a Value,
    message: usize,
    index: usize,
}

/// A message, or the consecutive messages that a reader combines.
struct Turn<'a> {
    role: &'a str,
    blocks: Vec<Block<'a>>,
    last: usize,
}

/// History that this body does not contain.
struct Elsewhere<'a> {
    /// Calls before a compaction block.
    hidden: HashSet<&'a str>,
    /// `true` if the body continues a thread: the first turn answers remote calls.
    thread: bool,
    /// `true` if the history begins at a compaction block.
    compacted: bool,
}

impl<'a> Block<'a> {
    fn str(&self, key: &str) -> &'a str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn is_call(&self) -> bool {
        self.kind == "tool_use"
    }

    fn is_result(&self) -> bool {
        self.kind == "tool_result"
    }

    fn is_server_call(&self) -> bool {
        self.kind.ends_with("_tool_use")
    }

    fn is_server_result(&self) -> bool {
        self.kind.ends_with("_tool_result")
    }

    /// Returns the id of the code execution that made this call, if any.
    fn caller(&self) -> Option<&'a str> {
        let caller = self.value.get("caller")?;
        (caller.get("type")?.as_str()? != "direct")
            .then(|| caller.get("tool_id")?.as_str())
            .flatten()
    }
}

impl Turn<'_> {
    fn calls(&self) -> impl Iterator<Item = &Block<'_>> {
        self.blocks.iter().filter(|block| block.is_call())
    }

    fn only_results(&self) -> bool {
        self.role == "user" && self.blocks.iter().all(Block::is_result)
    }
}

/// Judges a body: one history, or each history of a batch by itself.
pub(super) fn judge(body: &Value, rules: &Rules) -> Verdict {
    let Some(entries) = batch(body).filter(|entries| !entries.is_empty()) else {
        return judge_history(body, rules);
    };
    let entry = |(index, entry): (usize, &&Value)| {
        judge_history(entry, rules).map_err(|refusal| Refusal {
            message: format!("requests.{index}.params.{}", refusal.message),
            ..refusal
        })
    };
    entries.iter().enumerate().try_for_each(entry)
}

fn judge_history(body: &Value, rules: &Rules) -> Verdict {
    let messages = messages(body)?;
    let (turns, elsewhere) = read_turns(body, messages, rules)?;
    check_first_turn(&turns, &elsewhere, rules)?;
    for (at, turn) in turns.iter().enumerate() {
        let next = turns.get(at + 1).filter(|next| next.role == "user");
        let before = at
            .checked_sub(1)
            .and_then(|before| turns.get(before))
            .filter(|before| before.role == "assistant");
        match turn.role {
            "assistant" => check_calls(turn, next, rules)?,
            "user" => check_results(turn, before, at == 0, &elsewhere, rules)?,
            _ => {}
        }
    }
    check_server_tools(&turns, &elsewhere)?;
    if !rules.text_beside_results {
        turns.iter().try_for_each(check_only_results)?;
    }
    if rules.careful {
        check_cache_markers(body)
    } else {
        Ok(())
    }
}

/// Reads the turns that count. Everything before the last compaction block does not count.
fn read_turns<'a>(
    body: &'a Value,
    messages: &'a [Value],
    rules: &Rules,
) -> Result<(Vec<Turn<'a>>, Elsewhere<'a>), Refusal> {
    let thread = body.pointer("/thread/type").and_then(Value::as_str) == Some("continue");
    let mut elsewhere = Elsewhere {
        hidden: HashSet::new(),
        thread,
        compacted: false,
    };
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if !matches!(role, "user" | "assistant" | "system") {
            refuse_plainly(format!("messages.{index}.role: Input should be 'user' or 'assistant'"))?;
        }
        let mut blocks = read_blocks(message, index)?;
        let last = index + 1 == messages.len();
        if blocks.is_empty() && !(rules.careful && last && role == "assistant") {
            refuse_plainly(format!(
                "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
            ))?;
        }
        if let Some(at) = blocks.iter().rposition(|block| block.kind == "compaction") {
            let old = turns.iter().flat_map(|turn| &turn.blocks).chain(&blocks[..at]);
            let ids: Vec<&str> = old
                .filter(|b| b.kind.ends_with("tool_use"))
                .map(|b| b.str("id"))
                .collect();
            elsewhere.hidden.extend(ids);
            elsewhere.compacted = true;
            turns.clear();
            blocks.drain(..at);
        }
        for block in &blocks {
            check_block(role, block, rules)?;
        }
        match turns.last_mut().filter(|turn| rules.combine && turn.role == role) {
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
    Ok((turns, elsewhere))
}

fn read_blocks(message: &Value, index: usize) -> Result<Vec<Block<'_>>, Refusal> {
    match message.get("content") {
        Some(text @ Value::String(words)) if words.is_empty() => {
            let _ = text;
            Ok(Vec::new())
        }
        Some(value @ Value::String(words)) => Ok(vec![Block {
            kind: "text",
            text: Some(words),
            value,
            message: index,
            index: 0,
        }]),
        Some(Value::Array(blocks)) => Ok(blocks
            .iter()
            .enumerate()
            .map(|(at, value)| Block {
                kind: value.get("type").and_then(Value::as_str).unwrap_or_default(),
                text: value.get("text").and_then(Value::as_str),
                value,
                message: index,
                index: at,
            })
            .collect()),
        _ => refuse_plainly(format!("messages.{index}.content: Input should be a valid list")).map(|()| Vec::new()),
    }
}

/// Checks a block by itself.
fn check_block(role: &str, block: &Block<'_>, rules: &Rules) -> Verdict {
    let (n, m, kind) = (block.message, block.index, block.kind);
    if (block.is_call() || block.is_server_call()) && role != "assistant" {
        return refuse(
            format!("messages.{n}: `{kind}` blocks can only be in `assistant` messages"),
            [block.str("id")],
        );
    }
    if block.is_result() && role != "user" {
        let words = format!("messages.{n}: `tool_result` blocks can only be in `user` messages");
        return refuse(words, [block.str("tool_use_id")]);
    }
    if block.is_server_result() && role != "assistant" {
        let words = format!("messages.{n}: `{kind}` blocks can only be in `assistant` messages");
        return refuse(words, [block.str("tool_use_id")]);
    }
    if block.is_call() || block.is_result() {
        let key = if block.is_call() { "id" } else { "tool_use_id" };
        let Some(id) = block.value.get(key).and_then(Value::as_str) else {
            return refuse_plainly(format!("messages.{n}.content.{m}.{kind}.{key}: Field required"));
        };
        let legal = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if rules.id_pattern && !legal {
            let words =
                format!("messages.{n}.content.{m}.{kind}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'");
            return refuse(words, [id]);
        }
    }
    if rules.signed_thinking && kind == "thinking" {
        check_signature(block)?;
    }
    if rules.careful { check_values(block) } else { Ok(()) }
}

/// Checks that thinking has a signature: <https://github.com/Wei-Shaw/sub2api/issues/1350>, 2026-03.
fn check_signature(block: &Block<'_>) -> Verdict {
    let fault = match block.value.get("signature") {
        Some(Value::String(_)) => return Ok(()),
        Some(_) => "Input should be a valid string",
        None => "Field required",
    };
    let (n, m) = (block.message, block.index);
    refuse_plainly(format!("messages.{n}.content.{m}.thinking.signature: {fault}"))
}

/// Checks values that only a strict reader rejects.
fn check_values(block: &Block<'_>) -> Verdict {
    let (n, m) = (block.message, block.index);
    if block.is_call() && !block.value.get("input").is_some_and(Value::is_object) {
        let words = format!("messages.{n}.content.{m}.tool_use.input: Input should be a valid dictionary");
        return refuse(words, [block.str("id")]);
    }
    if block.kind == "text" {
        let text = block.text.unwrap_or_default();
        if text.is_empty() {
            return refuse_plainly("messages: text content blocks must be non-empty");
        }
        if text.trim().is_empty() {
            return refuse_plainly("messages: text content blocks must contain non-whitespace text");
        }
    }
    let failed = block.value.get("is_error").and_then(Value::as_bool) == Some(true);
    if block.is_result() && failed {
        let empty = match block.value.get("content") {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(parts)) => parts.is_empty(),
            Some(_) => false,
        };
        if empty {
            let words = format!("messages.{n}.content.{m}.tool_result: content cannot be empty if `is_error` is true");
            return refuse(words, [block.str("tool_use_id")]);
        }
    }
    if block.is_result()
        && let Err(words) = contents::anthropic(block.value.get("content"), failed)
    {
        let words = format!("messages.{n}.content.{m}.tool_result{words}");
        return refuse(words, [block.str("tool_use_id")]);
    }
    Ok(())
}

/// Checks the role of the first turn.
fn check_first_turn(turns: &[Turn<'_>], elsewhere: &Elsewhere<'_>, rules: &Rules) -> Verdict {
    match turns.first().map(|turn| turn.role) {
        Some("assistant") if rules.careful && !elsewhere.compacted && !elsewhere.thread => {
            refuse_plainly("messages: first message must use the \"user\" role")
        }
        Some("system") if rules.careful && !elsewhere.compacted && !elsewhere.thread => {
            refuse_plainly("messages.0: a `system` message must follow a `user` message")
        }
        _ => Ok(()),
    }
}

/// Checks the client calls of an assistant turn: unique ids, and an answer among the leading results of the next user
/// turn.
fn check_calls(turn: &Turn<'_>, next: Option<&Turn<'_>>, rules: &Rules) -> Verdict {
    let mut seen = HashSet::new();
    for call in turn.calls() {
        if !seen.insert(call.str("id")) {
            let words = format!(
                "messages.{}.content.{}: `tool_use` ids must be unique",
                call.message, call.index
            );
            return refuse(words, [call.str("id")]);
        }
    }
    let leading = || {
        next.iter()
            .flat_map(|next| next.blocks.iter().take_while(|block| block.is_result()))
    };
    let answers: HashSet<&str> = leading().map(|result| result.str("tool_use_id")).collect();
    let mut open: Vec<&str> = turn
        .calls()
        .map(|call| call.str("id"))
        .filter(|id| !answers.contains(id))
        .collect();
    let is_behind = |block: &&Block<'_>| {
        let is_text = matches!(block.kind, "text" | "image" | "document");
        (is_text && !rules.text_after_call) || (!block.is_call() && !rules.block_after_call)
    };
    let behind = turn.blocks.iter().skip_while(|block| !block.is_call()).find(is_behind);
    if open.is_empty() && behind.is_some() {
        open = turn.calls().map(|call| call.str("id")).collect();
    }
    if !open.is_empty() {
        return refuse_unanswered(turn.last, &open);
    }
    let Some(next) = next else { return Ok(()) };
    if turn.calls().any(|call| call.caller().is_some()) && !next.only_results() {
        return refuse_plainly(format!(
            "messages.{}: the answer to a programmatic tool call may hold only `tool_result` blocks",
            next.last
        ));
    }
    for call in turn.calls() {
        let set = call.value.get("toolset_name");
        let mut own = leading().filter(|result| result.str("tool_use_id") == call.str("id"));
        if set.is_some() && own.any(|result| result.value.get("toolset_name") != set) {
            let words = format!(
                "messages.{}: `toolset_name` of the `tool_result` does not match",
                next.last
            );
            return refuse(words, [call.str("id")]);
        }
    }
    Ok(())
}

fn refuse_unanswered(message: usize, ids: &[&str]) -> Verdict {
    let words = format!(
        "messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. \
         Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    );
    refuse(words, ids.iter().copied())
}

/// Checks that a message with results contains nothing else. Measured on MiniMax (2026-06):
/// <https://github.com/anomalyco/opencode/issues/32609>.
fn check_only_results(turn: &Turn<'_>) -> Verdict {
    let mixed = |blocks: &[Block<'_>]| {
        turn.role == "user" && blocks.iter().any(|block| block.is_result() != blocks[0].is_result())
    };
    if turn.blocks.chunk_by(|one, next| one.message == next.message).any(mixed) {
        return refuse_plainly("invalid params, tool call result does not follow tool call (2013)");
    }
    Ok(())
}

/// Checks the results of a user turn: the call is in the turn before, and has only one result.
fn check_results(
    turn: &Turn<'_>,
    before: Option<&Turn<'_>>,
    opening: bool,
    elsewhere: &Elsewhere<'_>,
    rules: &Rules,
) -> Verdict {
    let _ = rules;
    let known: HashSet<&str> = before
        .iter()
        .flat_map(|before| before.calls())
        .map(|call| call.str("id"))
        .collect();
    let mut seen = HashSet::new();
    for result in turn.blocks.iter().filter(|block| block.is_result()) {
        let (n, m, id) = (result.message, result.index, result.str("tool_use_id"));
        if !seen.insert(id) {
            let words = format!(
                "messages.{n}.content.{m}: each tool_use must have a single result. \
                 Found multiple `tool_result` blocks with id: {id}"
            );
            return refuse(words, [id]);
        }
        let hidden = elsewhere.hidden.contains(id) || (opening && elsewhere.thread);
        if !known.contains(id) && !hidden {
            let words = format!(
                "messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. \
                 Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            );
            return refuse(words, [id]);
        }
    }
    Ok(())
}

/// Checks server tools by id: the result follows its call. A call may be open only while a turn is paused or mixed, or
/// while code runs.
fn check_server_tools(turns: &[Turn<'_>], elsewhere: &Elsewhere<'_>) -> Verdict {
    let mut open: Vec<&Block<'_>> = Vec::new();
    let mut closed: HashSet<&str> = HashSet::new();
    for (at, turn) in turns.iter().enumerate() {
        if turn.role != "assistant" {
            continue;
        }
        let older: HashSet<&str> = open.iter().map(|call| call.str("id")).collect();
        for block in &turn.blocks {
            if block.is_server_call() {
                open.push(block);
            } else if block.is_server_result() {
                let id = block.str("tool_use_id");
                let before = open.len();
                open.retain(|call| call.str("id") != id);
                let known = open.len() < before || closed.contains(id) || elsewhere.hidden.contains(id);
                if !known && !elsewhere.thread {
                    return refuse_orphaned_server_result(block);
                }
                closed.insert(id);
            }
        }
        let rest = turns.get(at + 1);
        let mixed = turn.calls().next().is_some() && rest.is_some_and(Turn::only_results);
        // A kind unknown to these rules may be answered outside the body.
        for call in open
            .iter()
            .filter(|call| matches!(call.kind, "server_tool_use" | "mcp_tool_use"))
        {
            let running = turn.calls().any(|client| client.caller() == Some(call.str("id")));
            let waiting = mixed && (!older.contains(call.str("id")) || running);
            let paused = rest.is_none() && !older.contains(call.str("id"));
            if !waiting && !paused {
                return refuse_unanswered_server_call(call);
            }
        }
    }
    Ok(())
}

fn refuse_unanswered_server_call(call: &Block<'_>) -> Verdict {
    let name = if call.kind == "mcp_tool_use" {
        "mcp"
    } else {
        call.str("name")
    };
    let id = call.str("id");
    let words = format!(
        "messages.{}: `{name}` tool use with id `{id}` was found without a corresponding `{name}_tool_result` block",
        call.message
    );
    refuse(words, [id])
}

fn refuse_orphaned_server_result(result: &Block<'_>) -> Verdict {
    let (n, m, kind, id) = (result.message, result.index, result.kind, result.str("tool_use_id"));
    let call = if kind == "mcp_tool_result" {
        "mcp_tool_use"
    } else {
        "server_tool_use"
    };
    let words = format!(
        "messages.{n}.content.{m}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. \
         Each `{kind}` block must have a corresponding `{call}` block before it."
    );
    refuse(words, [id])
}

/// Checks the limit of four cache markers.
fn check_cache_markers(body: &Value) -> Verdict {
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(members) => {
                usize::from(members.get("cache_control").is_some_and(|marker| !marker.is_null()))
                    + members.get("content").map_or(0, count)
            }
            _ => 0,
        }
    }
    let found: usize = ["system", "tools", "messages"]
        .iter()
        .filter_map(|key| body.get(key))
        .map(count)
        .sum();
    if found > 4 {
        return refuse_plainly(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {found}."
        ));
    }
    Ok(())
}
