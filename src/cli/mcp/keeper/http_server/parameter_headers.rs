//! Arguments of tools that are repeated in headers, as the lists of the server's tools demand.
//!
//! MCP 2026-07-28, "Streamable HTTP", "Custom Headers from Tool Parameters", read 2026-12-01: a property of an input with
//! `x-mcp-header: NAME` is sent as `Mcp-Param-NAME`, too.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Most tools with such arguments, and most such arguments of a tool.
const TOOLS_MAX: usize = 4096;
const PARAMETERS_MAX: usize = 64;
/// Most levels of an input that are searched.
const DEPTH_MAX: usize = 16;
/// The marks around a text in base64.
const OPENING: &str = "=?base64?";
const CLOSING: &str = "?=";

/// The arguments that are repeated in headers, by tool.
#[derive(Clone, Debug, Default)]
pub(super) struct ParameterHeaders(BTreeMap<String, Vec<HeaderParameter>>);

#[derive(Clone, Debug)]
struct HeaderParameter {
    header: HeaderName,
    path: Vec<String>,
}

impl ParameterHeaders {
    /// Reads the answer to a request for the list of tools.
    pub(super) fn note_tools(&mut self, answer: &[u8]) {
        let json = Json::new(answer);
        let tools = json
            .root_span()
            .ok()
            .and_then(|root| json.member(json.member(root, "result")?, "tools"));
        for tool in tools.map(|tools| json.elements(tools)).unwrap_or_default() {
            let name = String::from_utf8_lossy(&json.member_text(tool, "name")).into_owned();
            let mut parameters = Vec::new();
            if let Some(schema) = json.member(tool, "inputSchema") {
                find_parameters(json, schema, &mut Vec::new(), &mut parameters);
            }
            if parameters.is_empty() {
                self.0.remove(&name);
            } else if self.0.len() < TOOLS_MAX || self.0.contains_key(&name) {
                self.0.insert(name, parameters);
            }
        }
    }

    /// Returns the headers of a call.
    pub(super) fn of_call(&self, tool: &str, line: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let json = Json::new(line);
        let member = |span: Span, name: &str| {
            let object = Some(span).filter(|span| json.kind(*span) == JsonKind::Object)?;
            json.member(object, name)
        };
        let parameters = self.0.get(tool).map(Vec::as_slice).unwrap_or_default();
        let value_of = |parameter: &HeaderParameter| {
            let arguments = member(member(json.root_span().ok()?, "params")?, "arguments")?;
            let mut path = parameter.path.iter();
            let value = path.try_fold(arguments, |span, name| member(span, name))?;
            let text = match json.kind(value) {
                JsonKind::String => String::from_utf8_lossy(&json.decode_string(value)).into_owned(),
                JsonKind::Other => String::from_utf8_lossy(json.bytes(value)).into_owned(),
                JsonKind::Null | JsonKind::Object | JsonKind::Array => return None,
            };
            Some((parameter.header.clone(), header_text(&text)?))
        };
        parameters.iter().filter_map(value_of).collect()
    }
}

/// Finds the marked properties below a schema. Only chains of `properties` count.
fn find_parameters(json: Json<'_>, schema: Span, path: &mut Vec<String>, found: &mut Vec<HeaderParameter>) {
    let is_object = |span: &Span| json.kind(*span) == JsonKind::Object;
    let Some(schema) = Some(schema).filter(is_object) else {
        return;
    };
    let mark = json.string_member(schema, "x-mcp-header").filter(|_| !path.is_empty());
    if let Some(mark) = mark.filter(|_| found.len() < PARAMETERS_MAX) {
        let name = String::from_utf8_lossy(&json.decode_string(mark)).into_owned();
        // One that cannot be the name of a header makes the tool invalid, which its server then says.
        if let Ok(header) = format!("mcp-param-{name}").parse() {
            let path = path.clone();
            found.push(HeaderParameter { header, path });
        }
    }
    let properties = json.member(schema, "properties").filter(is_object);
    let Some(properties) = properties.filter(|_| path.len() < DEPTH_MAX) else {
        return;
    };
    let mut inner = Vec::new();
    let walked = json.for_each_member(properties, |name, value| {
        inner.push((String::from_utf8_lossy(name).into_owned(), value));
    });
    if walked.is_err() {
        return;
    }
    for (name, value) in inner {
        path.push(name);
        find_parameters(json, value, path, found);
        path.pop();
    }
}

/// Returns a text as the value of a header: in base64 if it could not stand there as it is.
pub(super) fn header_text(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) && text.trim() == text;
    let is_marked = text.starts_with(OPENING) && text.ends_with(CLOSING);
    if is_plain && !is_marked {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("{OPENING}{}{CLOSING}", STANDARD.encode(text))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples are those of the specification.
    #[test]
    fn texts_are_written_as_the_specification_writes_them() {
        for (text, wanted) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(header_text(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn marked_arguments_are_repeated() {
        let mut headers = ParameterHeaders::default();
        headers.note_tools(
            br#"{"id":1,"result":{"tools":[{"name":"sql","inputSchema":{"type":"object","x-mcp-header":"Root","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"properties":{"limit":{"type":"integer","x-mcp-header":"Limit"}}},
            "list":{"items":{"properties":{"x":{"x-mcp-header":"Inner"}}}},
            "bad":{"x-mcp-header":"a b"}}}},{"name":"plain","inputSchema":{}}]}}"#,
        );
        let read = |tool: &str, arguments: &str| -> Vec<String> {
            let line = format!(r#"{{"params":{{"arguments":{arguments}}}}}"#);
            let headers = headers.of_call(tool, line.as_bytes()).into_iter();
            headers
                .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                .collect()
        };
        let all = r#"{"region":"us","deep":{"limit":42},"list":[{"x":"y"}],"bad":"z"}"#;
        assert_eq!(read("sql", all), ["mcp-param-region=us", "mcp-param-limit=42"]);
        assert_eq!(read("sql", r#"{"region":null,"deep":7}"#), Vec::<String>::new());
        assert_eq!(read("plain", all), Vec::<String>::new());
        assert_eq!(read("sql", "[]"), Vec::<String>::new());
    }
}
