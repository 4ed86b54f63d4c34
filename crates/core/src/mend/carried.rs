//! The calls and results that messages carry.

use super::body::{MendBody, MendMessage};
use crate::{
    conversation::Role,
    wire::{HistoryShape, json::JsonKind},
    work,
};

/// Calls and results in a message, also those of the provider's own tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) calls: bool,
    pub(super) results: bool,
}

/// Returns the calls and results in each message of a body.
pub(super) fn carried(body: &MendBody<'_>) -> Vec<Carried> {
    let shape = body.wire.format.history();
    work::count(body.messages.len());
    let of_message = |message: &MendMessage<'_>| match shape {
        HistoryShape::Chat => Carried {
            calls: !message.calls.is_empty()
                || body
                    .json
                    .member(message.span, "function_call")
                    .is_some_and(|call| body.json.kind(call) == JsonKind::Object),
            results: message.author == Role::Tool,
        },
        HistoryShape::Items => Carried {
            calls: message.kind.ends_with(b"_call"),
            results: message.author == Role::Tool,
        },
        HistoryShape::Messages | HistoryShape::Contents => Carried::default(),
    };
    let mut carried: Vec<Carried> = body.messages.iter().map(of_message).collect();
    for list in body.lists.iter().filter(|list| !list.of_result) {
        let Some(carried) = carried.get_mut(list.message) else {
            continue;
        };
        work::count(list.blocks.len());
        for block in &list.blocks {
            let (calls, results) = match shape {
                // `server_tool_use`, `mcp_tool_use`, `web_search_tool_result` and their like too.
                HistoryShape::Messages => (block.kind.ends_with(b"tool_use"), block.kind.ends_with(b"tool_result")),
                HistoryShape::Contents => (
                    matches!(&*block.kind, b"functionCall" | b"function_call"),
                    matches!(&*block.kind, b"functionResponse" | b"function_response"),
                ),
                HistoryShape::Chat | HistoryShape::Items => (false, false),
            };
            carried.calls |= calls;
            carried.results |= results;
        }
    }
    carried
}
