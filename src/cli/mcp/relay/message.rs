//! The messages of JSON-RPC that matter to the wrapper, read beside the bytes that pass.

use crate::{
    late::input_digest,
    splice::Span,
    wire::json::{Json, JsonKind, validate},
};

/// Longest name of a call, in bytes: the ledger API takes no longer one.
const CALL_ID_BYTES_MAX: usize = 1024;
/// The members of `_meta` in which clients name a call: Claude Code's, and Codex'.
const CALL_ID_NAMES: [&str; 2] = ["claudecode/toolUseId", "callId"];
/// The member of `_meta` with the client's name, from the version 2026-07-28 on.
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// The id of a request, as its sender wrote it.
#[derive(Clone, Debug)]
pub(in crate::cli::mcp) struct RpcId {
    /// The bytes of the JSON value.
    raw: Vec<u8>,
    /// The meaning: a text may be written in several ways.
    meaning: Vec<u8>,
}

impl RpcId {
    /// Returns an id that no request has.
    pub(super) const fn none() -> Self {
        Self {
            raw: Vec::new(),
            meaning: Vec::new(),
        }
    }

    /// Reads an id. `None` for `null`, and what is neither a text nor a number.
    pub(in crate::cli::mcp) fn read(json: Json<'_>, span: Span) -> Option<Self> {
        let raw = json.bytes(span).to_vec();
        let meaning = match json.kind(span) {
            JsonKind::String => [&b"\""[..], &json.decode_string(span)].concat(),
            _ if raw
                .first()
                .is_some_and(|first| first.is_ascii_digit() || *first == b'-') =>
            {
                raw.clone()
            }
            _ => return None,
        };
        Some(Self { raw, meaning })
    }

    /// Returns the bytes of the JSON value.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }
}

impl PartialEq for RpcId {
    fn eq(&self, other: &Self) -> bool {
        self.meaning == other.meaning
    }
}

impl Eq for RpcId {}

impl PartialOrd for RpcId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RpcId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.meaning.cmp(&other.meaning)
    }
}

/// A request to run a tool.
#[derive(Clone, Debug)]
pub(super) struct CallRequest {
    pub(super) id: RpcId,
    pub(super) tool: String,
    /// The hash of the canonical input.
    pub(super) input: [u8; 32],
    /// The id of the call in its conversation.
    pub(super) call_id: Option<String>,
    pub(super) progress: Option<RpcId>,
}

/// The facts about a tool that a list of the server has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolFacts {
    pub(super) name: String,
    /// Its results must have a structured part.
    pub(super) has_output_schema: bool,
}

/// One message.
#[derive(Debug)]
pub(super) enum McpMessage<'a> {
    /// A request to run a tool, of the kind that the wrapper watches.
    Call(CallRequest),
    /// A request of that kind which is a part of a call: one for a task, or one with what the server has asked for.
    PartOfCall { request: CallRequest, is_task: bool },
    /// The greeting of a client, with its name.
    Greeting { id: RpcId, client: String },
    /// A request for the tools of the server.
    ToolList { id: RpcId },
    /// Any other request.
    Request { id: RpcId, is_ping: bool },
    /// The answer to a request.
    Answer { id: RpcId, body: RpcAnswer<'a> },
    /// The sender no longer waits for a request.
    Cancel { id: RpcId, reason: String },
    /// The progress of a request.
    Progress { token: RpcId },
    /// Anything else: a notification, a batch, or no JSON.
    Other,
}

/// The body of an answer, as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RpcAnswer<'a> {
    Result(&'a [u8]),
    Failure(&'a [u8]),
}

/// Reads a line. What cannot be read is [`McpMessage::Other`].
pub(super) fn read_message(line: &[u8]) -> McpMessage<'_> {
    read_object(line).unwrap_or(McpMessage::Other)
}

fn read_object(line: &[u8]) -> Option<McpMessage<'_>> {
    // Most noise is told by its first byte.
    if line.trim_ascii_start().first() != Some(&b'{') || validate(line).is_err() {
        return None;
    }
    let json = Json::new(line);
    let root = json.root_span().ok()?;
    let [id, method, params, result, failure] = json.members(root, ["id", "method", "params", "result", "error"]);
    let id = id.and_then(|id| RpcId::read(json, id));
    let Some(method) = method else {
        let body = match (result, failure) {
            (Some(result), None) => RpcAnswer::Result(json.bytes(result)),
            (None, Some(failure)) => RpcAnswer::Failure(json.bytes(failure)),
            _ => return None,
        };
        return Some(McpMessage::Answer { id: id?, body });
    };
    let params = params.filter(|params| json.kind(*params) == JsonKind::Object);
    match (&json.decode_string(method)[..], id) {
        (b"tools/call", Some(id)) => Some(read_call(json, params, id)),
        (b"initialize" | b"server/discover", Some(id)) => Some(McpMessage::Greeting {
            id,
            client: params.map(|params| client_name(json, params)).unwrap_or_default(),
        }),
        (b"tools/list", Some(id)) => Some(McpMessage::ToolList { id }),
        (b"ping", Some(id)) => Some(McpMessage::Request { id, is_ping: true }),
        (_, Some(id)) => Some(McpMessage::Request { id, is_ping: false }),
        (b"notifications/cancelled", None) => Some(McpMessage::Cancel {
            id: RpcId::read(json, json.member(params?, "requestId")?)?,
            reason: text_of(json, params?, "reason"),
        }),
        (b"notifications/progress", None) => Some(McpMessage::Progress {
            token: RpcId::read(json, json.member(params?, "progressToken")?)?,
        }),
        (_, None) => None,
    }
}

fn read_call(json: Json<'_>, params: Option<Span>, id: RpcId) -> McpMessage<'_> {
    let unwatched = |id| McpMessage::Request { id, is_ping: false };
    let Some(params) = params else {
        return unwatched(id);
    };
    let [name, arguments, meta, task] = json.members(params, ["name", "arguments", "_meta", "task"]);
    let Some(name) = name.and_then(|name| json.only_string(name)) else {
        return unwatched(id);
    };
    let meta = meta.filter(|meta| json.kind(*meta) == JsonKind::Object);
    let call_id = meta.and_then(|meta| {
        let texts = CALL_ID_NAMES.into_iter().map(|name| text_of(json, meta, name));
        texts.into_iter().find(|text| is_call_id(text))
    });
    let token = meta.and_then(|meta| json.member(meta, "progressToken"));
    let request = CallRequest {
        id,
        tool: lossy(&json.decode_string(name)),
        // A call without arguments is one with none.
        input: input_digest(arguments.map_or(&b"{}"[..], |arguments| json.bytes(arguments)), &[]),
        call_id,
        progress: token.and_then(|token| RpcId::read(json, token)),
    };
    // A task of MCP is answered at once, and read by other requests. A retry with what the server asked for is no call of
    // its own either.
    let is_task = task.is_some();
    if is_task || json.member(params, "requestState").is_some() {
        McpMessage::PartOfCall { request, is_task }
    } else {
        McpMessage::Call(request)
    }
}

/// Returns the arguments of a call, as its line has them.
pub(super) fn call_arguments(line: &[u8]) -> String {
    let json = Json::new(line);
    let params = json.root_span().ok().and_then(|root| json.member(root, "params"));
    let arguments = params.and_then(|params| json.member(params, "arguments"));
    arguments.map_or_else(|| "{}".to_owned(), |arguments| lossy(json.bytes(arguments)))
}

/// Returns the messages of a batch. Empty if the line is none.
pub(super) fn batch_elements(line: &[u8]) -> Vec<&[u8]> {
    if line.trim_ascii_start().first() != Some(&b'[') || validate(line).is_err() {
        return Vec::new();
    }
    let json = Json::new(line);
    let elements = json.root_span().map(|root| json.elements(root)).unwrap_or_default();
    elements.into_iter().map(|element| json.bytes(element)).collect()
}

/// Returns `true` if the ledger API can have a call of this name.
fn is_call_id(text: &str) -> bool {
    let is_fine = |letter: char| !letter.is_control() && !"/\\%".contains(letter);
    let is_name = !text.is_empty() && text.len() <= CALL_ID_BYTES_MAX && text.chars().all(is_fine);
    is_name && ![".", ".."].contains(&text)
}

fn client_name(json: Json<'_>, params: Span) -> String {
    let info = json.member(params, "clientInfo").or_else(|| {
        let meta = json.member(params, "_meta")?;
        json.member(meta, CLIENT_INFO)
    });
    info.map(|info| text_of(json, info, "name")).unwrap_or_default()
}

/// Reads the name of the server in the answer to a greeting. `None` if there is none.
pub(super) fn read_server_name(result: &[u8]) -> Option<String> {
    let json = Json::new(result);
    let info = json.root_span().ok().and_then(|root| json.member(root, "serverInfo"))?;
    let name = text_of(json, info, "name");
    (!name.trim().is_empty()).then_some(name)
}

/// Reads the tools in the result of a list. None if it is another result.
pub(super) fn read_tools(result: &[u8]) -> Vec<ToolFacts> {
    let json = Json::new(result);
    let tools = json.root_span().ok().and_then(|root| json.member(root, "tools"));
    let tools = tools.map(|tools| json.elements(tools)).unwrap_or_default();
    let facts = |tool: Span| ToolFacts {
        name: text_of(json, tool, "name"),
        has_output_schema: json.member(tool, "outputSchema").is_some(),
    };
    tools.into_iter().map(facts).collect()
}

fn text_of(json: Json<'_>, object: Span, name: &str) -> String {
    if json.kind(object) == JsonKind::Object {
        lossy(&json.member_text(object, name))
    } else {
        String::new()
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_client() {
        for (meta, wanted) in [
            (
                r#"{"claudecode/toolUseId":"toolu_1","progressToken":7}"#,
                Some("toolu_1"),
            ),
            (r#"{"callId":"call_1","threadId":"t"}"#, Some("call_1")),
            (r#"{"callId":"a/b"}"#, None),
            (r#"{"callId":""}"#, None),
            (r#"{"callId":5}"#, None),
            ("[]", None),
        ] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":"\u0061","method":"tools/call","params":{{"name":"render","_meta":{meta}}}}}"#
            );
            let McpMessage::Call(call) = read_message(line.as_bytes()) else {
                panic!("{meta}");
            };
            assert_eq!(call.call_id.as_deref(), wanted, "{meta}");
            assert_eq!(
                (call.id.meaning.as_slice(), call.id.raw()),
                (&b"\"a"[..], &br#""\u0061""#[..])
            );
        }
    }

    #[test]
    fn what_is_no_message_of_interest_passes() {
        for line in [
            "",
            "{",
            "noise",
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}]"#,
            r#"{"id":null,"result":{}}"#,
            r#"{"id":1,"result":{},"error":{}}"#,
            r#"{"method":"notifications/cancelled"}"#,
            r#"{"method":"notifications/cancelled","params":[1]}"#,
            r#"{"method":"notifications/initialized"}"#,
        ] {
            assert!(matches!(read_message(line.as_bytes()), McpMessage::Other), "{line}");
        }
        for line in [
            r#"{"id":1,"method":"tools/call"}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":5}}"#,
        ] {
            assert!(
                matches!(read_message(line.as_bytes()), McpMessage::Request { .. }),
                "{line}"
            );
        }
        for (line, wanted) in [
            (
                r#"{"id":1,"method":"tools/call","params":{"name":"x","task":{}}}"#,
                true,
            ),
            (
                r#"{"id":1,"method":"tools/call","params":{"name":"x","requestState":"s"}}"#,
                false,
            ),
        ] {
            let read = read_message(line.as_bytes());
            assert!(
                matches!(read, McpMessage::PartOfCall { is_task, .. } if is_task == wanted),
                "{line}"
            );
        }
    }
}
