//! The end of a run: what the server has answered, the post that tells of it, and the lines that repeat it.

use std::time::Duration;

use bytes::Bytes;

use super::message::{RpcAnswer, RpcId};
use crate::{
    splice::Span,
    wire::json::{Json, JsonKind, quote_string},
};

/// Largest kept result, in bytes. A post of a larger one would be refused.
pub(in crate::cli::mcp) const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024 - 1024;
/// Longest name of a server in a post, and its beginning.
const SOURCE_CHARS_MAX: usize = 64;
const SOURCE_PREFIX: &str = "mcp:";
/// The result of a run whose server has ended.
const SERVER_ENDED: &str = "the MCP server ended before it answered; the outcome is unknown";
/// The result of a run that can be finished only by its client.
const INPUT_WANTED: &str = "the MCP server asked for more input, which nobody could give; the call did not finish";
/// The result in place of one that is too large.
const TOO_LARGE: &str = "the tool has finished, but its result is larger than 8 MiB and was not kept";

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) struct ToolOutcome {
    /// It is an error of JSON-RPC.
    pub(in crate::cli::mcp) is_failure: bool,
    /// The result or the error, as JSON.
    pub(in crate::cli::mcp) body: String,
}

impl ToolOutcome {
    /// Keeps the answer to a detached call.
    pub(super) fn of_answer(answer: RpcAnswer<'_>) -> Self {
        let (body, is_failure) = match answer {
            RpcAnswer::Result(body) => (body, false),
            RpcAnswer::Failure(body) => (body, true),
        };
        if body.len() > RESULT_BYTES_MAX {
            return Self::of_large_result();
        }
        if !is_failure && !is_complete(body) {
            return Self::of_fault(INPUT_WANTED);
        }
        // The line was checked as UTF-8.
        let body = String::from_utf8_lossy(body).into_owned();
        Self { is_failure, body }
    }

    /// Returns the end of a run whose server has ended.
    pub(super) fn of_ended_server() -> Self {
        Self::of_fault(SERVER_ENDED)
    }

    /// Returns the end of a run whose result is too large to be kept.
    pub(in crate::cli::mcp) fn of_large_result() -> Self {
        Self::of_fault(TOO_LARGE)
    }

    /// Returns `true` if the tool has failed.
    pub(in crate::cli::mcp) fn has_failed(&self) -> bool {
        let json = Json::new(self.body.as_bytes());
        let is_error = json.root_span().ok().and_then(|root| json.member(root, "isError"));
        self.is_failure || is_error.is_some_and(|is_error| json.bytes(is_error) == b"true")
    }

    fn of_fault(text: &str) -> Self {
        Self {
            is_failure: false,
            body: format!(
                r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#,
                quote_string(text)
            ),
        }
    }

    /// Returns the body of the post. The content is that which a client would give to its model. `source` names the server,
    /// as [`post_source`] writes it.
    pub(in crate::cli::mcp) fn post_body(&self, source: Option<&str>, only_if_missing: bool) -> String {
        let mut body = self.content_body();
        body.truncate(body.len().saturating_sub(1));
        if let Some(source) = source {
            body.push_str(r#","source":"#);
            body.push_str(&quote_string(source));
        }
        if only_if_missing {
            body.push_str(r#","only_if_missing":true"#);
        }
        body.push('}');
        body
    }

    /// Returns an object with the content of the post, and whether the run has failed.
    fn content_body(&self) -> String {
        let json = Json::new(self.body.as_bytes());
        let Ok(root) = json.root_span() else {
            return format!(r#"{{"content":{},"is_error":true}}"#, quote_string(TOO_LARGE));
        };
        let text = |span: Span| String::from_utf8_lossy(json.bytes(span)).into_owned();
        if self.is_failure {
            let code = json.member(root, "code").map(text).unwrap_or_default();
            let message = String::from_utf8_lossy(&json.member_text(root, "message")).into_owned();
            let said = quote_string(&format!("MCP error {code}: {message}"));
            return format!(r#"{{"content":{said},"is_error":true}}"#);
        }
        let [content, structured, is_error] = json.members(root, ["content", "structuredContent", "isError"]);
        let content = content.filter(|content| json.kind(*content) != JsonKind::Array || !json.is_empty(*content));
        let content = content.or(structured).map_or_else(|| "[]".to_owned(), text);
        let is_error = is_error.is_some_and(|is_error| json.bytes(is_error) == b"true");
        format!(r#"{{"content":{content},"is_error":{is_error}}}"#)
    }

    /// Returns the line that gives this end to a request.
    pub(in crate::cli::mcp) fn answer_line(&self, id: &RpcId) -> Bytes {
        let name = if self.is_failure { "error" } else { "result" };
        write_line(id, name, &self.body)
    }
}

/// Returns the name of a server in its posts. The ledger API takes 64 characters of ASCII, without control characters.
pub(super) fn post_source(server: &str) -> String {
    let letters = server.chars().map(|letter| match letter {
        ' '..='~' => letter,
        _ => '?',
    });
    SOURCE_PREFIX.chars().chain(letters).take(SOURCE_CHARS_MAX).collect()
}

/// Returns `true` if a result is the end of its call, and no question of the server.
pub(super) fn is_complete(result: &[u8]) -> bool {
    let json = Json::new(result);
    let kind = json.root_span().ok().and_then(|root| json.member(root, "resultType"));
    kind.is_none_or(|kind| &json.decode_string(kind)[..] == b"complete")
}

/// Returns the line that answers a call with a note of the wrapper.
pub(super) fn note_line(id: &RpcId, text: &str, is_error: bool) -> Bytes {
    // A client may refuse a result without the structured part that the tool promises, unless it is an error.
    let is_error = if is_error { r#","isError":true"# } else { "" };
    let text = quote_string(&format!("[antiphon: {text}]"));
    write_line(
        id,
        "result",
        &format!(r#"{{"content":[{{"type":"text","text":{text}}}]{is_error}}}"#),
    )
}

/// Returns the line of an early answer to a call whose run goes on elsewhere.
pub(super) fn elsewhere_line(id: &RpcId, tool: &str, waited: Duration, has_output_schema: bool) -> Bytes {
    let text = format!(
        "\"{tool}\" is running elsewhere, still after {} s; this is not its result. The same call with the same input \
         waits for it and does not start it again.",
        waited.as_secs()
    );
    note_line(id, &text, has_output_schema)
}

/// Returns the line of an early answer.
pub(super) fn early_line(id: &RpcId, tool: &str, waited: Duration, is_known: bool, has_output_schema: bool) -> Bytes {
    let mut text = format!(
        "\"{tool}\" is still running after {} s; this is not its result. The same call with the same input waits for it \
         and does not start it again.",
        waited.as_secs()
    );
    if is_known {
        text.push_str(" If you end your turn, the result is added to the user's next message when it is ready.");
    }
    note_line(id, &text, has_output_schema)
}

/// Returns the line that answers a request of the server after its client has gone.
pub(super) fn absent_client_line(id: &RpcId, is_ping: bool) -> Bytes {
    if is_ping {
        write_line(id, "result", "{}")
    } else {
        write_line(id, "error", r#"{"code":-32000,"message":"the client has gone"}"#)
    }
}

/// Returns the line that tells the server to stop a request.
pub(super) fn cancel_line(id: &RpcId) -> Bytes {
    let mut line = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#.to_vec();
    line.extend_from_slice(id.raw());
    line.extend_from_slice(b"}}\n");
    Bytes::from(line)
}

fn write_line(id: &RpcId, name: &str, body: &str) -> Bytes {
    // A body may have been written over several lines.
    let body = body.replace(['\n', '\r'], " ");
    let mut line = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    line.extend_from_slice(id.raw());
    line.extend_from_slice(format!(r#","{name}":{body}}}"#).as_bytes());
    line.push(b'\n');
    Bytes::from(line)
}
