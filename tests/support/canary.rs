//! Calls whose results name their owner, and the search for results at wrong places.

use serde_json::{Value, json};

use super::judge::{self, Verdict};

const TOOLS: [&str; 2] = ["bash", "render"];
const CANARY: &str = "canary-";

/// A tool call as the provider made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub who: usize,
    pub talk: usize,
    pub serial: usize,
    pub id: String,
    pub tool: &'static str,
    pub strong: bool,
    /// `true` if the input equals that of other calls of its tool.
    pub same_input: bool,
}

impl Call {
    /// Returns a call. Calls of two callers with equal labels differ only in their owner.
    pub fn new(who: usize, labels: usize, talk: usize, serial: usize, place: usize) -> Self {
        let strong = serial % 3 != 2;
        let id = if strong {
            format!("toolu_01A{labels}b{talk:02}Cd{serial:03}eF9gH2")
        } else {
            format!("call_{place}")
        };
        let tool = TOOLS[serial % TOOLS.len()];
        Self {
            who,
            talk,
            serial,
            id,
            tool,
            strong,
            same_input: false,
        }
    }

    /// Returns the content of its result: from the service (`p`) or for the client (`s`).
    pub fn canary(&self, kind: char) -> String {
        format!("{CANARY}{}-{}-{}-{kind}.", self.who, self.talk, self.serial)
    }

    pub fn input(&self) -> Value {
        let serial = if self.same_input { 0 } else { self.serial };
        json!({"talk": self.talk, "serial": serial})
    }
}

/// The owner of a result: caller, conversation, call and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Canary {
    pub who: usize,
    pub talk: usize,
    pub serial: usize,
    pub kind: char,
}

/// Returns every canary in a text, in order.
pub fn canaries(text: &str) -> Vec<Canary> {
    let read = |rest: &str| {
        let (name, _) = rest.split_once('.')?;
        let parts: Vec<&str> = name.split('-').collect();
        Some(Canary {
            who: parts.first()?.parse().ok()?,
            talk: parts.get(1)?.parse().ok()?,
            serial: parts.get(2)?.parse().ok()?,
            kind: parts.get(3)?.chars().next()?,
        })
    };
    let cut = |piece: &str| read(piece).unwrap_or_else(|| panic!("a canary was cut: {piece}"));
    text.split(CANARY).skip(1).map(cut).collect()
}

/// Returns the verdict of the judge for a path.
pub fn judged(path: &str, body: &Value) -> Verdict {
    if path.contains("/chat/completions") {
        judge::openai_chat(body)
    } else {
        judge::anthropic(body)
    }
}

/// Returns results that answer another call than their own. The judge must accept the body, and `calls` are its calls
/// in order.
pub fn misplaced(body: &Value, calls: &[Call]) -> Vec<String> {
    let (mut asked, mut wrong, mut calls) = (Vec::new(), Vec::new(), calls.iter());
    for message in body["messages"].as_array().into_iter().flatten() {
        let mut results = Vec::new();
        let blocks = message["content"].as_array().into_iter().flatten();
        match message["role"].as_str() {
            Some("assistant") => {
                let own = blocks.filter(|block| block["type"] == "tool_use").count();
                let own = own + message["tool_calls"].as_array().map_or(0, Vec::len);
                asked = calls.by_ref().take(own).collect();
            }
            Some("tool") => results.push((&message["tool_call_id"], &message["content"])),
            _ => {
                let own = blocks.filter(|block| block["type"] == "tool_result");
                results.extend(own.map(|block| (&block["tool_use_id"], &block["content"])));
            }
        }
        for (id, content) in results {
            for canary in canaries(&content.to_string()) {
                let is_it = |call: &&Call| *id == call.id && (call.talk, call.serial) == (canary.talk, canary.serial);
                if !asked.iter().any(is_it) {
                    wrong.push(format!("{canary:?} stands with {id}"));
                }
            }
        }
    }
    wrong
}
