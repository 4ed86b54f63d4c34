//! The name of a tool, by its index in a request.

use crate::{
    splice::Span,
    wire::{Format, json::Json},
};

/// Bytes of the longest name that is repeated to the client.
const NAME_BYTES_MAX: usize = 128;

/// Returns the name of the tool with this index in the body of a request. Gemini's declarations are counted over all
/// tools.
///
/// `None` if there is no such tool, or if its name is empty, longer than 128 bytes, or no UTF-8.
pub fn tool_name(body: &[u8], format: Format, index: usize) -> Option<String> {
    let json = Json::new(body);
    let tools = json.elements(json.member(json.root_span().ok()?, "tools")?);
    let named = match format {
        Format::Anthropic | Format::OpenAiResponses => *tools.get(index)?,
        Format::OpenAiChat => json.member(*tools.get(index)?, "function")?,
        Format::Gemini => *declarations(json, &tools).get(index)?,
    };
    let name = json.decode_string(json.string_member(named, "name")?).to_vec();
    let name = String::from_utf8(name).ok()?;
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Returns the declarations of functions in all tools of a Gemini request.
fn declarations(json: Json<'_>, tools: &[Span]) -> Vec<Span> {
    let of_tool = |tool: &Span| {
        let [camel, snake] = json.members(*tool, ["functionDeclarations", "function_declarations"]);
        json.elements(camel.or(snake).unwrap_or(*tool))
    };
    tools.iter().flat_map(of_tool).collect()
}
