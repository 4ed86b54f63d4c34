//! Agent histories of a given size, for timing.

use antiphon::wire::{Format, Wire};

use super::{Block, Conversation, Message, Role, Said, Style, object, text};

/// What is wrong with a sized history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Balanced,
    /// One result in the middle is missing.
    Orphan,
    /// One result of the middle stands at the end.
    Displaced,
}

/// A history of about `bytes` bytes: rounds of one call and a result of some two kilobytes, words now and then.
pub fn sized(format: Format, shape: Shape, bytes: usize) -> Vec<u8> {
    let wire = match format {
        Format::Anthropic => Wire::ANTHROPIC,
        Format::OpenAiChat => Wire::OPENAI_CHAT,
    };
    let mut talk = Conversation {
        wire,
        model: "claude-opus-4-5",
        messages: vec![Message::say(Role::User, "Begin.")],
        style: Style::default(),
        tags: 0,
        seed: 0,
    };
    let line = "src/lib.rs:41: let answer = \"forty-two\"; // \\ a line of a result\n";
    let rounds = (bytes / 2400).max(3);
    for round in 0..rounds {
        let id = format!("toolu_{round:024}");
        let input = object([("path", text(&format!("src/file_{round}.rs"))), ("limit", text("2000"))]);
        let words = Block::Text(format!("Reading file {round}."), false);
        let call = Block::Call {
            id: id.clone(),
            name: "read_file",
            input,
            custom: false,
        };
        talk.messages.push(Message {
            plain: true,
            ..Message::new(Role::Assistant, vec![words, call])
        });
        let result = Block::Result {
            id: Some(id),
            said: Said::Text(line.repeat(30)),
            is_error: false,
        };
        talk.messages.push(Message::new(talk.answering(), vec![result]));
    }
    let middle = 2 * (rounds / 2) + 2;
    talk.messages.push(Message::say(Role::Assistant, "Done."));
    match shape {
        Shape::Balanced => {}
        Shape::Orphan => drop(talk.messages.remove(middle)),
        Shape::Displaced => {
            let late = talk.messages.remove(middle);
            talk.messages.push(late);
        }
    }
    talk.messages.push(Message::say(Role::User, "Go on."));
    talk.bytes()
}
