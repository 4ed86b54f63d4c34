//! The form that Copilot CLI demands of the events that it knows. It does not load a file with one of another form.
//!
//! Measured with Copilot CLI 1.0.102 (2026-11) for each member of the events that it writes, by leaving it out and by
//! another value in its place. Events and members that are not listed may be anything.

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The value that a member must have.
#[derive(Clone, Copy)]
enum EventValue {
    Text,
    Flag,
    Number,
    List,
    Object,
    /// A word, or an object in place of it.
    Word,
    /// An object with these members.
    With(&'static [EventMember]),
    /// A list of objects with these members.
    ListOf(&'static [EventMember]),
}

/// A member of an event's data.
struct EventMember {
    name: &'static str,
    /// `true` if it must be there. Others may also be null.
    is_needed: bool,
    form: EventValue,
}

const fn needed(name: &'static str, form: EventValue) -> EventMember {
    EventMember {
        name,
        is_needed: true,
        form,
    }
}

const fn free(name: &'static str, form: EventValue) -> EventMember {
    EventMember {
        name,
        is_needed: false,
        form,
    }
}

const CONTEXT: EventValue = EventValue::With(&[needed("cwd", EventValue::Text)]);

/// The members of the data of each event.
const EVENTS: &[(&str, &[EventMember])] = &[
    (
        "session.start",
        &[
            needed("sessionId", EventValue::Text),
            needed("version", EventValue::Number),
            needed("producer", EventValue::Text),
            needed("copilotVersion", EventValue::Text),
            needed("startTime", EventValue::Text),
            free("selectedModel", EventValue::Text),
            free("contextTier", EventValue::Word),
            free("context", CONTEXT),
            free("alreadyInUse", EventValue::Flag),
            free("remoteSteerable", EventValue::Flag),
        ],
    ),
    (
        "session.resume",
        &[
            needed("resumeTime", EventValue::Text),
            needed("eventCount", EventValue::Number),
            free("eventsFileSizeBytes", EventValue::Number),
            free("selectedModel", EventValue::Text),
            free("contextTier", EventValue::Word),
            free("sessionLimits", EventValue::Object),
            free("context", CONTEXT),
            free("alreadyInUse", EventValue::Flag),
            free("remoteSteerable", EventValue::Flag),
            free("sessionWasActive", EventValue::Flag),
        ],
    ),
    (
        "session.shutdown",
        &[
            needed("shutdownType", EventValue::Word),
            needed("totalApiDurationMs", EventValue::Number),
            needed("sessionStartTime", EventValue::Number),
            needed("codeChanges", EventValue::Object),
            needed("modelMetrics", EventValue::Object),
            free("accountingSnapshot", EventValue::Object),
            free("providerModelMetrics", EventValue::List),
            free("usageAccountingWatermarks", EventValue::Object),
            free("agentMetrics", EventValue::Object),
            free("totalPremiumRequests", EventValue::Number),
            free("totalNanoAiu", EventValue::Number),
            free("eventsFileSizeBytes", EventValue::Number),
            free("currentModel", EventValue::Text),
            free("currentTokens", EventValue::Number),
            free("systemTokens", EventValue::Number),
            free("conversationTokens", EventValue::Number),
            free("toolDefinitionsTokens", EventValue::Number),
        ],
    ),
    ("session.usage_record", &[needed("usage", EventValue::Object)]),
    (
        "system.message",
        &[
            needed("role", EventValue::Word),
            needed("content", EventValue::Text),
            free("metadata", EventValue::Object),
            free("interactionId", EventValue::Text),
        ],
    ),
    (
        "user.message",
        &[
            needed("content", EventValue::Text),
            free("transformedContent", EventValue::Text),
            free("messageId", EventValue::Text),
            free("supportedNativeDocumentMimeTypes", EventValue::List),
            free("delivery", EventValue::Word),
            free("interactionId", EventValue::Text),
            free("turnId", EventValue::Text),
            free("parentAgentTaskId", EventValue::Text),
        ],
    ),
    (
        "assistant.turn_start",
        &[
            needed("turnId", EventValue::Text),
            free("interactionId", EventValue::Text),
        ],
    ),
    ("assistant.turn_end", &[needed("turnId", EventValue::Text)]),
    (
        "assistant.message",
        &[
            needed("messageId", EventValue::Text),
            needed("content", EventValue::Text),
            free("originatingMessageId", EventValue::Text),
            free("model", EventValue::Text),
            // A call without an id is told as a malformed call.
            free(
                "toolRequests",
                EventValue::ListOf(&[
                    needed("name", EventValue::Text),
                    free("type", EventValue::Word),
                    free("intentionSummary", EventValue::Text),
                    free("toolTitle", EventValue::Text),
                ]),
            ),
            free("interactionId", EventValue::Text),
            free("turnId", EventValue::Text),
            free("rte", EventValue::Flag),
            free("apiCallId", EventValue::Text),
        ],
    ),
    (
        "tool.execution_start",
        &[
            needed("toolCallId", EventValue::Text),
            needed("toolName", EventValue::Text),
            free("turnId", EventValue::Text),
            free("model", EventValue::Text),
            free("shellToolInfo", EventValue::Object),
        ],
    ),
    (
        "tool.execution_complete",
        // A result without the id of its call is told as one that names no call.
        &[
            needed("success", EventValue::Flag),
            free("result", EventValue::With(&[needed("content", EventValue::Text)])),
            free("model", EventValue::Text),
            free("interactionId", EventValue::Text),
            free("turnId", EventValue::Text),
            free("rte", EventValue::Flag),
            free(
                "shellExecution",
                EventValue::With(&[needed("exitCode", EventValue::Number)]),
            ),
            free("toolTelemetry", EventValue::Object),
        ],
    ),
];

/// Returns `true` if the client can read an event, or does not know its type.
pub(super) fn has_form(json: Json<'_>, root: Span, kind: &[u8]) -> bool {
    let Some((_, members)) = EVENTS.iter().find(|(known, _)| known.as_bytes() == kind) else {
        return true;
    };
    let names = ["id", "timestamp", "parentId", "agentId", "ephemeral", "data"];
    let [id, time, parent, agent, ephemeral, data] = json.members(root, names);
    let is = |value: Span, form| has_value(json, value, form);
    id.is_some_and(|id| is_uuid(json, id))
        && time.is_some_and(|time| is_time(json, time))
        && parent.is_some_and(|parent| json.kind(parent) == JsonKind::Null || is_uuid(json, parent))
        && agent.is_none_or(|agent| is(agent, EventValue::Text))
        && ephemeral.is_none_or(|value| is(value, EventValue::Flag))
        && data.is_some_and(|data| is(data, EventValue::With(members)))
}

fn has_members(json: Json<'_>, object: Span, members: &[EventMember]) -> bool {
    members.iter().all(|member| {
        let value = json.member(object, member.name);
        let value = value.filter(|value| member.is_needed || json.kind(*value) != JsonKind::Null);
        value.map_or(!member.is_needed, |value| has_value(json, value, member.form))
    })
}

fn has_value(json: Json<'_>, value: Span, form: EventValue) -> bool {
    let kind = json.kind(value);
    match form {
        EventValue::Text => kind == JsonKind::String,
        EventValue::Flag => matches!(json.bytes(value), b"true" | b"false"),
        EventValue::Number => {
            let first = json.bytes(value).first();
            first.is_some_and(|first| first.is_ascii_digit() || *first == b'-')
        }
        EventValue::List => kind == JsonKind::Array,
        EventValue::Object => kind == JsonKind::Object,
        EventValue::Word => matches!(kind, JsonKind::String | JsonKind::Object),
        EventValue::With(members) => kind == JsonKind::Object && has_members(json, value, members),
        EventValue::ListOf(members) => {
            let mut all = kind == JsonKind::Array;
            let walked = json.for_each_element(value, |item| {
                all &= json.kind(item) == JsonKind::Object && has_members(json, item, members);
            });
            all && walked.is_ok()
        }
    }
}

fn is_uuid(json: Json<'_>, value: Span) -> bool {
    let text = json.only_string(value).map(|value| json.decode_string(value));
    let is_letter = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.is_some_and(|text| text.len() == 36 && text.iter().enumerate().all(is_letter))
}

/// Returns `true` for a time with its date, hours, minutes and zone. The numbers are not judged.
fn is_time(json: Json<'_>, value: Span) -> bool {
    let text = json.only_string(value).map(|value| json.decode_string(value));
    text.is_some_and(|text| {
        let (begin, end) = (text.get(..16).unwrap_or_default(), text.get(16..).unwrap_or_default());
        let is_begin = |(mark, byte): (&u8, &u8)| match mark {
            b'0' => byte.is_ascii_digit(),
            mark => mark == byte,
        };
        let has_zone = end.ends_with(b"Z") || end.iter().any(|byte| matches!(byte, b'+' | b'-'));
        begin.len() == 16 && b"0000-00-00T00:00".iter().zip(begin).all(is_begin) && has_zone
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = concat!(
        r#"{"type":"assistant.message","data":{"messageId":"m","content":"","toolRequests":[{"toolCallId":"c","#,
        r#""name":"bash","arguments":7,"type":"function"}],"model":null,"rte":false},"#,
        r#""id":"5e551001-0000-4000-8000-0000000000aa","timestamp":"2026-11-30T19:29:10.742Z","parentId":null}"#,
    );

    #[test]
    fn an_event_has_its_form_or_is_not_read() {
        for (old, new, wanted) in [
            ("", "", true),
            (r#""messageId":"m","#, "", false),
            (r#""messageId":"m""#, r#""messageId":null"#, false),
            (r#""content":"""#, r#""content":7"#, false),
            (r#""model":null,"#, "", true),
            (r#""model":null"#, r#""model":7"#, false),
            (r#""rte":false"#, r#""rte":"false""#, false),
            (r#""name":"bash","#, "", false),
            (r#""arguments":7,"#, "", true),
            (r#""type":"function""#, r#""type":7"#, false),
            ("[{", "[7,{", false),
            (r#""id":"5e551001-"#, r#""id":"5e551001"#, false),
            ("5e551001", "5E551001", true),
            (".742Z", "", false),
            (":10.742Z", "+02:00", true),
            (r#","parentId":null"#, "", false),
            (r#""parentId":null"#, r#""parentId":"x""#, false),
            (r#""parentId":null"#, r#""parentId":null,"agentId":null"#, false),
            (
                r#""parentId":null"#,
                r#""parentId":null,"agentId":"a","ephemeral":true"#,
                true,
            ),
            (r#""parentId":null"#, r#""parentId":null,"later":7"#, true),
            ("assistant.message", "of.a.later.version", true),
        ] {
            let event = ANSWER.replacen(old, new, 1);
            let (json, root) = (Json::new(event.as_bytes()), Span::new(0, event.len()));
            let kind = json.member_text(root, "type");
            assert_eq!(has_form(json, root, &kind), wanted, "{event}");
        }
    }
}
