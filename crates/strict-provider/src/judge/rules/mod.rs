//! Further reasons of servers to refuse a history: arguments, names, order, and the continuity of thinking.
//!
//! A rule here is known of some servers of a format only, so each is off unless a test switches it on. The judgement
//! stays a pure function: what a server remembers is an argument, [`ServerMemory`].

mod arguments;
mod continuity;
mod history_calls;
mod identity;
mod memory;
mod order;
mod python_json;
mod reasoning;

use serde_json::Value;

use super::{Verdict, anthropic, gemini, history, judge_of};
use crate::{Dialect, Format};

pub use memory::ServerMemory;
pub(super) use reasoning::missing_signature;

/// The rules of one kind of server beyond the pairing rules of its format. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a table of independent rules")]
pub struct ServerRules {
    /// Reader of historical arguments. `None` if the server passes any string to the model, as `OpenAI` does.
    pub arguments: Option<ArgumentReader>,
    /// Reader of tool names in the history. `None` if any name is accepted.
    pub names: Option<NameReader>,
    /// `true` if an id that is `null` is refused as a wrong type.
    pub null_ids: bool,
    /// `true` if nothing may stand between or behind the calls of a message (Messages only).
    pub calls_last: bool,
    /// `true` if nothing may stand beside the results of a message (Messages only), in MiniMax' words.
    pub only_results: bool,
    /// Words for a user message right behind a tool message. `None` if the order is legal.
    pub bridge: Option<BridgeWords>,
    /// Words for a history without a user message (Chat Completions only). `None` if it is legal.
    pub no_user: Option<NoUserWords>,
    /// `true` if thinking, encrypted reasoning and response ids must come from this very server.
    pub made_here: bool,
    /// The demand for reasoning of earlier turns. `None` without any.
    pub reasoning: Option<ReasoningRule>,
    /// `true` if a call may have one output only (Responses).
    pub one_output: bool,
    /// `true` if pending calls of a code execution need the `container` (Messages only).
    pub container: bool,
}

/// A server that parses the arguments of historical calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentReader {
    /// MiniMax: <https://github.com/earendil-works/pi/issues/5468>, 2026-06.
    MiniMax,
    /// Qwen at `DashScope`: <https://github.com/HKUDS/nanobot/issues/1487>, 2026.
    Qwen,
    /// vLLM, with Python's parser: <https://github.com/vllm-project/vllm/pull/48922>, 2026-07.
    Vllm,
    /// `SGLang`, with orjson: <https://github.com/sgl-project/sglang/pull/28035>, 2026-06.
    Sglang,
    /// llama.cpp, with status 500: <https://github.com/ggml-org/llama.cpp/issues/25510>, 2026-07.
    LlamaCpp,
    /// NEAR AI: codeg#538, 2026-08.
    NearAi,
    /// An unnamed provider behind codegraff#752, 2026-09.
    Codegraff,
    /// Gemini, whose `args` are a Struct.
    Gemini,
}

/// A server that checks tool names in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameReader {
    /// `OpenAI`.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Amazon Bedrock: opencode#28989, 2026-05.
    Bedrock,
}

/// Words of a Mistral-shaped server for a user message behind a tool message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeWords {
    /// With type and code 3230, as Mistral's own server: onyx#6458, 2025-11.
    Code3230,
    /// Plain, as vLLM and NIM: mistral-vibe#578, 2026-04.
    Plain,
}

/// Words of a server for a history without a user message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUserWords {
    /// Qwen's template in LM Studio: lmstudio-ai/lmstudio-bug-tracker#1586, #1655, 2026.
    LmStudio,
    /// GLM, in its one text for every fault: zhipuai-sdk#14, opencode#2557.
    Glm,
}

/// A server that wants back what it thought in earlier turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningRule {
    /// DeepSeek: for tool calls that its cache does not contain. DeepSeek-Reasonix#4022, 2026-06.
    DeepSeek,
    /// Kimi: for every tool call while it thinks. kimi-code#705, 2026-06.
    Kimi,
    /// Gemini 3: a signature on the first call of each step of the current turn, natively or in Chat Completions.
    Gemini,
    /// The same in the words of Vertex: opencode#4832, 2026-05.
    Vertex,
}

impl ServerRules {
    /// `OpenAI`: names, ids, and its own reasoning. Arguments may be any string.
    pub const OPENAI: Self = Self {
        names: Some(NameReader::OpenAi),
        null_ids: true,
        made_here: true,
        ..Self::NONE
    };
    /// Anthropic: names, ids, its own thinking, and containers.
    pub const ANTHROPIC: Self = Self {
        names: Some(NameReader::Anthropic),
        null_ids: true,
        made_here: true,
        container: true,
        ..Self::NONE
    };
    /// Anthropic or Bedrock as reported of some models: calls are the last blocks of their message.
    pub const CALLS_LAST: Self = Self {
        calls_last: true,
        ..Self::NONE
    };
    /// Amazon Bedrock.
    pub const BEDROCK: Self = Self {
        names: Some(NameReader::Bedrock),
        null_ids: true,
        calls_last: true,
        ..Self::NONE
    };
    /// Gemini: its own signatures, on the first call of each step.
    pub const GEMINI: Self = Self {
        arguments: Some(ArgumentReader::Gemini),
        made_here: true,
        reasoning: Some(ReasoningRule::Gemini),
        ..Self::NONE
    };
    /// Gemini at Vertex.
    pub const VERTEX: Self = Self {
        reasoning: Some(ReasoningRule::Vertex),
        ..Self::GEMINI
    };
    /// MiniMax, also behind a host that does not name it.
    pub const MINIMAX: Self = Self {
        only_results: true,
        ..Self::reading(ArgumentReader::MiniMax)
    };
    /// DeepSeek. Arguments may be any string.
    pub const DEEPSEEK: Self = Self {
        reasoning: Some(ReasoningRule::DeepSeek),
        ..Self::NONE
    };
    /// Kimi.
    pub const KIMI: Self = Self {
        reasoning: Some(ReasoningRule::Kimi),
        ..Self::NONE
    };
    /// Mistral's weights at vLLM or NIM.
    pub const MISTRAL_ELSEWHERE: Self = Self {
        bridge: Some(BridgeWords::Plain),
        ..Self::NONE
    };
    /// Mistral's weights behind a server with Mistral's codes.
    pub const MISTRAL_CODED: Self = Self {
        bridge: Some(BridgeWords::Code3230),
        ..Self::NONE
    };

    const NONE: Self = Self {
        arguments: None,
        names: None,
        null_ids: false,
        calls_last: false,
        only_results: false,
        bridge: None,
        no_user: None,
        made_here: false,
        reasoning: None,
        one_output: false,
        container: false,
    };

    /// Returns the rules of a server that parses historical arguments, and no others.
    pub const fn reading(arguments: ArgumentReader) -> Self {
        Self {
            arguments: Some(arguments),
            ..Self::NONE
        }
    }
}

/// Judges a body by its format, its dialect and further rules. `memory` is what the server made or accepted before.
pub fn judge_with(
    format: Format,
    dialect: Dialect,
    rules: &ServerRules,
    memory: &ServerMemory,
    body: &Value,
) -> Verdict {
    let requests = requests(format, body);
    // A server checks the fields of a body before it pairs calls with results.
    for request in &requests {
        let calls = history_calls::read_calls(format, request);
        if rules.null_ids {
            identity::check_ids(format, request, &calls)?;
        }
        if let Some(names) = rules.names {
            identity::check_names(names, &calls)?;
        }
        if let Some(reader) = rules.arguments {
            arguments::check_arguments(reader, &calls)?;
        }
        match format {
            Format::Responses if rules.one_output => order::check_outputs(request)?,
            Format::Chat => {
                rules
                    .bridge
                    .map_or(Ok(()), |words| order::check_bridges(words, request))?;
                rules
                    .no_user
                    .map_or(Ok(()), |words| order::check_users(words, request))?;
            }
            Format::Messages | Format::Responses | Format::Gemini => {}
        }
    }
    judge_pairs(format, dialect, rules, body)?;
    for request in &requests {
        if rules.made_here {
            continuity::check_origin(format, memory, request)?;
        }
        match format {
            Format::Messages if rules.container => continuity::check_container(request)?,
            Format::Messages | Format::Chat | Format::Responses | Format::Gemini => {}
        }
        if let Some(rule) = rules.reasoning {
            reasoning::check_reasoning(format, rule, memory, request)?;
        }
    }
    Ok(())
}

/// Judges pairs by format and dialect, with those rules of the server that are about pairs too.
fn judge_pairs(format: Format, dialect: Dialect, rules: &ServerRules, body: &Value) -> Verdict {
    match (format, rules.reasoning) {
        (Format::Messages, _) if rules.calls_last || rules.only_results => {
            let own = anthropic::Rules::of_dialect(dialect);
            anthropic::judge(body, &own.and_strictly(rules.calls_last, rules.only_results))
        }
        (Format::Gemini, Some(ReasoningRule::Gemini)) => gemini::judge(body, gemini::Signatures::Wanted),
        (Format::Gemini, Some(ReasoningRule::Vertex)) => gemini::judge(body, gemini::Signatures::WantedByVertex),
        (Format::Messages | Format::Chat | Format::Responses | Format::Gemini, _) => judge_of(format, dialect)(body),
    }
}

/// Returns the requests of a body: itself, those of a batch, or the wrapped one.
fn requests(format: Format, body: &Value) -> Vec<&Value> {
    match format {
        Format::Messages => history::batch(body).unwrap_or_else(|| vec![body]),
        Format::Gemini => history::gemini(body),
        Format::Chat | Format::Responses => vec![body],
    }
}
