//! Members that no mend takes away: those that a format requires, that pair calls with results, or that hold content.

/// The objects in which a member is required.
#[derive(Clone, Copy, Debug)]
enum Within {
    /// Every object.
    Everywhere,
    /// Objects of these types or roles.
    Classes(&'static [&'static str]),
    /// Every item of Responses, and objects of these types.
    ItemsAnd(&'static [&'static str]),
}

use Within::{Classes, Everywhere, ItemsAnd};

/// The class of an object without a type or role.
const NAMELESS: &str = "";
/// The class of a call of `tool_calls`.
pub(super) const CALL: &str = "tool_calls";

/// Members, and where they are required. Any other member may go from any object.
const REQUIRED: [(&str, Within); 47] = [
    ("role", Everywhere),
    ("type", Everywhere),
    ("content", Everywhere),
    ("parts", Everywhere),
    // Pairs of calls and results.
    ("call_id", Everywhere),
    ("tool_use_id", Everywhere),
    ("tool_call_id", Everywhere),
    ("approval_request_id", Everywhere),
    ("tool_calls", Everywhere),
    ("function", Everywhere),
    ("functionCall", Everywhere),
    ("function_call", Everywhere),
    ("functionResponse", Everywhere),
    ("function_response", Everywhere),
    ("id", ItemsAnd(&["tool_use", "server_tool_use", "mcp_tool_use", CALL])),
    (
        "name",
        Classes(&[
            "tool_use",
            "server_tool_use",
            "mcp_tool_use",
            "function",
            "functionCall",
            "function_call",
            "functionResponse",
            "function_response",
            "custom_tool_call",
            "mcp_call",
            "mcp_approval_request",
        ]),
    ),
    (
        "input",
        Classes(&["tool_use", "server_tool_use", "mcp_tool_use", "custom_tool_call"]),
    ),
    ("arguments", ItemsAnd(&["function"])),
    ("args", Classes(&["functionCall", "function_call"])),
    ("response", Classes(&["functionResponse", "function_response"])),
    ("output", Everywhere),
    ("tools", Everywhere),
    ("action", ItemsAnd(&[])),
    ("operation", ItemsAnd(&[])),
    ("custom", Classes(&[CALL])),
    // What a block says.
    (
        "text",
        Classes(&[
            NAMELESS,
            "text",
            "input_text",
            "output_text",
            "summary_text",
            "reasoning_text",
        ]),
    ),
    ("refusal", Classes(&["refusal"])),
    ("source", Everywhere),
    ("image_url", Everywhere),
    ("file_id", Everywhere),
    ("file_data", Everywhere),
    ("file", Everywhere),
    ("input_audio", Everywhere),
    ("inlineData", Everywhere),
    ("inline_data", Everywhere),
    ("fileData", Everywhere),
    ("executableCode", Everywhere),
    ("executable_code", Everywhere),
    ("codeExecutionResult", Everywhere),
    ("tool_name", Classes(&["tool_reference"])),
    // Signed thinking, and what is sealed.
    ("thinking", Classes(&["thinking"])),
    ("signature", Classes(&["thinking"])),
    ("data", Classes(&["redacted_thinking"])),
    ("summary", ItemsAnd(&[])),
    ("encrypted_content", Everywhere),
    ("thoughtSignature", Everywhere),
    ("thought_signature", Everywhere),
];

/// Returns `true` if objects of this class keep the member. `is_item` is `true` for an item of Responses.
pub(super) fn is_required(member: &str, class: &str, is_item: bool) -> bool {
    REQUIRED.iter().any(|(name, within)| {
        *name == member
            && match within {
                Everywhere => true,
                Classes(classes) => classes.contains(&class),
                ItemsAnd(classes) => is_item || classes.contains(&class),
            }
    })
}

/// Returns `true` if no object loses the member.
pub(super) fn is_required_everywhere(member: &str) -> bool {
    let mut named = REQUIRED.iter().filter(|(name, _)| *name == member);
    named.any(|(_, within)| matches!(within, Everywhere))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_required_where_its_format_says_so() {
        let rows = [
            ("text", "tool_use", false, false),
            ("text", "text", false, true),
            ("id", "tool_use", false, true),
            ("id", "text", false, false),
            ("id", "message", true, true),
            ("name", "user", false, false),
            ("name", "function", false, true),
            ("status", "message", true, false),
            ("signature", "thinking", false, true),
            ("thinking", "assistant", false, false),
        ];
        for (member, class, is_item, wanted) in rows {
            assert_eq!(is_required(member, class, is_item), wanted, "{member} of {class}");
        }
    }
}
