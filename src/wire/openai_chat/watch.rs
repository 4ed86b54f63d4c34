//! The reader of the chunks of a Chat Completions stream, and of an answer that is one completion.
//!
//! Shapes: OpenAI API reference and openai-python, 2026-08. Comments beside the code name what compatible servers do
//! differently. The format has no heartbeat, no server tools and no compaction.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::Text,
    splice::Span,
    wire::{
        Unreadable,
        facts::{
            EmittedCall, Facts, FaultFields, Phase, Seen, Silent, Usage, count, inside, items, kept, model, said, skip,
            walk,
        },
        json::{Cursor, Kind},
    },
};

/// Known finish reasons.
pub(crate) const STOPS: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/// The beginning of an event whose data is one line.
const DATA: &[u8] = b"data: ";

/// The state between events: the pattern of chunks that change no fact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    silent: Silent,
    /// The phase of reasoning for which the pattern holds.
    phase: Phase,
}

impl Reader {
    /// Returns `true` if an event changes no fact, because it matches the pattern.
    pub(crate) fn is_delta(&self, event: &[u8], facts: &Facts) -> bool {
        facts.reasoning == self.phase && self.silent.is_like(event)
    }

    /// Reads the `data` of one event.
    pub(crate) fn read(&mut self, event: &[u8], data: &[u8], facts: &mut Facts) -> Seen {
        let before = facts.reasoning;
        let mut chunk = Chunk::default();
        chunk.read(data, facts);
        let phase = facts.reasoning;
        if chunk.speaks || phase != before {
            self.silent.forget();
        } else if event.starts_with(DATA) && event.get(DATA.len()..).is_some_and(|rest| rest.starts_with(data)) {
            // Spans are offsets in the data, which fit the event only if the data is one line of it.
            self.phase = phase;
            let strings = chunk.texts.iter().filter(|(kind, _)| kind.is_free(phase));
            self.silent.learn(event, DATA.len(), strings.map(|(_, span)| *span));
        }
        Seen::Progress
    }
}

/// The kind of a string whose text changes no fact.
#[derive(Clone, Copy, Debug)]
enum Words {
    Content,
    Reasoning,
    /// Arguments of a call, or padding.
    Other,
}

impl Words {
    /// Returns `true` if the string may be replaced by any other, empty or not, without a change of facts.
    fn is_free(self, phase: Phase) -> bool {
        match self {
            // Text ends open reasoning, so empty and non-empty text then differ.
            Self::Content => phase != Phase::Open,
            Self::Reasoning => phase == Phase::Open,
            Self::Other => true,
        }
    }
}

/// The findings in one event.
#[derive(Default)]
struct Chunk {
    /// Set if the event is a complete message and no delta.
    whole: bool,
    /// Set if any fact was noted, apart from the phase of reasoning.
    speaks: bool,
    /// Strings whose text changes no fact, with their spans in the data.
    texts: Vec<(Words, Span)>,
}

impl Chunk {
    fn read(&mut self, data: &[u8], facts: &mut Facts) {
        if data.trim_ascii() == b"[DONE]" {
            (facts.terminal, self.speaks) = (true, true);
            return;
        }
        let mut error = FaultFields::default();
        walk(data, |cursor, key| match key {
            b"choices" => items(cursor, |cursor| self.choice(cursor, facts)),
            b"usage" => {
                // Chunks before the last may have `"usage": null`.
                self.speaks |= cursor.kind() != Kind::Null;
                usage(cursor, facts)
            }
            b"error" => error.take(cursor),
            b"model" => model(facts, cursor),
            // Random padding, other in every chunk.
            b"obfuscation" => self.text(Words::Other, cursor).map(|_| ()),
            _ => skip(cursor),
        });
        // A completion that is no stream has no `[DONE]`.
        facts.terminal |= self.whole && facts.stop.is_some();
        if error.is_seen() {
            (facts.error, facts.terminal) = (Some(error.fault()), true);
        }
        self.speaks |= self.whole || error.is_seen();
    }

    fn choice(&mut self, cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
        let (mut place, mut delta) = (0, Delta::default());
        let mut stop = Text::default();
        let read = inside(cursor, |cursor, key| match key {
            b"index" => count(&mut place, cursor),
            b"delta" => inside(cursor, |cursor, key| delta.take(key, cursor, self)),
            b"message" => {
                self.whole = true;
                inside(cursor, |cursor, key| delta.take(key, cursor, self))
            }
            b"finish_reason" => cursor.text().map(|text| stop = text),
            _ => skip(cursor),
        });
        self.speaks |= !stop.is_empty() || !delta.calls.is_empty();
        if !stop.is_empty() {
            facts.stop = said(&stop);
        }
        facts.begun |= !stop.is_empty() || delta.says_something();
        delta.note(place, facts);
        if (self.whole || !stop.is_empty()) && facts.reasoning == Phase::Open {
            facts.reasoning = Phase::Over;
        }
        read
    }

    /// Passes the next value and notes its span. Returns `true` if it is a string that is not empty.
    fn text(&mut self, words: Words, cursor: &mut Cursor<'_>) -> Result<bool, Unreadable> {
        let is_text = cursor.kind() == Kind::String;
        let span = cursor.value()?;
        if is_text {
            self.texts.push((words, span));
        }
        Ok(is_text && span.len() > 2)
    }
}

/// The output that a chunk adds to a choice.
#[derive(Default)]
struct Delta<'a> {
    /// Set if there is text, or a call.
    words: bool,
    /// Set if there is reasoning: `reasoning_content` (DeepSeek, vLLM and others) or `reasoning` (OpenRouter, Groq).
    reasoning: bool,
    calls: Vec<Call<'a>>,
    /// Set if there is a refusal or audio.
    other: bool,
}

/// A call, or a piece of one.
#[derive(Default)]
struct Call<'a> {
    index: Option<u64>,
    id: Text<'a>,
    name: Text<'a>,
}

impl<'a> Delta<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut Chunk) -> Result<(), Unreadable> {
        match key {
            b"content" => self.words |= chunk.text(Words::Content, cursor)?,
            b"reasoning_content" | b"reasoning" => self.reasoning |= chunk.text(Words::Reasoning, cursor)?,
            b"tool_calls" => items(cursor, |cursor| {
                self.words = true;
                let mut call = Call::default();
                let read = inside(cursor, |cursor, key| call.take(key, cursor, chunk));
                // Further pieces of a call have only arguments.
                if !(call.id.is_empty() && call.name.is_empty()) {
                    self.calls.push(call);
                }
                read
            })?,
            // The older form of `tool_calls`: one call, without an id.
            b"function_call" => {
                let mut call = Call::default();
                inside(cursor, |cursor, key| call.function(key, cursor, chunk))?;
                if !call.name.is_empty() {
                    self.calls.push(call);
                }
            }
            b"refusal" | b"audio" => {
                // Two bytes are an empty string, list or object.
                let null = cursor.kind() == Kind::Null;
                self.other |= cursor.value()?.len() > 2 && !null;
            }
            _ => skip(cursor)?,
        }
        Ok(())
    }

    fn says_something(&self) -> bool {
        self.words || self.reasoning || self.other || !self.calls.is_empty()
    }

    /// Notes the phase of reasoning and the calls.
    fn note(self, choice: u64, facts: &mut Facts) {
        // Text ends reasoning; a chunk with both is past it.
        if self.words && facts.reasoning == Phase::Open {
            facts.reasoning = Phase::Over;
        } else if self.reasoning && !self.words {
            facts.reasoning = Phase::Open;
        }
        for call in self.calls {
            // Servers without indices send complete calls. Some servers give every call the same index and another id.
            facts.calls.note(EmittedCall {
                id: kept(&call.id),
                name: kept(&call.name),
                by_code: false,
                place: call.index.map(|index| (choice, index)),
            });
        }
    }
}

impl<'a> Call<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut Chunk) -> Result<(), Unreadable> {
        match key {
            b"index" => self.index = cursor.number()?,
            b"id" => self.id = cursor.text()?,
            b"function" | b"custom" => inside(cursor, |cursor, key| self.function(key, cursor, chunk))?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    fn function(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut Chunk) -> Result<(), Unreadable> {
        match key {
            b"name" => self.name = cursor.text()?,
            b"arguments" | b"input" => drop(chunk.text(Words::Other, cursor)?),
            _ => skip(cursor)?,
        }
        Ok(())
    }
}

/// Reads the usage in the form of OpenAI and compatible servers.
fn usage(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    let (mut usage, mut input, mut some) = (Usage::default(), 0, false);
    let read = inside(cursor, |cursor, key| {
        some = true;
        match key {
            b"prompt_tokens" => count(&mut input, cursor),
            b"completion_tokens" => count(&mut usage.output, cursor),
            b"prompt_tokens_details" => inside(cursor, |cursor, key| match key {
                b"cached_tokens" => count(&mut usage.cache_read, cursor),
                _ => skip(cursor),
            }),
            // DeepSeek's name for it.
            b"prompt_cache_hit_tokens" => count(&mut usage.cache_read, cursor),
            b"completion_tokens_details" => inside(cursor, |cursor, key| match key {
                b"reasoning_tokens" => count(&mut usage.reasoning, cursor),
                _ => skip(cursor),
            }),
            _ => skip(cursor),
        }
    });
    if some {
        // The provider counts cached tokens as prompt tokens too.
        usage.input = input.saturating_sub(usage.cache_read);
        facts.usage = usage;
    }
    read
}
