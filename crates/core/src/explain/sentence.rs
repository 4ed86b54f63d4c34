//! The sentences with which the authors of the formats say what other vendors' servers say in their own words.
//!
//! Clients compare them with errors: Claude Code lowers `max_tokens` or compacts after Anthropic's (2.1.332, 2026-11),
//! and opencode, pi and others compact after any of them (anomalyco/opencode, badlogic/pi-mono, 2026-09).

use crate::wire::{ErrorMeaning, Format, TokenCounts};

/// A sentence, and the texts that say the same.
#[derive(Debug)]
pub(super) struct Sentence {
    pub(super) text: String,
    /// Texts in lower case. A message with one of them needs no sentence.
    said: Vec<String>,
}

impl Sentence {
    /// Returns the sentence of the format's author. `None` if it needs the name of a tool, and none is known.
    pub(super) fn new(format: Format, meaning: ErrorMeaning, tool: Option<&str>) -> Option<Self> {
        match meaning {
            ErrorMeaning::Overflow(counts) => Self::of_overflow(format, counts.completed()),
            ErrorMeaning::BadTool(index) => {
                let name = tool?;
                let list = match format {
                    Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => "tools",
                    Format::Gemini => "functionDeclarations",
                };
                Some(Self {
                    text: format!("{list}[{index}] is \"{name}\""),
                    said: vec![name.to_lowercase()],
                })
            }
        }
    }

    /// Returns `true` if a message says it already.
    pub(super) fn is_in(&self, words: &[u8]) -> bool {
        let words = String::from_utf8_lossy(words).to_lowercase();
        self.said.iter().any(|said| words.contains(said))
    }

    fn of_overflow(format: Format, counts: TokenCounts) -> Option<Self> {
        let (text, said): (String, &[&str]) = match format {
            Format::Anthropic => (of_anthropic(counts)?, &["prompt is too long", "exceed context limit"]),
            Format::OpenAiChat | Format::OpenAiResponses => (
                of_openai(counts),
                &["maximum context length", "exceeds the context window"],
            ),
            Format::Gemini => (of_google(counts), &["input token count"]),
        };
        Some(Self {
            text,
            said: said.iter().map(|text| (*text).to_owned()).collect(),
        })
    }
}

/// Returns Anthropic's sentence. `None` if it may be the answer that is too long, and nothing tells how long the prompt is:
/// a client would compact a short one.
fn of_anthropic(counts: TokenCounts) -> Option<String> {
    Some(match (counts.prompt, counts.output, counts.limit) {
        (Some(prompt), _, Some(limit)) if prompt > limit => {
            format!("prompt is too long: {prompt} tokens > {limit} maximum")
        }
        // Only this sentence makes Claude Code lower `max_tokens`.
        (Some(prompt), Some(output), Some(limit)) if prompt.saturating_add(output) > limit => format!(
            "input length and `max_tokens` exceed context limit: {prompt} + {output} > {limit}, decrease input length \
             or `max_tokens` and try again"
        ),
        (None, Some(output), Some(limit)) if output > limit / 2 => return None,
        _ => "prompt is too long".to_owned(),
    })
}

fn of_openai(counts: TokenCounts) -> String {
    let Some(limit) = counts.limit else {
        return "Your input exceeds the context window of this model.".to_owned();
    };
    let context = format!("This model's maximum context length is {limit} tokens.");
    let rest = match (counts.prompt, counts.output, counts.total) {
        (Some(prompt), Some(output), Some(total)) if prompt <= limit => {
            format!(" However, you requested {total} tokens ({prompt} in the messages, {output} in the completion).")
        }
        (Some(prompt), ..) => format!(" However, your messages resulted in {prompt} tokens."),
        (None, _, Some(total)) => format!(" However, you requested {total} tokens."),
        (None, _, None) => String::new(),
    };
    context + &rest
}

fn of_google(counts: TokenCounts) -> String {
    match (counts.prompt, counts.limit) {
        (Some(prompt), Some(limit)) if prompt > limit => {
            format!("The input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit}).")
        }
        _ => "The input token count exceeds the maximum number of tokens allowed.".to_owned(),
    }
}
