//! Histories of one kind of block with one fault, many times: every kind of every format with every fault.
//!
//! They reveal work that grows faster than the body. `support/shapes.rs` has further histories, of two pieces each.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

use antiphon_core::wire::{Format, Wire};

/// A kind of block, or of a message without blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockKind {
    /// Name in a failure message.
    name: &'static str,
    /// Role of the message around it. `None` if it is a whole message.
    role: Option<&'static str>,
    /// Writes it, from the JSON values of its id and its content. An empty value is a missing member.
    write: fn(&str, &str) -> String,
    /// The other half of a call and its result, or the blocks that surround it in a real history.
    company: Company,
}

/// What stands beside the blocks of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// Results of the same ids.
    Results,
    /// Calls of the same ids.
    Calls,
    /// Calls with their results.
    Pairs,
}

/// A fault: the id and the content of the block of an ordinal, as JSON values.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Name in a failure message.
    name: &'static str,
    id: fn(usize) -> String,
    content: fn(usize) -> String,
    /// Whether each member occurs twice.
    is_repeated: bool,
}

/// The arrangement of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrangement {
    /// All blocks of the kind in one message each, then their company.
    Apart,
    /// The blocks and their company alternating, one message each.
    Mixed,
    /// All blocks of the kind in one message, then all of their company in another.
    Together,
    /// As `Together`, without company.
    Alone,
    /// As `Apart`, without company.
    AloneApart,
}

/// A history of one kind of block with one fault, many times.
#[derive(Clone, Copy, Debug)]
pub struct FaultyHistory {
    /// Format and dialect.
    pub wire: Wire,
    kind: BlockKind,
    fault: Fault,
    arrangement: Arrangement,
}

/// Returns every history of `wire`: kinds, faults and arrangements.
pub fn all_histories(wire: Wire) -> impl Iterator<Item = FaultyHistory> {
    let every = kinds(wire.format)
        .into_iter()
        .flat_map(|kind| FAULTS.map(|fault| (kind, fault)));
    every.flat_map(move |(kind, fault)| {
        ARRANGEMENTS.map(|arrangement| FaultyHistory {
            wire,
            kind,
            fault,
            arrangement,
        })
    })
}

const ARRANGEMENTS: [Arrangement; 5] = [
    Arrangement::Apart,
    Arrangement::Mixed,
    Arrangement::Together,
    Arrangement::Alone,
    Arrangement::AloneApart,
];

const FAULTS: [Fault; 21] = [
    fault("none", own_id, |_| text("r")),
    fault("empty", own_id, |_| text("")),
    fault("blank", own_id, |_| text(" \\n\\u00a0")),
    fault("null", own_id, |_| "null".into()),
    fault("missing", own_id, |_| String::new()),
    fault("a number", own_id, |index| index.to_string()),
    fault("an empty list", own_id, |_| "[]".into()),
    fault("a list of an empty text", own_id, |_| {
        r#"[{"type":"text","text":""}]"#.into()
    }),
    fault("an object", own_id, |index| format!(r#"{{"n":{index}}}"#)),
    fault("escapes", own_id, |_| text(r#"\"\\\u0041\ud83d"#)),
    fault("duplicate", |_| text("a"), |_| text("r")),
    fault("one id", |_| text("a"), |index| text(&index.to_string())),
    fault(
        "pairs of one id",
        |index| text(&format!("p{}", index / 2)),
        |_| text("r"),
    ),
    fault("next names", |index| text(&format!("a_{}", index + 2)), |_| text("r")),
    fault("renamed", |index| text(&format!("t {index}!")), |_| text("r")),
    fault(
        "renamed to one name",
        |_| text("t 1!"),
        |index| text(&index.to_string()),
    ),
    fault("long ids", |index| text(&format!("{index:080}")), |_| text("r")),
    fault("ids of lone surrogates", surrogates, |_| text("r")),
    fault("empty id", |_| text(""), |_| text("r")),
    fault("missing id", |_| String::new(), |_| text("r")),
    Fault {
        is_repeated: true,
        ..fault("repeated members", own_id, |_| text("r"))
    },
];

const fn fault(name: &'static str, id: fn(usize) -> String, content: fn(usize) -> String) -> Fault {
    Fault {
        name,
        id,
        content,
        is_repeated: false,
    }
}

fn text(inside: &str) -> String {
    format!("\"{inside}\"")
}

fn own_id(index: usize) -> String {
    text(&format!("call_{index}"))
}

/// Returns an id of two lone surrogates. Each stands for two blocks, and all look alike once they are made legal.
fn surrogates(index: usize) -> String {
    let (high, low) = (index / 2 / 1024 % 1024, index / 2 % 1024);
    // Two high surrogates in a row are lone, both of them.
    text(&format!("\\u{:04x}\\u{:04x}", 0xD800 + high, 0xD800 + low))
}

/// Returns the members of an object, without those that are empty.
fn object(members: &[(&str, &str)]) -> String {
    let members = members.iter().filter(|(_, value)| !value.is_empty());
    let members: Vec<String> = members.map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

/// Returns every kind of block of a format.
fn kinds(format: Format) -> Vec<BlockKind> {
    match format {
        Format::Anthropic => anthropic::kinds(),
        Format::OpenAiChat => openai_chat::kinds(),
        Format::OpenAiResponses => openai_responses::kinds(),
        Format::Gemini => gemini::kinds(),
    }
}

/// Returns the call and the result of a format.
fn call_and_result(format: Format) -> [BlockKind; 2] {
    let kinds = kinds(format);
    let of = |company: Company| *kinds.iter().find(|kind| kind.company == company).unwrap();
    [of(Company::Results), of(Company::Calls)]
}

impl FaultyHistory {
    /// Returns the body with `count` blocks of the kind.
    pub fn body(&self, count: usize) -> String {
        let format = self.wire.format;
        let mut messages = vec![opening(format).to_owned()];
        let [call, result] = call_and_result(format);
        match self.arrangement {
            Arrangement::Mixed => {
                for index in 0..count {
                    messages.extend(self.with_company(index..index + 1, call, result));
                }
            }
            Arrangement::Together => messages.extend(self.with_company(0..count, call, result)),
            Arrangement::Alone => messages.push(self.message(self.kind, 0..count)),
            Arrangement::AloneApart => {
                messages.extend((0..count).map(|index| self.message(self.kind, index..index + 1)));
            }
            Arrangement::Apart => {
                let each = |kind| (0..count).map(move |index| self.message(kind, index..index + 1));
                match self.kind.company {
                    Company::Results => messages.extend(each(self.kind).chain(each(result))),
                    Company::Calls => messages.extend(each(call).chain(each(self.kind))),
                    Company::Pairs => messages.extend(each(call).chain(each(result)).chain(each(self.kind))),
                }
            }
        }
        messages.push(opening(format).to_owned());
        let key = match format {
            Format::Anthropic | Format::OpenAiChat => "messages",
            Format::OpenAiResponses => "input",
            Format::Gemini => "contents",
        };
        format!(r#"{{"{key}":[{}]}}"#, messages.join(","))
    }

    /// Returns the messages of these blocks, with their company.
    fn with_company(&self, range: std::ops::Range<usize>, call: BlockKind, result: BlockKind) -> Vec<String> {
        let message = |kind| self.message(kind, range.clone());
        match self.kind.company {
            Company::Results => vec![message(self.kind), message(result)],
            Company::Calls => vec![message(call), message(self.kind)],
            Company::Pairs => vec![message(call), message(self.kind), message(result)],
        }
    }

    /// Returns the message, or messages, of these blocks of `kind`. Only the history's own kind has its fault.
    fn message(&self, kind: BlockKind, range: std::ops::Range<usize>) -> String {
        let is_own = kind.name == self.kind.name;
        let write = |index| {
            let content = if is_own { (self.fault.content)(index) } else { text("r") };
            let block = (kind.write)(&(self.fault.id)(index), &content);
            match block.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(inside) if is_own && self.fault.is_repeated => format!("{{{inside},{inside}}}"),
                _ => block,
            }
        };
        let blocks = range.map(write).collect::<Vec<_>>().join(",");
        let Some(role) = kind.role else { return blocks };
        match self.wire.format {
            Format::Anthropic => format!(r#"{{"role":"{role}","content":[{blocks}]}}"#),
            Format::OpenAiChat => format!(r#"{{"role":"{role}","tool_calls":[{blocks}]}}"#),
            Format::OpenAiResponses => blocks,
            Format::Gemini => format!(r#"{{"role":"{role}","parts":[{blocks}]}}"#),
        }
    }

    /// Returns its name for a failure message.
    pub fn name(&self) -> String {
        let Self {
            wire,
            kind,
            fault,
            arrangement,
        } = self;
        format!("{wire}: {}, {} ({arrangement:?})", kind.name, fault.name)
    }
}

/// Returns a user message.
const fn opening(format: Format) -> &'static str {
    match format {
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => r#"{"role":"user","content":"go"}"#,
        Format::Gemini => r#"{"role":"user","parts":[{"text":"go"}]}"#,
    }
}
