//! The phrases with which providers refuse a pairing, and the texts before them, each with its source and date.

use crate::wire::refusal::RefusalKind::{
    self, AnyFault, Bound, DeadResponse, Duplicate, ForeignThinking, MalformedCall, NoUserTurn, Orphan, RepeatedCall,
    RepeatedItem, ServerHalf, Unanswered, UserAfterResults, WithoutContainer, WithoutReasoningContent,
    WithoutReasoningItem, WithoutSignature,
};

/// The beginnings of refusals, by kind. The first that matches counts.
///
/// Case does not matter. Quotes, backticks and backslashes in the text are skipped. `<word>` stands for up to 264 bytes
/// without a blank, `<words>` for up to 264 bytes on one line, and `<ids>` for an id. `<ids>` at the end stands for a
/// list, separated by commas or blanks, up to a full stop, a closing quote or the end of the line.
pub(super) const PHRASES: &[(RefusalKind, &[&str])] = &[
    (UserAfterResults, USER_BEHIND_RESULTS),
    (AnyFault, ANY_FAULTS),
    // Before `Unanswered` and `ServerHalf`, whose phrases also match some of its texts.
    (Orphan, ORPHANS),
    (Unanswered, UNANSWERED),
    (Duplicate, DUPLICATES),
    (RepeatedCall, REPEATED_CALLS),
    (MalformedCall, MALFORMED_CALLS),
    (NoUserTurn, NO_USER_TURN),
    (ServerHalf, SERVER_HALVES),
    (RepeatedItem, REPEATED_ITEMS),
    (WithoutReasoningItem, WITHOUT_REASONING_ITEM),
    // Before foreign thinking, whose phrase is its beginning.
    (Bound { header_named: false }, BOUND),
    (WithoutReasoningContent, WITHOUT_REASONING_CONTENT),
    (WithoutSignature, WITHOUT_SIGNATURE),
    (WithoutContainer, WITHOUT_CONTAINER),
    (ForeignThinking, FOREIGN_THINKING),
    (DeadResponse, DEAD_RESPONSES),
];

const ANY_FAULTS: &[&str] = &[
    // GLM, code 1214: Z.ai's SDK zhipuai-sdk#14, router-for-me/CLIProxyAPI#5735 (2026-09).
    "The messages parameter is illegal. Please check the documentation",
    "messages 参数非法",
];

const ORPHANS: &[&str] = &[
    // Anthropic; OpenRouter: router-for-me/CLIProxyAPI#497 (2025-12).
    "unexpected tool_use_id found in tool_result blocks: <ids>",
    // deepseek-recipe 0.2.0, Messages.
    "unexpected messages.<word>: tool_use_id found in tool_result blocks: <ids>",
    // deepseek-recipe 0.2.0: the id belongs to a tool message that answers none of the calls.
    "An assistant message with tool_calls must be followed by tool messages responding to each tool_call_id, \
     The following tool_call_ids did not have response messages: <ids>",
    // OpenAI: dimagi/open-chat-studio#1659 (2025-05); Qwen: QwenLM/qwen-code#315.
    "messages with role tool must be a response to a preceeding message with tool_calls",
    // DeepSeek: qwersyk/Newelle#425 (2026-08).
    "messages with role tool must be a response to a preceding message with tool_calls",
    // OpenAI, without a date; the second is about a message without an id.
    "tool_call_id of <ids> not found in tool_calls of previous message",
    "Missing parameter tool_call_id: messages with role tool must have a tool_call_id",
    // Azure: openai/codex#41799 (2026-08), #43296 (2026-09).
    "Invalid Value: input.call_id. Function call output requires call_id",
    // Kimi: yaogang1991/harness#392, the id empty between two blanks.
    "tool_call_id <ids> is not found",
    // MiniMax: can1357/oh-my-pi#2055 (2026-06).
    "tool call result does not follow tool call",
    // MiniMax, code 2013, in the tests of gateways (2026-11).
    "tool results tool id(<ids>) not found",
    // OpenAI Responses: continuedev/continue#10092 (2026-02); deepseek-recipe 0.2.0.
    "No tool call found for <words> output with call_id <ids>",
    // Gemini, with and without the function's name: langchain-ai/langchain#27799. Gemini's other two texts fit more
    // than one kind.
    "Please ensure that function response turn comes immediately after a function call turn",
    // Bedrock Converse: strands-agents/sdk-python#1610, harness-sdk#1435 (2026-01).
    "The number of toolResult blocks at <word> exceeds the number of toolUse blocks of previous turn",
    // Mistral: mistral-common 1.13.1; by role: charmbracelet/crush#279.
    "Unexpected tool call id <ids> in tool results",
    "Unexpected role tool after role",
    // Cohere, "Errors" (2026-11); the place and the id occur through OpenRouter.
    "tool call id not found in previous tool calls",
    "tool call id must be provided with tool message",
    // The chat templates of gpt-oss and MiniMax in llama.cpp (2026-11).
    "Message has tool role, but there was no previous assistant message with a tool call",
];

const UNANSWERED: &[&str] = &[
    // Anthropic, "Handle tool calls"; anthropics/claude-code#5989 (2025-08), Vertex: Kilo-Org/kilocode#5163 (2026-01).
    "tool_use ids were found without tool_result blocks immediately after: <ids>",
    // OpenAI: router-for-me/CLIProxyAPI#2798; Kimi: MoonshotAI/kimi-cli#1977 (2026-04); Qwen: QwenLM/qwen-code#606
    // (2025-09), with an index for the ids.
    "An assistant message with tool_calls must be followed by tool messages responding to each tool_call_id. \
     The following tool_call_ids did not have response messages: <ids>",
    // DeepSeek, "(insufficient tool messages …)": smallmain/vscode-unify-chat-provider#248 (2026-07).
    "An assistant message with tool_calls must be followed by tool messages",
    // MiniMax: open-webui/open-webui#24940 (2026-05). It names neither the call nor the result.
    "tool call and result not match",
    // OpenAI Responses, functions and every other kind of tool: openai/codex#593; deepseek-recipe 0.2.0.
    "No tool output found for <words> call <ids>",
    // Bedrock Converse: agno-agi/agno#6698 (2026-02).
    "Expected toolResult blocks at <word> for the following Ids: <ids>",
];

const DUPLICATES: &[&str] = &[
    // Anthropic: Kilo-Org/kilocode#3772; deepseek-recipe 0.2.0.
    "each tool_use must have a single result. Found multiple tool_result blocks with id: <ids>",
    // deepseek-recipe 0.2.0.
    "Duplicate value for tool_call_id of <ids> in message[",
    // OpenAI: agno-agi/agno#5116 (2025), anomalyco/opencode#1211 (2025-07).
    "Duplicate value for tool_call_id of <ids>, in messages[",
    // A gateway's Responses: NousResearch/hermes-agent#102629 (2026-09).
    "Duplicate function_call_output for call_id <ids>",
    // deepseek-recipe 0.2.0, Responses.
    "Duplicate tool output for call_id: <ids>",
    // Mistral: mistral-common 1.13.1.
    "Duplicate tool call id <ids> in tool results",
];

const REPEATED_CALLS: &[&str] = &[
    // Anthropic: BerriAI/litellm#23510; deepseek-recipe 0.2.0.
    "tool_use ids must be unique",
    // deepseek-recipe 0.2.0, Responses.
    "Duplicate call_id: <ids>",
    // Mistral: mistral-common 1.13.1.
    "Duplicate tool call id <ids> in assistant message",
    // Kimi: openclaw/openclaw#51155 (2026-03).
    "tool call id <ids> is duplicated",
    // Cohere, "Errors" (2026-11); the place and the id occur through OpenRouter.
    "invalid tool call provided in <word>: cannot have duplicate tool ids <ids>",
    "cannot have duplicate tool ids",
];

const USER_BEHIND_RESULTS: &[&str] = &[
    // vLLM: mistralai/mistral-vibe#578 (2026-04); NIM: NousResearch/hermes-agent#20154 (2026-05); La Plateforme, code
    // 3230: onyx-dot-app/onyx#6458 (2025-11).
    "Unexpected role user after role tool",
];

const MALFORMED_CALLS: &[&str] = &[
    // MiniMax: earendil-works/pi#5468 (2026-06).
    "invalid function arguments json string, tool_call_id: <ids> (2013)",
    // Qwen: HKUDS/nanobot#1487, alibaba/spring-ai-alibaba#4533 (2026).
    "The function.arguments parameter of the code model must be in JSON format",
    // NEAR AI: javascriptmusic#208 (2026-08), codeg#538 (2026-08).
    "Assistant tool call function.arguments must be valid JSON",
    // After a place such as `messages.70.tool_calls.0.function.arguments:`; codegraff#752 (2026-09).
    "arguments must be a valid JSON object string",
    // llama.cpp, LM Studio: OpenHands/software-agent-sdk#2887.
    "Failed to parse tool call arguments as JSON",
    // Python's json, in vLLM: vllm-project/vllm#43995, #48922 (2026-07).
    "Unterminated string starting at: line <word> column <word> (char",
    "Expecting <words>: line <word> column <word> (char",
    "Extra data: line <word> column <word> (char",
    "Invalid control character at: line <word> column <word> (char",
    "Invalid <word>escape: line <word> column <word> (char",
    // orjson, in SGLang: sgl-project/sglang#28035 (2026-06), MoonshotAI/kimi-cli#1171.
    "unexpected end of data: line <word> column <word> (char",
    "unexpected character: line <word> column <word> (char",
    "unexpected content after document: line <word> column <word> (char",
    "str object has no attribute items",
    // Ollama: promptfoo/promptfoo#10980 (2026-09).
    "Value looks like object, but cant find closing } symbol",
    // vLLM, in the words of pydantic: bytedance/deer-flow#4445 (2026).
    "messages.<word>arguments: Input should be a valid string",
    // The same words for an id that is null: agentscope-ai/QwenPaw#4185 (2026).
    "messages.<word>.id: Input should be a valid string",
    // Anthropic, in its older and newer words.
    "messages.<word>tool_use.input: Input should be a valid dictionary",
    "messages.<word>tool_use.input: Input should be an object",
    "messages.<word>tool_use.name: String should match pattern",
    "messages.<word>tool_use.name: String should have at most <word> characters",
    // OpenAI, Chat Completions and Responses.
    "Invalid messages[<word>.function.name: string does not match pattern",
    "Invalid type for messages[<word>.function.arguments: expected a string",
    "Invalid input[<word>.name: string does not match pattern",
    "Invalid type for input[<word>.arguments: expected a string",
    // Gemini: `args` is a Struct.
    "Invalid value at contents[<word>.function_call.args",
];

const NO_USER_TURN: &[&str] = &[
    // Qwen's chat template: lmstudio-ai/lmstudio-bug-tracker#1586, #1655 (2026).
    "No user query found in messages",
];

const SERVER_HALVES: &[&str] = &[
    // Anthropic, a server tool's result: anthropics/claude-code#64383 (2026-06), #84783 (2026-08).
    "unexpected tool_use_id found in <word> blocks: <ids>",
    // Anthropic, "Server tools" (2026-11), with and without the tool's definition.
    "<word> tool use with id <ids> was found without a corresponding <word> block",
];

const REPEATED_ITEMS: &[&str] = &[
    // OpenAI Responses: github/copilot-cli#3560; microsoft/vscode#321977 (2026-06).
    "Duplicate item found with id <ids>",
];

const WITHOUT_REASONING_ITEM: &[&str] = &[
    // OpenAI Responses: mastra-ai/mastra#8738 (2025-10).
    "Item <ids> of type <word> was provided without its required reasoning item",
];

const BOUND: &[&str] = &[
    // Anthropic, preserved thinking: anomalyco/opencode#48637 (2026-09).
    "Invalid <word> in <word> block. The block is bound to a different conversation",
];

const WITHOUT_REASONING_CONTENT: &[&str] = &[
    // DeepSeek: deepseek-recipe 0.2.0; DeepSeek-Reasonix#4022 (2026-06).
    "The reasoning_content in the thinking mode must be passed back to the API",
    // Kimi: MoonshotAI/kimi-code#705 (2026-06).
    "thinking is enabled but reasoning_content is missing in assistant tool call message at index",
];

const WITHOUT_SIGNATURE: &[&str] = &[
    // Gemini API: dirge-code/dirge#833.
    "Function call is missing a thought_signature in functionCall parts",
    // Vertex AI: anomalyco/opencode#4832 (2026-05).
    "Unable to submit request because function call <word> in the <word> content block is missing a thought_signature",
];

const WITHOUT_CONTAINER: &[&str] = &[
    // Anthropic: anthropics/anthropic-sdk-python#1801 (2026-08).
    "container_id is required when there are pending tool uses generated by code execution with tools",
];

const FOREIGN_THINKING: &[&str] = &[
    // Anthropic, thinking that another provider signed: openclaw/openclaw#91205, can1357/oh-my-pi#6379 (2026-06).
    "Invalid signature in thinking block",
    "Invalid signature in redacted_thinking block",
    "Invalid data in redacted_thinking block",
    // OpenAI Responses, by item: smallmain/vscode-unify-chat-provider#178 (2026-05); by content, cut short:
    // openai/codex#8145 (2025-12), droidproxy#58 (2026-05).
    "The encrypted content for item <ids> could not be verified",
    "The encrypted content <words> could not be verified",
    "The encrypted content could not be verified",
    // Gemini: google-gemini/gemini-cli#13467 (2025-11), charmbracelet/crush#1698 (2025-12).
    "Corrupted thought signature",
    "Invalid thought signature",
    // Vertex: decolua/9router#301 (2026-03).
    "Thought signature is not valid",
    "Unable to submit request because Thought signature is not valid",
];

const DEAD_RESPONSES: &[&str] = &[
    // OpenAI, code `previous_response_not_found`: router-for-me/CLIProxyAPI#4524 (2026-07), maximhq/bifrost#2441
    // (2026-03); Azure: microsoft/agent-framework#6419 (2026-06), dotnet/extensions#7704 (2026-08).
    "Previous response with id <ids> not found",
    // The Codex backend, without a code of its own: Soju06/codex-lb#1817 (2026-08).
    "Invalid previous_response_id.",
    // vLLM and TensorRT-LLM, with status 404: BerriAI/litellm#26147 (2026-07).
    "Response with id <ids> not found",
];

/// Texts that may precede a phrase, or an error body as text, written like [`PHRASES`].
pub(super) const LEADS: &[&str] = &[
    // The place, as Anthropic and DeepSeek write it; in a batch.
    "messages.<word>:",
    "requests.<word>:",
    // OpenAI; Kimi; MiniMax; DashScope (`<400>`).
    "Invalid parameter:",
    "Invalid request:",
    "invalid_prompt:",
    "invalid params,",
    "<word> InternalError.Algo.InvalidParameter:",
    // Bedrock InvokeModel; the AWS SDKs.
    "The model returned the following errors:",
    "An error occurred (<word>) when calling the <word> operation:",
    "ValidationException:",
    // LM Studio: lmstudio-ai/lmstudio-bug-tracker#2012 (2026-06); llama.cpp.
    "Error rendering prompt with jinja template:",
    "Jinja Exception:",
    // litellm: BerriAI/litellm#16525 (2025-11), #28995 (2026-05).
    "litellm.<word>:",
    "<word>Exception -",
    "<word>Exception BadRequestError -",
    // A gateway: NousResearch/hermes-agent#102629 (2026-09).
    "Error from provider (<word>): Upstream request failed: [<word>]",
    // The SDKs of OpenAI and Anthropic, an error as text, and their bodies as Python prints them.
    "400 ",
    "Error code: <word> -",
    "{error: {message: ",
    "{type: error, error: {type: <word>, message: ",
];

/// The members of error bodies under which the text may be.
pub(super) const TEXT_MEMBERS: &[&[u8]] = &[
    b"error",
    b"message",
    // AWS.
    b"Message",
    // FastAPI.
    b"detail",
    // OpenRouter: `error.metadata.raw`.
    b"metadata",
    b"raw",
    // A gateway: ding113/claude-code-hub#471 (2025-12).
    b"upstream_error",
];
