//! Stream events as providers write them. Texts and ids must need no JSON escape.

/// Returns an event with a name. `rest` are its members after `type`, each with a leading comma.
fn named(kind: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n")
}

/// Returns an event without a name.
fn data(value: &str) -> String {
    format!("data: {value}\n\n")
}

/// Returns a comment, which is a heartbeat in any format.
pub fn comment() -> String {
    ": still here\n\n".to_owned()
}

/// Anthropic Messages.
pub mod anthropic {
    use super::named;

    pub fn start() -> String {
        let usage = "\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":1000,\
            \"output_tokens\":1}";
        named(
            "message_start",
            &format!(
                ",\"message\":{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude\",\
                \"content\":[],\"stop_reason\":null,\"stop_sequence\":null,{usage}}}"
            ),
        )
    }

    pub fn ping() -> String {
        named("ping", "")
    }

    fn block(index: u64, block: &str) -> String {
        named(
            "content_block_start",
            &format!(",\"index\":{index},\"content_block\":{{{block}}}"),
        )
    }

    fn delta(index: u64, delta: &str) -> String {
        named(
            "content_block_delta",
            &format!(",\"index\":{index},\"delta\":{{{delta}}}"),
        )
    }

    /// Ends any block.
    pub fn stop(index: u64) -> String {
        named("content_block_stop", &format!(",\"index\":{index}"))
    }

    pub fn text_start(index: u64) -> String {
        block(index, "\"type\":\"text\",\"text\":\"\"")
    }

    pub fn text(index: u64, words: &str) -> String {
        delta(index, &format!("\"type\":\"text_delta\",\"text\":\"{words}\""))
    }

    pub fn reasoning_start(index: u64) -> String {
        block(index, "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
    }

    pub fn reasoning(index: u64, words: &str) -> String {
        delta(index, &format!("\"type\":\"thinking_delta\",\"thinking\":\"{words}\""))
    }

    /// Returns the whole call block. The tool is in flight from here.
    pub fn server_tool(index: u64, id: &str) -> String {
        let start = block(
            index,
            &format!("\"type\":\"server_tool_use\",\"id\":\"{id}\",\"name\":\"web_search\",\"input\":{{}}"),
        );
        start + &stop(index)
    }

    /// Returns the whole result block.
    pub fn server_result(index: u64, id: &str) -> String {
        let start = block(
            index,
            &format!("\"type\":\"web_search_tool_result\",\"tool_use_id\":\"{id}\",\"content\":[]"),
        );
        start + &stop(index)
    }

    pub fn compaction_start(index: u64) -> String {
        block(index, "\"type\":\"compaction\",\"content\":null")
    }

    pub fn compaction(index: u64, words: &str) -> String {
        delta(index, &format!("\"type\":\"compaction_delta\",\"content\":\"{words}\""))
    }

    /// Returns the whole block of a client call.
    pub fn call(index: u64, id: &str) -> String {
        let start = block(
            index,
            &format!("\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"ls\",\"input\":{{}}"),
        );
        let arguments = delta(index, "\"type\":\"input_json_delta\",\"partial_json\":\"{}\"");
        start + &arguments + &stop(index)
    }

    pub fn error(code: &str) -> String {
        named(
            "error",
            &format!(",\"error\":{{\"type\":\"{code}\",\"message\":\"words\"}},\"request_id\":\"req_1\""),
        )
    }

    /// Returns the stop reason and the end.
    pub fn end(stop: &str) -> String {
        let why = format!(
            ",\"delta\":{{\"stop_reason\":\"{stop}\",\"stop_sequence\":null}},\"usage\":{{\"output_tokens\":9}}"
        );
        named("message_delta", &why) + &named("message_stop", "")
    }
}

/// `OpenAI` Responses.
pub mod responses {
    use super::named;

    fn item(event: &str, index: u64, item: &str) -> String {
        named(event, &format!(",\"output_index\":{index},\"item\":{{{item}}}"))
    }

    fn added(index: u64, fields: &str) -> String {
        item("response.output_item.added", index, fields)
    }

    fn done(index: u64, fields: &str) -> String {
        item("response.output_item.done", index, fields)
    }

    fn response(event: &str, status: &str, rest: &str) -> String {
        let response = format!("\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"{status}\"{rest}");
        named(event, &format!(",\"response\":{{{response}}}"))
    }

    pub fn start() -> String {
        response("response.created", "in_progress", ",\"error\":null,\"output\":[]")
    }

    pub fn queued() -> String {
        response("response.queued", "queued", ",\"error\":null,\"output\":[]")
    }

    pub fn in_progress() -> String {
        response("response.in_progress", "in_progress", ",\"error\":null,\"output\":[]")
    }

    pub fn ping() -> String {
        named("keepalive", ",\"sequence_number\":2")
    }

    pub fn text_start(index: u64) -> String {
        added(
            index,
            "\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]",
        )
    }

    pub fn text(index: u64, words: &str) -> String {
        let delta =
            format!(",\"item_id\":\"msg_1\",\"output_index\":{index},\"content_index\":0,\"delta\":\"{words}\"");
        named("response.output_text.delta", &delta)
    }

    pub fn reasoning_start(index: u64) -> String {
        added(index, "\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]")
    }

    pub fn reasoning(index: u64, words: &str) -> String {
        let delta = format!(",\"item_id\":\"rs_1\",\"output_index\":{index},\"summary_index\":0,\"delta\":\"{words}\"");
        named("response.reasoning_summary_text.delta", &delta)
    }

    pub fn reasoning_stop(index: u64) -> String {
        done(index, "\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]")
    }

    pub fn server_tool(index: u64, id: &str) -> String {
        added(
            index,
            &format!("\"id\":\"{id}\",\"type\":\"web_search_call\",\"status\":\"in_progress\""),
        )
    }

    pub fn server_result(index: u64, id: &str) -> String {
        done(
            index,
            &format!("\"id\":\"{id}\",\"type\":\"web_search_call\",\"status\":\"completed\""),
        )
    }

    pub fn compaction_start(index: u64) -> String {
        added(
            index,
            "\"id\":\"cmp_1\",\"type\":\"compaction\",\"encrypted_content\":\"\"",
        )
    }

    pub fn compaction_stop(index: u64) -> String {
        done(
            index,
            "\"id\":\"cmp_1\",\"type\":\"compaction\",\"encrypted_content\":\"gAAA\"",
        )
    }

    /// Returns the whole item of a client call.
    pub fn call(index: u64, id: &str) -> String {
        let fields = format!("\"id\":\"fc_1\",\"type\":\"function_call\",\"call_id\":\"{id}\",\"name\":\"ls\"");
        added(index, &format!("{fields},\"arguments\":\"\""))
            + &done(index, &format!("{fields},\"arguments\":\"{{}}\""))
    }

    pub fn error(code: &str) -> String {
        named(
            "error",
            &format!(",\"code\":\"{code}\",\"message\":\"words\",\"param\":null"),
        )
    }

    pub fn failed(code: &str) -> String {
        let error = format!(",\"error\":{{\"code\":\"{code}\",\"message\":\"words\"}},\"output\":[]");
        response("response.failed", "failed", &error)
    }

    pub fn incomplete(reason: &str) -> String {
        let details = format!(",\"error\":null,\"incomplete_details\":{{\"reason\":\"{reason}\"}},\"output\":[]");
        response("response.incomplete", "incomplete", &details)
    }

    pub fn end() -> String {
        let usage = ",\"error\":null,\"output\":[],\"usage\":{\"input_tokens\":10,\"output_tokens\":5}";
        response("response.completed", "completed", usage)
    }
}

/// `OpenAI` Chat Completions: comments are its only heartbeats, and it has no server tools and no compaction.
pub mod chat {
    use super::data;

    fn chunk(delta: &str, finish: &str) -> String {
        data(&format!(
            "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"gpt\",\
            \"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}]}}"
        ))
    }

    pub fn start() -> String {
        chunk("\"role\":\"assistant\",\"content\":\"\"", "null")
    }

    pub fn text(words: &str) -> String {
        chunk(&format!("\"content\":\"{words}\""), "null")
    }

    /// Opens reasoning, until text or a call follows.
    pub fn reasoning(words: &str) -> String {
        chunk(&format!("\"reasoning_content\":\"{words}\""), "null")
    }

    pub fn call(index: u64, id: &str) -> String {
        let function = "\"type\":\"function\",\"function\":{\"name\":\"ls\",\"arguments\":\"{}\"}";
        chunk(
            &format!("\"tool_calls\":[{{\"index\":{index},\"id\":\"{id}\",{function}}}]"),
            "null",
        )
    }

    pub fn error(code: &str) -> String {
        data(&format!(
            "{{\"error\":{{\"message\":\"words\",\"type\":\"server_error\",\"param\":null,\"code\":\"{code}\"}}}}"
        ))
    }

    /// Returns the finish reason and the end.
    pub fn end(finish: &str) -> String {
        chunk("", &format!("\"{finish}\"")) + &data("[DONE]")
    }
}

/// Gemini `generateContent`: no heartbeats and no compaction. The last chunk has the finish reason.
pub mod gemini {
    use super::data;

    fn part(part: &str) -> String {
        data(&format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{{part}}}],\"role\":\"model\"}},\"index\":0}}],\
            \"responseId\":\"r\"}}"
        ))
    }

    pub fn text(words: &str) -> String {
        part(&format!("\"text\":\"{words}\""))
    }

    /// Opens reasoning, until another part follows.
    pub fn reasoning(words: &str) -> String {
        part(&format!("\"text\":\"{words}\",\"thought\":true"))
    }

    pub fn server_tool() -> String {
        part("\"executableCode\":{\"language\":\"PYTHON\",\"code\":\"print(1)\"}")
    }

    pub fn server_result() -> String {
        part("\"codeExecutionResult\":{\"outcome\":\"OUTCOME_OK\",\"output\":\"1\"}")
    }

    pub fn call(id: &str) -> String {
        part(&format!(
            "\"functionCall\":{{\"id\":\"{id}\",\"name\":\"ls\",\"args\":{{}}}}"
        ))
    }

    pub fn error(code: u16, status: &str) -> String {
        data(&format!(
            "{{\"error\":{{\"code\":{code},\"message\":\"words\",\"status\":\"{status}\"}}}}"
        ))
    }

    pub fn end(finish: &str) -> String {
        data(&format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"\"}}],\"role\":\"model\"}},\
            \"finishReason\":\"{finish}\",\"index\":0}}],\
            \"usageMetadata\":{{\"promptTokenCount\":10,\"candidatesTokenCount\":5}}}}"
        ))
    }
}
