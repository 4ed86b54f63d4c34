//! Texts with which providers refuse a history, and texts that are about something else.

use antiphon::wire::RefusalKind::{
    self, AnyFault, Bound, DeadResponse, Duplicate, ForeignThinking, MalformedCall, NoUserTurn, Orphan, RepeatedCall,
    RepeatedItem, ServerHalf, Unanswered, UserAfterResults, WithoutContainer, WithoutReasoningContent,
    WithoutReasoningItem, WithoutSignature,
};

/// Text, kind, and ids separated by blanks.
pub const REFUSALS: &[(&str, RefusalKind, &str)] = &[
    // Anthropic, Vertex, Bedrock InvokeModel.
    (
        "messages.130: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01G2. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message.",
        Unanswered,
        "toolu_01G2",
    ),
    (
        "messages.22: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01Hq, toolu_01SJ. \
         Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        Unanswered,
        "toolu_01Hq toolu_01SJ",
    ),
    (
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: functions.Bash:0, \
         call_1|fc_2, bash-uO.Q. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        Unanswered,
        "functions.Bash:0 call_1|fc_2 bash-uO.Q",
    ),
    (
        "messages.33: tool_use ids were found without tool_result blocks immediately after: toolu_vrtx_01KK. Each \
         tool_use block must have a corresponding tool_result block in the next message.",
        Unanswered,
        "toolu_vrtx_01KK",
    ),
    (
        "The model returned the following errors: messages.1: `tool_use` ids were found without `tool_result` blocks \
         immediately after: toolu_bdrk_01QQ. Each `tool_use` block must have a corresponding `tool_result` block in the \
         next message.",
        Unanswered,
        "toolu_bdrk_01QQ",
    ),
    (
        "messages.48.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01. Each `tool_result` \
         block must have a corresponding `tool_use` block in the previous message.",
        Orphan,
        "toolu_01",
    ),
    (
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: srvtoolu_01S. Each `tool_result` \
         block must have a corresponding `tool_use` block in the previous message.",
        Orphan,
        "srvtoolu_01S",
    ),
    (
        "messages.3.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: \
         toolu_01AAAA",
        Duplicate,
        "toolu_01AAAA",
    ),
    (
        "each tool_use must have a single result. Found multiple `tool_result` blocks with id: toolu_01AAAA",
        Duplicate,
        "toolu_01AAAA",
    ),
    ("messages.1.content.2: `tool_use` ids must be unique", RepeatedCall, ""),
    (
        "`web_search` tool use with id `srvtoolu_01Hx` was found without a corresponding `web_search_tool_result` block",
        ServerHalf,
        "srvtoolu_01Hx",
    ),
    (
        "messages.1: `web_search` tool use with id `srvtoolu_01Hx` was found without a corresponding \
         `web_search_tool_result` block but no `web_search` tool was provided",
        ServerHalf,
        "srvtoolu_01Hx",
    ),
    (
        "messages.7.content.0: unexpected `tool_use_id` found in `advisor_tool_result` blocks: srvtoolu_01Jj. Each \
         `advisor_tool_result` block must have a corresponding `server_tool_use` block before it.",
        ServerHalf,
        "srvtoolu_01Jj",
    ),
    (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. \
         Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".",
        Bound { header_named: false },
        "",
    ),
    (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. \
         Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting \
         requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. The `system` prompt \
         differs from the one this block was created with.",
        Bound { header_named: true },
        "",
    ),
    // Chat Completions.
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The \
         following tool_call_ids did not have response messages: call_AAA1",
        Unanswered,
        "call_AAA1",
    ),
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The \
         following tool_call_ids did not have response messages: call_FExX, call_8WAx",
        Unanswered,
        "call_FExX call_8WAx",
    ),
    (
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        Orphan,
        "",
    ),
    (
        "Invalid parameter: 'tool_call_id' of 'call_xxx' not found in 'tool_calls' of previous message.",
        Orphan,
        "call_xxx",
    ),
    (
        "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        Orphan,
        "",
    ),
    // Responses.
    (
        "No tool output found for function call call_AAA1.",
        Unanswered,
        "call_AAA1",
    ),
    (
        "No tool output found for custom tool call call_1.",
        Unanswered,
        "call_1",
    ),
    (
        "No tool output found for apply patch call call_AAA1.",
        Unanswered,
        "call_AAA1",
    ),
    (
        "No tool output found for tool search call call_1.",
        Unanswered,
        "call_1",
    ),
    ("No tool output found for computer call call_1.", Unanswered, "call_1"),
    (
        "No tool call found for function call output with call_id call_xrN6.",
        Orphan,
        "call_xrN6",
    ),
    (
        "No tool call found for custom tool call output with call_id 3754373f-564e-45dd-be92-de5a4a220e8d.",
        Orphan,
        "3754373f-564e-45dd-be92-de5a4a220e8d",
    ),
    (
        "Item 'fc_0a03' of type 'function_call' was provided without its required 'reasoning' item: 'rs_0a03'.",
        WithoutReasoningItem,
        "fc_0a03",
    ),
    (
        "Duplicate item found with id fc_1. Remove duplicate items from your input and try again.",
        RepeatedItem,
        "fc_1",
    ),
    // Gemini.
    (
        "Please ensure that function response turn comes immediately after a function call turn.",
        Orphan,
        "",
    ),
    (
        "Please ensure that function response turn comes immediately after a function call turn. Got function response \
         with name 'read_file'.",
        Orphan,
        "",
    ),
    // Bedrock Converse.
    (
        "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_AAA",
        Unanswered,
        "tooluse_AAA",
    ),
    (
        "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_A.b:c, tooluse_B",
        Unanswered,
        "tooluse_A.b:c tooluse_B",
    ),
    (
        "The number of toolResult blocks at messages.27.content exceeds the number of toolUse blocks of previous turn.",
        Orphan,
        "",
    ),
    // Mistral.
    (
        "Duplicate tool call id abcdefghi in tool results",
        Duplicate,
        "abcdefghi",
    ),
    ("Unexpected tool call id abcdefghi in tool results", Orphan, "abcdefghi"),
    (
        "Duplicate tool call id abcdefghi in assistant message",
        RepeatedCall,
        "abcdefghi",
    ),
    ("Unexpected role 'tool' after role 'user'", Orphan, ""),
    // DeepSeek.
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. \
         (insufficient tool messages following tool_calls message)",
        Unanswered,
        "",
    ),
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id', The \
         following tool_call_ids did not have response messages: z",
        Orphan,
        "z",
    ),
    ("Duplicate value for 'tool_call_id' of a in message[3]", Duplicate, "a"),
    (
        "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_gmd4', in messages[7] and messages[8].",
        Duplicate,
        "call_gmd4",
    ),
    (
        "Error from provider (Console): Upstream request failed: [invalid_request_error] Duplicate \
         function_call_output for call_id 'terminal:0'. Each function_call must have exactly one matching \
         function_call_output",
        Duplicate,
        "terminal:0",
    ),
    (
        "Invalid Value: 'input.call_id'. Function call output requires call_id.",
        Orphan,
        "",
    ),
    (
        "Invalid request: tool call id write:12 is duplicated",
        RepeatedCall,
        "write:12",
    ),
    (
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        Orphan,
        "",
    ),
    (
        "messages.7:`tool_use` ids were found without `tool_result` blocks immediately after: call_00_ET_x. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message.",
        Unanswered,
        "call_00_ET_x",
    ),
    (
        "unexpected `messages.1.content.0: tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must \
         have a corresponding `tool_use` block in the previous message.",
        Orphan,
        "a",
    ),
    ("No tool output found for tool call a.", Unanswered, "a"),
    ("No tool call found for tool output with call_id a.", Orphan, "a"),
    ("Duplicate tool output for call_id: a.", Duplicate, "a"),
    ("Duplicate 'call_id': a.", RepeatedCall, "a"),
    // Kimi, Qwen, MiniMax, Cohere, local servers.
    (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The \
         following tool_call_ids did not have response messages: Shell:58",
        Unanswered,
        "Shell:58",
    ),
    ("Invalid request: tool_call_id  is not found", Orphan, ""),
    ("tool_call_id functions.Read:3 is not found", Orphan, "functions.Read:3"),
    (
        "<400> InternalError.Algo.InvalidParameter: An assistant message with \"tool_calls\" must be followed by tool \
         messages responding to each \"tool_call_id\". The following tool_call_ids did not have response messages: \
         message[532].role",
        Unanswered,
        "",
    ),
    (
        "<400> InternalError.Algo.InvalidParameter: messages with role \"tool\" must be a response to a preceeding \
         message with \"tool_calls\".",
        Orphan,
        "",
    ),
    (
        "invalid params, tool call result does not follow tool call (2013)",
        Orphan,
        "",
    ),
    (
        "invalid params, tool result's tool id(call_function_0f_1) not found (2013)",
        Orphan,
        "call_function_0f_1",
    ),
    ("invalid params, tool call and result not match (2013)", Unanswered, ""),
    ("tool call id not found in previous tool calls", Orphan, ""),
    ("tool call id must be provided with tool message", Orphan, ""),
    ("cannot have duplicate tool ids", RepeatedCall, ""),
    (
        "invalid tool call provided in messages[36].tool_calls[0]: cannot have duplicate tool ids 'bash0'",
        RepeatedCall,
        "bash0",
    ),
    (
        "Message has tool role, but there was no previous assistant message with a tool call!",
        Orphan,
        "",
    ),
    // Servers that parse the arguments of earlier calls.
    (
        "invalid params, invalid function arguments json string, tool_call_id: call_function_x1_1 (2013)",
        MalformedCall,
        "call_function_x1_1",
    ),
    (
        "<400> InternalError.Algo.InvalidParameter: The \"function.arguments\" parameter of the code model must be in JSON \
         format.",
        MalformedCall,
        "",
    ),
    (
        "Assistant tool call function.arguments must be valid JSON.",
        MalformedCall,
        "",
    ),
    (
        "invalid_prompt: Invalid request: messages.70.tool_calls.0.function.arguments: arguments must be a valid JSON \
         object string",
        MalformedCall,
        "",
    ),
    ("Failed to parse tool call arguments as JSON", MalformedCall, ""),
    (
        "Unterminated string starting at: line 1 column 1121 (char 1120)",
        MalformedCall,
        "",
    ),
    ("Expecting ',' delimiter: line 1 column 42 (char 41)", MalformedCall, ""),
    ("Expecting value: line 1 column 1 (char 0)", MalformedCall, ""),
    ("Extra data: line 1 column 8 (char 7)", MalformedCall, ""),
    (
        "unexpected end of data: line 1 column 133 (char 132)",
        MalformedCall,
        "",
    ),
    ("'str object' has no attribute 'items'", MalformedCall, ""),
    (
        "Value looks like object, but can't find closing '}' symbol",
        MalformedCall,
        "",
    ),
    (
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        MalformedCall,
        "",
    ),
    (
        "messages.3.content.1.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        MalformedCall,
        "",
    ),
    (
        "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern. Expected a string that matches \
         the pattern '^[a-zA-Z0-9_-]+$'.",
        MalformedCall,
        "",
    ),
    // Mistral's order of roles.
    ("Unexpected role 'user' after role 'tool'", UserAfterResults, ""),
    // GLM.
    (
        "The messages parameter is illegal. Please check the documentation.",
        AnyFault,
        "",
    ),
    ("messages 参数非法。请检查文档。", AnyFault, ""),
    // Qwen's chat template, in LM Studio and llama.cpp.
    ("No user query found in messages.", NoUserTurn, ""),
    (
        "Error rendering prompt with jinja template: \"No user query found in messages.\".\n\nThis is usually an issue \
         with the model's prompt template.",
        NoUserTurn,
        "",
    ),
    (
        "messages.1.tool_calls.0.id: Input should be a valid string",
        MalformedCall,
        "",
    ),
    // Anthropic, Vertex, Bedrock InvokeModel: openclaw/openclaw#91205, anomalyco/opencode#20577 (2026).
    (
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        ForeignThinking,
        "",
    ),
    (
        "messages.3.content.1: Invalid `data` in `redacted_thinking` block",
        ForeignThinking,
        "",
    ),
    // OpenAI: router-for-me/CLIProxyAPI#4524 (2026-07); Azure: microsoft/agent-framework#6419 (2026-06).
    (
        "Previous response with id 'resp_0cb6bd18' not found.",
        DeadResponse,
        "resp_0cb6bd18",
    ),
    // The Codex backend: Soju06/codex-lb#1817 (2026-08).
    ("Invalid `previous_response_id`.", DeadResponse, ""),
    // vLLM: BerriAI/litellm#26147 (2026-07).
    ("Response with id 'resp_7f' not found.", DeadResponse, "resp_7f"),
    // OpenAI Responses: openai/codex#8145 (2025-12), smallmain/vscode-unify-chat-provider#178 (2026-05).
    (
        "The encrypted content gAAA...DQ== could not be verified. Reason: Encrypted content could not be decrypted or \
         parsed.",
        ForeignThinking,
        "",
    ),
    (
        "The encrypted content for item rs_0a18 could not be verified. Reason: Encrypted content could not be decrypted \
         or parsed.",
        ForeignThinking,
        "rs_0a18",
    ),
    // Gemini: google-gemini/gemini-cli#13467 (2025-11). Vertex: decolua/9router#301 (2026-03).
    ("Corrupted thought signature.", ForeignThinking, ""),
    (
        "Unable to submit request because Thought signature is not valid.. Learn more: https://cloud.google.com",
        ForeignThinking,
        "",
    ),
    // Values that the client has dropped.
    (
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        WithoutReasoningContent,
        "",
    ),
    (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 3",
        WithoutReasoningContent,
        "",
    ),
    (
        "Function call is missing a thought_signature in functionCall parts. Additional data, function call \
         `default_api:grep`, position 5.",
        WithoutSignature,
        "",
    ),
    (
        "Unable to submit request because function call `default_api:read` in the 73. content block is missing a \
         `thought_signature`.",
        WithoutSignature,
        "",
    ),
    (
        "container_id is required when there are pending tool uses generated by code execution with tools.",
        WithoutContainer,
        "",
    ),
];

/// Refusals of other matters, and texts that only contain a phrase.
pub const OTHERS: &[&str] = &[
    "",
    "Number of request tokens has exceeded your per-minute rate limit",
    "prompt is too long: 214512 tokens > 200000 maximum",
    "messages.0: `tool_use` blocks can only be in `assistant` messages",
    "messages.0: `tool_result` blocks can only be in `user` messages",
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row",
    "messages.1: all messages must have non-empty content except for the optional final assistant message",
    "messages: text content blocks must be non-empty",
    "This model does not support assistant message prefill. The conversation must end with a user message.",
    "Tool reference 'unknown_tool' not found in available tools",
    "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    "messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
     These blocks must remain as they were in the original response.",
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is \
     enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and \
     `tool_result` blocks).",
    "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`.",
    "messages.1.content.0: Invalid `source` in `image` block",
    "Invalid 'messages[2].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array \
     instead.",
    "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string \
     with length 1721 instead.",
    "Invalid value for 'content': expected a string, got null.",
    "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    "Item with id 'rs_0b5f' not found. Items are not persisted when `store` is set to false. Try again with `store` set \
     to true, or remove this item from your input.",
    "Invalid 'input[3].id': 'call_1'. Expected an ID that begins with 'fc'.",
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    "Please ensure that the number of function response parts is equal to the number of function call parts of the \
     function call turn.",
    "Please ensure that multiturn requests alternate between user and model.",
    "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    "The text field in the ContentBlock object at messages.15.content.0 is blank.",
    "The content field at messages.1.content.0.toolResult cannot be empty when status value is error.",
    "A conversation must start with a user message. Try again with a conversation that starts with a user message.",
    "Not the same number of function calls and responses",
    "Tool call id was 2968-LWy3uasib but must be a-z, A-Z, 0-9, with a length of 9.",
    "Expected last role User or Tool (or Assistant with prefix) for serving but got assistant",
    "Invalid assistant message: content or tool_calls must be set",
    "'messages.2' : for 'role:tool' the following must be satisfied[('messages.2.tool_call_id' : property 'tool_call_id' \
     is missing)]",
    "Only messages of role 'user' can have a name.",
    "Tool call IDs should be alphanumeric strings with length 9!",
    // Echoed text of a client.
    "Your text was blocked: No tool output found for function call call_1.",
    "messages.0.content.0.text: Input should be shorter, got 'No tool output found for function call call_1.'",
    "The prompt \"`tool_use` ids must be unique\" violates our policy",
    "blocked\nNo tool output found for function call call_1.",
];
