//! The facts about a message of JSON-RPC that its transport over HTTP depends on.

use crate::{
    cli::mcp::relay::RpcId,
    splice::Span,
    wire::json::{Json, JsonKind, validate},
};

/// The member of `_meta` with the version of a request, from 2026-07-28 on.
const VERSION_NAME: &str = "io.modelcontextprotocol/protocolVersion";

/// A message of JSON-RPC.
#[derive(Clone, Debug)]
pub(super) struct PostedMessage {
    pub(super) kind: MessageKind,
    /// The id of a request or an answer.
    pub(super) id: Option<RpcId>,
    pub(super) method: String,
    /// The name of the tool or prompt, or the address of the resource.
    pub(super) subject: Option<String>,
    /// The protocol's version, if the message tells it itself: then there is no session.
    pub(super) version: Option<String>,
    /// The request that a cancel is about.
    pub(super) cancelled: Option<RpcId>,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Request,
    Notification,
    Answer,
    /// A list of messages, which the version 2025-03-26 allows.
    Batch,
}

impl PostedMessage {
    /// Reads a line. `None` if it is no message.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        validate(line).ok()?;
        let json = Json::new(line);
        let root = json.root_span().ok()?;
        match json.kind(root) {
            JsonKind::Object => read_object(json, root),
            JsonKind::Array => Some(Self {
                kind: MessageKind::Batch,
                id: None,
                method: String::new(),
                subject: None,
                version: None,
                cancelled: None,
            }),
            _ => None,
        }
    }

    /// Returns `true` for a request to run a tool.
    pub(super) fn is_call(&self) -> bool {
        self.kind == MessageKind::Request && self.method == "tools/call"
    }

    /// Returns `true` for the request that begins a session.
    pub(super) fn is_greeting(&self) -> bool {
        self.kind == MessageKind::Request && self.method == "initialize"
    }

    /// Returns `true` for the message that ends the handshake.
    pub(super) fn is_greeted(&self) -> bool {
        self.kind == MessageKind::Notification && self.method == "notifications/initialized"
    }

    /// Returns `true` if a second run of it could do harm: of a batch nothing is known.
    pub(super) fn is_unique(&self) -> bool {
        self.kind == MessageKind::Batch || self.is_call()
    }
}

fn read_object(json: Json<'_>, root: Span) -> Option<PostedMessage> {
    let [id, method, params, result, error] = json.members(root, ["id", "method", "params", "result", "error"]);
    let id = id.and_then(|id| RpcId::read(json, id));
    let params = params.filter(|params| json.kind(*params) == JsonKind::Object);
    let text = |span: Span| String::from_utf8_lossy(&json.decode_string(span)).into_owned();
    let member = |name: &str| params.and_then(|params| json.member(params, name));
    let method = method.map(text).filter(|method| !method.is_empty());
    let kind = match (&method, &id) {
        (Some(_), Some(_)) => MessageKind::Request,
        (Some(_), None) => MessageKind::Notification,
        (None, _) if result.is_some() || error.is_some() => MessageKind::Answer,
        (None, _) => return None,
    };
    let method = method.unwrap_or_default();
    let subject = match &method[..] {
        "tools/call" | "prompts/get" => member("name"),
        "resources/read" => member("uri"),
        _ => None,
    };
    let meta = member("_meta").filter(|meta| json.kind(*meta) == JsonKind::Object);
    let version = meta.and_then(|meta| json.string_member(meta, VERSION_NAME));
    let cancelled = member("requestId").filter(|_| method == "notifications/cancelled");
    Some(PostedMessage {
        kind,
        id,
        subject: subject.and_then(|subject| json.only_string(subject)).map(text),
        version: version.map(text),
        cancelled: cancelled.and_then(|id| RpcId::read(json, id)),
        method,
    })
}

/// Returns the error of an answer, if it is one of JSON-RPC.
pub(super) fn rpc_error(body: &[u8]) -> Option<String> {
    validate(body).ok()?;
    let json = Json::new(body);
    let root = json
        .root_span()
        .ok()
        .filter(|root| json.kind(*root) == JsonKind::Object)?;
    let error = json
        .member(root, "error")
        .filter(|error| json.kind(*error) == JsonKind::Object)?;
    json.string_member(error, "message")?;
    json.member(error, "code")?;
    Some(String::from_utf8_lossy(json.bytes(error)).into_owned())
}

/// Returns the version that the server has chosen in its answer to the greeting.
pub(super) fn chosen_version(answer: &[u8]) -> Option<String> {
    let json = Json::new(answer);
    let result = json.member(json.root_span().ok()?, "result")?;
    let version = json.string_member(result, "protocolVersion")?;
    Some(String::from_utf8_lossy(&json.decode_string(version)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_by_their_members() {
        for (line, kind) in [
            (r#"{"id":1,"method":"ping"}"#, Some(MessageKind::Request)),
            (r#"{"method":"ping"}"#, Some(MessageKind::Notification)),
            (r#"{"id":1,"result":{}}"#, Some(MessageKind::Answer)),
            (r#"{"id":null,"error":{}}"#, Some(MessageKind::Answer)),
            (r#"[{"id":1,"method":"ping"}]"#, Some(MessageKind::Batch)),
            (r#"{"id":1}"#, None),
            (r#""text""#, None),
            ("noise", None),
            ("", None),
        ] {
            assert_eq!(
                PostedMessage::read(line.as_bytes()).map(|message| message.kind),
                kind,
                "{line}"
            );
        }
        let line = r#"{"id":1,"method":"resources/read","params":{"uri":"file:///a","name":"b","_meta":
            {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let message = PostedMessage::read(line.as_bytes()).unwrap();
        assert_eq!(message.subject.as_deref(), Some("file:///a"));
        assert_eq!(message.version.as_deref(), Some("2026-07-28"));
    }

    #[test]
    fn only_errors_of_the_protocol_are_passed_on() {
        for (body, wanted) in [
            (
                r#"{"id":"x","error": {"code":-1,"message":"no"}}"#,
                Some(r#"{"code":-1,"message":"no"}"#),
            ),
            (r#"{"error":"invalid_token"}"#, None),
            (r#"{"error":{"message":"no"}}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(rpc_error(body.as_bytes()).as_deref(), wanted, "{body}");
        }
    }
}
