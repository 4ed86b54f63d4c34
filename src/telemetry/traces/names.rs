//! Every attribute name that a span may have: OpenTelemetry's conventions for HTTP and for generative AI as of 2026-11,
//! and the proxy's own names.
//!
//! Names of content (such as `gen_ai.input.messages`) and deprecated names (such as `gen_ai.system`) are missing on
//! purpose, so that no code can export them.

macro_rules! names {
    ($($constant:ident = $name:literal,)+) => {
        $(pub(super) const $constant: &str = $name;)+

        /// All names; each group in alphabetical order.
        pub const NAMES: &[&str] = &[$($name,)+];
    };
}

names! {
    ATTEMPTS = "antiphon.attempts",
    CODE = "antiphon.code",
    FORMAT = "antiphon.format",
    MODE = "antiphon.mode",
    PHASE = "antiphon.phase",
    PROFILE = "antiphon.profile",
    REPAIR = "antiphon.repair",
    REQUEST_ID = "antiphon.request_id",
    SIDE = "antiphon.side",
    UPSTREAM = "antiphon.upstream",
    ERROR_TYPE = "error.type",
    CONVERSATION_ID = "gen_ai.conversation.id",
    OPERATION = "gen_ai.operation.name",
    PROVIDER = "gen_ai.provider.name",
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens",
    REQUEST_MODEL = "gen_ai.request.model",
    REQUEST_STREAM = "gen_ai.request.stream",
    FINISH_REASONS = "gen_ai.response.finish_reasons",
    RESPONSE_ID = "gen_ai.response.id",
    RESPONSE_MODEL = "gen_ai.response.model",
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk",
    TOOL_CALL_ID = "gen_ai.tool.call.id",
    TOOL_NAME = "gen_ai.tool.name",
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens",
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens",
    INPUT_TOKENS = "gen_ai.usage.input_tokens",
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens",
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens",
    METHOD = "http.request.method",
    STATUS = "http.response.status_code",
    ROUTE = "http.route",
    ADDRESS = "server.address",
    PORT = "server.port",
}
