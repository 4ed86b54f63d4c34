//! The judge of what a proxy keeps: compares the body of a client with the one that was sent in its place.
//!
//! It reads both with `serde_json`, and knows nothing of how a proxy changes bodies. What may differ is said by rules.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Format;

/// Members whose texts are no content: they order and pair what has content, or say how it is written.
const NO_CONTENT: [&str; 9] = [
    "type",
    "role",
    "id",
    "tool_use_id",
    "tool_call_id",
    "call_id",
    "name",
    "media_type",
    "signature",
];
/// Members whose texts a model reads.
const READ_MEMBERS: [&str; 8] = [
    "content",
    "text",
    "arguments",
    "input",
    "output",
    "args",
    "response",
    "refusal",
];

/// The differences that a change of a body may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRules {
    /// Parts of texts. A text with one of them may go.
    pub may_lose: Vec<String>,
    /// Texts that stand in the sent bytes.
    pub must_keep: Vec<String>,
    /// Top-level members that may differ, besides the history.
    pub may_change: Vec<String>,
    /// `true` if ids and names of calls and results may differ.
    pub pairs_differ: bool,
    /// `true` if only the texts that a model reads count.
    pub only_read_texts: bool,
}

/// Judges the body that was sent in place of the client's. Fails with the rule that it breaks.
pub fn judge_kept(format: Format, client: &[u8], sent: &[u8], rules: &KeptRules) -> Result<(), String> {
    let (client, is_strict) = match serde_json::from_slice(client) {
        Ok(client) => (client, true),
        Err(_) => (read_leniently(client).ok_or("the client's body is not JSON")?, false),
    };
    // A half of a character may stay where the client has written one.
    let parsed = serde_json::from_slice(sent).ok();
    let parsed = parsed.or_else(|| read_leniently(sent).filter(|_| !is_strict));
    let parsed: Value = parsed.ok_or("the sent body is not JSON")?;
    let bodies = Bodies {
        format,
        client: &client,
        sent: &parsed,
        rules,
    };
    bodies.judge_members()?;
    bodies.judge_pairs()?;
    bodies.judge_words()?;
    bodies.judge_order()?;
    bodies.judge_newest()?;
    let sent = String::from_utf8_lossy(sent);
    let lost = rules.must_keep.iter().find(|text| !sent.contains(text.as_str()));
    lost.map_or(Ok(()), |text| Err(format!("what must stay is lost: {text}")))
}

/// Both bodies, and what may differ.
struct Bodies<'b> {
    format: Format,
    client: &'b Value,
    sent: &'b Value,
    rules: &'b KeptRules,
}

impl<'b> Bodies<'b> {
    /// Judges the members beside the history: tools, choices, formats, instructions and parameters.
    fn judge_members(&self) -> Result<(), String> {
        let names = |body: &'b Value| body.as_object().into_iter().flat_map(serde_json::Map::keys);
        let may_differ = |name: &str| {
            name == history_member(self.format) || self.rules.may_change.iter().any(|allowed| allowed == name)
        };
        let mut all = names(self.client).chain(names(self.sent));
        let changed = all.find(|name| !may_differ(name) && self.client.get(name) != self.sent.get(name));
        changed.map_or(Ok(()), |name| Err(format!("a member has changed: {name}")))
    }

    /// Judges the calls and results: their ids, names and order.
    fn judge_pairs(&self) -> Result<(), String> {
        if self.rules.pairs_differ {
            return Ok(());
        }
        let (client, sent) = (pairs_of(self.format, self.client), pairs_of(self.format, self.sent));
        if client == sent {
            return Ok(());
        }
        Err(format!("calls and results have changed: {client:?} became {sent:?}"))
    }

    /// Judges the words: each of the client's is sent at least as often.
    fn judge_words(&self) -> Result<(), String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, text) in self.leaves(self.sent) {
            words(&text).for_each(|word| *counts.entry(word).or_default() += 1);
        }
        for (member, text) in self.leaves(self.client) {
            if self.may_lose(&text) || !self.counts(member) {
                continue;
            }
            for word in words(&text) {
                let left = counts.get_mut(&word).filter(|left| **left > 0);
                *left.ok_or_else(|| format!("a word is lost: {word}"))? -= 1;
            }
        }
        Ok(())
    }

    /// Judges the order: what was earlier in the client's history is not later in the one that was sent.
    fn judge_order(&self) -> Result<(), String> {
        let sent: Vec<String> = elements(self.format, self.sent).map(ToString::to_string).collect();
        let mut from = 0;
        for element in elements(self.format, self.client) {
            let mut leaves = Vec::new();
            collect_leaves(None, element, &mut leaves);
            let texts = leaves.into_iter().filter(|(member, text)| {
                member.is_none_or(|member| !NO_CONTENT.contains(&member))
                    && self.counts(*member)
                    && !self.may_lose(text)
                    && !text.trim().is_empty()
            });
            let Some((_, anchor)) = texts.max_by_key(|(_, text)| text.len()) else {
                continue;
            };
            let quoted = Value::from(anchor.trim()).to_string();
            let inner = quoted.trim_matches('"');
            let place = sent.iter().skip(from).position(|element| element.contains(inner));
            let place = place.ok_or_else(|| format!("a message is not in its order: {anchor}"))?;
            from = from.saturating_add(place);
        }
        Ok(())
    }

    /// Judges what the user has written newly, of which nothing may be lost, whatever the rules say.
    fn judge_newest(&self) -> Result<(), String> {
        let Some(newest) = elements(self.format, self.client).last() else {
            return Ok(());
        };
        if newest.get("role").and_then(Value::as_str) != Some("user") {
            return Ok(());
        }
        let mut own = Vec::new();
        collect_own_leaves(newest, &mut own);
        let mut sent = Vec::new();
        let last = elements(self.format, self.sent).last();
        if let Some(last) = last {
            collect_leaves(None, last, &mut sent);
        }
        let sent: Vec<String> = sent.iter().flat_map(|(_, text)| words(text)).collect();
        let lost = own.iter().flat_map(|(_, text)| words(text));
        let lost = lost.into_iter().find(|word| !sent.contains(word));
        lost.map_or(Ok(()), |word| {
            Err(format!("what the user has written newly is lost: {word}"))
        })
    }

    fn may_lose(&self, text: &str) -> bool {
        self.rules
            .may_lose
            .iter()
            .any(|allowed| text.contains(allowed.as_str()))
    }

    /// Returns `true` if the texts of a member count.
    fn counts(&self, member: Option<&str>) -> bool {
        !self.rules.only_read_texts || member.is_some_and(|member| READ_MEMBERS.contains(&member))
    }

    /// Returns the texts of a body's history.
    fn leaves(&self, body: &'b Value) -> Vec<(Option<&'b str>, String)> {
        let mut leaves = Vec::new();
        if let Some(history) = body.get(history_member(self.format)) {
            collect_leaves(None, history, &mut leaves);
        }
        leaves
    }
}

const fn history_member(format: Format) -> &'static str {
    match format {
        Format::Messages | Format::Chat => "messages",
        Format::Responses => "input",
        Format::Gemini => "contents",
    }
}

/// Returns the elements of a body's history.
fn elements(format: Format, body: &Value) -> impl Iterator<Item = &Value> {
    let history = body.get(history_member(format)).and_then(Value::as_array);
    history.into_iter().flatten()
}

/// A call or a result: its id, and the name of its tool if it has one.
type Pair<'b> = (&'static str, &'b str, &'b str);

/// Returns the calls and results of the client, in their order.
fn pairs_of(format: Format, body: &Value) -> Vec<Pair<'_>> {
    let mut pairs = Vec::new();
    for element in elements(format, body) {
        match format {
            Format::Messages => {
                for block in list_at(element, "content") {
                    match text_at(block, "type") {
                        "tool_use" => pairs.push(("call", text_at(block, "id"), text_at(block, "name"))),
                        "tool_result" => pairs.push(("result", text_at(block, "tool_use_id"), "")),
                        _ => {}
                    }
                }
            }
            Format::Chat => {
                for call in list_at(element, "tool_calls") {
                    let function = call.get("function").or_else(|| call.get("custom"));
                    let name = function.map_or("", |function| text_at(function, "name"));
                    pairs.push(("call", text_at(call, "id"), name));
                }
                if text_at(element, "role") == "tool" {
                    pairs.push(("result", text_at(element, "tool_call_id"), ""));
                }
            }
            Format::Responses => {
                let (kind, id) = (text_at(element, "type"), text_at(element, "call_id"));
                if kind.ends_with("_call") {
                    pairs.push(("call", id, text_at(element, "name")));
                } else if kind.ends_with("_output") {
                    pairs.push(("result", id, ""));
                }
            }
            // A server that knows no ids gets none: names and order pair the same.
            Format::Gemini => {
                for part in list_at(element, "parts") {
                    let calls = part.get("functionCall").map(|call| ("call", "", text_at(call, "name")));
                    let results = part.get("functionResponse");
                    pairs.extend(calls);
                    pairs.extend(results.map(|result| ("result", "", text_at(result, "name"))));
                }
            }
        }
    }
    pairs
}

fn list_at<'b>(value: &'b Value, member: &str) -> impl Iterator<Item = &'b Value> {
    value.get(member).and_then(Value::as_array).into_iter().flatten()
}

fn text_at<'b>(value: &'b Value, member: &str) -> &'b str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Collects every text and number below a value, each with the nearest member around it. Types and roles are none.
fn collect_leaves<'b>(member: Option<&'b str>, value: &'b Value, leaves: &mut Vec<(Option<&'b str>, String)>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => leaves.push((member, number.to_string())),
        Value::String(text) => leaves.push((member, text.clone())),
        Value::Array(elements) => elements
            .iter()
            .for_each(|element| collect_leaves(member, element, leaves)),
        Value::Object(members) => {
            for (name, value) in members
                .iter()
                .filter(|(name, _)| !["type", "role"].contains(&name.as_str()))
            {
                collect_leaves(Some(name), value, leaves);
            }
        }
    }
}

/// Collects the texts of a user's message that are the user's own: results of tools are not.
fn collect_own_leaves<'b>(message: &'b Value, leaves: &mut Vec<(Option<&'b str>, String)>) {
    let is_result = |block: &Value| text_at(block, "type") == "tool_result" || block.get("functionResponse").is_some();
    for member in ["content", "parts"] {
        match message.get(member) {
            Some(Value::Array(blocks)) => {
                let own = blocks.iter().filter(|block| !is_result(block));
                own.for_each(|block| collect_leaves(Some(member), block, leaves));
            }
            Some(other) => collect_leaves(Some(member), other, leaves),
            None => {}
        }
    }
}

/// Returns the words of a text: everything between signs and blanks.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|sign: char| !sign.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Reads a body in which halves of characters may stand alone. They count as the replacement character.
fn read_leniently(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        whole.push_str(before);
        let escape = if after.starts_with('u') { 5 } else { 1 };
        let (own, next) = after.split_at_checked(escape)?;
        let is_half = |text: &str, halves: [char; 4]| {
            let digits = text
                .strip_prefix('u')
                .and_then(|digits| digits.strip_prefix(['d', 'D']));
            digits.is_some_and(|digits| digits.to_ascii_lowercase().starts_with(halves))
        };
        let (high, low) = (['8', '9', 'a', 'b'], ['c', 'd', 'e', 'f']);
        let other = next.strip_prefix('\\').and_then(|next| next.split_at_checked(5));
        if is_half(own, high)
            && let Some((other, behind)) = other.filter(|(other, _)| is_half(other, low))
        {
            whole.extend(["\\", own, "\\", other]);
            rest = behind;
            continue;
        }
        let is_alone = is_half(own, high) || is_half(own, low);
        whole.extend(["\\", if is_alone { "ufffd" } else { own }]);
        rest = next;
    }
    whole.push_str(rest);
    serde_json::from_str(&whole).ok()
}
