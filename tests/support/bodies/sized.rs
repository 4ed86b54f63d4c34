//! Agent histories of a given size, for timing: rounds of calls and results as a coding agent writes them.
//!
//! They contain only text, since a long image is one string that any scanner skips. Equal arguments give equal bytes.

use std::fmt::Write as _;

use antiphon_core::wire::{Format, Wire};

use super::{Block, CallKind, Conversation, Message, Rng, Role, Said, Style, object, text};

/// The fault of a sized history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// No fault.
    Balanced,
    /// One missing result in the middle.
    Orphan,
    /// One result of the middle at the end.
    Displaced,
}

const WORDS: [&str; 24] = [
    "agent",
    "reads",
    "file",
    "then",
    "edits",
    "module",
    "runs",
    "tests",
    "checks",
    "output",
    "the",
    "error",
    "of",
    "stream",
    "token",
    "request",
    "buffer",
    "timeout",
    "naïve",
    "because",
    "→",
    "first",
    "schema",
    "日本語",
];
const NAMES: [&str; 10] = [
    "parse_request",
    "handle",
    "UserStore",
    "pool",
    "retryPolicy",
    "span",
    "next_token",
    "cfg",
    "toolCallId",
    "block",
];

/// Returns a history of `bytes` bytes, or the smallest possible one of about two kilobytes.
pub fn sized(format: Format, shape: Shape, bytes: usize) -> Vec<u8> {
    let wire = match format {
        Format::Anthropic => Wire::ANTHROPIC,
        Format::OpenAiChat => Wire::OPENAI_CHAT,
        Format::OpenAiResponses => Wire::OPENAI_RESPONSES,
        Format::Gemini => Wire::GEMINI,
    };
    let mut rng = Rng::new(41);
    let mut talk = Conversation {
        wire,
        model: "claude-opus-4-5",
        messages: vec![Message::say(Role::User, "Begin.")],
        style: Style::default(),
        tags: 0,
        seed: 0,
        held: false,
    };
    let closing = [
        Message::say(Role::Assistant, "Done."),
        Message::say(Role::User, "Go on. "),
    ];
    let mut left =
        bytes.saturating_sub(talk.bytes().len() + closing.iter().map(|one| length(&talk, one)).sum::<usize>());
    let usual = (bytes / 24).clamp(100, 3000);
    let mut results = Vec::new();
    for number in 0.. {
        let [asks, answers] = round(&mut rng, &talk, number, usual);
        let both = length(&talk, &asks) + length(&talk, &answers);
        if number >= 3 && both > left {
            break;
        }
        left = left.saturating_sub(both);
        results.push(talk.messages.len() + 1);
        talk.messages.extend([asks, answers]);
    }
    talk.messages.extend(closing);
    let middle = results[results.len() / 2];
    match shape {
        Shape::Balanced => {}
        Shape::Orphan => {
            let lost = talk.messages.remove(middle);
            left += length(&talk, &lost);
        }
        Shape::Displaced => {
            let late = talk.messages.remove(middle);
            let last = talk.messages.len() - 1;
            talk.messages.insert(last, late);
        }
    }
    if let Some(Block::Text(said, _)) = talk.messages.last_mut().and_then(|last| last.blocks.first_mut()) {
        said.extend("Look at it again. ".chars().cycle().take(left));
    }
    talk.bytes()
}

/// Returns the bytes that a message adds after others, with its commas.
fn length(talk: &Conversation, message: &Message) -> usize {
    let written = talk.one(1, message);
    written.iter().map(|item| talk.style.write(item).len() + 1).sum()
}

/// Returns one call and its result.
fn round(rng: &mut Rng, talk: &Conversation, number: usize, usual: usize) -> [Message; 2] {
    let id = format!("toolu_01{:08x}{:06}", rng.next() & 0xFFFF_FFFF, number);
    let name = *rng.pick(&["read_file", "bash"]);
    let input = if name == "bash" {
        object([(
            "command",
            text(&format!("grep -rn \"{}\" src | head -{number}", rng.pick(&NAMES))),
        )])
    } else {
        object([
            ("path", text(&format!("src/file_{number}.rs"))),
            ("limit", text("2000")),
        ])
    };
    let mut words = format!("Round {number}: ");
    sentence(rng, &mut words);
    let call = Block::Call {
        id: id.clone(),
        name,
        input,
        kind: CallKind::Function,
    };
    let asks = Message {
        plain: true,
        ..Message::new(Role::Assistant, vec![Block::Text(words, false), call])
    };
    let result = Block::Result {
        id: Some(id),
        name,
        kind: CallKind::Function,
        said: Said::Text(output(rng, usual)),
        is_error: false,
    };
    [asks, Message::new(talk.answering(), vec![result])]
}

/// Returns a tool's output of one kind, from a quarter of the `usual` length to nearly twice as much.
fn output(rng: &mut Rng, usual: usize) -> String {
    let line = *rng.pick(&[code, code, log, listing, rows, prose]);
    let length = rng.within(usual / 4, 2 * usual - usual / 4);
    let mut out = String::new();
    let mut number = 0;
    while out.len() < length {
        number += 1;
        line(rng, &mut out, number);
    }
    out
}

fn code(rng: &mut Rng, out: &mut String, number: usize) {
    let (one, two) = (*rng.pick(&NAMES), *rng.pick(&NAMES));
    let indent = " ".repeat(4 * rng.below(4));
    let line = match rng.below(5) {
        0 => format!("let {one} = {two}.get(\"{one}\").unwrap_or_default();"),
        1 => format!("if ({one} !== {two}) {{ return {one}({number}); }}"),
        2 => format!("\"{one}\": {{\"{two}\": [1, 2, {number}], \"path\": \"C:\\\\tmp\\\\{one}\"}},"),
        3 => format!("# {} {}", rng.pick(&WORDS), rng.pick(&WORDS)),
        _ => String::new(),
    };
    writeln!(out, "{number:6}\t{indent}{line}").unwrap();
}

fn log(rng: &mut Rng, out: &mut String, number: usize) {
    let (level, name) = (*rng.pick(&["INFO", "WARN", "DEBUG"]), *rng.pick(&NAMES));
    let id = rng.next();
    write!(
        out,
        "2026-03-14T15:09:{:02}.{:03}Z {level} {name}[{number}]: ",
        number % 60,
        id % 1000
    )
    .unwrap();
    sentence(rng, out);
    write!(out, "id={id:016x}\r\n").unwrap();
}

fn listing(rng: &mut Rng, out: &mut String, number: usize) {
    let (one, two) = (*rng.pick(&NAMES), *rng.pick(&WORDS));
    writeln!(out, "./src/{one}/{two}_{number}.rs:{}:  {one}({two})", rng.below(900)).unwrap();
}

/// Writes JSON inside the string, which has the most escapes of all texts.
fn rows(rng: &mut Rng, out: &mut String, number: usize) {
    let (one, two) = (*rng.pick(&NAMES), *rng.pick(&WORDS));
    let row = format!(
        "{{\"id\": {number}, \"name\": \"{one}\", \"type\": \"tool_use\", \"tags\": [\"{two}\", \"{one}\"]}},\n"
    );
    out.push_str(&row);
}

fn prose(rng: &mut Rng, out: &mut String, _: usize) {
    sentence(rng, out);
    out.push_str(if rng.chance(20) { "\n\n" } else { " " });
}

fn sentence(rng: &mut Rng, out: &mut String) {
    for _ in 0..rng.within(5, 14) {
        let word = *rng.pick(&WORDS);
        out.push_str(word);
        out.push(' ');
    }
    out.pop();
    out.push('.');
}
