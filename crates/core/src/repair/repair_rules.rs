//! The table of repairs that are made before any refusal, each with its evidence.
//!
//! A row without evidence switches its repair off, where that is possible: see [`RepairRule::evidence`]. A case in
//! `tests/cases` meets each row.

use super::{
    Action::{self, Continue, Drop, Fix, Merge, Move, Open, Placeholder, Quote, Rearrange, Rename},
    evidence::{
        Details,
        Evidence::{self, Code, Document, Refusal},
        RepairRule,
    },
};
use crate::{
    conversation::{
        FindingKind::{
            self, BadId, Duplicate, DuplicateCall, Field, ForeignThinking, Headless, LostContinuity, MalformedCall,
            Misplaced, MisplacedWords, NoId, Orphan, ServerHalf, Unanswerable, Unanswered,
        },
        STANDALONE,
    },
    wire::{
        Dialect::{self, Bedrock, Compatible, DeepSeek, MiniMax, Mistral, Standard, Xai},
        Format::{self, Anthropic, Gemini, OpenAiChat, OpenAiResponses},
    },
};

/// Every dialect.
const EVERY: &[Dialect] = &[Standard, Bedrock, DeepSeek, Mistral, Xai, MiniMax, Compatible];
/// Every dialect of Chat Completions but xAI's.
const NOT_XAI: &[Dialect] = &[Standard, Bedrock, DeepSeek, Mistral, MiniMax, Compatible];
/// The dialects of Messages that require the user first. Servers of the format copy its author's rule.
const USER_FIRST: &[Dialect] = &[Standard, Bedrock, MiniMax, Compatible];

const fn rule(
    format: Format,
    dialects: &'static [Dialect],
    finding: FindingKind,
    actions: &'static [Action],
    evidence: &'static [Evidence],
) -> RepairRule {
    RepairRule {
        format,
        dialects,
        finding,
        details: Details::All,
        actions,
        evidence,
    }
}

/// xAI answers a fault of the history with a general text, so no thread quotes more than the rule of the format.
const XAI: Evidence = Document("xAI, API reference (2026-11): compatible with OpenAI's Chat Completions");

/// Every such repair.
pub const REPAIR_RULES: &[RepairRule] = &[
    // Anthropic Messages.
    rule(
        Anthropic,
        EVERY,
        Unanswered,
        &[Placeholder],
        &[
            Document("Anthropic, \"Handle tool calls\" (2026-11)"),
            Refusal("anthropics/claude-code#5989 (2025-08)"),
            Refusal("MiniMax: anomalyco/opencode#32608 (2026-06)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        Misplaced,
        &[Move, Merge],
        &[
            Document("Anthropic, \"Handle tool calls\" (2026-11): results first, in the next message"),
            Refusal("anthropics/claude-code#13460 (2025-12)"),
            Refusal("results split over messages, Bedrock: anomalyco/opencode#41780 (2026-08)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        Orphan,
        &[Quote],
        &[
            Refusal("anthropics/claude-code#18947 (2026-01)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        Duplicate,
        &[Drop, Quote],
        &[Refusal("Kilo-Org/kilocode#3772 (2025)"), Code("deepseek-recipe 0.2.0")],
    ),
    rule(
        Anthropic,
        EVERY,
        DuplicateCall,
        &[Rename],
        &[
            Refusal("anthropics/claude-code#20885 (2026-01)"),
            Refusal("BerriAI/litellm#23510 (2026)"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        NoId,
        &[Rename, Quote],
        &[Document(
            "Anthropic, Messages API reference (2026-11): `tool_use_id` is required",
        )],
    ),
    rule(
        Anthropic,
        EVERY,
        BadId,
        &[Rename],
        &[
            Refusal("maximhq/bifrost#5097, farion1231/cc-switch#1181 (2026)"),
            Document("Anthropic, Messages API reference (2026-11): `id` is required"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        ServerHalf,
        &[Drop],
        &[
            Document("Anthropic, \"Server tools\" (2026-11)"),
            Refusal("anthropics/claude-code#64383 (2026-06)"),
        ],
    ),
    rule(
        Anthropic,
        USER_FIRST,
        Headless,
        &[Open],
        &[
            Refusal("lobehub/lobehub#1601 (2024-03), langchain4j/langchain4j#940 (2024-04)"),
            Refusal("Bedrock: langchain4j/langchain4j#1864 (2024-10), pydantic/pydantic-ai#4495 (2026-03)"),
            Document("Anthropic, \"System messages\" (2026-11): none at the beginning of `messages`"),
        ],
    ),
    rule(
        Anthropic,
        &[DeepSeek],
        MisplacedWords,
        &[Rearrange],
        &[Code("deepseek-recipe 0.2.0")],
    ),
    rule(
        Anthropic,
        &[MiniMax],
        MisplacedWords,
        &[Rearrange],
        &[Refusal("anomalyco/opencode#32609 (2026-06)")],
    ),
    rule(
        Anthropic,
        EVERY,
        MalformedCall,
        &[Fix],
        &[
            Document("Anthropic, Messages API reference (2026-11): `input` is an object, `name` has a pattern"),
            Refusal("the name, Bedrock: anomalyco/opencode#28989 (2026-05)"),
        ],
    ),
    rule(
        Anthropic,
        EVERY,
        Field,
        &[Fix, Open],
        &[
            Refusal("blank text: aliasrobotics/cai#182 (2025-06)"),
            Refusal("empty messages: tidyverse/ellmer#709, anthropics/claude-code#6774 (2025)"),
        ],
    )
    .of(Details::Only(&["blank_text", "empty_message"])),
    rule(
        Anthropic,
        EVERY,
        Field,
        &[Fix],
        &[Refusal("jlevy/markform#153 (2026-02), can1357/oh-my-pi#2250 (2026-06)")],
    )
    .of(Details::Only(&["error_without_content"])),
    rule(
        Anthropic,
        &[Standard, Bedrock],
        ForeignThinking,
        &[Drop, Fix],
        &[
            Refusal("openclaw/openclaw#91205, can1357/oh-my-pi#6379 (2026-06)"),
            Refusal("no signature: Wei-Shaw/sub2api#1350 (2026-03), justlovemaki/AIClient2API#437 (2026-04)"),
            Refusal("no signature, Vertex: lbjlaq/Antigravity-Manager#1650 (2026-02)"),
        ],
    ),
    rule(
        Anthropic,
        &[Standard],
        LostContinuity,
        &[Continue],
        &[
            Document("Anthropic, \"Programmatic tool calling\" (2026-11)"),
            Refusal("anthropics/anthropic-sdk-python#1801 (2026-08)"),
        ],
    ),
    // Chat Completions.
    rule(
        OpenAiChat,
        EVERY,
        Unanswered,
        &[Placeholder],
        &[
            XAI,
            Refusal("router-for-me/CLIProxyAPI#2798 (2026); Kimi: MoonshotAI/kimi-cli#1977 (2026-04)"),
            Refusal("Qwen: QwenLM/qwen-code#606 (2025-09); MiniMax: open-webui/open-webui#24940 (2026-05)"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    ),
    rule(
        OpenAiChat,
        EVERY,
        Misplaced,
        &[Move],
        &[
            XAI,
            Refusal("dimagi/open-chat-studio#1659 (2025-05); MiniMax: can1357/oh-my-pi#2055 (2026-06)"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    ),
    rule(
        OpenAiChat,
        EVERY,
        Orphan,
        // Dropped is an equal result outside the run of its call, where a further result is no fault in itself.
        &[Drop, Quote],
        &[
            XAI,
            Refusal("dimagi/open-chat-studio#1659 (2025-05); GLM: router-for-me/CLIProxyAPI#5735 (2026-09)"),
            Refusal("DeepSeek: qwersyk/Newelle#425 (2026-08); Mistral: charmbracelet/crush#279 (2025)"),
        ],
    ),
    rule(
        OpenAiChat,
        NOT_XAI,
        Duplicate,
        &[Drop, Quote],
        &[
            Refusal("agno-agi/agno#5116 (2025); Copilot: anomalyco/opencode#1211 (2025-07)"),
            Refusal("Mistral and Fireworks: NousResearch/hermes-agent#11722 (2026-04)"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    ),
    // No refusal is known.
    rule(OpenAiChat, &[Xai], Duplicate, &[Drop, Quote], &[]),
    rule(
        OpenAiChat,
        NOT_XAI,
        DuplicateCall,
        &[Rename],
        &[
            Refusal("two results with one id: agno-agi/agno#5116 (2025)"),
            Refusal("Kimi: openclaw/openclaw#51155 (2026-03), #84730 (2026-05)"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    ),
    // xAI accepts it: openclaw/openclaw#84730 (2026-05).
    rule(OpenAiChat, &[Xai], DuplicateCall, &[Rename], &[]),
    rule(
        OpenAiChat,
        EVERY,
        NoId,
        &[Rename, Quote],
        &[
            XAI,
            Document("OpenAI, API reference (2026-11): `tool_call_id` is required"),
            Refusal("Kimi: yaogang1991/harness#392; Groq: hackclub/ai#22 (read in 2026-11)"),
        ],
    ),
    rule(
        OpenAiChat,
        NOT_XAI,
        BadId,
        &[Rename],
        &[
            Refusal("openclaw/openclaw#31934 (2026-03); Mistral: editor-code-assistant/eca#233 (read in 2026-11)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        OpenAiChat,
        EVERY,
        Field,
        &[Fix],
        &[
            Document("OpenAI, API reference (2026-11): `content` is required without calls, `tool_calls` has an entry"),
            Refusal("run-llama/llama_index#17921 (2025-02)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    )
    .of(Details::Only(&["empty_message", "empty_calls"])),
    rule(
        OpenAiChat,
        EVERY,
        Field,
        &[Fix],
        &[
            Document("OpenAI, API reference (2026-11): `content` is a string or a list of parts"),
            Refusal("langchain-ai/langgraphjs#506 (2024-09), langchain-ai/langchainjs#11092 (2026-06)"),
            Refusal("vLLM, GLM: NousResearch/hermes-agent#48244 (2026-06), #81546 (2026-08)"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    )
    .of(Details::Only(&["result_content"])),
    rule(
        OpenAiChat,
        EVERY,
        MalformedCall,
        &[Fix],
        &[
            XAI,
            Document("OpenAI, API reference (2026-11): `name` is required"),
            Code("deepseek-recipe 0.2.0, mistral-common 1.13.1"),
        ],
    )
    .of(Details::Only(&["no_name"])),
    rule(
        OpenAiChat,
        &[Standard, Mistral],
        MalformedCall,
        &[Fix],
        &[
            Refusal("an empty name: continuedev/continue#5091 (2025-04), #9784 (2026-01)"),
            Code("mistral-common 1.13.1"),
        ],
    )
    .of(Details::Only(&["bad_name"])),
    rule(
        OpenAiChat,
        &[MiniMax],
        MalformedCall,
        &[Fix],
        &[Refusal("earendil-works/pi#5468 (2026-06)")],
    ),
    rule(
        OpenAiChat,
        &[DeepSeek],
        LostContinuity,
        &[Continue],
        &[
            Document("DeepSeek, \"Thinking mode\" (2026-11)"),
            Refusal("esengine/DeepSeek-Reasonix#4022 (2026-06)"),
        ],
    ),
    // Responses.
    rule(
        OpenAiResponses,
        EVERY,
        Unanswered,
        &[Placeholder],
        &[
            Refusal("openai/codex#593 (2025); custom tools: Soju06/codex-lb#1168 (2026-07)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        OpenAiResponses,
        EVERY,
        Unanswerable,
        &[Quote],
        &[Refusal(
            "Soju06/codex-lb (2026): \"No tool output found for computer call\"",
        )],
    ),
    rule(
        OpenAiResponses,
        &[DeepSeek],
        Misplaced,
        &[Move],
        &[
            Refusal("deepseek-ai/DeepSeek-V3#1588 (2026-08)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        OpenAiResponses,
        EVERY,
        Orphan,
        &[Quote],
        &[
            Refusal("continuedev/continue#10092 (2026-02), microsoft/vscode#320060 (2026-06)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    ),
    rule(
        OpenAiResponses,
        &[DeepSeek],
        Duplicate,
        &[Drop, Quote],
        &[Code("deepseek-recipe 0.2.0")],
    ),
    // Codex sends them by design: openai/codex#41820 (2026-08). A gateway refuses them: NousResearch/hermes-agent#102629.
    rule(
        OpenAiResponses,
        &[Standard, Bedrock, Mistral, Xai, MiniMax, Compatible],
        Duplicate,
        &[Drop, Quote],
        &[],
    ),
    rule(
        OpenAiResponses,
        &[DeepSeek],
        DuplicateCall,
        &[Rename],
        &[Code("deepseek-recipe 0.2.0")],
    ),
    rule(
        OpenAiResponses,
        &[Bedrock, Mistral, Xai, MiniMax, Compatible],
        DuplicateCall,
        &[Rename],
        &[Refusal("earendil-works/pi#9057 (2026-09)")],
    ),
    // No refusal of OpenAI's is known.
    rule(OpenAiResponses, &[Standard], DuplicateCall, &[Rename], &[]),
    rule(
        OpenAiResponses,
        &[Bedrock, DeepSeek, Mistral, Xai, MiniMax, Compatible],
        NoId,
        &[Rename, Quote],
        &[Refusal(
            "Kimi: openai/codex#43515 (2026-09); DeepSeek: openai/codex#44519 (2026-09)",
        )],
    ),
    rule(
        OpenAiResponses,
        &[Standard],
        NoId,
        &[Rename, Quote],
        &[Document("OpenAI, API reference (2026-11): `call_id` is required")],
    )
    .of(Details::Without),
    // OpenAI accepts those of Codex: openai/codex#45914 (2026-09). Azure does not: openai/codex#41799 (2026-08).
    rule(OpenAiResponses, &[Standard], NoId, &[Rename, Quote], &[]).of(Details::Only(&[STANDALONE])),
    rule(
        OpenAiResponses,
        EVERY,
        BadId,
        &[Rename],
        &[
            Refusal("too long: AnswerDotAI/fastllm#45 (2026-06)"),
            Refusal("empty: BigPizzaV3/CodexPlusPlus#315 (2026-05)"),
        ],
    ),
    rule(
        OpenAiResponses,
        &[Standard, Bedrock, Mistral, Xai, MiniMax, Compatible],
        Field,
        &[Fix],
        &[
            Refusal("item ids: github/copilot-cli#3560, vercel/ai#13307 (2026)"),
            Code("kinds of outputs: openai/codex, normalize.rs (2026-11)"),
        ],
    )
    .of(Details::Only(&["repeated_item_id", "result_kind"])),
    rule(
        OpenAiResponses,
        &[Standard],
        Field,
        &[Fix],
        &[Refusal(
            "jeremychone/rust-genai#119 (2026-01), missdeer/ace-tool-rs#11 (2026-03), tinyhumansai/openhuman#3624 (2026-06)",
        )],
    )
    .of(Details::Only(&["input_part"])),
    rule(
        OpenAiResponses,
        EVERY,
        MalformedCall,
        &[Fix],
        &[
            Refusal("farion1231/cc-switch#3532 (2026-06)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    )
    .of(Details::Only(&["no_name"])),
    rule(
        OpenAiResponses,
        &[Standard],
        MalformedCall,
        &[Fix],
        &[Refusal("an empty name: farion1231/cc-switch#4578 (2026-06)")],
    )
    .of(Details::Only(&["bad_name"])),
    // The arguments of a search.
    rule(
        OpenAiResponses,
        EVERY,
        MalformedCall,
        &[Fix],
        &[
            Refusal("farion1231/cc-switch#5062 (2026-07), torad-labs/splice#50 (2026-07)"),
            Code("deepseek-recipe 0.2.0"),
        ],
    )
    .of(Details::Only(&["input_text"])),
    // Gemini.
    rule(
        Gemini,
        EVERY,
        Unanswered,
        &[Placeholder],
        &[Refusal("google-gemini/gemini-cli#17208 (2026-01)")],
    ),
    rule(
        Gemini,
        EVERY,
        Misplaced,
        &[Move, Merge],
        &[Refusal(
            "google-gemini/gemini-cli#17208 (2026-01), langchain-ai/langchain#27799 (2024-10)",
        )],
    ),
    rule(
        Gemini,
        EVERY,
        Orphan,
        &[Quote],
        &[Refusal("langchain-ai/langchain#27799 (2024-10)")],
    ),
    rule(
        Gemini,
        EVERY,
        Duplicate,
        &[Drop, Quote],
        &[Refusal(
            "more results than calls: google-gemini/gemini-cli#17208 (2026-01)",
        )],
    ),
    rule(
        Gemini,
        EVERY,
        Headless,
        &[Open],
        &[Refusal("google-gemini/gemini-cli#11814 (2025-10)")],
    ),
    rule(
        Gemini,
        EVERY,
        Field,
        &[Merge],
        &[Refusal("continuedev/continue#11047, #11164 (2026)")],
    )
    .of(Details::Only(&["split_turn"])),
    rule(
        Gemini,
        EVERY,
        Field,
        &[Fix],
        &[
            Refusal("empty parts: router-for-me/CLIProxyAPI#1292 (2026-01), 54xzh/FLIT#70 (2026-05)"),
            Refusal("no parts: langchain-ai/langchain-google#691 (2025-01), CherryHQ/cherry-studio#16196 (2026-06)"),
            Refusal("no parts, Vertex: langchain-ai/langchainjs#9987 (2026-02)"),
        ],
    )
    .of(Details::Only(&["empty_part", "empty_message"])),
    rule(
        Gemini,
        EVERY,
        MalformedCall,
        &[Fix],
        &[Document("Google, REST reference (2026-11): `args` is a Struct")],
    ),
    rule(
        Gemini,
        EVERY,
        LostContinuity,
        &[Continue],
        &[Document("Google, \"Thought signatures\" (2026-11)")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Other demands have no switch, so a row without evidence would not be true of them.
    #[test]
    fn only_demands_that_can_be_switched_off_lack_evidence() {
        for rule in REPAIR_RULES.iter().filter(|rule| rule.is_switched_off()) {
            let has_switch = match rule.finding {
                Duplicate | DuplicateCall => true,
                NoId => matches!(rule.details, Details::Only([STANDALONE])),
                _ => false,
            };
            assert!(has_switch, "{rule:?}");
        }
    }
}
